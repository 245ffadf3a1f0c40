#include <math.h>
#include <stdint.h>
#include <string.h>
#pragma STDC FP_CONTRACT OFF

static inline void axpy_block(const float *restrict x, float *restrict y, const int32_t offset_x, const int32_t n, const float a, const int32_t b0, const int32_t b1, const int32_t b2) {
    const int32_t v1 = b0 * 256;
    const int32_t v2 = (int32_t)((uint32_t)v1 + (uint32_t)256);
    const int32_t v3 = v2 < n ? v2 : n;
    for (int32_t i4 = v1; i4 < v3; ++i4) {
        const float v5 = x[i4 + offset_x];
        const float v6 = y[i4];
        y[i4] = fmaf(a, v5, v6);
    }
}

void axpy(void *const *buffers, const void *scalars, const uint32_t begin[3], const uint32_t end[3]) {
    struct { int32_t offset_x; int32_t n; float a; } s;
    memcpy(&s, scalars, sizeof s);
    for (uint32_t b2 = begin[2]; b2 < end[2]; ++b2)
        for (uint32_t b1 = begin[1]; b1 < end[1]; ++b1)
            for (uint32_t b0 = begin[0]; b0 < end[0]; ++b0)
                axpy_block(buffers[0], buffers[1], s.offset_x, s.n, s.a, (int32_t)b0, (int32_t)b1, (int32_t)b2);
}
