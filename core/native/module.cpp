// oarlock._native: the thread pool and the plan executor for Python, and the usual ways through a call.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "oarlock/plan.hpp"
#include "recording.hpp"
#include "running.hpp"

namespace py = pybind11;

namespace {

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

// An address, or that of a HostMemory; sets TypeError for anything else.
std::uintptr_t address_of(PyObject *binding) {
    static PyObject *const name = PyUnicode_InternFromString("address");
    if (PyLong_Check(binding)) return PyLong_AsSize_t(binding);
    const oarlock::calls::Own address(PyObject_GetAttr(binding, name));
    if (address) return PyLong_AsSize_t(address.get());
    PyErr_SetString(PyExc_TypeError, "a binding is an address, or a HostMemory");
    return 0;
}

// replay(plan, bindings, scalars, threads): bindings are addresses or memory, scalars are (step, offset, bytes).
PyObject *replay(PyObject *, PyObject *const *given, Py_ssize_t count) try {
    if (count != 4) throw py::type_error("replay takes a plan, bindings, scalars and a number of threads");
    const auto &plan = py::handle(given[0]).cast<const oarlock::Plan &>();
    const oarlock::calls::Own bindings(PySequence_Fast(given[1], "bindings are a sequence"));
    if (!bindings) return nullptr;
    std::vector<std::uintptr_t> addresses(PySequence_Fast_GET_SIZE(bindings.get()));
    for (std::size_t i = 0; i < addresses.size(); ++i)
        addresses[i] = address_of(PySequence_Fast_GET_ITEM(bindings.get(), i));
    const long threads = PyLong_AsLong(given[3]);
    if (PyErr_Occurred()) return nullptr;
    std::vector<oarlock::Patch> patches;
    if (PyObject_Size(given[2]) != 0) {
        for (const py::handle item : py::handle(given[2])) {
            const auto [step, offset, data] = item.cast<std::tuple<std::size_t, std::size_t, py::bytes>>();
            patches.push_back({step, offset, std::string_view(data)});
        }
    }
    {
        py::gil_scoped_release release;
        plan.replay(addresses, patches, static_cast<unsigned>(threads));
    }
    return oarlock::calls::shared(Py_None);
} catch (py::error_already_set &error) {
    error.restore();
    return nullptr;
} catch (const std::out_of_range &error) {
    return PyErr_Format(PyExc_IndexError, "%s", error.what());
} catch (const std::exception &error) {
    return PyErr_Format(PyExc_TypeError, "%s", error.what());
}

// How often each native call did its work, rather than decline.
py::dict taken() {
    using namespace oarlock::calls;
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
    {"replay", fast(&replay), METH_FASTCALL, nullptr},
    {"know_recording", &oarlock::calls::know_recording, METH_O, nullptr},
    {"record", fast(&oarlock::calls::record), METH_FASTCALL, nullptr},
    {"flush", &oarlock::calls::flush, METH_O, nullptr},
    {"signature", fast(&oarlock::calls::signature), METH_FASTCALL, nullptr},
    {"know_running", &oarlock::calls::know_running, METH_O, nullptr},
    {"run_plan", fast(&oarlock::calls::run_plan), METH_FASTCALL, nullptr},
    {"settle", fast(&oarlock::calls::settle), METH_FASTCALL, nullptr},
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
               const oarlock::Plan::Slots &buffers,
               const py::bytes &scalars) { plan.add_launch(kernel_at(address), grid, buffers, scalars); },
            py::arg("address"), py::arg("grid"), py::arg("buffers"), py::arg("scalars"))
        .def("add_copy", &oarlock::Plan::add_copy, py::arg("dst"), py::arg("dst_offset"), py::arg("src"),
             py::arg("src_offset"), py::arg("nbytes"));
    module.def("taken", &taken);
    if (PyModule_AddFunctions(module.ptr(), calls) < 0) throw py::error_already_set();
}
