// In the place of CK's header of this path: float becomes fp16 by rounding to nearest even. CK rounds to zero on gfx90a and
// gfx942, by one instruction for two numbers, which makes every probability and output smaller by up to a whole last place.
#pragma once

#include "ck_tile/core/config.hpp"

namespace flash_attn_rocm {

using HalfPair = _Float16 __attribute__((ext_vector_type(2)));

CK_TILE_DEVICE HalfPair nearest_halves(float first, float second)
{
    return {static_cast<_Float16>(first), static_cast<_Float16>(second)};
}

} // namespace flash_attn_rocm

#define __builtin_amdgcn_cvt_pkrtz flash_attn_rocm::nearest_halves
#include_next "ck_tile/core/tensor/tile_elementwise.hpp"
#undef __builtin_amdgcn_cvt_pkrtz
