// Start, devices, what they report, the texts of errors, and contexts.
#include <cstdio>
#include "simulation.h"

namespace {
std::atomic<bool> started{false};
Context *context_of(int device) {
    static auto &all = *new std::map<int, Context>;
    static std::mutex guard;
    std::lock_guard<std::mutex> hold(guard);
    all[device].device = device;
    return &all[device];
}
thread_local std::vector<Context *> stack;
int capability() { return int(setting("ARCH", 90)); }

struct Text { CUresult code; const char *name, *text; };
const Text TEXTS[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"},
};
const Text &text_of(CUresult code) {
    static const Text unknown{CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"};
    for (const Text &each : TEXTS)
        if (each.code == code) return each;
    return unknown;
}
}  // namespace

Context *current() { return stack.empty() ? nullptr : stack.back(); }
CUresult need_context() {
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    return CUresult(current()->error.load());
}
bool is_started() { return started; }
__attribute__((destructor)) static void unload() {
    if (started && fault("exit_crashes")) std::abort();
}

extern "C" {

CUresult cuInit(unsigned) {
    if (!devices()) return CUDA_ERROR_NO_DEVICE;
    started = true;
    return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *version) {
    *version = int(setting("VERSION", 13000));
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    *count = devices();
    return started ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (ordinal < 0 || ordinal >= devices()) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int size, CUdevice) {
    std::snprintf(name, size, "simulated CUDA device (no GPU)");
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice) {
    *bytes = memory_bytes();
    return CUDA_SUCCESS;
}
CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice) {
    *major = capability() / 10, *minor = capability() % 10;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = MAX_THREADS; break;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *value = 1024; break;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; break;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 2147483647; break;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: 
            *value = fault("attribute_shared") ? 4 * MAX_SHARED : MAX_SHARED;
            break;
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = int(setting("WARP", 32)); break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = capability() / 10; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = capability() % 10; break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 1; break;
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult code, const char **text) {
    *text = text_of(code).name;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult code, const char **text) {
    *text = text_of(code).text;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    if (device < 0 || device >= devices()) return CUDA_ERROR_INVALID_DEVICE;
    Context *c = context_of(device && fault("context_other") ? 0 : device);
    c->users++;
    *context = reinterpret_cast<CUcontext>(c);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    Context *c = context_of(device);
    if (c->users <= 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (fault("close_prints")) std::fprintf(stderr, "context %d is released\n", device);
    if (--c->users > 0) return CUDA_SUCCESS;
    std::set<Stream *> ended;
    {
        std::lock_guard<std::mutex> hold(c->guard);
        ended.swap(c->streams);
        c->legacy = nullptr;
    }
    for (Stream *s : ended) {
        s->end();
        delete s;
    }
    c->error = 0;
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    stack.push_back(reinterpret_cast<Context *>(context));
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext *context) {
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = reinterpret_cast<CUcontext>(current());
    stack.pop_back();
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = reinterpret_cast<CUcontext>(current());
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(reinterpret_cast<Context *>(context));
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) {
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    *device = current()->device;
    return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
    if (CUresult code = need_context()) return code;
    std::set<Stream *> all;
    {
        std::lock_guard<std::mutex> hold(current()->guard);
        all = current()->streams;
    }
    for (Stream *s : all) s->drain();
    return need_context();
}
}
