// The C ABI of a kernel that runs on the host; see oarlock/abi.py.
#pragma once

#include <cstdint>

namespace oarlock {

// Runs the blocks of the half-open box begin..end. `buffers` are addresses in the order of the signature,
// `scalars` the scalar block. Called from several threads at once, on disjoint boxes.
using Kernel = void (*)(void *const *buffers, const void *scalars, const std::uint32_t begin[3],
                        const std::uint32_t end[3]);

}  // namespace oarlock
