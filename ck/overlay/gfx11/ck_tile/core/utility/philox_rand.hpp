// In the place of CK's header of this path: on gfx11, too, dropout gives a row and column the byte that it gives them on every
// other GPU. The lanes that draw the bytes of a 16x16 tile have 8 rows each, one half of the wave the first 8; in the layout
// of gfx11's results one half has the even rows.
#pragma once

#define philox philox_of_ck
#include_next "ck_tile/core/utility/philox_rand.hpp"
#undef philox

#include "flash_attn_rocm/gfx11_lanes.hpp"

namespace ck_tile {

class philox : public philox_of_ck
{
    public:
    using philox_of_ck::philox_of_ck;

#if defined(__gfx11__)
    CK_TILE_DEVICE void get_random_16x8(std::uint8_t* out, const unsigned long long subsequence) const
    {
        philox_of_ck::get_random_16x8(out, subsequence);
        exchange(out);
        exchange(out + 8);
    }

    CK_TILE_DEVICE void
    get_random_8x8(std::uint8_t* out, const unsigned long long subsequence, const index_t idx0, const index_t idx1) const
    {
        philox_of_ck::get_random_8x8(out, subsequence, idx0, idx1);
        exchange(out);
    }

    private:
    // From rows 8 * half + i to rows 2 * i + half.
    CK_TILE_DEVICE static void exchange(std::uint8_t* bytes)
    {
        using flash_attn_rocm::gfx11_other_half;
        auto* words                 = reinterpret_cast<std::uint32_t*>(bytes);
        const bool second           = flash_attn_rocm::gfx11_in_second_half();
        const std::uint32_t own[]   = {words[0], words[1]};
        const std::uint32_t other[] = {gfx11_other_half(own[0]), gfx11_other_half(own[1])};
        const std::uint32_t parity  = second ? 0x07050301 : 0x06040200;
        const std::uint32_t mine    = __builtin_amdgcn_perm(own[1], own[0], parity);
        const std::uint32_t theirs  = __builtin_amdgcn_perm(other[1], other[0], parity);
        words[0]                    = second ? theirs : mine;
        words[1]                    = second ? mine : theirs;
    }
#endif
};

} // namespace ck_tile
