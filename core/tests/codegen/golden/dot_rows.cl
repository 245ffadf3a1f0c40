#pragma OPENCL FP_CONTRACT OFF
#if __clang_major__ >= 14 && !defined(__SPIR__)
#define LOAD(space, vector, lanes, place) (*(const __##space vector##_at *)(place))
#define STORE(space, vector, lanes, value, place) *(__##space vector##_at *)(place) = (value)
#define STREAM(vector, value, place) __builtin_nontemporal_store(value, (__global vector *)(place))
#define PREFETCH(place) __builtin_prefetch((const void *)(size_t)(place), 0, 2)
#define FABS __builtin_elementwise_abs
#define FLOOR __builtin_elementwise_floor
#define CEIL __builtin_elementwise_ceil
#define TRUNC __builtin_elementwise_trunc
#define RINT __builtin_elementwise_roundeven
#else
#define LOAD(space, vector, lanes, place) vload##lanes(0, place)
#define STORE(space, vector, lanes, value, place) vstore##lanes(value, 0, place)
#define STREAM(vector, value, place) *(__global vector *)(place) = (value)
#define PREFETCH(place)
#define FABS fabs
#define FLOOR floor
#define CEIL ceil
#define TRUNC trunc
#define RINT rint
#endif
#if __clang_major__ >= 14 && defined(__FMA__)
#define DEFINE_FMA(type) \
    static type __attribute__((overloadable, always_inline)) FMA(type x, type y, type z) { \
        _Pragma("OPENCL FP_CONTRACT ON") return x * y + z; }
#else
#define DEFINE_FMA(type)
#define FMA fma
#endif
DEFINE_FMA(float)

typedef float4 float4_at __attribute__((aligned(4), may_alias));
DEFINE_FMA(float4)

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void dot_rows(__global const float *restrict x, __global const float *restrict y, __global float *restrict o, __global uchar *restrict big, const int k) {
    const int v1 = (int)get_group_id(0);
    float4 r2 = (float4)(0.0f);
    for (int i3 = 0; i3 < k; i3 = (uint)k - (uint)i3 > (uint)4 ? i3 + 4 : k) {
        const int v4 = (v1 * k) + i3;
        const float4 v5 = LOAD(global, float4, 4, x + v4);
        const float4 v6 = LOAD(global, float4, 4, y + v4);
        const float4 v7 = v5 * v6;
        const float4 v8 = r2 + v7;
        r2 = v8;
    }
    float m9[4];
    m9[0] = r2.s0;
    m9[1] = r2.s1;
    m9[2] = r2.s2;
    m9[3] = r2.s3;
    float r10 = 0x1.99999ap-4f;
    #pragma unroll 4
    for (int i11 = 0; i11 < 4; ++i11) {
        const float v12 = m9[i11];
        r10 = r10 + v12;
    }
    const bool v13 = INFINITY < r10;
    float r14;
    if (v13) {
        r14 = NAN;
    } else {
        r14 = r10;
    }
    o[v1] = r14;
    big[v1] = (uchar)v13;
}
