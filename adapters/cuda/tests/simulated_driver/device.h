// What generated CUDA C++ needs to be a host function: the words of the language, positions, barriers, shared memory,
// warp operations. It includes no header of the host's, for these would take most of the time of a compilation.
#pragma once
#include "positions.h"

using size_t = decltype(sizeof 0);
static thread_local SimState sim_state;
extern "C" __attribute__((visibility("default"))) SimState *oarlock_sim_state() { return &sim_state; }

#define threadIdx (sim_state.thread)
#define blockIdx (sim_state.block)
#define blockDim (sim_state.block_dim)
#define gridDim (sim_state.grid_dim)
#define warpSize ((int)sim_state.warp_size)
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __syncthreads() sim_state.barrier()

extern "C" {
void *memcpy(void *, const void *, size_t) noexcept;
float fmaf(float, float, float) noexcept;
float fabsf(float) noexcept;
float sqrtf(float) noexcept;
float floorf(float) noexcept;
float ceilf(float) noexcept;
float truncf(float) noexcept;
float rintf(float) noexcept;
double fma(double, double, double) noexcept;
double fabs(double) noexcept;
double sqrt(double) noexcept;
double floor(double) noexcept;
double ceil(double) noexcept;
double trunc(double) noexcept;
double rint(double) noexcept;
}

template <typename T> static T atomicAdd(T *at, T value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }

static inline unsigned sim_thread() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) { sim_state.meet(mask); }
// What lane ``from`` of the own warp has for ``value``; lanes beyond the block keep their own.
template <typename T> static T sim_exchange(unsigned mask, T value, unsigned from) {
#ifdef SIM_SHUFFLES_NOTHING
    return value;
#endif
    static_assert(sizeof(T) <= 16, "a lane exchanges 16 bytes at most");
    const unsigned own = sim_thread(), first = own - own % sim_state.warp_size;
    memcpy(sim_state.slot(own), &value, sizeof value);
    sim_state.meet(mask);
    if (first + from < blockDim.x * blockDim.y * blockDim.z) memcpy(&value, sim_state.slot(first + from), sizeof value);
    sim_state.meet(mask);
    return value;
}
static inline unsigned sim_lane() { return sim_thread() % sim_state.warp_size; }
template <typename T> static T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize) {
    return sim_exchange(mask, value, sim_lane() / width * width + unsigned(lane) % width);
}
template <typename T> static T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize) {
    const unsigned own = sim_lane(), from = own ^ unsigned(bits);
    return sim_exchange(mask, value, from / width > own / width ? own : from);
}
template <typename T> static T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = warpSize) {
    const unsigned own = sim_lane();
    return sim_exchange(mask, value, own % width + by < unsigned(width) ? own + by : own);
}
template <typename T> static T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = warpSize) {
    const unsigned own = sim_lane();
    return sim_exchange(mask, value, own % width >= by ? own - by : own);
}
static inline unsigned __ballot_sync(unsigned mask, int vote) {
    unsigned bits = 0;
    for (unsigned lane = 0; lane < sim_state.warp_size; ++lane)
        if (mask >> lane & 1) bits |= unsigned(__shfl_sync(mask, vote, lane) != 0) << lane;
    return bits;
}

// Products of a 16 x 16 tile on tensor cores: each lane computes its eight elements from shared memory, as many and in
// the places that mma.sync gives it. CUDA's own functions of these names stand behind __CUDACC__.
static inline float sim_word(unsigned bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline float sim_half(unsigned short bits) {
    const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
    if (exponent == 0) return sim_word(sign | 0x3f800000) * float(mantissa) * 5.9604644775390625e-8f;
    return sim_word(sign | (exponent == 31 ? 255u : exponent + 112) << 23 | mantissa << 13);
}
static inline float sim_bfloat(unsigned short bits) { return sim_word(unsigned(bits) << 16); }
static inline float sim_tf32(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return sim_word((bits + 0x1000u) & 0xffffe000u);
}
template <int stride, typename T, typename V, typename F> static V sim_matrix(const T *a, const T *b, V total, F value) {
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int k = 0; k < 8; ++k) {
        const T *left = a + (row + k % 4 / 2 * 8) * stride, *right = b + (column + k % 2 + k / 4 * 8) * stride;
        for (int term = 0; term < 16; ++term) total.s[k] += value(left[term]) * value(right[term]);
    }
    return total;
}
template <int stride, typename V> static V matrix_float16(const unsigned short *a, const unsigned short *b, V total) {
    return sim_matrix<stride>(a, b, total, sim_half);
}
template <int stride, typename V> static V matrix_bfloat16(const unsigned short *a, const unsigned short *b, V total) {
    return sim_matrix<stride>(a, b, total, sim_bfloat);
}
template <int stride, typename V> static V matrix_tf32(const float *a, const float *b, V total) {
    return sim_matrix<stride>(a, b, total, sim_tf32);
}
template <int stride, typename V> static void matrix_store(float *at, V total) {
    float *own = at + threadIdx.x % 32 / 4 * stride + threadIdx.x % 4 * 2;
    for (int k = 0; k < 8; ++k) own[k % 4 / 2 * 8 * stride + k / 4 * 8 + k % 2] = total.s[k];
}
