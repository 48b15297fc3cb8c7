// Runs launches where the tensors are: queued on torch's current stream, or at once on the emulated GPU.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <torch/csrc/stable/accelerator.h>

#include "../host/hip_types.hpp"
#include "tensors.hpp"

namespace flash_attn_rocm {

// The device that kernels for these tensors run on; for CPU tensors the emulated
// runtime's current device.
int device_of(const Tensor& q);

// While it lives, the GPU that holds `q` is the current one; nothing for CPU tensors.
class CurrentDevice
{
public:
    explicit CurrentDevice(const Tensor& q);

private:
    std::optional<torch::stable::accelerator::DeviceGuard> guard_;
};

// Calls `launch` with device and stream. `used` are all tensors whose memory the kernels may touch.
void run_where(const Tensor& q, const std::vector<Tensor>& used, const std::function<void(int, HipStream)>& launch);

} // namespace flash_attn_rocm
