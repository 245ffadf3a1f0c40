// oarlock._native: the thread pool and the plan executor for Python, and the usual ways through a call.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "oarlock/plan.hpp"
#include "recording.hpp"
#include "running.hpp"

namespace py = pybind11;

namespace {

using namespace oarlock::calls;

oarlock::Kernel kernel_at(std::uintptr_t address) { return reinterpret_cast<oarlock::Kernel>(address); }

void run(std::uintptr_t address, const oarlock::Grid &grid, const std::vector<std::uintptr_t> &buffers,
         const py::bytes &scalars, unsigned threads) {
    std::vector<void *> addresses;
    addresses.reserve(buffers.size());
    for (const std::uintptr_t buffer : buffers) addresses.push_back(reinterpret_cast<void *>(buffer));
    const std::string_view block = scalars;
    py::gil_scoped_release release;
    oarlock::ThreadPool::shared().launch(kernel_at(address), addresses.data(), block.data(), grid, threads);
}

// What oarlock.hal.host has told of itself.
struct Host {
    Class config, memory, plan;
    Slot address, compiled, threads;
    PyObject *settings, *cores;
} H;

PyObject *know_host(PyObject *, PyObject *given) {
    if (!H.config.learn(given, "Config", {{&H.threads, "threads"}}) ||
        !H.memory.learn(given, "HostMemory", {{&H.address, "address"}}) ||
        !H.plan.learn(given, "HostPlan", {{&H.compiled, "_compiled"}}) ||
        !learn(given, {{&H.settings, "config"}, {&H.cores, "cores"}}))
        return nullptr;
    Py_RETURN_NONE;
}

// Runs a HostPlan; declines where something does not fit.
PyObject *replayed(PyObject *plan_, PyObject *bindings_, PyObject *scalars) try {
    if (!H.plan.has(plan_) || H.compiled.of(plan_) == Py_None) return declined();
    const auto &plan = py::handle(H.compiled.of(plan_)).cast<const oarlock::Plan &>();
    const Own bindings(PySequence_Fast(bindings_, "bindings are a sequence"));
    if (!bindings) return declined();
    std::vector<std::uintptr_t> addresses(PySequence_Fast_GET_SIZE(bindings.get()));
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        PyObject *binding = PySequence_Fast_GET_ITEM(bindings.get(), i);
        addresses[i] = PyLong_AsSize_t(H.memory.has(binding) ? H.address.of(binding) : binding);
    }
    long long threads = H.threads.number(H.settings);
    if (threads <= 0) threads = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(H.cores)).cast<long long>();
    std::vector<oarlock::Patch> patches;
    if (PyObject_Size(scalars) != 0) {
        for (const py::handle item : py::handle(scalars)) {
            const auto [step, offset, data] = item.cast<std::tuple<std::size_t, std::size_t, py::bytes>>();
            patches.push_back({step, offset, std::string_view(data)});
        }
    }
    if (PyErr_Occurred()) return declined();
    {
        py::gil_scoped_release release;
        plan.replay(addresses, patches, static_cast<unsigned>(threads));
    }
    return shared(Py_None);
} catch (const std::bad_alloc &) {
    return PyErr_NoMemory();
} catch (const std::exception &) {  // of a cast, or out of range: nothing has run
    return declined();
}

// host.replay_plan(stream, plan, bindings, scalars)
PyObject *replay_plan(PyObject *, PyObject *const *given, Py_ssize_t count) {
    static PyObject *const run_steps = word("run_steps");
    if (count != 4) return PyErr_Format(PyExc_TypeError, "replay_plan takes 4 arguments, got %zd", count);
    Own done(replayed(given[1], given[2], given[3]));
    if (done.get() != Py_NotImplemented) return done.release();
    PyErr_Clear();
    return call(given[1], run_steps, given[2], given[3]);
}

// host.already_done(stream, timeout_s)
PyObject *already_done(PyObject *, PyObject *const *, Py_ssize_t count) {
    if (count != 2) return PyErr_Format(PyExc_TypeError, "already_done takes 2 arguments, got %zd", count);
    Py_RETURN_NONE;
}

// How often each native call did its work, rather than decline.
py::dict taken() {
    py::dict counts;
    counts["record"] = P.records;
    counts["flush"] = P.flushes;
    counts["signature"] = P.signatures;
    counts["run"] = R.runs;
    counts["settle"] = R.waits;
    return counts;
}

PyCFunction fast(PyObject *(*function)(PyObject *, PyObject *const *, Py_ssize_t)) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// Plain methods: what pybind11 does around a call takes as long as these calls themselves.
PyMethodDef calls[] = {
    {"already_done", fast(&already_done), METH_FASTCALL, "already_done($module, stream, timeout_s, /)\n--\n\n"},
    {"know_host", &know_host, METH_O, nullptr},
    {"replay_plan", fast(&replay_plan), METH_FASTCALL,
     "replay_plan($module, stream, plan, bindings, scalars, /)\n--\n\n"},
    {"know_recording", &know_recording, METH_O, nullptr},
    {"record", fast(&record), METH_FASTCALL, nullptr},
    {"flush", &flush, METH_O, nullptr},
    {"signature", fast(&signature), METH_FASTCALL, nullptr},
    {"know_running", &know_running, METH_O, nullptr},
    {"run_plan", fast(&run_plan), METH_FASTCALL, nullptr},
    {"settle", &settle, METH_O, nullptr},
    {"synchronize", &synchronize, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PYBIND11_MODULE(_native, module) {
    module.doc() = "Walks kernel grids with all host threads, and replays plans, without the interpreter lock.";
    module.def("run", &run, py::arg("address"), py::arg("grid"), py::arg("buffers"), py::arg("scalars"),
               py::arg("threads"), "Run the kernel at an address on a grid; returns when all blocks are done.");
    py::class_<oarlock::Plan>(module, "Plan", "Launches and copies between slots.")
        .def(py::init<>())
        .def(
            "add_launch",
            [](oarlock::Plan &plan, std::uintptr_t address, const oarlock::Grid &grid,
               const oarlock::Plan::Slots &buffers, const py::bytes &scalars,
               std::size_t strand) { plan.add_launch(kernel_at(address), grid, buffers, scalars, strand); },
            py::arg("address"), py::arg("grid"), py::arg("buffers"), py::arg("scalars"), py::arg("strand") = 0)
        .def("add_copy", &oarlock::Plan::add_copy, py::arg("dst"), py::arg("dst_offset"), py::arg("src"),
             py::arg("src_offset"), py::arg("nbytes"));
    module.def("taken", &taken);
    if (PyModule_AddFunctions(module.ptr(), calls) < 0) throw py::error_already_set();
}
