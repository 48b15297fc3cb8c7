// Backward (dQ, dK, dV) for head dims above 128 on RDNA 4: a pipeline for CK's kernel, which gives it windows of all
// tensors and stores dK and dV.
#pragma once

#include "bwd_wide_policy.hpp"

namespace flash_attn_rocm {

template <typename Problem_>
struct BwdWidePipeline
{
    using Problem               = ck_tile::remove_cvref_t<Problem_>;
    using Policy                = BwdWidePolicy;
    using QDataType             = typename Problem::QDataType;
    using KDataType             = typename Problem::KDataType;
    using VDataType             = typename Problem::VDataType;
    using GemmDataType          = typename Problem::GemmDataType;
    using BiasDataType          = typename Problem::BiasDataType;
    using LSEDataType           = typename Problem::LSEDataType;
    using AccDataType           = typename Problem::AccDataType;
    using DDataType             = typename Problem::DDataType;
    using RandValOutputDataType = typename Problem::RandValOutputDataType;
    using ODataType             = typename Problem::ODataType;
    using OGradDataType         = typename Problem::OGradDataType;
    using QGradDataType         = typename Problem::QGradDataType;
    using KGradDataType         = typename Problem::KGradDataType;
    using VGradDataType         = typename Problem::VGradDataType;
    using BiasGradDataType      = typename Problem::BiasGradDataType;
    using FmhaMask              = ck_tile::remove_cvref_t<typename Problem::FmhaMask>;
    using FmhaDropout           = ck_tile::remove_cvref_t<typename Problem::FmhaDropout>;
    using BlockFmhaShape        = ck_tile::remove_cvref_t<typename Problem::BlockFmhaShape>;
    using index_t               = ck_tile::index_t;

    static constexpr index_t kBlockPerCu = Problem::kBlockPerCu;
    static constexpr index_t kBlockSize  = Problem::kBlockSize;

    static constexpr index_t kM0        = BlockFmhaShape::kM0;
    static constexpr index_t kN0        = BlockFmhaShape::kN0;
    static constexpr index_t kStep      = BlockFmhaShape::kK0;
    static constexpr index_t kK4        = BlockFmhaShape::kK4;
    static constexpr index_t kQKHeaddim = BlockFmhaShape::kQKHeaddim;
    static constexpr index_t kVHeaddim  = BlockFmhaShape::kVHeaddim;

    static constexpr bool kIsGroupMode     = Problem::kIsGroupMode;
    static constexpr index_t kPadHeadDimQ  = Problem::kPadHeadDimQ;
    static constexpr index_t kPadHeadDimV  = Problem::kPadHeadDimV;
    static constexpr auto BiasEnum         = Problem::BiasEnum;
    static constexpr bool kHasBiasGrad     = Problem::kHasBiasGrad;
    static constexpr bool kIsDeterministic = Problem::kIsDeterministic;
    static constexpr bool kUseTrLoad       = Problem::kUseTrLoad;
    static constexpr bool kHasAlibi        = BiasEnum == ck_tile::BlockAttentionBiasEnum::ALIBI;
    static_assert(kHasAlibi || BiasEnum == ck_tile::BlockAttentionBiasEnum::NO_BIAS);
    static_assert(!kHasBiasGrad && kM0 == BlockFmhaShape::kK1 && kM0 == BlockFmhaShape::kK3);

    static constexpr index_t kAlignmentQ     = Policy::kPack;
    static constexpr index_t kAlignmentK     = Policy::kPack;
    static constexpr index_t kAlignmentV     = Policy::kPack;
    static constexpr index_t kAlignmentOGrad = Policy::kPack;
    static constexpr index_t kAlignmentQGrad = 1;
    static constexpr index_t kAlignmentKGrad =
        kPadHeadDimQ ? kPadHeadDimQ : Policy::template GetAlignmentKGrad<Problem>();
    static constexpr index_t kAlignmentVGrad =
        kPadHeadDimV ? kPadHeadDimV : Policy::template GetAlignmentVGrad<Problem>();
    static constexpr index_t kAlignmentBias = 1;

    static constexpr const char* name = "wide";

