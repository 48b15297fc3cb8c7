// The device of one call of an op: where q is, made current, with the memory that the call's kernels may touch.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <torch/csrc/stable/accelerator.h>

#include "../host/queue.hpp"
#include "tensors.hpp"

namespace flash_attn_rocm {

class CallDevice
{
public:
    // Throws unless kernels can run where q is; for CPU tensors that takes an emulated GPU. While this lives, the GPU
    // that holds q is the current one.
    explicit CallDevice(const Tensor& q);

    // As the HIP runtime numbers devices.
    int index() const { return index_; }

    // Lets kernels read and write this memory: an emulated GPU sees no other. A GPU sees all of its own, and nothing is
    // kept for it, not even the tensor: it must outlive run().
    void use(const Tensor& tensor);
    void use(const std::optional<Tensor>& tensor);
    void use(const void* data, std::int64_t bytes);

    // Calls `launch` with torch's current stream, or with the emulated GPU, whose kernels have finished afterwards.
    void run(const std::function<void(const Queue&)>& launch) const;

private:
    bool emulated() const { return !guard_; }
    void run_emulated(const std::function<void(const Queue&)>& launch) const;

    std::optional<torch::stable::accelerator::DeviceGuard> guard_; // none for the emulated GPU
    int index_ = 0;
    std::vector<ByteRange> memory_; // that an emulated GPU sees
};

} // namespace flash_attn_rocm
