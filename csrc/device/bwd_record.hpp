// Records of backward kernels: as kernel_record.hpp, with the argument names of bwd_args.def after the common ones.
#pragma once

#include "kernel_record.hpp"

namespace flash_attn_rocm {

#define FA_ARG(name)                                                                             \
    template <class Kargs>                                                                       \
    constexpr auto find_##name(int)                                                              \
        -> decltype((void)sizeof(static_cast<Kargs*>(nullptr)->name), ArgSlot{})                 \
    {                                                                                            \
        return {static_cast<std::uint16_t>(__builtin_offsetof(Kargs, name)),                     \
                static_cast<std::uint16_t>(sizeof(static_cast<Kargs*>(nullptr)->name))};         \
    }                                                                                            \
    template <class Kargs>                                                                       \
    constexpr ArgSlot find_##name(long)                                                          \
    {                                                                                            \
        return {kAbsent, 0};                                                                     \
    }
#include "bwd_args.def"
#undef FA_ARG

inline constexpr int kBwdArgCount = 0
#define FA_ARG(name) +1
#include "bwd_args.def"
#undef FA_ARG
    ;

struct BwdKernelRecord
{
    KernelRecord common; // its arg_count covers the further ones
    ArgSlot args[kBwdArgCount];
};

template <class Kernel>
constexpr BwdKernelRecord make_bwd_record(std::uint32_t tile_m, std::uint32_t tile_n, std::uint32_t hdim)
{
    using Kargs         = typename Kernel::Kargs;
    KernelRecord common = make_record<Kernel>(Kernel::kBlockSize, tile_m, tile_n, hdim, hdim);
    common.arg_count += kBwdArgCount;
    return {common,
            {
#define FA_ARG(name) find_##name<Kargs>(0),
#include "bwd_args.def"
#undef FA_ARG
            }};
}

} // namespace flash_attn_rocm

#define FA_BWD_RECORD(name, kernel_type, m, n, hdim)                                                    \
    extern "C" __attribute__((used, section(".fa_info"))) __device__ const                              \
    flash_attn_rocm::BwdKernelRecord name##_info = flash_attn_rocm::make_bwd_record<kernel_type>(m, n, hdim)

// Emits CK's kernel `name` and its record `name_info`. The static_assert instantiates GetSmemSize in a neutral context
// first: from a __device__ initialiser libstdc++'s host-only declval makes its instantiation fail.
#define FA_BWD_KERNEL(name, kernel_type)                                                                \
    static_assert(kernel_type::GetSmemSize() > 0);                                                      \
    extern "C" __launch_bounds__(kernel_type::kBlockSize, kernel_type::kBlockPerCu) __global__ void     \
    name(kernel_type::Kargs kargs)                                                                      \
    {                                                                                                   \
        kernel_type{}(kargs);                                                                           \
    }                                                                                                   \
    FA_BWD_RECORD(name,                                                                                 \
                  kernel_type,                                                                          \
                  kernel_type::FmhaPipeline::kM0,                                                       \
                  kernel_type::FmhaPipeline::kN0,                                                       \
                  kernel_type::FmhaPipeline::kQKHeaddim)

// Emits a kernel of our own, without tiles: `kernel_type` has Kargs, kBlockSize, kRows (rows of one workgroup) and
// kMaxHdim.
#define FA_BWD_PLAIN_KERNEL(name, kernel_type)                                                          \
    extern "C" __launch_bounds__(kernel_type::kBlockSize) __global__ void name(kernel_type::Kargs kargs) \
    {                                                                                                   \
        kernel_type{}(kargs);                                                                           \
    }                                                                                                   \
    FA_BWD_RECORD(name, kernel_type, kernel_type::kRows, 1, kernel_type::kMaxHdim)