    // LDS: Q, dO, LSE, D, dS. P and dS have further buffers to go from wave to wave (BwdExchangePolicy), and so has the
    // identity.
    static constexpr auto kQRows          = Policy::make_rows_descriptor<kM0, kQKHeaddim>();
    static constexpr auto kOGradRows      = Policy::make_rows_descriptor<kM0, kVHeaddim>();
    static constexpr index_t kOGradOffset = sizeof(QDataType) * kM0 * (kQKHeaddim + Policy::kPack);
    static constexpr index_t kLseOffset = kOGradOffset + sizeof(OGradDataType) * kM0 * (kVHeaddim + Policy::kPack);
    static constexpr index_t kDOffset   = kLseOffset + sizeof(LSEDataType) * kM0;
    static constexpr index_t kScoresOffset = kDOffset + sizeof(DDataType) * kM0;

    CK_TILE_HOST_DEVICE static constexpr index_t GetSmemSize()
    {
        return kScoresOffset + sizeof(GemmDataType) * kM0 * (kN0 + Policy::kPack);
    }

    // `sums` = rows times rows, over the whole head dim.
    template <index_t kHdim, typename Gemm, typename Sums, typename LeftWindow, typename RightWindow>
    CK_TILE_DEVICE static void multiply(const Gemm& gemm, Sums& sums, LeftWindow& left, RightWindow& right)
    {
        using namespace ck_tile;
        clear_tile(sums);
        static_for<0, kHdim / kStep, 1>{}([&](auto) {
            const auto left_step  = load_tile(left);
            const auto right_step = load_tile(right);
            move_tile_window(left, {0, kStep});
            move_tile_window(right, {0, kStep});
            gemm(sums, left_step, right_step);
        });
        move_tile_window(left, {0, -kHdim});
        move_tile_window(right, {0, -kHdim});
    }

    // Scores -> P = exp(S - LSE): slopes, then mask, then exp. `row` and `first_key` number the tile's first query and key.
    template <typename Scores, typename Lse, typename PositionEncoding>
    CK_TILE_DEVICE static void to_weights(Scores& p,
                                          const Lse& lse,
                                          const FmhaMask& mask,
                                          PositionEncoding& position_encoding,
                                          index_t row,
                                          index_t first_key,
                                          float scale)
    {
        using namespace ck_tile;
        constexpr auto spans = Scores::get_distributed_spans();
        if constexpr(kHasAlibi)
        {
            sweep_tile_span(spans[number<0>{}], [&](auto i) {
                sweep_tile_span(spans[number<1>{}], [&](auto j) {
                    const auto place =
                        get_x_indices_from_distributed_indices(p.get_tile_distribution(), make_tuple(i, j));
                    constexpr auto ij = make_tuple(i, j);
                    p(ij) *= scale;
                    position_encoding.update(
                        p(ij), row + place.at(number<0>{}), first_key + place.at(number<1>{}));
                });
            });
        }
        if(mask.IsEdgeTile(row, first_key, number<kM0>{}, number<kN0>{}))
        {
            set_tile_if(p, -numeric<AccDataType>::infinity(), [&](auto place) {
                return mask.IsOutOfBound(row + place.at(number<0>{}), first_key + place.at(number<1>{}));
            });
        }
        sweep_tile_span(spans[number<0>{}], [&](auto i) {
            const LSEDataType raw = lse[make_tuple(i)];
            // a row that sees no key has an LSE of -inf
            const auto row_lse = log2e_v<LSEDataType> *
                                 (FmhaMask::IsMasking && raw == -numeric<LSEDataType>::infinity() ? 0.f : raw);
            sweep_tile_span(spans[number<1>{}], [&](auto j) {
                constexpr auto ij = make_tuple(i, j);
                p(ij)             = ck_tile::exp2((kHasAlibi ? p[ij] : scale * p[ij]) - row_lse);
            });
        });
    }

    // dP -> dS = P (dP - D); P of what dropout dropped is negative.
    template <typename Scores, typename RowSums>
    CK_TILE_DEVICE static void to_score_gradients(Scores& ds, const Scores& p, const RowSums& d)
    {
        using namespace ck_tile;
        constexpr auto spans = Scores::get_distributed_spans();
        sweep_tile_span(spans[number<0>{}], [&](auto i) {
            sweep_tile_span(spans[number<1>{}], [&](auto j) {
                constexpr auto ij  = make_tuple(i, j);
                const bool dropped = FmhaDropout::IsDropout && !(p[ij] >= 0);
                ds(ij)             = p[ij] * (dropped ? d[make_tuple(i)] : ds[ij] - d[make_tuple(i)]);
            });
        });
    }

