#include <math.h>
#include <stdint.h>
#include <string.h>
#pragma STDC FP_CONTRACT OFF

typedef float float32x4 __attribute__((vector_size(16)));
typedef float32x4 float32x4_at __attribute__((aligned(4), may_alias));

static inline void dot_rows_block(const float *restrict x, const float *restrict y, float *restrict o, uint8_t *restrict big, const int32_t k, const int32_t b0, const int32_t b1, const int32_t b2) {
    const int32_t v1 = b0;
    float32x4 r2 = (float32x4){0.0f, 0.0f, 0.0f, 0.0f};
    for (int32_t i3 = 0; i3 < k; i3 = (uint32_t)k - (uint32_t)i3 > (uint32_t)4 ? i3 + 4 : k) {
        const int32_t v4 = (v1 * k) + i3;
        const float32x4 v5 = *(const float32x4_at *)(x + v4);
        const float32x4 v6 = *(const float32x4_at *)(y + v4);
        const float32x4 v7 = v5 * v6;
        const float32x4 v8 = r2 + v7;
        r2 = v8;
    }
    float m9[4];
    m9[0] = r2[0];
    m9[1] = r2[1];
    m9[2] = r2[2];
    m9[3] = r2[3];
    float r10 = 0x1.99999ap-4f;
    #pragma GCC unroll 4
    for (int32_t i11 = 0; i11 < 4; ++i11) {
        const float v12 = m9[i11];
        r10 = r10 + v12;
    }
    const _Bool v13 = INFINITY < r10;
    float r14;
    if (v13) {
        r14 = NAN;
    } else {
        r14 = r10;
    }
    o[v1] = r14;
    big[v1] = (uint8_t)v13;
}

void dot_rows(void *const *buffers, const void *scalars, const uint32_t begin[3], const uint32_t end[3]) {
    struct { int32_t k; } s;
    memcpy(&s, scalars, sizeof s);
    for (uint32_t b2 = begin[2]; b2 < end[2]; ++b2)
        for (uint32_t b1 = begin[1]; b1 < end[1]; ++b1)
            for (uint32_t b0 = begin[0]; b0 < end[0]; ++b0)
                dot_rows_block(buffers[0], buffers[1], buffers[2], buffers[3], s.k, (int32_t)b0, (int32_t)b1, (int32_t)b2);
}
