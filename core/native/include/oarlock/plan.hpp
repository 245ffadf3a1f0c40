// A plan: launches and copies between slots, prepared once and replayed with new addresses.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oarlock/pool.hpp"

namespace oarlock {

// `data` replaces the bytes from `offset` on in the scalar block of step `step`, for one replay.
struct Patch {
    std::size_t step;
    std::size_t offset;
    std::string_view data;
};

class Plan {
  public:
    using Slots = std::vector<std::pair<std::size_t, std::size_t>>;  // (slot, byte offset)

    // `strand`: see LaunchStep in oarlock/hal/program.py. A strand of several launches runs on one thread.
    void add_launch(Kernel kernel, const Grid &grid, const Slots &buffers, std::string_view scalars,
                    std::size_t strand) {
        Step step;
        step.kernel = kernel;
        step.grid = grid;
        step.buffers = buffers;
        step.strand = strand;
        step.scalars = scalars_.size();
        step.nbytes = scalars.size();
        scalars_.append(scalars);
        scalars_.append((kScalarAlignment - scalars_.size() % kScalarAlignment) % kScalarAlignment, '\0');
        add(std::move(step));
    }

    void add_copy(std::size_t dst, std::size_t dst_offset, std::size_t src, std::size_t src_offset,
                  std::size_t nbytes) {
        Step step;
        step.buffers = {{dst, dst_offset}, {src, src_offset}};
        step.nbytes = nbytes;
        add(std::move(step));
    }

    // Throws std::out_of_range for too few bindings or a patch outside a launch's block. Any number of threads may
    // replay one plan at once.
    void replay(const std::vector<std::uintptr_t> &bindings, const std::vector<Patch> &patches,
                unsigned threads) const {
        if (bindings.size() < slots_) throw std::out_of_range("fewer bindings than slots");
        std::string patched;
        const char *scalars = scalars_.data();
        if (!patches.empty()) {
            patched = scalars_;
            for (const Patch &patch : patches) apply(patch, patched);
            scalars = patched.data();
        }
        std::vector<void *> addresses;
        for (const Group &group : groups_) {
            if (!group.parallel || threads <= 1) {
                run_in_order(group, bindings, scalars, threads, addresses);
            } else if (!group.cut && group.timed < kTimed) {
                run_in_order(group, bindings, scalars, threads, addresses, true);
            } else if (group.cut || group.saved > (ThreadPool::shared().awake() ? kTelling : kWaking)) {
                run_together(group, bindings, scalars, threads, addresses);
            } else {
                run_in_order(group, bindings, scalars, threads, addresses);
            }
        }
    }

  private:
    using Nanoseconds = std::chrono::nanoseconds::rep;
    static constexpr std::size_t kScalarAlignment = 16;
    static constexpr unsigned kTimed = 3;           // how many runs tell what a group would save
    static constexpr Nanoseconds kTelling = 4'000;  // more than it takes to tell a thread that looks for work
    static constexpr Nanoseconds kWaking = 10'000;  // about what it takes to wake one that sleeps

    struct Step {
        Kernel kernel = nullptr;  // none: a copy of nbytes from buffers[1] to buffers[0]
        Grid grid{};
        Slots buffers;
        std::size_t strand = 0;
        std::size_t scalars = 0;  // where the step's block starts in scalars_
        std::size_t nbytes = 0;   // size of that block, or of the copy
    };

    // Steps of one strand, or of several that may run at the same time. Where no kernel of these has a grid to cut, the
    // other threads are told only if that saves more than it takes, by the least that some runs in order have shown.
    struct Group {
        std::size_t first, end, buffers = 0;
        bool parallel, cut = false;
        mutable std::atomic<unsigned> timed{0};
        mutable std::atomic<Nanoseconds> saved{std::numeric_limits<Nanoseconds>::max()};

        Group(std::size_t first_, bool parallel_) : first(first_), end(first_), parallel(parallel_) {}
    };

