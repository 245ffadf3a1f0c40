// The errors that an adapter raises, and their way into Python: each becomes the class of that name in oarlock.errors.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <pybind11/pybind11.h>

namespace oarlock {

struct DeviceError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
// An allocation was refused; the device stays usable.
struct OutOfMemoryError : DeviceError {
    using DeviceError::DeviceError;
};
// A command failed; the text names the kernel.
struct LaunchError : DeviceError {
    using DeviceError::DeviceError;
};
struct DeviceNotFoundError : DeviceError {
    using DeviceError::DeviceError;
};
// The device is gone until it is opened again.
struct DeviceLostError : DeviceError {
    using DeviceError::DeviceError;
};
// The time that `synchronize` was given is over; that alone spoils nothing.
struct DeviceTimeoutError : DeviceLostError {
    using DeviceLostError::DeviceLostError;
};
// A compiler or loader refused a program. Python's error shows the log, and the source lines that it names.
struct CompileError : std::runtime_error {
    explicit CompileError(std::string log_, std::string source_ = "")
        : std::runtime_error(log_), log(std::move(log_)), source(std::move(source_)) {}
    std::string log, source;
};

namespace detail {

inline void raise(const char *name, const char *text) {
    const pybind11::object kind = pybind11::module_::import("oarlock.errors").attr(name);
    PyErr_SetString(kind.ptr(), text);
}

inline void raise(const CompileError &error) {
    const pybind11::object kind = pybind11::module_::import("oarlock.errors").attr("CompileError");
    PyErr_SetObject(kind.ptr(), kind.attr("from_log")(error.log, error.source).ptr());
}

}  // namespace detail

// Call once in PYBIND11_MODULE; bind_driver does.
inline void register_errors() {
    pybind11::register_local_exception_translator([](std::exception_ptr caught) {
        try {
            if (caught) std::rethrow_exception(caught);
        } catch (const CompileError &error) {
            detail::raise(error);
        } catch (const OutOfMemoryError &error) {
            detail::raise("OutOfMemoryError", error.what());
        } catch (const LaunchError &error) {
            detail::raise("LaunchError", error.what());
        } catch (const DeviceNotFoundError &error) {
            detail::raise("DeviceNotFoundError", error.what());
        } catch (const DeviceTimeoutError &error) {
            detail::raise("DeviceTimeoutError", error.what());
        } catch (const DeviceLostError &error) {
            detail::raise("DeviceLostError", error.what());
        } catch (const DeviceError &error) {
            detail::raise("DeviceError", error.what());
        } catch (const std::bad_alloc &) {
            detail::raise("OutOfMemoryError", "the host refused an allocation");
        }
    });
}

}  // namespace oarlock
