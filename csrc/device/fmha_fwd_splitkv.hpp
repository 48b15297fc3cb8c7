// Wrapper around CK's split-KV forward kernel: one part of the keys per workgroup, partial results in float32, which
// split_combine.hpp joins. Always in group mode: sequence starts and lengths from arrays serve varlen, KV caches with
// any lengths and left padding, and paged caches alike.
#pragma once

#include "kernel_record.hpp"

// ops/common.hpp defines ck_tile::tensor_layout and must precede the fmha headers.
#include "ck_tile/ops/common.hpp"
#include "ck_tile/ops/fmha/block/block_attention_bias_enum.hpp"
#include "ck_tile/ops/fmha/block/block_masking.hpp"
#include "ck_tile/ops/fmha/block/block_position_encoding.hpp"
#include "ck_tile/ops/fmha/block/page_block_navigator.hpp"
#include "ck_tile/ops/fmha/block/variants.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_enum.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_problem.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_fwd_splitkv_pipeline_qr_ks_vs.hpp"
#include "ck_tile/ops/fmha/pipeline/tile_fmha_shape.hpp"
#include "ck_tile/ops/fmha/pipeline/tile_fmha_traits.hpp"
#include "ck_tile/ops/fmha/kernel/fmha_fwd_splitkv_kernel.hpp"
#include "ck_tile/ops/epilogue/default_2d_epilogue.hpp"

namespace flash_attn_rocm {

template <class Element_, class Shape_, bool kPadHdim_, bool kMask_, bool kSoftcap_, bool kAlibi_, bool kPaged_>
struct FmhaFwdSplitKv
{
    using Traits = ck_tile::TileFmhaFwdSplitKVTraits</*kPadSeqLenQ=*/true,
                                                     /*kPadSeqLenK=*/true,
                                                     kPadHdim_,
                                                     kPadHdim_,
                                                     kSoftcap_,
                                                     kAlibi_ ? ck_tile::BlockAttentionBiasEnum::ALIBI
                                                             : ck_tile::BlockAttentionBiasEnum::NO_BIAS,
                                                     /*kHasBiasGrad=*/false,
                                                     /*kStoreLSE=*/true,
                                                     /*kDoFp8StaticQuant=*/false,
                                                     kPaged_,
                                                     /*kHasUnevenSplits=*/true>;
    using Problem =
        ck_tile::BlockFmhaFwdSplitKVPipelineProblem<Element_,
                                                    Element_,
                                                    Element_,
                                                    /*SaccDataType=*/float,
                                                    /*SMPLComputeDataType=*/float,
                                                    /*BiasDataType=*/Element_,
                                                    /*LSEDataType=*/float,
                                                    /*PDataType=*/Element_,
                                                    /*OaccDataType=*/float,
                                                    /*ODataType=*/float,
                                                    Shape_,
                                                    /*kIsGroupMode=*/true,
                                                    ck_tile::ComposedAttention<kSoftcap_ * ck_tile::LOGITS_SOFT_CAP,
                                                                               CK_TILE_FMHA_FWD_FAST_EXP2>,
                                                    ck_tile::SimplifiedGenericAttentionMask<kMask_>,
                                                    Traits>;
    // The partial results' view is padded itself; CK's raw stores, which padding here would choose, corrupt data.
    using Epilogue =
        ck_tile::Default2DEpilogue<ck_tile::Default2DEpilogueProblem<float, float, false, false>>;
    using Kernel = ck_tile::FmhaFwdSplitKVKernel<ck_tile::BlockFmhaFwdSplitKVPipelineQRKSVS<Problem>, Epilogue>;
};

} // namespace flash_attn_rocm
