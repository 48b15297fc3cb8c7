// Checks rows of kernels.json: a wrong slot or tile would not fail at the launch, it would compute wrong numbers.
#include "manifest_checks.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "required_args.hpp"

namespace flash_attn_rocm {
namespace {

// Bounds that no AMD GPU exceeds; they keep sizes computed from these fields within range.
constexpr std::int64_t kMaxExtent        = 4096; // of a tile or head dim
constexpr std::uint32_t kMaxBlockThreads = 1024;
constexpr std::uint32_t kMaxKargsBytes   = 4096;

void check_presence(const JsonReader& reader, const KernelInfo& kernel)
{
    for(const Arg arg : required_args(kernel))
    {
        if(kernel.args[static_cast<std::size_t>(arg)].size == 0)
        {
            reader.reject("argument '", arg_name(arg), "' is missing, which such a kernel needs");
        }
    }
}

bool size_fits(std::string_view name, std::uint32_t size)
{
    if(name.ends_with("_ptr"))
    {
        return size == 8;
    }
    if(name.starts_with("scale_") || name.starts_with("logits_soft_cap") || name == "rp_undrop" || name == "scale" ||
       name == "raw_scale" || name == "p_undrop")
    {
        return size == 4; // float
    }
    const bool byte = name.starts_with("p_undrop") || name.starts_with("is_");
    return size == 4 || size == 8 || (byte && size == 1);
}

void check_slots(const JsonReader& reader, const KernelInfo& kernel)
{
    const auto slot_of = [&kernel](Arg arg) { return kernel.args[static_cast<std::size_t>(arg)]; };
    std::vector<Arg> present = kernel.present;
    for(const Arg arg : present)
    {
        const ArgSlot slot = slot_of(arg);
        if(!size_fits(arg_name(arg), slot.size) || slot.offset % slot.size != 0)
        {
            reader.reject("argument '", arg_name(arg), "' is [", slot.offset, ",", slot.size,
                          "]; expected a size that suits it and an offset that is a multiple of the size");
        }
    }
    std::sort(present.begin(), present.end(), [&](Arg a, Arg b) { return slot_of(a).offset < slot_of(b).offset; });
    for(std::size_t i = 1; i < present.size(); ++i)
    {
        const ArgSlot before = slot_of(present[i - 1]);
        if(before.offset + before.size > slot_of(present[i]).offset)
        {
            reader.reject("arguments '", arg_name(present[i - 1]), "' and '", arg_name(present[i]), "' overlap");
        }
    }
}

} // namespace

void check_kernel(const JsonReader& reader, const KernelInfo& kernel, int wave_size)
{
    const std::pair<const char*, std::int64_t> extents[] = {
        {"tile_m", kernel.tile_m}, {"tile_n", kernel.tile_n}, {"hdim_q", kernel.hdim_q}, {"hdim_v", kernel.hdim_v}};
    for(const auto& [name, value] : extents)
    {
        if(value < 1 || value > kMaxExtent)
        {
            reader.reject(name, " is ", value, "; allowed: 1 to ", kMaxExtent);
        }
    }
    const std::uint32_t threads = kernel.block_threads;
    if(threads == 0 || threads > kMaxBlockThreads || threads % static_cast<std::uint32_t>(wave_size) != 0)
    {
        reader.reject("block_threads is ", threads, "; allowed: multiples of wave_size ", wave_size, " up to ",
                      kMaxBlockThreads);
    }
    if(kernel.kargs_bytes > kMaxKargsBytes)
    {
        reader.reject("kargs_bytes is ", kernel.kargs_bytes, "; allowed: up to ", kMaxKargsBytes);
    }
    check_presence(reader, kernel);
    check_slots(reader, kernel);
}

bool plain_file_name(const std::string& name)
{
    // Separators and drives of every platform: packages are made on one and read on another.
    return !name.empty() && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\\:\0", 4)) == std::string::npos;
}

} // namespace flash_attn_rocm
