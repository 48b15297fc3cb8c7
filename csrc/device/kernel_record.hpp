// A constant record beside each kernel in its code object (ELF section .fa_info): launch geometry and the byte
// offset and size of every argument, so that the host fills arguments by name and never needs a CK header.
#pragma once

#include <cstdint>

#include "ck_tile/core.hpp"

namespace flash_attn_rocm {

inline constexpr std::uint32_t kRecordMagic   = 0x31304146; // "FA01", little endian
inline constexpr std::uint32_t kRecordVersion = 1;
inline constexpr std::uint16_t kAbsent        = 0xffff;

struct ArgSlot
{
    std::uint16_t offset; // bytes from the start of Kargs; kAbsent when this kernel has no such argument
    std::uint16_t size;   // bytes
};

// Overload pairs chosen by expression SFINAE: `requires` in a generic lambda is rejected in HIP device mode.
// offsetof through CK's multiply inherited Kargs is a constant expression in clang, and sees tail-padding reuse.
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
#include "kernel_args.def"
#undef FA_ARG

inline constexpr int kArgCount = 0
#define FA_ARG(name) +1
#include "kernel_args.def"
#undef FA_ARG
    ;

struct KernelRecord
{
    std::uint32_t magic;
    std::uint32_t version;
    std::uint32_t kargs_bytes;
    std::uint32_t block_threads;
    std::uint32_t tile_m; // query rows of one workgroup
    std::uint32_t tile_n; // keys of one main-loop step
    std::uint32_t tile_hdim_q;
    std::uint32_t tile_hdim_v; // output columns of one workgroup
    std::uint32_t arg_count;
    ArgSlot args[kArgCount];
};

template <class Kernel>
constexpr KernelRecord make_record(std::uint32_t block_threads,
                                   std::uint32_t tile_m,
                                   std::uint32_t tile_n,
                                   std::uint32_t tile_hdim_q,
                                   std::uint32_t tile_hdim_v)
{
    using Kargs = typename Kernel::Kargs;
    return {kRecordMagic,
            kRecordVersion,
            static_cast<std::uint32_t>(sizeof(Kargs)),
            block_threads,
            tile_m,
            tile_n,
            tile_hdim_q,
            tile_hdim_v,
            static_cast<std::uint32_t>(kArgCount),
            {
#define FA_ARG(name) find_##name<Kargs>(0),
#include "kernel_args.def"
#undef FA_ARG
            }};
}

} // namespace flash_attn_rocm

// Emits a CK kernel `name` of one tile and its record `name_info`. The static_assert instantiates GetSmemSize in a
// neutral context first: from a __device__ initialiser libstdc++'s host-only declval makes its instantiation fail.
#define FA_TILED_KERNEL(name, kernel_type)                                                              \
    static_assert(kernel_type::GetSmemSize() > 0);                                                      \
    extern "C" __launch_bounds__(kernel_type::kBlockSize, kernel_type::kBlockPerCu) __global__ void     \
    name(kernel_type::Kargs kargs)                                                                      \
    {                                                                                                   \
        kernel_type{}(kargs);                                                                           \
    }                                                                                                   \
    extern "C" __attribute__((used, section(".fa_info"))) __device__ const                              \
    flash_attn_rocm::KernelRecord name##_info = flash_attn_rocm::make_record<kernel_type>(              \
        kernel_type::kBlockSize,                                                                        \
        kernel_type::FmhaPipeline::kM0,                                                                 \
        kernel_type::FmhaPipeline::kN0,                                                                 \
        kernel_type::FmhaPipeline::kQKHeaddim,                                                          \
        kernel_type::FmhaPipeline::kN1)

// Emits a kernel of our own, without tiles: `kernel_type` has Kargs, kBlockSize, kRows (rows of one workgroup) and
// kMaxHdim.
#define FA_PLAIN_KERNEL(name, kernel_type)                                                              \
    extern "C" __launch_bounds__(kernel_type::kBlockSize) __global__ void name(kernel_type::Kargs kargs) \
    {                                                                                                   \
        kernel_type{}(kargs);                                                                           \
    }                                                                                                   \
    extern "C" __attribute__((used, section(".fa_info"))) __device__ const                              \
    flash_attn_rocm::KernelRecord name##_info = flash_attn_rocm::make_record<kernel_type>(              \
        kernel_type::kBlockSize, kernel_type::kRows, 1, kernel_type::kMaxHdim, kernel_type::kMaxHdim)
