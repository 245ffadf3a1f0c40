// Handles: the numbers that stand for a driver's objects in Python, checked each time that they come back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "oarlock/errors.hpp"

namespace oarlock {

// Opaque to the core. 0 is never given out: it stands for "none", such as the default stream.
using Handle = std::uint64_t;

namespace detail {
inline std::atomic<Handle> next_handle{1};  // of all kinds: `free` tells memory from programs by the number
}

// Objects of one kind by handle. No handle is given out twice in a process, so one that was freed, or is another
// device's, is told apart. Not locked: the core calls a driver from one thread at a time.
template <class T>
class HandleTable {
  public:
    // `kind` names the objects in errors: "memory", "program".
    explicit HandleTable(std::string kind) : kind_(std::move(kind)) {}

    Handle add(T object) {
        const Handle handle = detail::next_handle.fetch_add(1);
        objects_.emplace(handle, std::move(object));
        return handle;
    }

    // The object behind `handle`; throws DeviceError saying what was done with a handle that is not alive here.
    T &at(Handle handle, const char *what) {
        const auto found = objects_.find(handle);
        if (found == objects_.end())
            throw DeviceError(std::string(what) + ": handle " + std::to_string(handle) + " is no live " + kind_ +
                              " of this device: it was freed, or belongs to another");
        return found->second;
    }

    bool has(Handle handle) const { return objects_.count(handle) != 0; }

    // Drops the object, whose destructor gives it back to the driver.
    void drop(Handle handle, const char *what) {
        at(handle, what);
        objects_.erase(handle);
    }

    void clear() { objects_.clear(); }
    std::size_t size() const { return objects_.size(); }
    auto begin() { return objects_.begin(); }
    auto end() { return objects_.end(); }

  private:
    std::string kind_;
    std::unordered_map<Handle, T> objects_;
};

}  // namespace oarlock
