// A stand-in for cuBLAS, in a library of its own: the calls that the adapter makes, computed on the CPU in stream order.
// It is strict where the real one is lenient: a product needs scratch that was given for its stream.
#include <cmath>
#include "simulation.h"

namespace {
enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, INTERNAL_ERROR = 14, NOT_SUPPORTED = 15 };
enum Kind { FLOAT32 = 0, FLOAT16 = 2, BFLOAT16 = 14 };
const int COMPUTE_FLOAT32 = 68, PEDANTIC_FLOAT32 = 69, NO_REDUCED_SUMS = 16;
const size_t SCRATCH = 4 << 20;  // less slows the real one down

struct Handle { CUstream stream = nullptr; CUdeviceptr scratch = 0; size_t bytes = 0; unsigned math = 0; };

size_t width(int kind) { return kind == FLOAT32 ? 4 : 2; }
bool is_known(int kind) { return kind == FLOAT32 || kind == FLOAT16 || kind == BFLOAT16; }
float read(const char *at, int kind) {
    if (kind == FLOAT16) return float(*reinterpret_cast<const _Float16 *>(at));
    uint32_t bits = kind == FLOAT32 ? *reinterpret_cast<const uint32_t *>(at)
                                    : uint32_t(*reinterpret_cast<const uint16_t *>(at)) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
float cut(float value) {  // to the 10 bits of mantissa that TF32 has
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    bits = (bits + 0x1000) & ~0x1fffu;
    std::memcpy(&value, &bits, 4);
    return std::isfinite(value) ? value : 0;
}
void write(char *at, int kind, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint16_t upper = uint16_t(std::isnan(value) ? bits >> 16 | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    const _Float16 half = _Float16(value);
    if (kind == FLOAT32) std::memcpy(at, &value, 4);
    else std::memcpy(at, kind == FLOAT16 ? static_cast<const void *>(&half) : &upper, 2);
}

// Matrices by columns, as cuBLAS sees them: column j of op(x) is column j of x, or its row j.
struct Operand {
    char *base;
    int kind;
    long long leading, apart;
    bool transposed;
    size_t bytes(long long rows, long long columns, int count) const {
        if (transposed) std::swap(rows, columns);
        return width(kind) * size_t(apart * (count - 1) + leading * (columns - 1) + rows);
    }
    bool fits(long long rows, long long columns) const { return leading >= (transposed ? columns : rows); }
    char *at(long long i, long long j, int which) const {
        return base + width(kind) * size_t(apart * which + (transposed ? leading * i + j : leading * j + i));
    }
};
bool reaches(const void *address, size_t bytes) {
    std::lock_guard<std::mutex> hold(memory.guard);
    return holder(uintptr_t(address), bytes) != nullptr;
}
void multiply(const Operand &a, const Operand &b, const Operand &c, int m, int n, int k, int which) {
    const bool short_mantissa = a.kind == FLOAT32 && fault("product_tf32");
    const bool half_sums = a.kind == FLOAT16 && fault("product_half_sums");
    std::vector<float> left(size_t(m) * k), sums(m);
    for (int p = 0; p < k; ++p)
        for (int i = 0; i < m; ++i) {
            const float value = read(a.at(i, p, which), a.kind);
            left[size_t(p) * m + i] = short_mantissa ? cut(value) : value;
        }
    for (int j = 0; j < n; ++j) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (int p = 0; p < k; ++p) {
            const float factor = read(b.at(p, j, which), b.kind);
            for (int i = 0; i < m; ++i) sums[i] += left[size_t(p) * m + i] * factor;
            if (half_sums)
                for (int i = 0; i < m; ++i) sums[i] = float(_Float16(sums[i]));
        }
        for (int i = 0; i < m; ++i) write(c.at(i, j, which), c.kind, sums[i]);
    }
}
}  // namespace

