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
void half_add(__global const ushort *restrict x, __global const ushort *restrict y, __global ushort *restrict o) {
    const int v1 = (int)get_group_id(0);
    const ushort v2 = x[v1];
    const uint v3 = (uint)v2;
    const uint v4 = (v3 & 32767u) << 13u;
    const uint v5 = v4 + 939524096u;
    const uint v6 = (v4 < 8388608u) ? as_uint(((float)(v4 >> 13u)) * 0x1.0p-24f) : ((260046848u <= v4) ? (v5 + 939524096u) : v5);
    const ushort v7 = y[v1];
    const uint v8 = (uint)v7;
    const uint v9 = (v8 & 32767u) << 13u;
    const uint v10 = v9 + 939524096u;
    const uint v11 = (v9 < 8388608u) ? as_uint(((float)(v9 >> 13u)) * 0x1.0p-24f) : ((260046848u <= v9) ? (v10 + 939524096u) : v10);
    const float v12 = as_float(((v3 & 32768u) << 16u) | v6) + as_float(((v8 & 32768u) << 16u) | v11);
    const uint v13 = as_uint(v12);
    const uint v14 = v13 & 2147483647u;
    const uint v15 = 126u - (v14 >> 23u);
    const uint v16 = v15 < 25u ? v15 : 25u;
    const uint v17 = (v14 & 8388607u) | 8388608u;
    const uint v18 = (v17 + ((((1u << v16) >> 1u) - 1u) + ((v17 >> v16) & 1u))) >> v16;
    const uint v19 = (v14 < 947912704u) ? v18 : ((v14 + (((v14 >> 13u) & 1u) + 3355447295u)) >> 13u);
    const uint v20 = (1199570944u <= v14) ? ((2139095040u < v14) ? 32256u : 31744u) : v19;
    o[v1] = (ushort)(((v13 >> 16u) & 32768u) | v20);
}
