#include <math.h>
#include <stdint.h>
#include <string.h>
#pragma STDC FP_CONTRACT OFF

static inline void half_add_block(const uint16_t *restrict x, const uint16_t *restrict y, uint16_t *restrict o, const int32_t b0, const int32_t b1, const int32_t b2) {
    const int32_t v1 = b0;
    const uint16_t v2 = x[v1];
    const uint32_t v3 = (uint32_t)v2;
    const uint32_t v4 = (v3 & 32767u) << 13u;
    const uint32_t v5 = v4 + 939524096u;
    const uint32_t v6 = ((union { float from; uint32_t to; }){.from = ((float)(v4 >> 13u)) * 0x1.0p-24f}).to;
    const uint32_t v7 = (v4 < 8388608u) ? v6 : ((260046848u <= v4) ? (v5 + 939524096u) : v5);
    const float v8 = ((union { uint32_t from; float to; }){.from = ((v3 & 32768u) << 16u) | v7}).to;
    const uint16_t v9 = y[v1];
    const uint32_t v10 = (uint32_t)v9;
    const uint32_t v11 = (v10 & 32767u) << 13u;
    const uint32_t v12 = v11 + 939524096u;
    const uint32_t v13 = ((union { float from; uint32_t to; }){.from = ((float)(v11 >> 13u)) * 0x1.0p-24f}).to;
    const uint32_t v14 = (v11 < 8388608u) ? v13 : ((260046848u <= v11) ? (v12 + 939524096u) : v12);
    const float v15 = ((union { uint32_t from; float to; }){.from = ((v10 & 32768u) << 16u) | v14}).to;
    const uint32_t v16 = ((union { float from; uint32_t to; }){.from = v8 + v15}).to;
    const uint32_t v17 = v16 & 2147483647u;
    const uint32_t v18 = 126u - (v17 >> 23u);
    const uint32_t v19 = v18 < 25u ? v18 : 25u;
    const uint32_t v20 = (v17 & 8388607u) | 8388608u;
    const uint32_t v21 = (v20 + ((((1u << v19) >> 1u) - 1u) + ((v20 >> v19) & 1u))) >> v19;
    const uint32_t v22 = (v17 < 947912704u) ? v21 : ((v17 + (((v17 >> 13u) & 1u) + 3355447295u)) >> 13u);
    const uint32_t v23 = (1199570944u <= v17) ? ((2139095040u < v17) ? 32256u : 31744u) : v22;
    o[v1] = (uint16_t)(((v16 >> 16u) & 32768u) | v23);
}

void half_add(void *const *buffers, const void *scalars, const uint32_t begin[3], const uint32_t end[3]) {
    for (uint32_t b2 = begin[2]; b2 < end[2]; ++b2)
        for (uint32_t b1 = begin[1]; b1 < end[1]; ++b1)
            for (uint32_t b0 = begin[0]; b0 < end[0]; ++b0)
                half_add_block(buffers[0], buffers[1], buffers[2], (int32_t)b0, (int32_t)b1, (int32_t)b2);
}
