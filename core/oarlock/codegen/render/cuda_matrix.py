"""Device functions over tensor cores, in CUDA C++: fragments loaded from shared memory, multiplied, stored.

A warp's 32 threads hold a 16 x 16 tile as the instructions ``mma.sync.m16n8k*`` want it (PTX ISA, "Matrix Fragments
for mma"): thread 4 g + p has columns 2 p, 2 p + 1 of rows g and g + 8, in both halves of 8 columns. Both operands lie
in rows of terms, so that two neighbouring 16-bit terms are one 32-bit load. They stand behind ``__CUDACC__``: whatever
else compiles the text has to bring functions of these names.
"""

from __future__ import annotations

__all__ = ["MATRIX"]

_STORE = """\
template <int stride, typename V> static __device__ __forceinline__ void matrix_store(float *at, V total) {
    float *const own = at + threadIdx.x % 32 / 4 * stride + threadIdx.x % 4 * 2;
    for (int half = 0; half < 2; ++half)
        for (int low = 0; low < 2; ++low) {
            own[low * 8 * stride + half * 8] = total.s[half * 4 + low * 2];
            own[low * 8 * stride + half * 8 + 1] = total.s[half * 4 + low * 2 + 1];
        }
}"""

_SHORT = """\
template <int stride, typename V> static __device__ __forceinline__ V matrix_KIND(
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
        asm("mma.sync.aligned.m16n8k16.row.col.f32.PTX.PTX.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(t[0]), "+f"(t[1]), "+f"(t[2]), "+f"(t[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
        asm("mma.sync.aligned.m16n8k8.row.col.f32.PTX.PTX.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(t[0]), "+f"(t[1]), "+f"(t[2]), "+f"(t[3]) : "r"(a0), "r"(a1), "r"(b0));
        asm("mma.sync.aligned.m16n8k8.row.col.f32.PTX.PTX.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(t[0]), "+f"(t[1]), "+f"(t[2]), "+f"(t[3]) : "r"(a2), "r"(a3), "r"(b1));
#endif
    }
    return total;
}"""

_TF32 = """\
static __device__ __forceinline__ unsigned int tf32_of(float x) {
    unsigned int bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
template <int stride, typename V> static __device__ __forceinline__ V matrix_tf32(
    const float *a, const float *b, V total) {
    const int place = threadIdx.x % 32 / 4 * stride + threadIdx.x % 4;
    for (int term = 0; term < 16; term += 8) {
        const float *const left = a + place + term;
        const unsigned int a0 = tf32_of(left[0]), a1 = tf32_of(left[8 * stride]);
        const unsigned int a2 = tf32_of(left[4]), a3 = tf32_of(left[8 * stride + 4]);
        for (int half = 0; half < 2; ++half) {
            const float *const row = b + place + half * 8 * stride + term;
            float *const t = total.s + half * 4;
            asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(t[0]), "+f"(t[1]), "+f"(t[2]), "+f"(t[3])
                : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(tf32_of(row[0])), "r"(tf32_of(row[4])));
        }
    }
    return total;
}"""

MATRIX: dict[str, str] = {
    name: f"#ifdef __CUDACC__\n{text}\n#endif"
    for name, text in (
        ("matrix_store", _STORE),
        ("matrix_float16", _SHORT.replace("KIND", "float16").replace("PTX", "f16")),
        ("matrix_bfloat16", _SHORT.replace("KIND", "bfloat16").replace("PTX", "bf16")),
        ("matrix_tf32", _TF32),
    )
}
"""What stands first in a text that uses one; bfloat16 and tf32 need sm_80."""
