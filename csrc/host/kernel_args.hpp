// Fills a kernel's argument buffer by argument name; offsets and sizes come from kernels.json.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "bwd_request.hpp"
#include "fwd_request.hpp"
#include "manifest.hpp"

namespace flash_attn_rocm {

// monostate: no value given.
using ArgValue = std::variant<std::monostate, const void*, std::int64_t, float>;

class ArgValues
{
public:
    void set(Arg arg, ArgValue value) { values_[static_cast<std::size_t>(arg)] = value; }
    const ArgValue& get(Arg arg) const { return values_[static_cast<std::size_t>(arg)]; }

private:
    std::array<ArgValue, kArgCount> values_{};
};

// Throws Error when an argument the kernel has was not given a value, or the value does not fit its field: nothing is
// left uninitialised, nothing wraps.
std::vector<std::byte> pack_args(const KernelInfo& kernel, const ArgValues& values);

// Argument values of a forward call, except the pointers that change with every launch: tensors, LSE, slopes and map.
ArgValues fwd_arg_values(const FwdRequest& request);

// The same for CK's backward kernel; the strides of gradients and workspace are left out too.
ArgValues bwd_arg_values(const BwdRequest& request);

} // namespace flash_attn_rocm
