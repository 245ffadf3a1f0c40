// Device memory, page-locked host memory, and copies in stream order.
#include <algorithm>
#include <cstdlib>
#include <sys/mman.h>
#include "simulation.h"

Memory &memory = *new Memory;  // for ever: streams may still work when the process ends

namespace {
const size_t PAGE = 4096;
const size_t GUARD = size_t(16) << 20;  // on both sides: an index far out must not find another's memory by chance
const unsigned char CANARY = 0xa5;

// Addresses are multiples of 256, as CUDA's are; with checks on they end where a guard page begins, but for 15 bytes.
size_t rounded(size_t size) {
    const size_t unit = checked() ? 16 : 256;
    return (size + unit - 1) / unit * unit;
}
CUresult allocate(CUdeviceptr *to, size_t size, int device) {
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    const size_t room = rounded(size);
    {
        std::lock_guard<std::mutex> hold(memory.guard);
        if (memory.used[device] + room > memory_bytes())
            return fault("memory_other_error") ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (fault("memory_twice")) {
        std::lock_guard<std::mutex> hold(memory.guard);
        for (auto &[begin, a] : memory.live)
            if (a.device == device && a.size >= size && size >= 1024) return *to = begin, CUDA_SUCCESS;
    }
    const size_t pages = (room + PAGE - 1) / PAGE * PAGE;
    void *map = mmap(nullptr, pages + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    char *first = static_cast<char *>(map) + GUARD;
    mprotect(first, pages, PROT_READ | PROT_WRITE);
    char *at = first + pages - room;
    std::memset(at + size, CANARY, room - size);
    std::lock_guard<std::mutex> hold(memory.guard);
    memory.live[uintptr_t(at)] = {static_cast<char *>(map), pages + 2 * GUARD, size, device};
    if (!fault("memory_info_still")) memory.used[device] += room;
    *to = CUdeviceptr(at) + (fault("memory_misaligned") ? 4 : 0);
    return CUDA_SUCCESS;
}
bool on_device(CUdeviceptr address, size_t bytes, int device = -1) {
    std::lock_guard<std::mutex> hold(memory.guard);
    const Allocation *found = holder(address, bytes);
    return found && (device < 0 || found->device == device);
}
bool is_pinned(const void *at) {
    std::lock_guard<std::mutex> hold(memory.guard);
    auto it = memory.pinned.upper_bound(uintptr_t(at));
    return it != memory.pinned.begin() && uintptr_t(at) < std::prev(it)->first + std::prev(it)->second;
}
CUdeviceptr start_of(CUdeviceptr address) {
    std::lock_guard<std::mutex> hold(memory.guard);
    uintptr_t begin = address;
    holder(address, 0, &begin);
    return begin;
}
void *host(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

CUresult put(CUstream handle, CUdeviceptr to, const void *from, size_t bytes, bool wait) {
    return guarded([&] {
        Stream *s = stream_of(handle);
        if (s->capture && !is_pinned(from)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (!on_device(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
        std::shared_ptr<std::string> staged;
        if (!is_pinned(from) && !fault("copy_in_unstaged"))
            staged = std::make_shared<std::string>(static_cast<const char *>(from), bytes);
        if (to != start_of(to) && fault("copy_in_offset")) to = start_of(to);
        if (bytes > 4096 && fault("copy_in_short")) bytes -= 1;
        submit(handle, 1, nullptr, [=] {
            if (!staged && !is_pinned(from)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            std::memcpy(host(to), staged ? staged->data() : from, bytes);
            return CUDA_SUCCESS;
        });
        return wait ? finish(handle) : CUDA_SUCCESS;
    });
}
CUresult get(CUstream handle, void *to, CUdeviceptr from, size_t bytes, bool wait) {
    return guarded([&] {
        Stream *s = stream_of(handle);
        if (s->capture && !is_pinned(to)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (!on_device(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
        if (from != start_of(from) && fault("copy_out_offset")) from = start_of(from);
        if (fault("copy_out_now")) return std::memcpy(to, host(from), bytes), CUDA_SUCCESS;
        submit(handle, 2, nullptr, [=] {
            std::memcpy(to, host(from), bytes);
            return CUDA_SUCCESS;
        });
        return wait || !is_pinned(to) ? finish(handle) : CUDA_SUCCESS;
    });
}
CUresult move(CUstream handle, CUdeviceptr to, CUdeviceptr from, size_t bytes, int device = -1, int source = -1) {
    return guarded([&] {
        if (!on_device(to, bytes, device) || !on_device(from, bytes, source)) return CUDA_ERROR_INVALID_VALUE;
        if (from != start_of(from) && fault("copy_offset")) from = start_of(from);
        if (device >= 0 && fault("peer_nothing")) return CUDA_SUCCESS;
        return submit(handle, 3, nullptr, [=] {
            std::memmove(host(to), host(from), bytes);
            return CUDA_SUCCESS;
        });
    });
}
CUresult lock(void *at, size_t bytes) {
    std::lock_guard<std::mutex> hold(memory.guard);
    memory.pinned[uintptr_t(at)] = bytes;
    return CUDA_SUCCESS;
}
CUresult unlock(void *at) {
    std::lock_guard<std::mutex> hold(memory.guard);
    return memory.pinned.erase(uintptr_t(at)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
}  // namespace

Allocation *holder(uintptr_t address, size_t bytes, uintptr_t *begin) {
    auto it = memory.live.upper_bound(address);
    if (it == memory.live.begin()) return nullptr;
    --it;
    if (begin) *begin = it->first;
    return address + bytes <= it->first + it->second.size ? &it->second : nullptr;
}
bool intact(uintptr_t begin, const Allocation &a) {  // the bytes between its end and its page's
    const auto *at = reinterpret_cast<const unsigned char *>(begin);
    return std::all_of(at + a.size, at + rounded(a.size), [](unsigned char c) { return c == CANARY; });
}

extern "C" {

CUresult cuMemAlloc(CUdeviceptr *to, size_t bytes) {
    if (CUresult code = need_context()) return code;
    return allocate(to, bytes, current()->device);
}
CUresult cuMemFree(CUdeviceptr at) {
    if (CUresult code = need_context()) return code;
    if (CUresult code = cuCtxSynchronize()) return code;
    if (fault("memory_leak")) return CUDA_SUCCESS;
    std::lock_guard<std::mutex> hold(memory.guard);
    auto it = memory.live.find(at);
    if (it == memory.live.end()) return CUDA_ERROR_INVALID_VALUE;
    const bool good = intact(at, it->second);
    munmap(it->second.map, it->second.mapped);
    memory.used[it->second.device] -= rounded(it->second.size);
    memory.live.erase(it);
    return good ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}
CUresult cuMemGetInfo(size_t *free, size_t *total) {
    if (CUresult code = need_context()) return code;
    std::lock_guard<std::mutex> hold(memory.guard);
    *total = memory_bytes(), *free = memory_bytes() - memory.used[current()->device];
    return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr at) {
    if (CUresult code = need_context()) return code;
    std::lock_guard<std::mutex> hold(memory.guard);
    uintptr_t begin;
    const Allocation *found = holder(at, 1, &begin);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    *base = begin, *size = found->size;
    return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void **to, size_t bytes, unsigned) {
    if (posix_memalign(to, PAGE, (bytes + PAGE - 1) / PAGE * PAGE)) return CUDA_ERROR_OUT_OF_MEMORY;
    return lock(*to, bytes);
}
CUresult cuMemAllocHost(void **to, size_t bytes) { return cuMemHostAlloc(to, bytes, 0); }
CUresult cuMemFreeHost(void *at) {
    if (CUresult code = unlock(at)) return code;
    std::free(at);
    return CUDA_SUCCESS;
}
CUresult cuMemHostRegister(void *at, size_t bytes, unsigned) {
    if (CUresult code = need_context()) return code;
    return lock(at, bytes);
}
CUresult cuMemHostUnregister(void *at) { return unlock(at); }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) { return put(nullptr, to, from, bytes, true); }
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream s) {
    return put(s, to, from, bytes, false);
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) { return get(nullptr, to, from, bytes, true); }
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
    return get(s, to, from, bytes, false);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    const CUresult code = move(nullptr, to, from, bytes);
    return code ? code : cuCtxSynchronize();
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
    return move(s, to, from, bytes);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext mine, CUdeviceptr from, CUcontext theirs, size_t bytes, CUstream s) {
    if (!mine || !theirs) return CUDA_ERROR_INVALID_CONTEXT;
    const int device = reinterpret_cast<Context *>(mine)->device, source = reinterpret_cast<Context *>(theirs)->device;
    return move(s, to, from, bytes, device, source);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream s) {
    return guarded([&] {
        if (!on_device(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
        if (byte && fault("fill_zero")) byte = 0;
        return submit(s, 4, nullptr, [=] {
            std::memset(host(to), byte, bytes);
            return CUDA_SUCCESS;
        });
    });
}
}
