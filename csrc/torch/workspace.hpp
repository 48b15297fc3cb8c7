// The workspace of one call, in one tensor: on the host an allocation costs about as much as a kernel launch.
#pragma once

#include <optional>

#include "../host/integers.hpp"
#include "../host/split.hpp"
#include "call_device.hpp"

namespace flash_attn_rocm {

class Workspace
{
public:
    struct Part
    {
        std::int64_t offset = 0;
        std::int64_t bytes  = 0;
    };

    // Before make().
    Part reserve(std::int64_t bytes)
    {
        const Part part{bytes_, bytes};
        // The gap lets an emulated GPU see where a part ends.
        bytes_ = (bytes_ + bytes + kGap + kAlignment - 1) / kAlignment * kAlignment;
        return part;
    }

    // Allocates all parts beside q, uninitialised.
    void make(const Tensor& q) { memory_ = make_tensor(q, {bytes_}, ScalarType::Byte); }

    // A part for the kernels of this call.
    void* use(const Part& part, CallDevice& device) const
    {
        void* data = static_cast<char*>(memory_->data_ptr()) + part.offset;
        device.use(data, part.bytes);
        return data;
    }

private:
    static constexpr std::int64_t kAlignment = 128; // a cache line of the GPU; vector loads need 16
    static constexpr std::int64_t kGap       = 16;

    std::int64_t bytes_ = 0;
    std::optional<Tensor> memory_;
};

// What split-KV's parts write.
struct SplitWorkspace
{
    Workspace::Part lse_acc, o_acc;
    std::int64_t rows; // of q, in every head

    SplitWorkspace(Workspace& workspace, const FwdRequest& request, std::int64_t splits, std::int64_t rows_q) : rows(rows_q)
    {
        const std::int64_t bytes = request.heads_q * splits * rows * kFloatBytes;
        lse_acc = workspace.reserve(bytes);
        o_acc   = workspace.reserve(bytes * request.hdim);
    }

    SplitBuffers use(const Workspace& workspace, CallDevice& device) const
    {
        return {workspace.use(lse_acc, device), workspace.use(o_acc, device), rows};
    }
};

} // namespace flash_attn_rocm
