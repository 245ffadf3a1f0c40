// Modules, which are what the simulated NVRTC makes, and launches.
//
// A kernel that touches no memory at an address is stopped there, and the context is lost with the code that a device
// gives. OARLOCK_CUDA_SIM_CHECK=1 also runs each launch twice, threads and blocks in opposite orders, and fails those
// whose results differ: a race.
#include <csignal>
#include <cstdio>
#include <dlfcn.h>
#include <unistd.h>
#include "fibres.h"
#include "simulation.h"

namespace {
struct Function {
    Range range;
    size_t bytes;
    unsigned threads;
    bool meets;
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
    for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
        struct sigaction now = {}, old;
        now.sa_sigaction = on_signal;
        now.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
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
    state->block_dim = block, state->grid_dim = grid, state->warp_size = unsigned(setting("WARP", 32));
    runner->order(reversed);
    uint64_t count = uint64_t(grid.x) * grid.y * grid.z;
    if (count > 1 && fault("launch_last_block")) --count;
    for (uint64_t k = 0; k < count; ++k) {
        const uint64_t n = reversed ? count - 1 - k : k;
        state->block = {unsigned(n % grid.x), unsigned(n / grid.x % grid.y), unsigned(n / grid.x / grid.y)};
        if (grid.y > 1 && fault("launch_grid_y")) state->block.y = 0;
        if (runner->run(f->range, f->meets, arguments, state) == Block::DIVERGED) {
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
CUresult told(CUresult code, const Function *f, const char *what) {
    std::fprintf(stderr, "simulated CUDA: kernel %s %s\n", f->name.c_str(), what);
    return code;
}
CUresult launch(const Function *f, SimIndex grid, SimIndex block, const std::string &arguments) {
    if (!checked()) return walk(f, grid, block, arguments.data(), false);
    const Snapshot before = snapshot(arguments);
    if (CUresult code = walk(f, grid, block, arguments.data(), true)) return code;
    const Snapshot reversed = snapshot(arguments);
    for (auto &[begin, bytes] : before) std::memcpy(reinterpret_cast<char *>(begin), bytes.data(), bytes.size());
    if (CUresult code = walk(f, grid, block, arguments.data(), false)) return code;
    if (snapshot(arguments) != reversed)
        return told(CUDA_ERROR_LAUNCH_FAILED, f, "gives other results when its threads run in another order: a race");
    std::lock_guard<std::mutex> hold(memory.guard);
    for (auto &[begin, bytes] : before)
        if (auto it = memory.live.find(begin); it != memory.live.end() && !intact(begin, it->second))
            return told(CUDA_ERROR_ILLEGAL_ADDRESS, f, "wrote behind an allocation");
    return CUDA_SUCCESS;
}
template <typename F> F symbol(void *library, const std::string &name) {
    return reinterpret_cast<F>(dlsym(library, name.c_str()));
}
// The bytes of the image, which brings no size: its section headers are its end.
size_t size_of(const void *image) {
    const auto *elf = static_cast<const unsigned char *>(image);
    uint64_t sections;
    uint16_t size, count;
    std::memcpy(&sections, elf + 40, 8), std::memcpy(&size, elf + 58, 2), std::memcpy(&count, elf + 60, 2);
    return sections + size * count;
}
}  // namespace

extern "C" {

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values) {
    for (unsigned k = 0; k < count; ++k)  // no log is written
        if (options[k] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[k] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            values[k] = nullptr;
    if (CUresult code = need_context()) return code;
    const auto *elf = static_cast<const unsigned char *>(image);
    if (std::memcmp(elf, "\177ELF", 4)) return CUDA_ERROR_INVALID_IMAGE;
    uint16_t machine;
    std::memcpy(&machine, elf + 18, 2);
    if (machine == 190) return CUDA_ERROR_NO_BINARY_FOR_GPU;  // code for a real GPU
    static Module *first = nullptr;
    if (first && fault("module_stale")) return *module = reinterpret_cast<CUmodule>(first), CUDA_SUCCESS;
    char path[] = "/tmp/oarlock-cuda-XXXXXX";
    const int file = mkstemp(path);
    const bool written = write(file, image, size_of(image)) == ssize_t(size_of(image));
    close(file);
    void *library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    unlink(path);
    if (!library) return CUDA_ERROR_INVALID_IMAGE;
    auto *arch = symbol<int (*)()>(library, "oarlock_sim_arch");
    CUdevice device;
    int major = 0, minor = 0;
    cuCtxGetDevice(&device), cuDeviceComputeCapability(&major, &minor, device);
    if (!arch || arch() != 10 * major + minor) {
        dlclose(library);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    auto *made = new Module{library, {}};
    if (!first) first = made;
    *module = reinterpret_cast<CUmodule>(made);
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
CUresult cuModuleUnload(CUmodule) {
    return current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;  // the code stays: work in flight may run it
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    if (CUresult code = need_context()) return code;
    auto *m = reinterpret_cast<Module *>(module);
    auto range = symbol<Range>(m->library, std::string(name) + "__sim_range");
    if (!range) return CUDA_ERROR_NOT_FOUND;
    auto number = [&](const char *suffix) {
        return symbol<unsigned (*)()>(m->library, std::string(name) + suffix)();
    };
    auto &slot = m->functions[name];
    slot.reset(new Function{range, symbol<size_t (*)()>(m->library, std::string(name) + "__sim_bytes")(),
                            number("__sim_threads"), number("__sim_meets") != 0,
                            symbol<SimState *(*)()>(m->library, "oarlock_sim_state"), name});
    *function = reinterpret_cast<CUfunction>(slot.get());
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? reinterpret_cast<Function *>(function)->threads : 0;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra) {
    return guarded([&] {
        const auto *f = reinterpret_cast<Function *>(function);
        const uint64_t threads = uint64_t(bx) * by * bz;
        if (!gx || !gy || !gz || !threads || gx > 2147483647u || gy > 65535 || gz > 65535 || bx > 1024 || by > 1024 ||
            bz > 64 || threads > MAX_THREADS || parameters || !extra)
            return CUDA_ERROR_INVALID_VALUE;
        if (threads > f->threads || shared > MAX_SHARED) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        size_t size = 0;
        const char *buffer = nullptr;
        for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
            if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = static_cast<const char *>(extra[1]);
            if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<size_t *>(extra[1]);
        }
        if (size != f->bytes) return CUDA_ERROR_INVALID_VALUE;
        static auto &latest = *new std::map<std::string, std::string>;
        std::string arguments(buffer ? buffer : "", size);
        if (fault("launch_stale")) {
            static std::mutex guard;
            std::lock_guard<std::mutex> hold(guard);
            std::string &kept = latest[f->name];
            if (kept.size() == arguments.size()) std::swap(kept, arguments);
            else kept = arguments;
        }
        arguments.reserve(arguments.size() + 8);
        Function copy = *f;
        if (fault("launch_other_stream")) stream = nullptr;
        return submit(stream, 5, f, [=] { return launch(&copy, {gx, gy, gz}, {bx, by, bz}, arguments); });
    });
}
}
