// Runs the blocks of a launch: the threads of a block are fibres of one host thread, switched at barriers.
#pragma once
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <vector>
#include <sys/mman.h>
#include <ucontext.h>

struct SimIndex { unsigned x, y, z; };
struct SimState {  // as in device.h
    SimIndex thread, block, block_dim, grid_dim;
    void (*barrier)();
};

class Block {
public:
    enum Result { DONE, DIVERGED };

    // Runs one block of kernel(arguments), whose module keeps positions in state.
    Result run(void (*kernel)(const char *), const char *arguments, SimState *state) {
        kernel_ = kernel, arguments_ = arguments, state_ = state;
        state_->barrier = &Block::barrier;
        current_ = this;
        const SimIndex d = state_->block_dim;
        const unsigned count = d.x * d.y * d.z;
        // Most kernels have no barrier: when the first thread meets none, the others run in its fibre, one by one.
        first_ = 0, last_ = 1;
        start(0);
        if (fibres_[0].done) {
            if (count == 1) return DONE;
            first_ = 1, last_ = count;
            start(0);
            return fibres_[0].done ? DONE : DIVERGED;
        }
        for (unsigned t = 1; t < count; ++t) {
            first_ = t, last_ = t + 1;
            start(t);
        }
        for (;;) {
            unsigned done = 0;
            for (unsigned t = 0; t < count; ++t) done += fibres_[t].done;
            if (done == count) return DONE;
            if (done) return DIVERGED;  // some wait for threads that have ended
            for (unsigned t = 0; t < count; ++t) resume(t);
        }
    }
    void order(bool reversed) { reversed_ = reversed; }

private:
    static constexpr std::size_t STACK = 256 << 10;
    struct Fibre {
        ucontext_t context;
        void *stack = nullptr;
        bool done = false;
    };

    void start(unsigned number) {
        while (fibres_.size() <= number) fibres_.emplace_back();
        Fibre &f = fibres_[number];
        if (!f.stack)
            f.stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        f.done = false;
        getcontext(&f.context);
        f.context.uc_stack = {f.stack, 0, STACK};
        f.context.uc_link = &main_;
        makecontext(&f.context, &Block::enter, 0);
        resume(number);
    }
    void resume(unsigned number) {
        running_ = number;
        place(number);
        swapcontext(&main_, &fibres_[number].context);
    }
    void place(unsigned number) {
        const SimIndex d = state_->block_dim;
        if (reversed_) number = d.x * d.y * d.z - 1 - number;
        state_->thread = {number % d.x, number / d.x % d.y, number / d.x / d.y};
    }
    static void enter() {
        Block *b = current_;
        const unsigned own = b->running_;
        for (unsigned t = b->first_, last = b->last_; t < last; ++t) {
            b->place(t);
            b->kernel_(b->arguments_);
        }
        b->fibres_[own].done = true;
    }
    static void barrier() {
        Block *b = current_;
        swapcontext(&b->fibres_[b->running_].context, &b->main_);
    }

    static thread_local Block *current_;
    std::vector<Fibre> fibres_{};
    ucontext_t main_;
    void (*kernel_)(const char *) = nullptr;
    const char *arguments_ = nullptr;
    SimState *state_ = nullptr;
    unsigned running_ = 0, first_ = 0, last_ = 0;
    bool reversed_ = false;
};
inline thread_local Block *Block::current_ = nullptr;
