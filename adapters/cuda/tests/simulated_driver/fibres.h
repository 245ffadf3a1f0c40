// Runs the blocks of a launch on one host thread. The threads of a kernel that has no barrier run in a loop; else each
// thread is a fibre, and they switch where they meet: a block at barriers, the lanes of a warp at warp operations.
#pragma once
#include <csetjmp>
#include <cstddef>
#include <vector>
#include <sys/mman.h>
#include <ucontext.h>
#include "faults.h"
#include "positions.h"

using Range = void (*)(const char *arguments, unsigned first, unsigned last);  // threads first to last, one by one

class Block {
public:
    enum Result { DONE, DIVERGED };

    // Runs one block of a kernel, whose module keeps positions in state.
    Result run(Range range, bool meets, const char *arguments, SimState *state) {
        range_ = range, arguments_ = arguments, state_ = state, wrong_ = false;
        state_->barrier = &Block::barrier, state_->meet = &Block::meet, state_->slot = &Block::slot;
        current_ = this;
        const SimIndex d = state_->block_dim;
        count_ = d.x * d.y * d.z;
        if (!meets && !reversed_) {
            range_(arguments_, 0, count_);
            return DONE;
        }
        for (unsigned t = 0; t < count_; ++t) at(t).waits = NOTHING;
        return together() ? DONE : DIVERGED;
    }
    void order(bool reversed) { reversed_ = reversed; }

private:
    enum Waits { NOTHING, BARRIER, WARP, ENDED };
    static constexpr std::size_t STACK = 256 << 10;
    struct Fibre {
        jmp_buf here;
        ucontext_t context;
        bool begun = false;
        Waits waits = NOTHING;
        unsigned mask = 0;
        alignas(16) char slot[16];
    };

    Fibre &at(unsigned thread) {
        while (fibres_.size() <= thread) fibres_.push_back(new Fibre);
        return *fibres_[thread];
    }
    // Until all have ended: run what waits for nothing, then let go a warp whose lanes have met, or the whole block.
    bool together() {
        for (;;) {
            for (unsigned k = 0; k < count_; ++k) {
                const unsigned t = reversed_ ? count_ - 1 - k : k;
                if (fibres_[t]->waits == NOTHING) resume(t);
            }
            if (wrong_) return false;
            unsigned ended = 0, arrived = 0, freed = 0;
            for (unsigned t = 0; t < count_; ++t)
                ended += fibres_[t]->waits == ENDED, arrived += fibres_[t]->waits == BARRIER;
            if (ended == count_) return true;
            if (arrived == count_) {
                for (unsigned t = 0; t < count_; ++t) fibres_[t]->waits = NOTHING;
                continue;
            }
            for (unsigned first = 0; first < count_; first += state_->warp_size) freed += release(first);
            if (!freed) return false;  // some wait for threads that have ended, or that wait elsewhere
        }
    }
    // Lets go the lanes of a warp that wait, when all that their mask names do.
    unsigned release(unsigned first) {
        unsigned waiting = 0, mask = 0;
        for (unsigned lane = 0; lane < state_->warp_size && first + lane < count_; ++lane)
            if (fibres_[first + lane]->waits == WARP) waiting |= 1u << lane, mask |= fibres_[first + lane]->mask;
        const unsigned there = count_ - first;
        if (there < 32) mask &= (1u << there) - 1;  // the last warp of a block may have fewer lanes
        if (!waiting || waiting != mask) return 0;
        for (unsigned lane = 0; lane < state_->warp_size && first + lane < count_; ++lane)
            if (waiting >> lane & 1) fibres_[first + lane]->waits = NOTHING;
        return 1;
    }
    void resume(unsigned thread) {
        running_ = thread;
        Fibre &f = *fibres_[thread];
        if (_setjmp(main_)) return;
        if (f.begun) _longjmp(f.here, 1);
        f.begun = true;
        getcontext(&f.context);
        void *stack =
            mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        f.context.uc_stack = {stack, 0, STACK};
        f.context.uc_link = nullptr;
        makecontext(&f.context, &Block::enter, 0);
        setcontext(&f.context);
    }
    // A fibre's whole life: a thread of one block after another.
    static void enter() {
        Block *b = current_;
        for (const unsigned own = b->running_;;) {
            b->range_(b->arguments_, own, own + 1);
            b->yield(own, ENDED);
        }
    }
    void yield(unsigned own, Waits waits) {
        Fibre &f = *fibres_[own];
        f.waits = waits;
        if (!_setjmp(f.here)) _longjmp(main_, 1);
        place(own);
    }
    void place(unsigned t) {
        const SimIndex d = state_->block_dim;
        state_->thread = {t % d.x, t / d.x % d.y, t / d.x / d.y};
    }
    static void barrier() {
        if (!fault("barrier_nothing")) current_->yield(current_->running_, BARRIER);
    }
    static void meet(unsigned mask) {
        Block *b = current_;
        const unsigned own = b->running_, lane = own % b->state_->warp_size;
        if (!(mask >> lane & 1) || (b->state_->warp_size < 32 && mask >> b->state_->warp_size)) b->wrong_ = true;
        b->fibres_[own]->mask = mask;
        b->yield(own, WARP);
    }
    static char *slot(unsigned thread) { return current_->fibres_[thread]->slot; }

    static thread_local Block *current_;
    std::vector<Fibre *> fibres_{};
    jmp_buf main_;
    Range range_ = nullptr;
    const char *arguments_ = nullptr;
    SimState *state_ = nullptr;
    unsigned running_ = 0, count_ = 0;
    bool reversed_ = false, wrong_ = false;
};
inline thread_local Block *Block::current_ = nullptr;
