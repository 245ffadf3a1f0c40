// A simulated CUDA driver: the entry points that pycuda binds, executed on the CPU. It is no GPU and measures nothing.
//
// Streams are threads with a queue. Device memory is mapped with guard pages behind each allocation, so that a kernel
// that passes an end is stopped and the context is lost with CUDA_ERROR_ILLEGAL_ADDRESS, as on a device. Modules are
// what the simulated NVRTC makes. OARLOCK_CUDA_SIM_CHECK=1 also runs each launch twice, threads and blocks in opposite
// orders, and fails those whose results differ: a race.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <csignal>
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>
#include "fibres.h"

namespace {
using Clock = std::chrono::steady_clock;
constexpr int DEVICES = 2;
constexpr size_t MEMORY = size_t(4) << 30;
constexpr int MAX_THREADS = 1024, MAX_SHARED = 48 << 10;

struct Failed { CUresult code; };

// --- memory

struct Allocation { char *map; size_t mapped, size; int device; };
struct Memory {
    std::mutex guard;
    std::map<uintptr_t, Allocation> live;
    size_t used[DEVICES] = {0, 0};
    std::map<uintptr_t, size_t> pinned;
} memory;

const size_t PAGE = 4096;

CUresult allocate(CUdeviceptr *to, size_t size, int device) {
    std::lock_guard<std::mutex> hold(memory.guard);
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    size_t aligned = (size + 255) / 256 * 256;  // addresses are multiples of 256; the end is a page's end at best
    if (memory.used[device] + aligned > MEMORY) return CUDA_ERROR_OUT_OF_MEMORY;
    size_t pages = (aligned + PAGE - 1) / PAGE * PAGE;
    void *map = mmap(nullptr, pages + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    mprotect(map, pages, PROT_READ | PROT_WRITE);
    char *at = static_cast<char *>(map) + pages - aligned;
    std::memset(at + size, 0xa5, aligned - size);
    memory.live[uintptr_t(at)] = {static_cast<char *>(map), pages + PAGE, size, device};
    memory.used[device] += aligned;
    *to = CUdeviceptr(at);
    return CUDA_SUCCESS;
}
// The allocation that holds an address, or null.
Allocation *holder(uintptr_t address, size_t bytes, uintptr_t *begin = nullptr) {
    auto it = memory.live.upper_bound(address);
    if (it == memory.live.begin()) return nullptr;
    --it;
    if (begin) *begin = it->first;
    return address + bytes <= it->first + it->second.size ? &it->second : nullptr;
}
bool on_device(CUdeviceptr address, size_t bytes) {
    std::lock_guard<std::mutex> hold(memory.guard);
    return holder(address, bytes) != nullptr;
}
bool intact(uintptr_t begin, const Allocation &a) {  // the bytes between its end and its page's
    size_t aligned = (a.size + 255) / 256 * 256;
    const unsigned char *at = reinterpret_cast<const unsigned char *>(begin);
    return std::all_of(at + a.size, at + aligned, [](unsigned char c) { return c == 0xa5; });
}
bool is_pinned(const void *at) {
    std::lock_guard<std::mutex> hold(memory.guard);
    auto it = memory.pinned.upper_bound(uintptr_t(at));
    return it != memory.pinned.begin() && uintptr_t(at) < std::prev(it)->first + std::prev(it)->second;
}

// --- contexts, streams, events

struct Event {
    std::mutex guard;
    std::condition_variable change;
    bool recorded = false, done = true;
    Clock::time_point at;
};
using EventPtr = std::shared_ptr<Event>;
using Work = std::function<CUresult()>;

struct Context;
struct Node { int kind; const void *what; Work work; };
struct Graph { std::vector<Node> nodes; };

struct Stream {
    Context *context;
    std::mutex guard;
    std::condition_variable change;
    std::deque<Work> queue;
    bool busy = false, stop = false;
    Graph *capture = nullptr;
    std::thread worker;
    explicit Stream(Context *c) : context(c), worker([this] { serve(); }) {}
    void serve();
    void push(Work work) {
        std::lock_guard<std::mutex> hold(guard);
        queue.push_back(std::move(work));
        change.notify_all();
    }
    bool idle() {
        std::lock_guard<std::mutex> hold(guard);
        return queue.empty() && !busy;
    }
    void drain() {
        std::unique_lock<std::mutex> hold(guard);
        change.wait(hold, [this] { return queue.empty() && !busy; });
    }
    void end() {
        {
            std::lock_guard<std::mutex> hold(guard);
            stop = true;
            change.notify_all();
        }
        worker.join();
    }
};
struct Context {
    int device, users = 0;
    std::mutex guard;
    std::set<Stream *> streams;
    std::atomic<int> error{0};
    Stream *legacy = nullptr;
} contexts[DEVICES];

void Stream::serve() {
    for (;;) {
        Work work;
        {
            std::unique_lock<std::mutex> hold(guard);
            change.wait(hold, [this] { return stop || !queue.empty(); });
            if (queue.empty()) return;
            work = std::move(queue.front());
            queue.pop_front();
            busy = true;
        }
        if (!context->error) {
            CUresult code = work();
            if (code) context->error = code;
        } else {
            work = nullptr;
        }
        std::lock_guard<std::mutex> hold(guard);
        busy = false;
        change.notify_all();
    }
}

bool started = false;
thread_local std::vector<Context *> stack;
Context *top() { return stack.empty() ? nullptr : stack.back(); }

// The stream behind a handle in the current context; the legacy stream for null.
Stream *stream_of(CUstream handle) {
    Context *c = top();
    if (!c) throw Failed{CUDA_ERROR_INVALID_CONTEXT};
    if (c->error) throw Failed{CUresult(c->error.load())};
    std::lock_guard<std::mutex> hold(c->guard);
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        if (!c->legacy) c->streams.insert(c->legacy = new Stream(c));
        return c->legacy;
    }
    auto *found = reinterpret_cast<Stream *>(handle);
    if (!c->streams.count(found)) throw Failed{CUDA_ERROR_INVALID_HANDLE};
    return found;
}
template <typename F> CUresult guarded(F body) {
    try {
        if (!started) return CUDA_ERROR_NOT_INITIALIZED;
        return body();
    } catch (const Failed &f) {
        return f.code;
    }
}
CUresult need_context() {
    if (!top()) return CUDA_ERROR_INVALID_CONTEXT;
    return CUresult(top()->error.load());
}
CUresult submit(CUstream handle, int kind, const void *what, Work work) {
    Stream *s = stream_of(handle);
    if (s->capture) s->capture->nodes.push_back({kind, what, std::move(work)});
    else s->push(std::move(work));
    return CUDA_SUCCESS;
}
CUresult finish(CUstream handle) {
    Stream *s = stream_of(handle);
    if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    s->drain();
    return CUresult(s->context->error.load());
}
EventPtr &event_of(CUevent e) { return *reinterpret_cast<EventPtr *>(e); }

// --- modules and launches

struct Function {
    void (*call)(const char *);
    size_t bytes;
    unsigned threads;
    SimState *(*state)();
    std::string name;
};
struct Module {
    void *library;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

thread_local sigjmp_buf *rescue = nullptr;
struct sigaction former[NSIG];

void on_signal(int number, siginfo_t *info, void *where) {
    if (rescue) siglongjmp(*rescue, number);
    struct sigaction &old = former[number];
    if (old.sa_flags & SA_SIGINFO) old.sa_sigaction(number, info, where);
    else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) old.sa_handler(number);
    else {
        signal(number, SIG_DFL);
        raise(number);
    }
}
void catch_signals() {
    for (int number : {SIGSEGV, SIGBUS, SIGILL}) {
        struct sigaction now = {};
        now.sa_sigaction = on_signal;
        now.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        struct sigaction old;
        sigaction(number, &now, &old);
        if (old.sa_sigaction != on_signal) former[number] = old;  // somebody may have taken its place since
    }
}

CUresult walk(const Function *f, SimIndex grid, SimIndex block, const char *arguments, bool reversed) {
    static thread_local Block *runner = nullptr;
    if (!runner) runner = new Block;
    sigjmp_buf here;
    catch_signals();
    if (int number = sigsetjmp(here, 1)) {
        rescue = nullptr;
        runner = nullptr;  // its fibres are in the middle of something: leave them
        return number == SIGILL ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    rescue = &here;
    SimState *state = f->state();
    state->block_dim = block, state->grid_dim = grid;
    runner->order(reversed);
    const uint64_t count = uint64_t(grid.x) * grid.y * grid.z;
    for (uint64_t k = 0; k < count; ++k) {
        const uint64_t n = reversed ? count - 1 - k : k;
        state->block = {unsigned(n % grid.x), unsigned(n / grid.x % grid.y), unsigned(n / grid.x / grid.y)};
        if (runner->run(f->call, arguments, state) == Block::DIVERGED) {
            rescue = nullptr;
            runner = nullptr;
            return CUDA_ERROR_LAUNCH_FAILED;
        }
    }
    rescue = nullptr;
    return CUDA_SUCCESS;
}

using Snapshot = std::map<uintptr_t, std::string>;
Snapshot snapshot(const std::string &arguments) {  // of every allocation that a parameter may point into
    std::lock_guard<std::mutex> hold(memory.guard);
    Snapshot found;
    for (size_t at = 0; at + 8 <= arguments.size(); at += 8) {
        uintptr_t address, begin;
        std::memcpy(&address, arguments.data() + at, 8);
        if (Allocation *a = holder(address, 1, &begin))
            found[begin] = std::string(reinterpret_cast<char *>(begin), a->size);
    }
    return found;
}
void restore(const Snapshot &kept) {
    for (auto &[begin, bytes] : kept) std::memcpy(reinterpret_cast<char *>(begin), bytes.data(), bytes.size());
}
CUresult launch(const Function *f, SimIndex grid, SimIndex block, const std::string &arguments) {
    static const bool checked = [] {
        const char *word = std::getenv("OARLOCK_CUDA_SIM_CHECK");
        return word && *word == '1';
    }();
    if (!checked) return walk(f, grid, block, arguments.data(), false);
    Snapshot before = snapshot(arguments);
    if (CUresult code = walk(f, grid, block, arguments.data(), true)) return code;
    Snapshot reversed = snapshot(arguments);
    restore(before);
    if (CUresult code = walk(f, grid, block, arguments.data(), false)) return code;
    if (snapshot(arguments) != reversed) {
        std::fprintf(stderr, "simulated CUDA: kernel %s gives other results when its threads run in another order\n",
                     f->name.c_str());
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    std::lock_guard<std::mutex> hold(memory.guard);
    for (auto &[begin, bytes] : before)
        if (auto it = memory.live.find(begin); it != memory.live.end() && !intact(begin, it->second)) {
            std::fprintf(stderr, "simulated CUDA: kernel %s wrote behind an allocation\n", f->name.c_str());
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
    return CUDA_SUCCESS;
}
int arch_of(int) { return 90; }
}  // namespace

extern "C" {

// --- start, devices

CUresult cuInit(unsigned) {
    for (int d = 0; d < DEVICES; ++d) contexts[d].device = d;
    started = true;
    return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *version) {
    *version = 13000;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    *count = DEVICES;
    return started ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (ordinal < 0 || ordinal >= DEVICES) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int size, CUdevice) {
    std::snprintf(name, size, "simulated CUDA device (no GPU)");
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice) {
    *bytes = MEMORY;
    return CUDA_SUCCESS;
}
CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    *major = arch_of(device) / 10, *minor = arch_of(device) % 10;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = MAX_THREADS; break;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *value = 1024; break;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; break;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 2147483647; break;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = MAX_SHARED; break;
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = arch_of(device) / 10; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = arch_of(device) % 10; break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 1; break;
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}
static const char *error_name(CUresult code) {
    switch (code) {
        case CUDA_SUCCESS: return "CUDA_SUCCESS";
        case CUDA_ERROR_INVALID_VALUE: return "CUDA_ERROR_INVALID_VALUE";
        case CUDA_ERROR_OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
        case CUDA_ERROR_NOT_INITIALIZED: return "CUDA_ERROR_NOT_INITIALIZED";
        case CUDA_ERROR_INVALID_DEVICE: return "CUDA_ERROR_INVALID_DEVICE";
        case CUDA_ERROR_INVALID_IMAGE: return "CUDA_ERROR_INVALID_IMAGE";
        case CUDA_ERROR_INVALID_CONTEXT: return "CUDA_ERROR_INVALID_CONTEXT";
        case CUDA_ERROR_NO_BINARY_FOR_GPU: return "CUDA_ERROR_NO_BINARY_FOR_GPU";
        case CUDA_ERROR_INVALID_HANDLE: return "CUDA_ERROR_INVALID_HANDLE";
        case CUDA_ERROR_NOT_FOUND: return "CUDA_ERROR_NOT_FOUND";
        case CUDA_ERROR_NOT_READY: return "CUDA_ERROR_NOT_READY";
        case CUDA_ERROR_ILLEGAL_ADDRESS: return "CUDA_ERROR_ILLEGAL_ADDRESS";
        case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: return "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES";
        case CUDA_ERROR_MISALIGNED_ADDRESS: return "CUDA_ERROR_MISALIGNED_ADDRESS";
        case CUDA_ERROR_LAUNCH_FAILED: return "CUDA_ERROR_LAUNCH_FAILED";
        case CUDA_ERROR_NOT_SUPPORTED: return "CUDA_ERROR_NOT_SUPPORTED";
        case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
        case CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: return "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE";
        default: return "CUDA_ERROR_UNKNOWN";
    }
}
CUresult cuGetErrorName(CUresult code, const char **text) {
    *text = error_name(code);
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult code, const char **text) { return cuGetErrorName(code, text); }

// --- contexts

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    if (device < 0 || device >= DEVICES) return CUDA_ERROR_INVALID_DEVICE;
    contexts[device].users++;
    *context = reinterpret_cast<CUcontext>(&contexts[device]);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    Context &c = contexts[device];
    if (--c.users > 0) return CUDA_SUCCESS;
    std::set<Stream *> ended;
    {
        std::lock_guard<std::mutex> hold(c.guard);
        ended.swap(c.streams);
        c.legacy = nullptr;
    }
    for (Stream *s : ended) {
        s->end();
        delete s;
    }
    c.error = 0;
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
    stack.push_back(reinterpret_cast<Context *>(context));
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext *context) {
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = reinterpret_cast<CUcontext>(top());
    stack.pop_back();
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = reinterpret_cast<CUcontext>(top());
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(reinterpret_cast<Context *>(context));
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) {
    if (!top()) return CUDA_ERROR_INVALID_CONTEXT;
    *device = top()->device;
    return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
    if (CUresult code = need_context()) return code;
    std::set<Stream *> all;
    {
        std::lock_guard<std::mutex> hold(top()->guard);
        all = top()->streams;
    }
    for (Stream *s : all) s->drain();
    return need_context();
}

// --- memory

CUresult cuMemAlloc(CUdeviceptr *to, size_t bytes) {
    if (CUresult code = need_context()) return code;
    return allocate(to, bytes, top()->device);
}
CUresult cuMemFree(CUdeviceptr at) {
    if (CUresult code = need_context()) return code;
    cuCtxSynchronize();
    std::lock_guard<std::mutex> hold(memory.guard);
    auto it = memory.live.find(at);
    if (it == memory.live.end()) return CUDA_ERROR_INVALID_VALUE;
    bool good = intact(at, it->second);
    munmap(it->second.map, it->second.mapped);
    memory.used[it->second.device] -= (it->second.size + 255) / 256 * 256;
    memory.live.erase(it);
    return good ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}
CUresult cuMemGetInfo(size_t *free, size_t *total) {
    if (CUresult code = need_context()) return code;
    std::lock_guard<std::mutex> hold(memory.guard);
    *total = MEMORY, *free = MEMORY - memory.used[top()->device];
    return CUDA_SUCCESS;
}
static CUresult host_memory(void **to, size_t bytes) {
    if (posix_memalign(to, PAGE, (bytes + PAGE - 1) / PAGE * PAGE)) return CUDA_ERROR_OUT_OF_MEMORY;
    std::lock_guard<std::mutex> hold(memory.guard);
    memory.pinned[uintptr_t(*to)] = bytes;
    return CUDA_SUCCESS;
}
CUresult cuMemAllocHost(void **to, size_t bytes) { return host_memory(to, bytes); }
CUresult cuMemHostAlloc(void **to, size_t bytes, unsigned) { return host_memory(to, bytes); }
CUresult cuMemFreeHost(void *at) {
    {
        std::lock_guard<std::mutex> hold(memory.guard);
        if (!memory.pinned.erase(uintptr_t(at))) return CUDA_ERROR_INVALID_VALUE;
    }
    std::free(at);
    return CUDA_SUCCESS;
}
static CUresult put(CUstream handle, CUdeviceptr to, const void *from, size_t bytes, bool wait) {
    return guarded([&] {
        Stream *s = stream_of(handle);
        if (s->capture && !is_pinned(from)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (!on_device(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
        std::shared_ptr<std::string> staged;
        if (!is_pinned(from)) staged = std::make_shared<std::string>(static_cast<const char *>(from), bytes);
        submit(handle, 1, nullptr, [=] {
            std::memcpy(reinterpret_cast<void *>(to), staged ? staged->data() : from, bytes);
            return CUDA_SUCCESS;
        });
        return wait ? finish(handle) : CUDA_SUCCESS;
    });
}
static CUresult get(CUstream handle, void *to, CUdeviceptr from, size_t bytes, bool wait) {
    return guarded([&] {
        Stream *s = stream_of(handle);
        if (s->capture && !is_pinned(to)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (!on_device(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
        submit(handle, 2, nullptr, [=] {
            std::memcpy(to, reinterpret_cast<void *>(from), bytes);
            return CUDA_SUCCESS;
        });
        return wait || !is_pinned(to) ? finish(handle) : CUDA_SUCCESS;
    });
}
static CUresult move(CUstream handle, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return guarded([&] {
        if (!on_device(to, bytes) || !on_device(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
        return submit(handle, 3, nullptr, [=] {
            std::memmove(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
            return CUDA_SUCCESS;
        });
    });
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) { return put(nullptr, to, from, bytes, true); }
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream s) {
    return put(s, to, from, bytes, false);
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) { return get(nullptr, to, from, bytes, true); }
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
    return get(s, to, from, bytes, false);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    CUresult code = move(nullptr, to, from, bytes);
    return code ? code : cuCtxSynchronize();
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
    return move(s, to, from, bytes);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream s) {
    return move(s, to, from, bytes);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream s) {
    return guarded([&] {
        if (!on_device(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
        return submit(s, 4, nullptr, [=] {
            std::memset(reinterpret_cast<void *>(to), byte, bytes);
            return CUDA_SUCCESS;
        });
    });
}

// --- streams and events

CUresult cuStreamCreate(CUstream *stream, unsigned) {
    if (CUresult code = need_context()) return code;
    auto *made = new Stream(top());
    std::lock_guard<std::mutex> hold(top()->guard);
    top()->streams.insert(made);
    *stream = reinterpret_cast<CUstream>(made);
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
    auto *s = reinterpret_cast<Stream *>(stream);
    {
        std::lock_guard<std::mutex> hold(s->context->guard);
        if (!s->context->streams.erase(s)) return CUDA_ERROR_INVALID_HANDLE;
    }
    std::thread([s] {  // destroying is asynchronous: what is in flight is finished
        s->end();
        delete s;
    }).detach();
    return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
    return guarded([&] {
        Stream *s = stream_of(stream);
        if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        bool idle = s->idle();
        if (s->context->error) return CUresult(s->context->error.load());
        return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}
CUresult cuStreamSynchronize(CUstream stream) {
    return guarded([&] { return finish(stream); });
}
CUresult cuEventCreate(CUevent *event, unsigned) {
    if (CUresult code = need_context()) return code;
    *event = reinterpret_cast<CUevent>(new EventPtr(std::make_shared<Event>()));
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
    delete reinterpret_cast<EventPtr *>(event);
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent handle, CUstream stream) {
    return guarded([&] {
        EventPtr fresh = std::make_shared<Event>();
        fresh->recorded = true, fresh->done = false;
        event_of(handle) = fresh;
        Stream *s = stream_of(stream);
        Context *c = s->context;
        s->push([fresh, c] {
            std::lock_guard<std::mutex> hold(fresh->guard);
            fresh->at = Clock::now(), fresh->done = true;
            fresh->change.notify_all();
            return CUDA_SUCCESS;
        });
        return CUDA_SUCCESS;
    });
}
CUresult cuEventQuery(CUevent handle) {
    return guarded([&] {
        if (CUresult code = need_context()) return code;
        EventPtr e = event_of(handle);
        std::lock_guard<std::mutex> hold(e->guard);
        return e->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}
CUresult cuEventSynchronize(CUevent handle) {
    EventPtr e = event_of(handle);
    for (;;) {
        if (CUresult code = need_context()) return code;
        std::unique_lock<std::mutex> hold(e->guard);
        if (e->change.wait_for(hold, std::chrono::milliseconds(5), [&] { return e->done; })) return CUDA_SUCCESS;
    }
}
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    EventPtr a = event_of(start), b = event_of(end);
    if (!a->recorded || !b->recorded) return CUDA_ERROR_INVALID_HANDLE;
    if (!a->done || !b->done) return CUDA_ERROR_NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(b->at - a->at).count();
    return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned) {
    return guarded([&] {
        EventPtr e = event_of(handle);
        Stream *s = stream_of(stream);
        Context *c = s->context;
        s->push([e, c] {
            std::unique_lock<std::mutex> hold(e->guard);
            while (!e->change.wait_for(hold, std::chrono::milliseconds(5), [&] { return e->done; }))
                if (c->error) return CUresult(c->error.load());
            return CUDA_SUCCESS;
        });
        return CUDA_SUCCESS;
    });
}

// --- modules and launches

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, CUjit_option *, void **) {
    if (CUresult code = need_context()) return code;
    const auto *elf = static_cast<const unsigned char *>(image);
    if (std::memcmp(elf, "\177ELF", 4)) return CUDA_ERROR_INVALID_IMAGE;
    uint16_t machine;
    std::memcpy(&machine, elf + 18, 2);
    if (machine == 190) return CUDA_ERROR_NO_BINARY_FOR_GPU;  // code for a real GPU
    uint64_t sections;
    uint16_t size, count;
    std::memcpy(&sections, elf + 40, 8), std::memcpy(&size, elf + 58, 2), std::memcpy(&count, elf + 60, 2);
    char path[] = "/tmp/oarlock-cuda-XXXXXX";
    int file = mkstemp(path);
    bool written = write(file, image, sections + size * count) == ssize_t(sections + size * count);
    close(file);
    void *library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    unlink(path);
    if (!library) return CUDA_ERROR_INVALID_IMAGE;
    auto *arch = reinterpret_cast<int (*)()>(dlsym(library, "oarlock_sim_arch"));
    if (!arch || arch() != arch_of(top()->device)) {
        dlclose(library);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    *module = reinterpret_cast<CUmodule>(new Module{library, {}});
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
CUresult cuModuleUnload(CUmodule module) {
    auto *m = reinterpret_cast<Module *>(module);  // the code stays mapped: work in flight may run it
    delete m;
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    auto *m = reinterpret_cast<Module *>(module);
    auto find = [&](const char *suffix) { return dlsym(m->library, (std::string(name) + suffix).c_str()); };
    void *call = find("__sim_call");
    if (!call) return CUDA_ERROR_NOT_FOUND;
    auto &slot = m->functions[name];
    slot.reset(new Function{reinterpret_cast<void (*)(const char *)>(call),
                            reinterpret_cast<size_t (*)()>(find("__sim_bytes"))(),
                            reinterpret_cast<unsigned (*)()>(find("__sim_threads"))(),
                            reinterpret_cast<SimState *(*)()>(dlsym(m->library, "oarlock_sim_state")), name});
    *function = reinterpret_cast<CUfunction>(slot.get());
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? reinterpret_cast<Function *>(function)->threads : 0;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetBlockShape(CUfunction, int, int, int) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra) {
    return guarded([&] {
        const auto *f = reinterpret_cast<Function *>(function);
        uint64_t threads = uint64_t(bx) * by * bz;
        if (!gx || !gy || !gz || !threads || gx > 2147483647u || gy > 65535 || gz > 65535 || bx > 1024 || by > 1024 ||
            bz > 64 || threads > MAX_THREADS || parameters || !extra)
            return CUDA_ERROR_INVALID_VALUE;
        if (threads > f->threads || shared > MAX_SHARED) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        std::string arguments;
        size_t size = 0;
        const char *buffer = nullptr;
        for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
            if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = static_cast<const char *>(extra[1]);
            if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<size_t *>(extra[1]);
        }
        if (size < f->bytes) return CUDA_ERROR_INVALID_VALUE;
        if (buffer) arguments.assign(buffer, size);
        Function copy = *f;
        return submit(stream, 5, f, [=] { return launch(&copy, {gx, gy, gz}, {bx, by, bz}, arguments); });
    });
}

// --- graphs

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
    return guarded([&] {
        Stream *s = stream_of(stream);
        if (s->capture || s == s->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        s->capture = new Graph;
        return CUDA_SUCCESS;
    });
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    return guarded([&] {
        Stream *s = stream_of(stream);
        if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
        *graph = reinterpret_cast<CUgraph>(s->capture);
        s->capture = nullptr;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphDestroy(CUgraph graph) {
    delete reinterpret_cast<Graph *>(graph);
    return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long) {
    *made = reinterpret_cast<CUgraphExec>(new std::shared_ptr<Graph>(new Graph(*reinterpret_cast<Graph *>(graph))));
    return CUDA_SUCCESS;
}
CUresult cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *) {
    auto &old = *reinterpret_cast<std::shared_ptr<Graph> *>(executable);
    const auto &fresh = reinterpret_cast<Graph *>(graph)->nodes;
    auto same = [](const Node &a, const Node &b) { return a.kind == b.kind && a.what == b.what; };
    if (!std::equal(old->nodes.begin(), old->nodes.end(), fresh.begin(), fresh.end(), same))
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    old = std::make_shared<Graph>(Graph{fresh});
    return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    return guarded([&] {
        auto graph = *reinterpret_cast<std::shared_ptr<Graph> *>(executable);
        return submit(stream, 6, graph.get(), [graph] {
            for (const Node &node : graph->nodes)
                if (CUresult code = node.work()) return code;
            return CUDA_SUCCESS;
        });
    });
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
    delete reinterpret_cast<std::shared_ptr<Graph> *>(executable);
    return CUDA_SUCCESS;
}
}
