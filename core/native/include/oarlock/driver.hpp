// The contract in C++: what a driver implements. oarlock/hal/*.py says of each method who owns what and what may fail.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oarlock/handles.hpp"

namespace oarlock {

// Bytes of the host, contiguous. What copy_out is given lives until the stream is synchronised.
struct ConstBytes {
    const std::byte *data;
    std::size_t size;
};
struct Bytes {
    std::byte *data;
    std::size_t size;
};

// One buffer of a launch: an allocation, and the bytes of it that the kernel may touch.
struct Binding {
    Handle memory;
    std::size_t base;
    std::size_t extent;
};

using Extent = std::array<std::uint32_t, 3>;

// What a kernel is called with, see oarlock/abi.py. dtypes by name: "float32".
struct BufferArgument {
    std::string name, dtype, storage, access;  // access: "read", "write" or "both"
};
struct ScalarField {
    std::string name, dtype;
    std::size_t offset;  // in the scalar block, in bytes
};
struct KernelSignature {
    std::string name;
    std::vector<BufferArgument> buffers;
    std::vector<ScalarField> scalars;
    std::size_t scalar_bytes;
    Extent block;
};

// One open device. `stream` is 0 for the default one. Called from one thread at a time, without the interpreter lock,
// and never after `close`. The core has checked ranges, and never passes 0 bytes or an empty grid.
class Driver {
  public:
    virtual ~Driver() = default;

    virtual void close() = 0;

    virtual Handle allocate(std::size_t nbytes) = 0;
    virtual void free(Handle handle) = 0;  // what allocate or load gave
    virtual void copy_in(Handle stream, Handle dst, std::size_t dst_offset, ConstBytes src) = 0;
    virtual void copy_out(Handle stream, Bytes dst, Handle src, std::size_t src_offset) = 0;
    virtual void copy(Handle stream, Handle dst, std::size_t dst_offset, Handle src, std::size_t src_offset,
                      std::size_t nbytes) = 0;

    virtual void synchronize(Handle stream, double timeout_s) = 0;

    virtual Handle load(std::string_view executable, const std::vector<KernelSignature> &signatures) = 0;
    virtual void launch(Handle stream, Handle program, const std::string &entry, const Extent &grid,
                        const Extent &block, const std::vector<Binding> &buffers, std::string_view scalars) = 0;
};

// Optional abilities. A driver that derives from one has its methods in Python; DeviceInfo.capabilities declares it.
class Streams {  // "streams"
  public:
    virtual ~Streams() = default;
    virtual Handle create_stream() = 0;
    virtual void destroy_stream(Handle stream) = 0;
    virtual Handle record(Handle stream) = 0;
    virtual void wait(Handle stream, Handle event) = 0;
    virtual bool query(Handle event) = 0;
    virtual void destroy_event(Handle event) = 0;
};
class ElapsedTime {  // "elapsed_time", in seconds
  public:
    virtual ~ElapsedTime() = default;
    virtual double elapsed(Handle start, Handle end) = 0;
};
class Fill {  // "fill"
  public:
    virtual ~Fill() = default;
    virtual void fill(Handle stream, Handle dst, std::size_t dst_offset, std::size_t nbytes, std::uint8_t byte) = 0;
};
class MemoryInfo {  // "memory_info": free and total bytes
  public:
    virtual ~MemoryInfo() = default;
    virtual std::pair<std::size_t, std::size_t> memory_info() = 0;
};
class Reset {  // "reset"
  public:
    virtual ~Reset() = default;
    virtual void reset() = 0;
};

}  // namespace oarlock