    void add(Step step) {
        const std::size_t last = steps_.empty() ? 0 : steps_.back().strand;
        if (groups_.empty() || step.strand < last || (last == 0 && step.strand > 0))
            groups_.emplace_back(steps_.size(), step.strand > 0);
        Group &group = groups_.back();
        ++group.end;
        group.buffers += step.buffers.size();
        group.cut = group.cut || step.grid != Grid{1, 1, 1};
        for (const auto &buffer : step.buffers) slots_ = std::max(slots_, buffer.first + 1);
        steps_.push_back(std::move(step));
    }

    static void append(std::vector<void *> &addresses, const Step &step, const std::vector<std::uintptr_t> &bindings) {
        addresses.reserve(addresses.size() + step.buffers.size());
        for (const auto &[slot, offset] : step.buffers)
            addresses.push_back(reinterpret_cast<void *>(bindings[slot] + offset));
    }

    void run_in_order(const Group &group, const std::vector<std::uintptr_t> &bindings, const char *scalars,
                      unsigned threads, std::vector<void *> &addresses, bool timed = false) const {
        using Clock = std::chrono::steady_clock;
        Nanoseconds all = 0, longest = 0, strand = 0;
        Clock::time_point before = timed ? Clock::now() : Clock::time_point();
        for (std::size_t i = group.first; i < group.end; ++i) {
            const Step &step = steps_[i];
            addresses.clear();
            append(addresses, step, bindings);
            if (step.kernel == nullptr) {
                std::memcpy(addresses[0], addresses[1], step.nbytes);
            } else {
                ThreadPool::shared().launch(step.kernel, addresses.data(), scalars + step.scalars, step.grid, threads);
            }
            if (!timed) continue;
            const Clock::time_point now = Clock::now();
            const Nanoseconds took = std::chrono::duration_cast<std::chrono::nanoseconds>(now - before).count();
            before = now;
            all += took;
            strand = took + (i > group.first && step.strand == steps_[i - 1].strand ? strand : 0);
            longest = std::max(longest, strand);
        }
        if (!timed) return;
        group.saved = std::min(group.saved.load(), all - std::max(longest, all / 2));
        ++group.timed;
    }

    void run_together(const Group &group, const std::vector<std::uintptr_t> &bindings, const char *scalars,
                      unsigned threads, std::vector<void *> &addresses) const {
        addresses.clear();
        addresses.reserve(group.buffers);
        std::vector<Work> works;
        works.reserve(group.end - group.first);
        for (std::size_t i = group.first; i < group.end; ++i) {
            const Step &step = steps_[i];
            void *const *buffers = addresses.data() + addresses.size();
            append(addresses, step, bindings);
            const bool follows = i > group.first && step.strand == steps_[i - 1].strand;
            const bool leads = i + 1 < group.end && step.strand == steps_[i + 1].strand;
            works.emplace_back(step.kernel, buffers, scalars + step.scalars, step.grid,
                               Work::wanted(follows || leads ? 1 : threads));
            if (follows) {
                works.back().pieces = 0;
                works[works.size() - 2].next = &works.back();
            }
        }
        ThreadPool::shared().run(Batch(works.data(), works.size()), threads);
    }

    void apply(const Patch &patch, std::string &scalars) const {
        if (patch.step >= steps_.size() || steps_[patch.step].kernel == nullptr)
            throw std::out_of_range("a patch names a step that is no launch");
        const Step &step = steps_[patch.step];
        if (patch.offset > step.nbytes || patch.data.size() > step.nbytes - patch.offset)
            throw std::out_of_range("a patch lies outside its scalar block");
        std::memcpy(&scalars[step.scalars + patch.offset], patch.data.data(), patch.data.size());
    }

    std::vector<Step> steps_;
    std::deque<Group> groups_;  // a group stays where it is: its counts are atomic
    std::string scalars_;
    std::size_t slots_ = 0;
};

}  // namespace oarlock
