#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void axpy(__global const float *restrict x, __global float *restrict y, const int offset_x, const int n, const float a) {
    const int v1 = ((int)get_group_id(0)) * 256;
    const int v2 = (int)((uint)v1 + (uint)256);
    const int v3 = v2 < n ? v2 : n;
    for (int i4 = v1; i4 < v3; ++i4) {
        const float v5 = x[i4 + offset_x];
        const float v6 = y[i4];
        y[i4] = fma(a, v5, v6);
    }
}
