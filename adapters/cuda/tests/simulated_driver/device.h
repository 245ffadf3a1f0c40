// What generated CUDA C++ needs to be a host function: the words of the language, positions, barriers, shared memory.
// One host thread runs one block at a time; the threads of a block are fibres that switch at barriers alone.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <utility>

struct SimIndex { unsigned x, y, z; };
struct SimState {
    SimIndex thread, block, block_dim, grid_dim;
    void (*barrier)();
};
static thread_local SimState sim_state;
extern "C" SimState *oarlock_sim_state() { return &sim_state; }

#define threadIdx (sim_state.thread)
#define blockIdx (sim_state.block)
#define blockDim (sim_state.block_dim)
#define gridDim (sim_state.grid_dim)
#define warpSize 32
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __syncthreads() sim_state.barrier()
using std::memcpy;

// Calls a kernel with arguments that lie in a parameter buffer, each at a multiple of its own alignment.
template <typename... A, std::size_t... I>
static void sim_apply(void (*kernel)(A...), const char *buffer, std::index_sequence<I...>) {
    std::tuple<std::remove_const_t<A>...> values;
    std::size_t at = 0;
    auto take = [&](auto &value) {
        at += (alignof(decltype(value)) - at % alignof(decltype(value))) % alignof(decltype(value));
        memcpy(&value, buffer + at, sizeof value);
        at += sizeof value;
    };
    (take(std::get<I>(values)), ...);
    kernel(std::get<I>(values)...);
}
template <typename... A> static void sim_call(void (*kernel)(A...), const char *buffer) {
    sim_apply(kernel, buffer, std::index_sequence_for<A...>{});
}
template <typename... A> static std::size_t sim_parameter_bytes(void (*)(A...)) {
    std::size_t at = 0;
    ((at = (at + alignof(A) - 1) / alignof(A) * alignof(A) + sizeof(A)), ...);
    return at;
}
// What the simulated driver finds in a module for each kernel.
#define SIM_ENTRY(kernel, threads)                                                              \
    extern "C" void kernel##__sim_call(const char *buffer) { sim_call(&kernel, buffer); }        \
    extern "C" std::size_t kernel##__sim_bytes() { return sim_parameter_bytes(&kernel); }        \
    extern "C" unsigned kernel##__sim_threads() { return threads; }
