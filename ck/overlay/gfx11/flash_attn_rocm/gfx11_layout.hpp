// From the layout of a WMMA result to that of an A operand, on gfx11 (RDNA3 ISA guide 7.9).
//
// CK's attention transposes its products, so that lane L has row L % 16 of C and of A. Of a 16x16 tile of C it holds 8
// elements, columns 2 * i + L / 16; of A all 16. The missing ones are in the other half of the wave.
#pragma once

#include <cstdint>

#include "ck_tile/core.hpp"
#include "flash_attn_rocm/gfx11_lanes.hpp"

namespace flash_attn_rocm {

// Tiles one after the other: 8 elements of 16 bits each in `source`, 16 in `target`.
template <class Target, class Source>
CK_TILE_DEVICE void gfx11_c_to_a(Target& target, const Source& source)
{
    using Element = typename Target::value_type;
    static_assert(sizeof(Element) == 2 && Target::size() == 2 * Source::size() && Source::size() % 8 == 0);
    // Bytes of {other, own}: the even columns are in lanes 0-15.
    const bool odd                 = gfx11_in_second_half();
    const std::uint32_t first_two  = odd ? 0x01000504 : 0x05040100;
    const std::uint32_t second_two = odd ? 0x03020706 : 0x07060302;
    ck_tile::static_for<0, Source::size() / 2, 1>{}([&](auto pair) {
        constexpr int i           = pair;
        const std::uint32_t own   = ck_tile::bit_cast<std::uint16_t>(source[ck_tile::number<2 * i>{}]) |
                                  ck_tile::bit_cast<std::uint16_t>(source[ck_tile::number<2 * i + 1>{}]) << 16;
        const std::uint32_t other = gfx11_other_half(own);
        const std::uint32_t words[2] = {__builtin_amdgcn_perm(other, own, first_two),
                                        __builtin_amdgcn_perm(other, own, second_two)};
        ck_tile::static_for<0, 4, 1>{}([&](auto column) {
            constexpr int k = column;
            target(ck_tile::number<4 * i + k>{}) =
                ck_tile::bit_cast<Element>(static_cast<std::uint16_t>(words[k / 2] >> (16 * (k % 2))));
        });
    });
}

} // namespace flash_attn_rocm
