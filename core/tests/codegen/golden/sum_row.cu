template <typename To, typename From> static __device__ __forceinline__ To bits_of(From from) {
    static_assert(sizeof(To) == sizeof(From), "a bitcast keeps the width");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
template <typename V, typename T> static __device__ __forceinline__ V load_lanes(const T *at) {
    if ((unsigned long long)at % alignof(V) == 0) return *(const V *)at;
    V v;
    for (int lane = 0; lane < (int)(sizeof(V) / sizeof(T)); ++lane) v.s[lane] = at[lane];
    return v;
}
template <typename V, typename T> static __device__ __forceinline__ void store_lanes(T *at, const V &v) {
    if ((unsigned long long)at % alignof(V) == 0) *(V *)at = v;
    else for (int lane = 0; lane < (int)(sizeof(V) / sizeof(T)); ++lane) at[lane] = v.s[lane];
}

extern "C" __global__ __launch_bounds__(32 * 1 * 1)
void sum_row(const float *__restrict__ x, float *__restrict__ y) {
    const int v1 = (int)threadIdx.x;
    const float v2 = x[v1];
    const float v3 = __shfl_xor_sync(0xffffffffu, v2, 16);
    const float v4 = v2 + v3;
    const float v5 = __shfl_xor_sync(0xffffffffu, v4, 8);
    const float v6 = v4 + v5;
    const float v7 = __shfl_xor_sync(0xffffffffu, v6, 4);
    const float v8 = v6 + v7;
    const float v9 = __shfl_xor_sync(0xffffffffu, v8, 2);
    const float v10 = v8 + v9;
    const float v11 = __shfl_xor_sync(0xffffffffu, v10, 1);
    y[v1] = v10 + v11;
}
