// Cache sizes as Linux's amdgpu driver reports them: /sys/class/kfd/kfd/topology/nodes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace flash_attn_rocm {

// Where a GPU sits on the PCI bus; its function is 0.
struct PciAddress
{
    std::int64_t domain = 0;
    std::int64_t bus    = 0;
    std::int64_t device = 0;
};

inline constexpr const char* kKfdNodes = "/sys/class/kfd/kfd/topology/nodes";

// Bytes of the largest level-3 cache of the node with this address and GPU ("gfx1201"); 0 where there is none, which
// includes systems without that directory.
std::int64_t kfd_cache_bytes(const std::filesystem::path& nodes, const PciAddress& address, const std::string& gfx);

} // namespace flash_attn_rocm
