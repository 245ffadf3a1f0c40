// The instructions mma.sync.m16n8k* on the CPU, by the fragment layouts that the PTX ISA documents. A warp is run twice:
// at first each lane's registers are noted, then each lane gets its part of every product from all lanes' registers.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#define __device__
#define __forceinline__ inline
static struct { int x; } threadIdx;
struct float32x8 { float s[8]; };

static float short_of(uint16_t bits) {
#ifdef BFLOAT16
    const uint32_t wide = uint32_t(bits) << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
#else
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float x = exponent ? std::ldexp(1024.0f + mantissa, exponent - 25) : std::ldexp(float(mantissa), -24);
    return bits >> 15 ? -x : x;
#endif
}
static float half_of(uint32_t word, int which) { return short_of(which ? word >> 16 : word & 0xffff); }
static float float_of(uint32_t word) { float x; memcpy(&x, &word, 4); return x; }
static uint32_t tf32_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (bits + 0x1000) & 0xffffe000;
}

struct Registers { uint32_t a[4], b[2]; };
static std::vector<Registers> noted[32];
static bool noting;
static size_t call;

// A is 16 x depth, B is depth x 8; `pairs`: two 16-bit numbers a register, else one of 32 bits.
static float a_at(const std::vector<Registers> *lanes, size_t n, int row, int k, bool pairs) {
    const int low = row >= 8, in_group = pairs ? k % 8 / 2 : k % 4, high = pairs ? k / 8 : k / 4;
    const uint32_t word = lanes[row % 8 * 4 + in_group][n].a[high * 2 + low];
    return pairs ? half_of(word, k % 2) : float_of(word);
}
static float b_at(const std::vector<Registers> *lanes, size_t n, int k, int column, bool pairs) {
    const int in_group = pairs ? k % 8 / 2 : k % 4, high = pairs ? k / 8 : k / 4;
    const uint32_t word = lanes[column * 4 + in_group][n].b[high];
    return pairs ? half_of(word, k % 2) : float_of(word);
}
static void mma(float *t, Registers own, int depth, bool pairs) {
    if (noting) { noted[threadIdx.x].push_back(own); return; }
    for (int i = 0; i < 4; ++i)
        for (int k = 0; k < depth; ++k)
            t[i] += a_at(noted, call, threadIdx.x / 4 + i / 2 * 8, k, pairs) *
                    b_at(noted, call, k, threadIdx.x % 4 * 2 + i % 2, pairs);
    ++call;
}
