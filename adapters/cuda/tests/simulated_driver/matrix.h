// Tensor-core products on the CPU: what generated text calls where no NVIDIA compiler is at work (render/cuda_matrix.py).
// Lane n of a warp holds 8 neighbouring numbers of row n / 2 here; a GPU lays them out otherwise, which nobody can see.
#pragma once

struct sim_short_float {
    static float of(unsigned mantissa, int exponent) {
        float x = float(mantissa);
        for (; exponent > 0; --exponent) x *= 2;
        for (; exponent < 0; ++exponent) x *= 0.5f;
        return x;
    }
};
struct sim_float16 : sim_short_float {
    static float number(unsigned short bits) {
        const unsigned exponent = bits >> 10 & 31, mantissa = bits & 1023;
        if (exponent == 31) return mantissa ? __builtin_nanf("") : (bits >> 15 ? -__builtin_inff() : __builtin_inff());
        const float x = exponent ? of(1024 + mantissa, int(exponent) - 25) : of(mantissa, -24);
        return bits >> 15 ? -x : x;
    }
};
struct sim_bfloat16 {
    static float number(unsigned short bits) {
        const unsigned wide = unsigned(bits) << 16;
        float x;
        memcpy(&x, &wide, sizeof x);
        return x;
    }
};

template <typename Format, int stride, typename V>
static V sim_matrix(const unsigned short *a, const unsigned short *b, V total) {
    const unsigned row = sim_lane() / 2, first = sim_lane() % 2 * 8;
    for (unsigned j = 0; j < 8; ++j)
        for (unsigned k = 0; k < 16; ++k)
            total.s[j] += Format::number(a[row * stride + k]) * Format::number(b[(first + j) * stride + k]);
    return total;
}
template <int stride, typename V> static V matrix_float16(const unsigned short *a, const unsigned short *b, V total) {
    return sim_matrix<sim_float16, stride>(a, b, total);
}
template <int stride, typename V> static V matrix_bfloat16(const unsigned short *a, const unsigned short *b, V total) {
    return sim_matrix<sim_bfloat16, stride>(a, b, total);
}
template <int stride, typename V> static void matrix_store(float *at, V total) {
    for (unsigned j = 0; j < 8; ++j) at[sim_lane() / 2 * stride + sim_lane() % 2 * 8 + j] = total.s[j];
}
