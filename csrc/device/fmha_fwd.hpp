// Wrapper around CK's forward FMHA kernel: from a handful of numbers to one __global__ function and its record.
#pragma once

#include "kernel_record.hpp"

// ops/common.hpp defines ck_tile::tensor_layout and must precede the fmha headers.
#include "ck_tile/ops/common.hpp"
#include "ck_tile/ops/fmha/block/block_attention_bias_enum.hpp"
#include "ck_tile/ops/fmha/block/block_dropout.hpp"
#include "ck_tile/ops/fmha/block/block_masking.hpp"
#include "ck_tile/ops/fmha/block/block_position_encoding.hpp"
#include "ck_tile/ops/fmha/block/variants.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_enum.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_problem.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs.hpp"
#include "ck_tile/ops/fmha/pipeline/tile_fmha_shape.hpp"
#include "ck_tile/ops/fmha/pipeline/tile_fmha_traits.hpp"
#include "ck_tile/ops/fmha/kernel/fmha_fwd_kernel.hpp"
#include "ck_tile/ops/epilogue/default_2d_epilogue.hpp"

namespace flash_attn_rocm {

// kPadSeqlen: the last query and key tile may be partial. kPadHdim: the head dim may be smaller than the tile's;
// CK then reads head dim elements one by one, which is why the two are separate here.
template <class Element_,
          class Shape_,
          bool kPadSeqlen_,
          bool kPadHdim_,
          bool kGroup_,
          bool kMask_,
          bool kSoftcap_,
          bool kAlibi_,
          bool kDropout_>
struct FmhaFwd
{
    using Traits = ck_tile::TileFmhaTraits<kPadSeqlen_,
                                           kPadSeqlen_,
                                           kPadHdim_,
                                           kPadHdim_,
                                           kSoftcap_,
                                           kAlibi_ ? ck_tile::BlockAttentionBiasEnum::ALIBI
                                                   : ck_tile::BlockAttentionBiasEnum::NO_BIAS,
                                           /*kHasBiasGrad=*/false,
                                           /*kStoreLSE=*/true,
                                           kDropout_,
                                           /*kDoFp8StaticQuant=*/false>;
    using Problem =
        ck_tile::BlockFmhaPipelineProblem<Element_,
                                          Element_,
                                          Element_,
                                          /*SaccDataType=*/float,
                                          /*SMPLComputeDataType=*/float,
                                          /*BiasDataType=*/Element_,
                                          /*RandValOutputDataType=*/std::uint8_t,
                                          /*LSEDataType=*/float,
                                          /*PDataType=*/Element_,
                                          /*OaccDataType=*/float,
                                          /*ODataType=*/Element_,
                                          Shape_,
                                          kGroup_,
                                          ck_tile::ComposedAttention<kSoftcap_ * ck_tile::LOGITS_SOFT_CAP,
                                                                     CK_TILE_FMHA_FWD_FAST_EXP2>,
                                          ck_tile::SimplifiedGenericAttentionMask<kMask_>,
                                          /*kUseTrLoad=*/false,
                                          Traits>;
    using Epilogue = ck_tile::Default2DEpilogue<
        ck_tile::Default2DEpilogueProblem<float, Element_, kPadSeqlen_, kPadHdim_>>;
    using Kernel = ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVS<Problem>, Epilogue>;
};

} // namespace flash_attn_rocm
