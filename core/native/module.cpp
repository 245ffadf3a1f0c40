// oarlock._native: the thread pool and the plan executor for Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "oarlock/plan.hpp"

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

void replay(const oarlock::Plan &plan, const std::vector<std::uintptr_t> &bindings,
            const std::vector<std::tuple<std::size_t, std::size_t, py::bytes>> &scalars, unsigned threads) {
    std::vector<oarlock::Patch> patches;
    for (const auto &[step, offset, data] : scalars) patches.push_back({step, offset, std::string_view(data)});
    py::gil_scoped_release release;
    plan.replay(bindings, patches, threads);
}

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
             py::arg("src_offset"), py::arg("nbytes"))
        .def("replay", &replay, py::arg("bindings"), py::arg("scalars"), py::arg("threads"));
}
