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
#ifdef __CUDACC__
template <int stride, typename V> static __device__ __forceinline__ void matrix_store(float *at, V total) {
    float *const own = at + threadIdx.x % 32 / 4 * stride + threadIdx.x % 4 * 2;
    for (int half = 0; half < 2; ++half)
        for (int low = 0; low < 2; ++low) {
            own[low * 8 * stride + half * 8] = total.s[half * 4 + low * 2];
            own[low * 8 * stride + half * 8 + 1] = total.s[half * 4 + low * 2 + 1];
        }
}
#endif
#ifdef __CUDACC__
template <int stride, typename V> static __device__ __forceinline__ V matrix_float16(
    const unsigned short *a, const unsigned short *b, V total) {
    const int place = threadIdx.x % 32 / 4 * stride + threadIdx.x % 4 * 2;
    const unsigned int a0 = *(const unsigned int *)(a + place), a1 = *(const unsigned int *)(a + place + 8 * stride);
    const unsigned int a2 = *(const unsigned int *)(a + place + 8);
    const unsigned int a3 = *(const unsigned int *)(a + place + 8 * stride + 8);
    for (int half = 0; half < 2; ++half) {
        const unsigned short *const row = b + place + half * 8 * stride;
        const unsigned int b0 = *(const unsigned int *)row, b1 = *(const unsigned int *)(row + 8);
        float *const t = total.s + half * 4;
#if __CUDA_ARCH__ >= 800
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(t[0]), "+f"(t[1]), "+f"(t[2]), "+f"(t[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(t[0]), "+f"(t[1]), "+f"(t[2]), "+f"(t[3]) : "r"(a0), "r"(a1), "r"(b0));
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(t[0]), "+f"(t[1]), "+f"(t[2]), "+f"(t[3]) : "r"(a2), "r"(a3), "r"(b1));
#endif
    }
    return total;
}
#endif

struct alignas(32 < 16 ? 32 : 16) float32x8 { float s[32 / 4]; };

extern "C" __global__ __launch_bounds__(32 * 1 * 1)
void multiply(float *__restrict__ y) {
    alignas(16) __shared__ unsigned short m1[384];
    alignas(16) __shared__ unsigned short m2[384];
    alignas(16) __shared__ float m3[256];
    __syncthreads();
    const float32x8 v4 = matrix_float16<24>(m1 + 0, m2 + 0, (float32x8{{0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}}));
    matrix_store<16>(m3 + 0, v4);
    __syncthreads();
    const int v5 = (int)threadIdx.x;
    const float v6 = m3[v5];
    y[v5] = v6;
}
