// A pool of host threads that walks grids: persistent, and asleep when there is nothing to do.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>

#include "oarlock/kernel.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace oarlock {

using Grid = std::array<std::uint32_t, 3>;

// One launch: a kernel, its arguments, and the grid cut into nx * ny * nz boxes.
struct Work {
    Kernel kernel;
    void *const *buffers;
    const void *scalars;
    Grid grid;
    Grid cuts;
    std::uint64_t pieces;        // that threads take one by one: the boxes, or 0 for what is another work's `next`
    const Work *next = nullptr;  // runs on the same thread, after this one; both are a single box

    // Cuts the grid into about `wanted` boxes, the slowest dimension first.
    Work(Kernel kernel_, void *const *buffers_, const void *scalars_, const Grid &grid_, std::uint64_t wanted)
        : kernel(kernel_), buffers(buffers_), scalars(scalars_), grid(grid_), cuts{1, 1, 1} {
        for (int axis = 2; axis >= 0; --axis) {
            cuts[axis] = static_cast<std::uint32_t>(std::min<std::uint64_t>(grid[axis], wanted));
            wanted = (wanted + cuts[axis] - 1) / cuts[axis];
        }
        pieces = std::uint64_t(cuts[0]) * cuts[1] * cuts[2];
    }

    // How many boxes a launch on `threads` threads is cut into: what is left to one of them at the end is small.
    static std::uint64_t wanted(unsigned threads) { return threads > 1 ? std::uint64_t(threads) * 16 : 1; }

    void run(std::uint64_t piece) const {
        std::uint32_t begin[3], end[3];
        for (int axis = 0; axis < 3; ++axis) {
            const std::uint64_t at = piece % cuts[axis];
            piece /= cuts[axis];
            begin[axis] = static_cast<std::uint32_t>(grid[axis] * at / cuts[axis]);
            end[axis] = static_cast<std::uint32_t>(grid[axis] * (at + 1) / cuts[axis]);
        }
        kernel(buffers, scalars, begin, end);
        if (next != nullptr) next->run(0);
    }
};

// Works that do not depend on each other: their pieces are one list.
struct Batch {
    const Work *works;
    std::uint64_t pieces = 0;

    Batch(const Work *works_, std::size_t count) : works(works_) {
        for (std::size_t i = 0; i < count; ++i) pieces += works[i].pieces;
    }

    void run(std::uint64_t piece) const {
        const Work *work = works;
        for (; piece >= work->pieces; ++work) piece -= work->pieces;
        work->run(piece);
    }
};

class ThreadPool {
  public:
    // The process's pool. Threads start with the first work; a forked child gets a new pool, for it has no threads.
    // It is never destroyed: sleeping threads must not outlive what they wait on.
    static ThreadPool &shared() {
        ThreadPool *pool = instance().load();
        if (pool == nullptr) {
            auto *fresh = new ThreadPool();
            if (instance().compare_exchange_strong(pool, fresh)) {
                pool = fresh;
            } else {
                delete fresh;
            }
        }
        return *pool;
    }

    // Runs a launch on up to `threads` threads, the caller among them, and returns when all of it is done.
    void launch(Kernel kernel, void *const *buffers, const void *scalars, const Grid &grid, unsigned threads) {
        const Work work(kernel, buffers, scalars, grid, Work::wanted(threads));
        run(Batch(&work, 1), threads);
    }

    // Runs works on up to `threads` threads, the caller among them, and returns when all are done. Where another
    // thread's work has the pool, the caller does its own alone.
    void run(const Batch &batch, unsigned threads) {
        std::unique_lock<std::mutex> owner(owner_, std::defer_lock);
        if (batch.pieces == 1 || threads <= 1 || !owner.try_lock()) {
            for (std::uint64_t piece = 0; piece < batch.pieces; ++piece) batch.run(piece);
            return;
        }
        start(threads - 1);
        publish(batch, std::min<std::uint64_t>(threads, batch.pieces) - 1);
        drain(batch);
        finish();
    }

    // Whether another thread looks for work, so that telling it takes next to nothing.
    bool awake() const { return awake_.load(std::memory_order_relaxed) != 0; }

  private:
    static constexpr int kSpins = 2000;  // some tens of microseconds: less than a sleeping thread takes to wake

    static std::atomic<ThreadPool *> &instance() {
        static std::atomic<ThreadPool *> pool{nullptr};
#if !defined(_WIN32)
        static const int registered = pthread_atfork(nullptr, nullptr, [] { instance().store(nullptr); });
        (void)registered;
#endif
        return pool;
    }

    static void relax() {
#if defined(__x86_64__) || defined(__i386__)
        _mm_pause();
#else
        std::this_thread::yield();
#endif
    }

    void start(unsigned wanted) {
        for (; workers_ < wanted; ++workers_) {
            try {
                std::thread([this] { work_forever(); }).detach();
            } catch (const std::system_error &) {
                return;  // the system gives no more threads: those there are do the work
            }
        }
    }

    void publish(const Batch &batch, std::uint64_t helpers) {
        next_.store(0);
        {
            std::lock_guard<std::mutex> lock(state_);
            batch_ = &batch;
            helpers_ = helpers;
            round_.fetch_add(1);
        }
        wake_.notify_all();
    }

    // Takes pieces until none is left.
    void drain(const Batch &batch) {
        for (std::uint64_t piece; (piece = next_.fetch_add(1)) < batch.pieces;) batch.run(piece);
    }

    // Closes the work to late helpers, and waits for those at it.
    void finish() {
        {
            std::lock_guard<std::mutex> lock(state_);
            batch_ = nullptr;
        }
        for (int spin = 0; spin < kSpins && active_.load() != 0; ++spin) relax();
        std::unique_lock<std::mutex> lock(state_);
        done_.wait(lock, [this] { return active_.load() == 0; });
    }

    void work_forever() {
        for (std::uint64_t seen = 0;;) {
            awake_.fetch_add(1);
            for (int spin = 0; spin < kSpins && round_.load() == seen; ++spin) relax();
            awake_.fetch_sub(1);
            const Batch *batch = nullptr;
            {
                std::unique_lock<std::mutex> lock(state_);
                wake_.wait(lock, [&] { return round_.load() != seen; });
                seen = round_.load();
                if (batch_ != nullptr && helpers_ > 0) {
                    --helpers_;
                    active_.fetch_add(1);
                    batch = batch_;
                }
            }
            if (batch == nullptr) continue;
            drain(*batch);
            std::lock_guard<std::mutex> lock(state_);
            if (active_.fetch_sub(1) == 1) done_.notify_one();
        }
    }

    std::mutex owner_;  // held by the thread whose work has the pool
    std::mutex state_;  // guards batch_ and helpers_, and the changes of round_ and active_ that threads sleep on
    std::condition_variable wake_, done_;
    std::atomic<std::uint64_t> next_{0}, round_{0};
    std::atomic<unsigned> active_{0}, awake_{0};
    const Batch *batch_ = nullptr;
    std::uint64_t helpers_ = 0;
    unsigned workers_ = 0;
};

}  // namespace oarlock
