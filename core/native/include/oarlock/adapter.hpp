// Everything for an adapter written in C++: derive a class from oarlock::Driver, and hand it to Python.
//
//     #include "oarlock/adapter.hpp"
//
//     class AcmeDriver : public oarlock::Driver { ... };       // a method that is missing does not compile
//
//     PYBIND11_MODULE(_native, module) {
//         oarlock::bind_driver<AcmeDriver>(module, "AcmeDriver");
//         module.def("open_device", [](int index) { return std::make_unique<AcmeDriver>(index); });
//     }
//
// Arguments are checked and converted here; errors thrown become those of oarlock.errors.
#pragma once

#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "oarlock/driver.hpp"

namespace oarlock {

namespace detail {

namespace py = pybind11;

using Stream = std::optional<Handle>;
using ReleaseLock = py::gil_scoped_release;

inline Handle lane(const Stream &stream) { return stream.value_or(0); }

// A contiguous buffer of the host, held while it is in scope.
class HostView {
  public:
    HostView(const py::buffer &object, bool writable, const char *what) {
        const int flags = PyBUF_SIMPLE | (writable ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
            PyErr_Clear();
            throw py::type_error(std::string(what) + " takes contiguous" + (writable ? ", writable" : "") +
                                 " bytes of the host, such as a memoryview");
        }
    }
    HostView(const HostView &) = delete;
    HostView &operator=(const HostView &) = delete;
    ~HostView() { PyBuffer_Release(&view_); }

    Bytes bytes() const { return {static_cast<std::byte *>(view_.buf), static_cast<std::size_t>(view_.len)}; }
    ConstBytes const_bytes() const { return {bytes().data, bytes().size}; }