    template <typename QWindow,
              typename KWindow,
              typename VWindow,
              typename BiasWindow,
              typename RandValWindow,
              typename OGradWindow,
              typename LSEWindow,
              typename DWindow,
              typename QGradWindow,
              typename BiasGradWindow,
              typename PositionEncoding>
    CK_TILE_DEVICE auto operator()(void* smem,
                                   const QWindow& q_window,
                                   const KWindow& k_window,
                                   const VWindow& v_window,
                                   const BiasWindow&,
                                   const RandValWindow& randval_window,
                                   const OGradWindow& do_window,
                                   const LSEWindow& lse_window,
                                   const DWindow& d_window,
                                   const QGradWindow& dq_window,
                                   const BiasGradWindow&,
                                   FmhaMask mask,
                                   PositionEncoding position_encoding,
                                   float raw_scale,
                                   float scale,
                                   float rp_undrop,
                                   float scale_rp_undrop,
                                   FmhaDropout& dropout) const
    {
        using namespace ck_tile;
        constexpr auto gemm_0 = Policy::template GetQKBlockGemm<Problem>();       // S = Q K^T
        constexpr auto gemm_1 = Policy::template GetPTOGradTBlockGemm<Problem>(); // dV = P^T dO
        constexpr auto gemm_2 = Policy::template GetOGradVBlockGemm<Problem>();   // dP = dO V^T
        constexpr auto gemm_3 = Policy::template GetSGradTQTBlockGemm<Problem>(); // dK = dS^T Q
        constexpr auto gemm_4 = Policy::template GetSGradKTBlockGemm<Problem>();  // dQ = dS K
        using ScoreGemm       = remove_cvref_t<decltype(gemm_0)>;
        using WarpGemm        = typename ScoreGemm::WarpGemm;
        using KeyWaves        = typename BlockFmhaShape::Gemm1BlockWarps;
        using QueryWaves      = typename BlockFmhaShape::Gemm4BlockWarps;

        auto dv_acc = decltype(gemm_1.MakeCBlockTile()){};
        auto dk_acc = decltype(gemm_3.MakeCBlockTile()){};
        clear_tile(dv_acc);
        clear_tile(dk_acc);

        const index_t first_key         = k_window.get_window_origin().at(number<0>{});
        const auto [row_start, row_end] = mask.GetTileRangeAlongY(first_key, number<kM0>{}, number<kN0>{});
        const index_t steps             = integer_divide_ceil(row_end - row_start, kM0);
        if constexpr(FmhaMask::IsMasking)
        {
            if(steps <= 0)
                return make_tuple(dk_acc, dv_acc);
        }

        const auto make_window = [](const auto& view, auto height, auto width, index_t top, const auto&... lanes) {
            return make_tile_window(view, make_tuple(height, width), {top, 0}, lanes...);
        };
        const auto make_rows_window = [](const auto& view, index_t top, const auto&... lanes) {
            return make_tile_window(view, make_tuple(number<kM0>{}), {top}, lanes...);
        };
        constexpr auto rows    = number<kM0>{};
        constexpr auto keys    = number<kN0>{};
        constexpr auto columns = number<kStep>{};
        constexpr auto q_hdim  = number<kQKHeaddim>{};
        constexpr auto v_hdim  = number<kVHeaddim>{};

        // Memory: K and V as right operands, Q, dO, LSE and D on their way to LDS, dQ.
        const auto k_view = k_window.get_bottom_tensor_view();
        const auto v_view = v_window.get_bottom_tensor_view();
        auto k_steps =
            make_window(k_view, keys, columns, first_key, Policy::template MakeKRegBlockDescriptor<Problem>());
        auto v_steps =
            make_window(v_view, keys, columns, first_key, Policy::template MakeVRegBlockDescriptor<Problem>());
        auto q_memory    = make_window(q_window.get_bottom_tensor_view(),
                                    rows,
                                    q_hdim,
                                    row_start,
                                    Policy::template make_staging_distribution<Problem, kQKHeaddim>());
        auto do_memory   = make_window(do_window.get_bottom_tensor_view(),
                                     rows,
                                     v_hdim,
                                     row_start,
                                     Policy::template make_staging_distribution<Problem, kVHeaddim>());
        constexpr auto lsed_lanes = Policy::template MakeLSEDDramTileDistribution<Problem, ScoreGemm>();
        auto lse_memory = make_rows_window(lse_window.get_bottom_tensor_view(), row_start, lsed_lanes);
        auto d_memory   = make_rows_window(d_window.get_bottom_tensor_view(), row_start, lsed_lanes);
        auto dq_memory  = make_window(dq_window.get_bottom_tensor_view(), rows, q_hdim, row_start);
        auto randval_memory = dropout.template MakeRandvalDramWindow<ScoreGemm, false>(randval_window, row_start);

        // LDS.
        const auto view_of = [&](auto element, index_t offset, const auto& descriptor) {
            void* const place = static_cast<char*>(smem) + offset;
            return make_tensor_view<address_space_enum::lds>(static_cast<decltype(element)*>(place), descriptor);
        };
        constexpr auto lsed_places = Policy::template MakeLSEDLdsWriteBlockDescriptor<Problem>();
        const auto q_lds           = view_of(QDataType{}, 0, kQRows);
        const auto do_lds          = view_of(OGradDataType{}, kOGradOffset, kOGradRows);
        const auto lse_lds         = view_of(LSEDataType{}, kLseOffset, lsed_places);
        const auto d_lds           = view_of(DDataType{}, kDOffset, lsed_places);
        const auto ds_lds          = view_of(GemmDataType{}, kScoresOffset, Policy::make_rows_descriptor<kM0, kN0>());
        auto q_write               = make_window(q_lds, rows, q_hdim, 0);
        auto do_write              = make_window(do_lds, rows, v_hdim, 0);
        auto lse_write             = make_rows_window(lse_lds, 0);
        auto d_write               = make_rows_window(d_lds, 0);
        auto ds_write              = make_window(ds_lds, rows, keys, 0);
        auto q_steps  = make_window(q_lds, rows, columns, 0, Policy::template MakeQRegSliceBlockDescriptor<Problem>());
        auto do_steps =
            make_window(do_lds, rows, columns, 0, Policy::template MakeOGradRegSliceBlockDescriptor<Problem>());
        auto ds_steps =
            make_window(ds_lds, rows, number<kK4>{}, 0, Policy::template MakeSGradRegSliceBlockDescriptor<Problem>());
        constexpr auto score_rows = Policy::template MakeLSEDLdsReadBlockDescriptor<Problem, ScoreGemm>();
        auto lse_read             = make_rows_window(lse_lds, 0, score_rows);
        auto d_read               = make_rows_window(d_lds, 0, score_rows);
        auto q_untransposed       = make_window(
            q_lds, rows, q_hdim, 0, Policy::template make_untransposed_distribution<kM0, kQKHeaddim, KeyWaves>());
        auto do_untransposed = make_window(
            do_lds, rows, v_hdim, 0, Policy::template make_untransposed_distribution<kM0, kVHeaddim, KeyWaves>());

        // K transposed, for dQ: all of it stays in registers, since each wave has a few columns of the head dim.
        // The identity waits in LDS for its next use: registers are short, so its load must stay in the loop.
        using Identity = decltype(Policy::template make_identity<KDataType>());
        __shared__ Identity identities[get_warp_size()];
        const Identity identity = Policy::template make_identity<KDataType>();
        if(get_warp_id() == 0)
            identities[get_lane_id()] = identity;
        const auto load_identity = [&] {
            index_t lane = get_lane_id();
            asm volatile("" : "+v"(lane));
            return identities[lane];
        };
        auto kt = make_static_distributed_tensor<KDataType>(Policy::template MakeKTRegBlockDescriptor<Problem>());
        {
            auto k_untransposed =
                make_window(k_view,
                            keys,
                            q_hdim,
                            first_key,
                            Policy::template make_untransposed_distribution<kN0, kQKHeaddim, QueryWaves>());
            Policy::template transpose<WarpGemm>(kt, load_tile(k_untransposed), identity);
        }
        auto pt = make_static_distributed_tensor<GemmDataType>(
            Policy::template MakePTRegSliceBlockDescriptor<Problem>());
        auto dst = make_static_distributed_tensor<GemmDataType>(
            Policy::template MakeSGradTRegSliceBlockDescriptor<Problem>());
        auto dot = make_static_distributed_tensor<OGradDataType>(
            Policy::template MakeOGradTRegSliceBlockDescriptor<Problem>());
        auto qt =
            make_static_distributed_tensor<QDataType>(Policy::template MakeQTRegSliceBlockDescriptor<Problem>());

        index_t row = row_start;
#pragma clang loop unroll(disable) // a peeled first step doubles the code
        for(index_t step = 0; step < steps; ++step, row += kM0)
        {
            const auto q_tile   = load_tile(q_memory);
            const auto do_tile  = load_tile(do_memory);
            const auto lse_tile = load_tile(lse_memory);
            const auto d_tile   = load_tile(d_memory);
            move_tile_window(q_memory, {kM0, 0});
            move_tile_window(do_memory, {kM0, 0});
            move_tile_window(lse_memory, {kM0});
            move_tile_window(d_memory, {kM0});
            block_sync_lds(); // the last step's Q and dO have been read
            store_tile(q_write, q_tile);
            store_tile(do_write, do_tile);
            store_tile(lse_write, lse_tile);
            store_tile(d_write, d_tile);
            block_sync_lds();

            // P = exp(S - LSE)
            auto p = decltype(gemm_0.MakeCBlockTile()){};
            multiply<kQKHeaddim>(gemm_0, p, q_steps, k_steps);
            const auto lse = load_tile(lse_read);
            to_weights(p, lse, mask, position_encoding, row, first_key, scale);
            if constexpr(FmhaDropout::IsDropout)
            {
                // what is dropped becomes negative
                dropout.template Run<ScoreGemm, RandValOutputDataType>(row, first_key, p, randval_memory);
            }
            const auto p_kept = cast_tile<GemmDataType>(tile_elementwise_in(
                [](const AccDataType& x) { return FmhaDropout::IsDropout && !(x > 0.f) ? 0.f : x; }, p));

            // dV += P^T dO
            Policy::template PTFromGemm0CToGemm1A<Problem>(pt, p_kept);
            Policy::template transpose<WarpGemm>(dot, load_tile(do_untransposed), load_identity());
            gemm_1(dv_acc, pt, dot);
            __builtin_amdgcn_sched_barrier(0); // else operands of two products are in registers at once

            // dS = P (dP - D)
            auto ds = decltype(gemm_2.MakeCBlockTile()){};
            multiply<kVHeaddim>(gemm_2, ds, do_steps, v_steps);
            to_score_gradients(ds, p, load_tile(d_read));
            const auto ds_rounded = cast_tile<GemmDataType>(ds);

            // dK += dS^T Q
            store_tile(ds_write, ds_rounded);
            Policy::template SGradTFromGemm2CToGemm3A<Problem>(dst, ds_rounded);
            Policy::template transpose<WarpGemm>(qt, load_tile(q_untransposed), load_identity());
            gemm_3(dk_acc, dst, qt);
            __builtin_amdgcn_sched_barrier(0); // as above

            // dQ = dS K
            auto dq_acc = decltype(gemm_4.MakeCBlockTile()){};
            clear_tile(dq_acc);
            static_for<0, kN0 / kK4, 1>{}([&](auto i) {
                const auto ds_step = load_tile(ds_steps);
                move_tile_window(ds_steps, {0, kK4});
                gemm_4(dq_acc,
                       ds_step,
                       get_slice_tile(kt, sequence<0, i * kK4>{}, sequence<kQKHeaddim, (i + 1) * kK4>{}));
            });
            move_tile_window(ds_steps, {0, -kN0});
            const float dq_scale = FmhaDropout::IsDropout ? scale_rp_undrop : raw_scale;
            tile_elementwise_inout([&](auto& x) { x = x * dq_scale; }, dq_acc);
            if constexpr(kIsDeterministic)
                store_tile(dq_memory, dq_acc);
            else
                update_tile(dq_memory, dq_acc);
            move_tile_window(dq_memory, {kM0, 0});
        }

        const float dk_scale = FmhaDropout::IsDropout ? scale_rp_undrop : raw_scale;
        tile_elementwise_inout([&](auto& x) { x = x * dk_scale; }, dk_acc);
        if constexpr(FmhaDropout::IsDropout)
            tile_elementwise_inout([&](auto& x) { x = x * rp_undrop; }, dv_acc);
        return make_tuple(dk_acc, dv_acc);
    }
};

// As FmhaBwd, by the pipeline of this file.
template <class Element_,
          class Shape_,
          bool kPadHdim_,
          bool kMask_,
          bool kGroup_,
          bool kAlibi_,
          bool kDropout_,
          bool kDeterministic_>
struct FmhaBwdWide
{
    using Narrow   = FmhaBwd<Element_, Shape_, false, kPadHdim_, kMask_, kGroup_, kAlibi_, kDropout_, kDeterministic_>;
    using Pipeline = BwdWidePipeline<typename Narrow::Problem>;
    using Epilogue = typename Narrow::Epilogue;
    using Kernel   = ck_tile::FmhaBwdDQDKDVKernel<Pipeline, Epilogue, Epilogue, Epilogue>;
};

} // namespace flash_attn_rocm
