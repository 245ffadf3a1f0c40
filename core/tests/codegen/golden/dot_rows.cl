#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void dot_rows(__global const float *restrict x, __global const float *restrict y, __global float *restrict o, __global uchar *restrict big, const int k) {
    const int v1 = (int)get_group_id(0);
    float4 r2 = (float4)(0.0f);
    for (int i3 = 0; i3 < k; i3 = (uint)k - (uint)i3 > (uint)4 ? i3 + 4 : k) {
        const int v4 = (v1 * k) + i3;
        const float4 v5 = vload4(0, x + v4);
        const float4 v6 = vload4(0, y + v4);
        const float4 v7 = v5 * v6;
        const float4 v8 = r2 + v7;
        r2 = v8;
    }
    float m9[4];
    m9[0] = r2.s0;
    m9[1] = r2.s1;
    m9[2] = r2.s2;
    m9[3] = r2.s3;
    float r10 = 0x1.99999ap-4f;
    #pragma unroll 4
    for (int i11 = 0; i11 < 4; ++i11) {
        const float v12 = m9[i11];
        r10 = r10 + v12;
    }
    const bool v13 = INFINITY < r10;
    float r14;
    if (v13) {
        r14 = NAN;
    } else {
        r14 = r10;
    }
    o[v1] = r14;
    big[v1] = (uchar)v13;
}