  private:
    Py_buffer view_{};
};

inline std::string name_of(const py::handle &dtype) { return py::str(dtype.attr("name")); }

inline KernelSignature signature(const py::handle &given) {
    KernelSignature made;
    made.name = py::cast<std::string>(given.attr("name"));
    for (const py::handle buffer : given.attr("buffers"))
        made.buffers.push_back({py::cast<std::string>(buffer.attr("name")), name_of(buffer.attr("dtype")),
                                name_of(buffer.attr("storage")), py::cast<std::string>(buffer.attr("access"))});
    for (const py::handle field : given.attr("scalars"))
        made.scalars.push_back({py::cast<std::string>(field.attr("name")), name_of(field.attr("dtype")),
                                py::cast<std::size_t>(field.attr("offset"))});
    made.scalar_bytes = py::cast<std::size_t>(given.attr("scalar_bytes"));
    made.block = py::cast<Extent>(given.attr("block"));
    return made;
}

inline std::vector<Binding> bindings(const py::sequence &given) {
    std::vector<Binding> made;
    made.reserve(given.size());
    for (const py::handle item : given) {
        const auto [memory, base, extent] = py::cast<std::tuple<Handle, std::size_t, std::size_t>>(item);
        made.push_back({memory, base, extent});
    }
    return made;
}

template <class D, class C>
void bind_optional(C &driver) {
    namespace py = pybind11;
    if constexpr (std::is_base_of_v<Streams, D>) {
        driver.def("create_stream", &D::create_stream, py::call_guard<ReleaseLock>());
        driver.def("destroy_stream", &D::destroy_stream, py::arg("stream"), py::call_guard<ReleaseLock>());
        driver.def(
            "record", [](D &self, Stream stream) { return self.record(lane(stream)); }, py::arg("stream").none(true),
            py::call_guard<ReleaseLock>());
        driver.def(
            "wait", [](D &self, Stream stream, Handle event) { self.wait(lane(stream), event); },
            py::arg("stream").none(true), py::arg("event"), py::call_guard<ReleaseLock>());
        driver.def("query", &D::query, py::arg("event"), py::call_guard<ReleaseLock>());
        driver.def("destroy_event", &D::destroy_event, py::arg("event"), py::call_guard<ReleaseLock>());
    }
    if constexpr (std::is_base_of_v<ElapsedTime, D>)
        driver.def("elapsed", &D::elapsed, py::arg("start"), py::arg("end"), py::call_guard<ReleaseLock>());
    if constexpr (std::is_base_of_v<Fill, D>)
        driver.def(
            "fill",
            [](D &self, Stream stream, Handle dst, std::size_t dst_offset, std::size_t nbytes, std::uint8_t byte) {
                self.fill(lane(stream), dst, dst_offset, nbytes, byte);
            },
            py::arg("stream").none(true), py::arg("dst"), py::arg("dst_offset"), py::arg("nbytes"), py::arg("byte"),
            py::call_guard<ReleaseLock>());
    if constexpr (std::is_base_of_v<MemoryInfo, D>)
        driver.def("memory_info", &D::memory_info, py::call_guard<ReleaseLock>());
    if constexpr (std::is_base_of_v<Reset, D>) driver.def("reset", &D::reset, py::call_guard<ReleaseLock>());
}

}  // namespace detail

// Makes the Python class `name` of the driver D, and an oarlock.hal.Driver of it.
template <class D>
pybind11::class_<D> bind_driver(pybind11::module_ &module, const char *name) {
    static_assert(std::is_base_of_v<Driver, D>, "derive your driver from oarlock::Driver");
    namespace py = pybind11;
    using namespace detail;
    register_errors();
    py::class_<D> driver(module, name);
    driver.def("close", &D::close, py::call_guard<ReleaseLock>());
    driver.def("allocate", &D::allocate, py::arg("nbytes"), py::call_guard<ReleaseLock>());
    driver.def("free", &D::free, py::arg("handle"), py::call_guard<ReleaseLock>());
    driver.def(
        "copy_in",
        [](D &self, Stream stream, Handle dst, std::size_t dst_offset, const py::buffer &src) {
            const HostView host(src, false, "copy_in");
            const ReleaseLock unlocked;
            self.copy_in(lane(stream), dst, dst_offset, host.const_bytes());
        },
        py::arg("stream").none(true), py::arg("dst"), py::arg("dst_offset"), py::arg("src"));
    driver.def(
        "copy_out",
        [](D &self, Stream stream, const py::buffer &dst, Handle src, std::size_t src_offset) {
            const HostView host(dst, true, "copy_out");
            const ReleaseLock unlocked;
            self.copy_out(lane(stream), host.bytes(), src, src_offset);
        },
        py::arg("stream").none(true), py::arg("dst"), py::arg("src"), py::arg("src_offset"));
    driver.def(
        "copy",
        [](D &self, Stream stream, Handle dst, std::size_t dst_offset, Handle src, std::size_t src_offset,
           std::size_t nbytes) { self.copy(lane(stream), dst, dst_offset, src, src_offset, nbytes); },
        py::arg("stream").none(true), py::arg("dst"), py::arg("dst_offset"), py::arg("src"), py::arg("src_offset"),
        py::arg("nbytes"), py::call_guard<ReleaseLock>());
    driver.def(
        "synchronize", [](D &self, Stream stream, double timeout_s) { self.synchronize(lane(stream), timeout_s); },
        py::arg("stream").none(true), py::arg("timeout_s"), py::call_guard<ReleaseLock>());
    driver.def(
        "load",
        [](D &self, const py::bytes &executable, const py::sequence &signatures) {
            std::vector<KernelSignature> given;
            for (const py::handle item : signatures) given.push_back(signature(item));
            const std::string_view data = executable;
            const ReleaseLock unlocked;
            return self.load(data, given);
        },
        py::arg("executable"), py::arg("signatures"));
    driver.def(
        "launch",
        [](D &self, Stream stream, Handle program, const std::string &entry, const Extent &grid, const Extent &block,
           const py::sequence &buffers, const py::bytes &scalars) {
            const std::vector<Binding> bound = bindings(buffers);
            const std::string_view data = scalars;
            const ReleaseLock unlocked;
            self.launch(lane(stream), program, entry, grid, block, bound, data);
        },
        py::arg("stream").none(true), py::arg("program"), py::arg("entry"), py::arg("grid"), py::arg("block"),
        py::arg("buffers"), py::arg("scalars"));
    bind_optional<D>(driver);
    py::module_::import("oarlock.hal").attr("Driver").attr("register")(driver);
    return driver;
}

}  // namespace oarlock
