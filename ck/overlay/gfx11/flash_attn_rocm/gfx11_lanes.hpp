// The two halves of a wave of gfx11. Needs nothing of CK but its macros, so that its core headers can include it.
#pragma once

#include <cstdint>

#include "ck_tile/core/config.hpp"

namespace flash_attn_rocm {

// The value of the lane 16 further or before.
CK_TILE_DEVICE std::uint32_t gfx11_other_half(std::uint32_t value)
{
    return __builtin_amdgcn_permlanex16(value, value, 0x76543210, 0xfedcba98, false, false);
}

// Whether this lane is one of lanes 16 to 31.
CK_TILE_DEVICE bool gfx11_in_second_half() { return (__builtin_amdgcn_mbcnt_lo(~0U, 0) & 16) != 0; }

} // namespace flash_attn_rocm
