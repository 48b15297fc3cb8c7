// How CK's backward pipelines move tiles on RDNA 4: the default policy, and P and dS exchanged between waves through LDS.
#pragma once

#include "ck_tile/core.hpp"

// CK's policy uses these without including them.
#include "ck_tile/ops/common.hpp"
#include "ck_tile/ops/fmha/block/block_attention_bias_enum.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_bwd_pipeline_default_policy.hpp"

namespace flash_attn_rocm {

// CK hands P (queries x keys) from the product Q K^T to P^T dO in registers, which works while each wave holds all
// query rows of its keys and the whole head dim of dK and dV: at d128 these two alone fill 128 registers, whatever the
// number of waves. With waves along queries and head dim, no register spills; P and dS then go through LDS.
struct BwdExchangePolicy : ck_tile::BlockFmhaBwdPipelineDefaultPolicy
{
    using Base = ck_tile::BlockFmhaBwdPipelineDefaultPolicy;

    template <typename Problem>
    static constexpr bool kExchange = Problem::BlockFmhaShape::Gemm0BlockWarps::at(ck_tile::number<0>{}) > 1 ||
                                      Problem::BlockFmhaShape::Gemm1BlockWarps::at(ck_tile::number<1>{}) > 1;

    // LSE and D on their way to LDS. CK's distribution has a row for each lane of each wave along the queries, which is
    // more rows than the tile has; here every wave moves the same rows.
    template <typename Problem, typename BlockGemm>
    CK_TILE_HOST_DEVICE static constexpr auto MakeLSEDDramTileDistribution()
    {
        using namespace ck_tile;
        if constexpr(kExchange<Problem>)
        {
            constexpr index_t kRows    = Problem::BlockFmhaShape::kM0;
            constexpr index_t kWaves   = Problem::BlockFmhaShape::NumWarps;
            constexpr index_t kLanes   = kRows < get_warp_size() ? kRows : get_warp_size();
            constexpr index_t kCopies  = get_warp_size() / kLanes;
            constexpr index_t kPerLane = kRows / kLanes;
            return make_static_tile_distribution(tile_distribution_encoding<sequence<kWaves, kCopies>,
                                                                            tuple<sequence<kLanes, kPerLane>>,
                                                                            tuple<sequence<0>, sequence<0, 1>>,
                                                                            tuple<sequence<0>, sequence<1, 0>>,
                                                                            sequence<1>,
                                                                            sequence<1>>{});
        }
        else
        {
            return Base::MakeLSEDDramTileDistribution<Problem, BlockGemm>();
        }
    }

    // Writes `in` (kM0 x kN0, in the layout of a product's result) to LDS and reads its transpose as a left operand.
    // A lane holds 8 consecutive rows of one column, so both directions move 16 bytes. P and dS have buffers of their
    // own: each exchange's barrier then keeps the other's next write behind its last read, whatever the pipeline does.
    enum class Operand
    {
        weights, // P
        scores,  // dS
    };
    template <typename Problem, Operand kOperand, typename OutTensor, typename InTensor>
    CK_TILE_DEVICE static void exchange(OutTensor& out, const InTensor& in)
    {
        using namespace ck_tile;
        using Element            = typename Problem::GemmDataType;
        constexpr index_t kRows  = Problem::BlockFmhaShape::kN0;
        constexpr index_t kDepth = Problem::BlockFmhaShape::kM0;
        constexpr index_t kPack  = 16 / sizeof(Element);
        constexpr index_t kPitch = kDepth + kPack; // the pad keeps 16 lanes off the same banks
        __shared__ Element buffer[kRows * kPitch];

        constexpr auto transposed = make_naive_tensor_descriptor(make_tuple(number<kRows>{}, number<kDepth>{}),
                                                                 make_tuple(number<kPitch>{}, number<1>{}),
                                                                 number<kPack>{},
                                                                 number<1>{});
        constexpr auto straight   = transform_tensor_descriptor(
            transposed,
            make_tuple(make_pass_through_transform(number<kRows>{}), make_pass_through_transform(number<kDepth>{})),
            make_tuple(sequence<0>{}, sequence<1>{}),
            make_tuple(sequence<1>{}, sequence<0>{}));

        Element* const memory = buffer;
        auto write_window     = make_tile_window(make_tensor_view<address_space_enum::lds>(memory, straight),
                                             make_tuple(number<kDepth>{}, number<kRows>{}),
                                             {0, 0});
        auto read_window      = make_tile_window(make_tensor_view<address_space_enum::lds>(memory, transposed),
                                            make_tuple(number<kRows>{}, number<kDepth>{}),
                                            {0, 0},
                                            OutTensor::get_tile_distribution());
        store_tile(write_window, in);
        block_sync_lds();
        out = load_tile(read_window);
    }

    template <typename Problem, typename PTOutTensor, typename PInTensor>
    CK_TILE_DEVICE static void PTFromGemm0CToGemm1A(PTOutTensor& pt_out, const PInTensor& p_in)
    {
        if constexpr(kExchange<Problem>)
            exchange<Problem, Operand::weights>(pt_out, p_in);
        else
            Base::PTFromGemm0CToGemm1A<Problem>(pt_out, p_in);
    }

    template <typename Problem, typename SGradTOutTensor, typename SGradInTensor>
    CK_TILE_DEVICE static void SGradTFromGemm2CToGemm3A(SGradTOutTensor& dst_out, const SGradInTensor& ds_in)
    {
        if constexpr(kExchange<Problem>)
            exchange<Problem, Operand::scores>(dst_out, ds_in);
        else
            Base::SGradTFromGemm2CToGemm3A<Problem>(dst_out, ds_in);
    }
};

} // namespace flash_attn_rocm
