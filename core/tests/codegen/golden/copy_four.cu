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

struct alignas(16 < 16 ? 16 : 16) float32x4 { float s[16 / 4]; };

extern "C" __global__ __launch_bounds__(32 * 2 * 1)
void copy_four(const float *__restrict__ x, float *__restrict__ y, const long long n) {
    const long long v1 = ((long long)((int)threadIdx.y)) * n;
    const float32x4 v2 = load_lanes<float32x4>(x + v1);
    store_lanes(y + v1, v2);
}