extern "C" {

int cublasCreate_v2(Handle **made) {
    if (!current() || !setting("CUBLAS", 13)) return NOT_INITIALIZED;
    *made = new Handle;
    return SUCCESS;
}
int cublasDestroy_v2(Handle *handle) {
    if (!current()) return NOT_INITIALIZED;
    delete handle;
    return cuCtxSynchronize() ? INTERNAL_ERROR : SUCCESS;
}
int cublasGetProperty(int which, int *value) {
    *value = which ? 9 : int(setting("CUBLAS", 13));
    return SUCCESS;
}
const char *cublasGetStatusString(int status) {
    switch (status) {
        case SUCCESS: return "success";
        case NOT_INITIALIZED: return "the library was not initialized";
        case INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
        case NOT_SUPPORTED: return "the functionality requested is not supported";
        default: return "an internal operation failed";
    }
}
int cublasSetMathMode(Handle *handle, unsigned mode) {
    handle->math = mode;
    return SUCCESS;
}
int cublasSetStream_v2(Handle *handle, CUstream stream) {
    *handle = {stream, 0, 0, handle->math};  // setting a stream forgets the scratch, as documented
    return SUCCESS;
}
int cublasSetWorkspace_v2(Handle *handle, void *scratch, size_t bytes) {
    if (uintptr_t(scratch) % 256 && !checked()) return INVALID_VALUE;  // with checks on, memory ends where a page does
    handle->scratch = CUdeviceptr(scratch), handle->bytes = bytes;
    return SUCCESS;
}
int cublasGemmStridedBatchedEx(Handle *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *A,
                               int a_kind, int lda, long long a_apart, const void *B, int b_kind, int ldb,
                               long long b_apart, const void *beta, void *C, int c_kind, int ldc, long long c_apart,
                               int count, int compute, int algorithm) {
    const Operand a{static_cast<char *>(const_cast<void *>(A)), a_kind, lda, a_apart, ta == 1};
    const Operand b{static_cast<char *>(const_cast<void *>(B)), b_kind, ldb, b_apart,
                    tb == 1 && !fault("product_transposed")};
    const Operand c{static_cast<char *>(C), c_kind, ldc, c_apart, false};
    const bool typed = is_known(a_kind) && a_kind == b_kind && (c_kind == a_kind || c_kind == FLOAT32) &&
                       (compute == COMPUTE_FLOAT32 || (compute == PEDANTIC_FLOAT32 && a_kind == FLOAT32));
    if (!typed || algorithm != -1) return NOT_SUPPORTED;
    if (m < 0 || n < 0 || k < 0 || count < 0 || unsigned(ta) > 1 || unsigned(tb) > 1 || !a.fits(m, k) ||
        !b.fits(k, n) || !c.fits(m, n) || *static_cast<const float *>(alpha) != 1 ||
        *static_cast<const float *>(beta) != 0)
        return INVALID_VALUE;
    // What the real one would do with fewer bits than asked for, this one refuses.
    if (a_kind == FLOAT32 ? compute != PEDANTIC_FLOAT32 : handle->math != NO_REDUCED_SUMS) return NOT_SUPPORTED;
    if (handle->bytes < SCRATCH) return INTERNAL_ERROR;
    const auto scratch = reinterpret_cast<char *>(handle->scratch);
    const size_t bytes = handle->bytes;
    const bool astray = fault("product_other_stream");
    return guarded([&] {
        return submit(astray ? nullptr : handle->stream, 7, nullptr, [=] {
            if (astray) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            if (!reaches(a.base, a.bytes(m, k, count)) || !reaches(b.base, b.bytes(k, n, count)) ||
                !reaches(c.base, c.bytes(m, n, count)) || !reaches(scratch, bytes))
                return CUDA_ERROR_ILLEGAL_ADDRESS;
            std::memset(scratch, 0x5a, bytes);
            for (int which = 0; which < count; ++which) multiply(a, b, c, m, n, k, which);
            return CUDA_SUCCESS;
        });
    }) ? INTERNAL_ERROR : SUCCESS;
}
}
