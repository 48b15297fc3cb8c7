// Wrapper around CK's backward FMHA kernel (dQ, dK, dV): from a handful of numbers to one __global__ function and its
// record.
#pragma once

#include "bwd_policy.hpp"
#include "bwd_record.hpp"

// ops/common.hpp defines ck_tile::tensor_layout and must precede the fmha headers.
#include "ck_tile/ops/common.hpp"
#include "ck_tile/ops/fmha/block/block_attention_bias_enum.hpp"
#include "ck_tile/ops/fmha/block/block_dropout.hpp"
#include "ck_tile/ops/fmha/block/block_masking.hpp"
#include "ck_tile/ops/fmha/block/block_position_encoding.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_bwd_pipeline_problem.hpp"
#include "ck_tile/ops/fmha/pipeline/tile_fmha_shape.hpp"
#include "ck_tile/ops/fmha/pipeline/tile_fmha_traits.hpp"
#include "ck_tile/ops/fmha/kernel/fmha_bwd_kernel.hpp"
#include "ck_tile/ops/epilogue/default_2d_epilogue.hpp"

namespace flash_attn_rocm {

// Block: [query rows of a step, keys of the workgroup, head dim]. Waves of the products S = Q K^T and dP = dO V^T along
// (queries, keys), of dV and dK along (keys, head dim), of dQ along (queries, head dim); kDqDepth_: keys of dQ at once.
template <int kQueries_,
          int kKeys_,
          int kHdim_,
          int kDqDepth_,
          class ScoreWaves_,
          class KeyWaves_,
          class QueryWaves_,
          class Matrix_>
struct BwdShape
{
    using Shape = ck_tile::TileFmhaBwdShape<
        ck_tile::sequence<kQueries_, kKeys_, kHdim_, kQueries_, kHdim_, kQueries_, kDqDepth_, kHdim_, kHdim_>,
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

// kPrefetch: loads the next queries while it computes (CK's "iglp" pipeline), which takes more registers.
// kPadHdim: the head dim may be smaller than the tile's, a multiple of 8. Any length works: rows beyond the end are
// outside the buffer descriptors, so they read as zero and are not written.
template <class Element_,
          class Shape_,
          bool kPrefetch_,
          bool kPadHdim_,
          bool kMask_,
          bool kGroup_,
          bool kAlibi_,
          bool kDropout_,
          bool kDeterministic_>
struct FmhaBwd
{
    static constexpr int kPad = kPadHdim_ ? 8 : 0;
    using Traits              = ck_tile::TileFmhaBwdTraits<kPad,
                                              kPad,
                                              kAlibi_ ? ck_tile::BlockAttentionBiasEnum::ALIBI
                                                                   : ck_tile::BlockAttentionBiasEnum::NO_BIAS,
                                              /*kHasBiasGrad=*/false,
                                              /*kBlockPerCu=*/1>;
    using Problem             = ck_tile::BlockFmhaBwdPipelineProblem<Element_,
                                                         Element_,
                                                         Element_,
                                                         /*GemmDataType=*/Element_,
                                                         /*LSEDataType=*/float,
                                                         /*AccDataType=*/float,
                                                         /*DDataType=*/float,
                                                         /*BiasDataType=*/Element_,
                                                         /*RandValOutputDataType=*/std::uint8_t,
                                                         /*ODataType=*/Element_,
                                                         /*OGradDataType=*/Element_,
                                                         /*QGradDataType=*/Element_,
                                                         /*KGradDataType=*/Element_,
                                                         /*VGradDataType=*/Element_,
                                                         /*BiasGradDataType=*/Element_,
                                                         Shape_,
                                                         kGroup_,
                                                         kDeterministic_,
                                                         ck_tile::SimplifiedGenericAttentionMask<kMask_>,
                                                         ck_tile::BlockDropoutBwd<kDropout_, /*IsWG32=*/false, false>,
                                                         /*kUseTrLoad=*/false,
                                                         Traits>;
    using Pipeline = std::conditional_t<kPrefetch_,
                                        ck_tile::BlockFmhaBwdDQDKDVPipelineKRKTRVRIGLP<Problem, BwdExchangePolicy>,
                                        ck_tile::BlockFmhaBwdDQDKDVPipelineKRKTRVR<Problem, BwdExchangePolicy>>;
    using Epilogue = ck_tile::Default2DEpilogue<ck_tile::Default2DEpilogueProblem<float, Element_, false, kPadHdim_>>;
    using Kernel   = ck_tile::FmhaBwdDQDKDVKernel<Pipeline, Epilogue, Epilogue, Epilogue>;
};

} // namespace flash_attn_rocm
