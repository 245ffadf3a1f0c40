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

extern "C" __global__ __launch_bounds__(1 * 1 * 1)
void axpy(const float *__restrict__ x, float *__restrict__ y, const int offset_x, const int n, const float a) {
    const int v1 = ((int)blockIdx.x) * 256;
    const int v2 = (int)((unsigned int)v1 + (unsigned int)256);
    const int v3 = v2 < n ? v2 : n;
    for (int i4 = v1; i4 < v3; ++i4) {
        const float v5 = x[i4 + offset_x];
        const float v6 = y[i4];
        y[i4] = fmaf(a, v5, v6);
    }
}
