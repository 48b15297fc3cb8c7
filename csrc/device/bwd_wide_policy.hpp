// How the wide backward pipeline (fmha_bwd_wide.hpp) cuts and moves its tiles.
#pragma once

#include "fmha_bwd.hpp"

namespace flash_attn_rocm {

// As BwdShape; S and dP are summed over the head dim in steps, so that Q, K, V and dO are never whole in registers.
template <int kQueries_,
          int kKeys_,
          int kHdim_,
          int kDqDepth_,
          class ScoreWaves_,
          class KeyWaves_,
          class QueryWaves_,
          class Matrix_>
struct BwdWideShape
{
    static constexpr int kStep = 32;
    using Shape                = ck_tile::TileFmhaBwdShape<
        ck_tile::sequence<kQueries_, kKeys_, kStep, kQueries_, kStep, kQueries_, kDqDepth_, kHdim_, kHdim_>,
        ScoreWaves_,
        Matrix_,
        KeyWaves_,
        Matrix_,
        ScoreWaves_,
        Matrix_,
        KeyWaves_,
        Matrix_,
        QueryWaves_,
        Matrix_>;
};

// How tiles move. All operands are read as they lie in memory, 16 bytes of a row by each lane; what a product wants
// transposed is multiplied by the identity, whose result has its rows in registers and its columns in lanes: just what
// an operand of the transpose looks like. LDS needs no second, transposed copy of Q and dO, and no wave holds K or V.
struct BwdWidePolicy : BwdExchangePolicy
{
    static constexpr int kEdge = 16; // of a matrix instruction
    static constexpr int kPack = 8;  // elements of 16 bytes

    // Q or dO on its way to LDS: 8 lanes to 64 columns of a row.
    template <typename Problem, int kHdim>
    CK_TILE_HOST_DEVICE static constexpr auto make_staging_distribution()
    {
        using namespace ck_tile;
        constexpr index_t kWaves    = Problem::BlockFmhaShape::NumWarps;
        constexpr index_t kLaneCols = 8;
        constexpr index_t kLaneRows = get_warp_size() / kLaneCols;
        constexpr index_t kRows     = Problem::BlockFmhaShape::kM0 / (kWaves * kLaneRows);
        static_assert(kRows > 0 && kHdim % (kLaneCols * kPack) == 0);
        return make_static_tile_distribution(
            tile_distribution_encoding<
                sequence<>,
                tuple<sequence<kRows, kWaves, kLaneRows>, sequence<kHdim / (kLaneCols * kPack), kLaneCols, kPack>>,
                tuple<sequence<1>, sequence<1, 2>>,
                tuple<sequence<1>, sequence<2, 1>>,
                sequence<1, 2, 2>,
                sequence<0, 0, 2>>{});
    }

    // Rows of a tile as left operands, in the order in which their transposes are the right operand of a product over
    // these rows, whose waves are kWaves (along the other side, along the head dim).
    template <int kRows, int kHdim, typename Waves>
    CK_TILE_HOST_DEVICE static constexpr auto make_untransposed_distribution()
    {
        using namespace ck_tile;
        constexpr index_t kColWaves = Waves::at(number<1>{});
        return make_static_tile_distribution(
            tile_distribution_encoding<
                sequence<Waves::at(number<0>{})>,
                tuple<sequence<kRows / kEdge, kEdge>, sequence<kHdim / (kColWaves * kEdge), kColWaves, 2, kPack>>,
                tuple<sequence<0, 2>, sequence<2, 1>>,
                tuple<sequence<0, 1>, sequence<2, 1>>,
                sequence<2, 1, 2>,
                sequence<0, 0, 3>>{});
    }

    template <typename Element>
    using Pack = ck_tile::ext_vector_t<Element, kPack>;

    // This lane's part of the identity: 8 elements of one column.
    template <typename Element>
    CK_TILE_DEVICE static Pack<Element> make_identity()
    {
        using namespace ck_tile;
        const index_t lane = get_lane_id();
        Pack<Element> one;
        for(index_t i = 0; i < kPack; ++i)
            one[i] = type_convert<Element>(lane / kEdge * kPack + i == lane % kEdge ? 1.f : 0.f);
        return one;
    }

    // Two floats that are numbers of 16 bits: exact, in one instruction.
    template <typename Element>
    CK_TILE_DEVICE static std::uint32_t pack_exactly(float low, float high)
    {
        using namespace ck_tile;
        if constexpr(std::is_same_v<Element, fp16_t>)
            return bit_cast<std::uint32_t>(__builtin_amdgcn_cvt_pkrtz(low, high));
        else
            return __builtin_amdgcn_perm(bit_cast<std::uint32_t>(high), bit_cast<std::uint32_t>(low), 0x07060302u);
    }

    // `untransposed` (make_untransposed_distribution) as the operand `out`.
    template <typename WarpGemm, typename OutTensor, typename InTensor, typename Identity>
    CK_TILE_DEVICE static void transpose(OutTensor& out, const InTensor& untransposed, const Identity& identity)
    {
        using namespace ck_tile;
        using Element = typename OutTensor::DataType;
        using Impl    = typename WarpGemm::WarpGemmAttribute::Impl;
        static_assert(Impl::kRepeat == 1 && Impl::kABK1PerLane == kPack && Impl::kCM1PerLane == kPack,
                      "this matrix instruction's result does not look like an operand");
        constexpr index_t kTiles = OutTensor::get_thread_buffer_size() / kPack;
        static_assert(InTensor::get_thread_buffer_size() == kTiles * kPack);
        static_for<0, kTiles, 1>{}([&](auto i) {
            const auto rows = untransposed.get_thread_buffer().template get_as<Pack<Element>>(i);
            const auto sums = Impl{}(rows, identity);
            ext_vector_t<std::uint32_t, kPack / 2> packed;
            for(index_t j = 0; j < kPack / 2; ++j)
                packed[j] = pack_exactly<Element>(sums[2 * j], sums[2 * j + 1]);
            out.get_thread_buffer().template set_as<Pack<Element>>(i, bit_cast<Pack<Element>>(packed));
        });
    }

    // Rows of Q, dO or dS in LDS; the pad keeps 16 lanes off the same banks, and leaves one address to a tile, from
    // which all others differ by a constant.
    template <int kRows, int kColumns>
    CK_TILE_HOST_DEVICE static constexpr auto make_rows_descriptor()
    {
        using namespace ck_tile;
        return make_naive_tensor_descriptor(make_tuple(number<kRows>{}, number<kColumns>{}),
                                            make_tuple(number<kColumns + kPack>{}, number<1>{}),
                                            number<kPack>{},
                                            number<1>{});
    }
};

} // namespace flash_attn_rocm
