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

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void axpy(__global const float *restrict x, __global float *restrict y, const int offset_x, const int n, const float a) {
    const int v1 = ((int)get_group_id(0)) * 256;
    const int v2 = (int)((uint)v1 + (uint)256);
    const int v3 = v2 < n ? v2 : n;
    for (int i4 = v1; i4 < v3; ++i4) {
        const float v5 = x[i4 + offset_x];
        const float v6 = y[i4];
        y[i4] = FMA(a, v5, v6);
    }
}
