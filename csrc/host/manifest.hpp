// kernels.json, schema 1: which kernels a GPU's package holds, how to launch them and where each argument goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace flash_attn_rocm {

// Names of kernel arguments, from the list the kernels are compiled with.
enum class Arg : std::size_t
{
#define FA_ARG(name) name,
#include "../device/kernel_args.def"
#include "../device/bwd_args.def"
#undef FA_ARG
    count
};
inline constexpr std::size_t kArgCount = static_cast<std::size_t>(Arg::count);

const char* arg_name(Arg arg);

struct ArgSlot
{
    std::uint32_t offset = 0; // bytes
    std::uint32_t size   = 0; // bytes; 0: the kernel has no such argument
};

enum class Padding
{
    none,   // sequence lengths are multiples of the tile, head dim is the tile's
    seqlen, // any sequence length, head dim is the tile's
    full,   // any sequence length, head dim up to the tile's
};

// What a kernel and a request must share exactly, as one number, by which kernels are found: there are hundreds.
using FeatureCode = std::uint32_t;

struct Features
{
    std::string_view op;
    std::string_view dtype;
    bool group   = false;
    bool alibi   = false;
    bool softcap = false;
    bool dropout = false;
};
FeatureCode feature_code(const Features& features);

struct KernelInfo
{
    std::string name;
    std::string op;
    std::size_t code_object = 0; // index into Manifest::code_objects
    std::string dtype;           // "fp16" or "bf16"
    std::int64_t hdim_q = 0;
    std::int64_t hdim_v = 0;
    std::string mode; // "batch" or "group"
    bool mask = false;
    std::string bias; // "none" or "alibi"
    bool softcap    = false;
    bool dropout    = false;
    Padding padding = Padding::full;
    bool deterministic            = false; // backward: dq in parts that are added in order
    std::int64_t page             = 0; // keys in pages of a multiple of this many rows; 0: in one piece
    std::int64_t tile_m           = 0; // query rows of one workgroup
    std::int64_t tile_n           = 0; // keys of one main-loop step
    std::uint32_t block_threads   = 0;
    std::uint32_t kargs_bytes     = 0;
    std::array<ArgSlot, kArgCount> args{};
    std::vector<Arg> present; // the arguments that it has
};

struct CodeObject
{
    std::string file;
    std::string sha256;
    std::uint64_t bytes = 0;
};

struct Manifest
{
    std::filesystem::path path; // of kernels.json; code objects lie beside it
    std::string gfx;
    std::string profile;
    int wave_size = 0;
    std::vector<CodeObject> code_objects;
    std::vector<KernelInfo> kernels;
    std::map<FeatureCode, std::vector<std::size_t>> by_features; // indices into kernels

    // The kernels that share a request's features, as indices.
    const std::vector<std::size_t>& with_features(FeatureCode code) const;
};

// Throws Error: unreadable file, another schema (older or newer, and what to update), a missing or ill-typed field,
// an argument this library does not know.
Manifest load_manifest(const std::filesystem::path& path);

// "conda install --force-reinstall flash-attn-rocm-kernels-<gfx>": the remedy for damaged kernel packages.
std::string reinstall_command(const std::string& gfx);

} // namespace flash_attn_rocm
