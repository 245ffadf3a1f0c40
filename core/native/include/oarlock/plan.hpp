// A plan: launches and copies between slots, prepared once and replayed with new addresses.
#pragma once

#include <cstdint>
#include <cstring>
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

    void add_launch(Kernel kernel, const Grid &grid, const Slots &buffers, std::string_view scalars) {
        Step step;
        step.kernel = kernel;
        step.grid = grid;
        step.buffers = buffers;
        step.scalars = scalars_.size();
        step.nbytes = scalars.size();
        for (const auto &buffer : buffers) use(buffer.first);
        scalars_.append(scalars);
        scalars_.append((kScalarAlignment - scalars_.size() % kScalarAlignment) % kScalarAlignment, '\0');
        steps_.push_back(std::move(step));
    }

    void add_copy(std::size_t dst, std::size_t dst_offset, std::size_t src, std::size_t src_offset,
                  std::size_t nbytes) {
        Step step;
        step.buffers = {{dst, dst_offset}, {src, src_offset}};
        step.nbytes = nbytes;
        use(dst);
        use(src);
        steps_.push_back(std::move(step));
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
        for (const Step &step : steps_) {
            addresses.clear();
            addresses.reserve(step.buffers.size());
            for (const auto &[slot, offset] : step.buffers)
                addresses.push_back(reinterpret_cast<void *>(bindings[slot] + offset));
            if (step.kernel == nullptr) {
                std::memcpy(addresses[0], addresses[1], step.nbytes);
            } else {
                ThreadPool::shared().launch(step.kernel, addresses.data(), scalars + step.scalars, step.grid, threads);
            }
        }
    }

  private:
    static constexpr std::size_t kScalarAlignment = 16;

    struct Step {
        Kernel kernel = nullptr;  // none: a copy of nbytes from buffers[1] to buffers[0]
        Grid grid{};
        Slots buffers;
        std::size_t scalars = 0;  // where the step's block starts in scalars_
        std::size_t nbytes = 0;   // size of that block, or of the copy
    };

    void use(std::size_t slot) { slots_ = std::max(slots_, slot + 1); }

    void apply(const Patch &patch, std::string &scalars) const {
        if (patch.step >= steps_.size() || steps_[patch.step].kernel == nullptr)
            throw std::out_of_range("a patch names a step that is no launch");
        const Step &step = steps_[patch.step];
        if (patch.offset > step.nbytes || patch.data.size() > step.nbytes - patch.offset)
            throw std::out_of_range("a patch lies outside its scalar block");
        std::memcpy(&scalars[step.scalars + patch.offset], patch.data.data(), patch.data.size());
    }

    std::vector<Step> steps_;
    std::string scalars_;
    std::size_t slots_ = 0;
};

}  // namespace oarlock
