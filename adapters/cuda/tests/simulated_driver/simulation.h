// The simulated driver's state: devices, contexts, memory, streams. It executes on the CPU; it is no GPU, and measures
// nothing.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include <cuda.h>
#include "faults.h"

using Clock = std::chrono::steady_clock;
constexpr size_t MAX_SHARED = 48 << 10;
constexpr unsigned MAX_THREADS = 1024;

// Settings of a simulated machine, each an environment variable OARLOCK_CUDA_SIM_*.
inline long setting(const char *name, long otherwise) {
    const char *text = std::getenv((std::string("OARLOCK_CUDA_SIM_") + name).c_str());
    return text && *text ? std::atol(text) : otherwise;
}
inline int devices() { static const int n = int(setting("DEVICES", 2)); return n; }
inline size_t memory_bytes() { static const size_t n = size_t(setting("MEMORY_MIB", 4096)) << 20; return n; }
inline bool checked() { static const bool on = setting("CHECK", 0) == 1; return on; }

struct Failed { CUresult code; };

// --- memory: each allocation lies between guard pages

struct Allocation { char *map; size_t mapped, size; int device; };
struct Memory {
    std::mutex guard;
    std::map<uintptr_t, Allocation> live;
    std::map<int, size_t> used;
    std::map<uintptr_t, size_t> pinned;
};
extern Memory &memory;
Allocation *holder(uintptr_t address, size_t bytes, uintptr_t *begin = nullptr);  // memory.guard is held
bool intact(uintptr_t begin, const Allocation &allocation);

// --- streams: a thread with a queue each

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
    explicit Stream(Context *owner);
    void push(Work work);
    bool idle();
    void drain();
    void end();

private:
    void serve();
};

// --- contexts: the primary one of each device

struct Context {
    int device = 0, users = 0;
    std::mutex guard;
    std::set<Stream *> streams;
    std::atomic<int> error{0};  // a failed command spoils the context: every call returns this from then on
    Stream *legacy = nullptr;
};
Context *current();        // of the calling thread, or null
CUresult need_context();   // its error, or that there is none
bool is_started();
Stream *stream_of(CUstream handle);  // throws Failed
CUresult submit(CUstream handle, int kind, const void *what, Work work);
CUresult finish(CUstream handle);

// A call's body, with what it throws as its result.
template <typename F> CUresult guarded(F body) {
    try {
        if (!is_started()) return CUDA_ERROR_NOT_INITIALIZED;
        return body();
    } catch (const Failed &f) {
        return f.code;
    }
}
