// Wrapper around CK's forward FMHA kernel with the pipeline that loads K from memory into LDS directly (CDNA).
#pragma once

#include "fmha_fwd.hpp"

#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs_async.hpp"

namespace flash_attn_rocm {

// As FmhaFwd with an exact head dim. The pipeline is always told of padding but along the keys, which costs nothing: rows
// and columns are loaded by whole vectors, and the buffer descriptor ends what lies beyond.
template <class Element_,
          class Shape_,
          bool kPadSeqlen_,
          bool kGroup_,
          bool kMask_,
          bool kSoftcap_,
          bool kAlibi_,
          bool kDropout_>
struct FmhaFwdAsync
{
    using InRegisters =
        FmhaFwd<Element_, Shape_, kPadSeqlen_, false, kGroup_, kMask_, kSoftcap_, kAlibi_, kDropout_>;
    struct Problem : InRegisters::Problem
    {
        static constexpr bool kPadSeqLenQ  = true;
        static constexpr bool kPadHeadDimQ = true;
        static constexpr bool kPadHeadDimV = true;
    };
    using Epilogue = ck_tile::Default2DEpilogue<ck_tile::Default2DEpilogueProblem<float, Element_, true, true>>;
    using Kernel   = ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVSAsync<Problem>, Epilogue>;
};

} // namespace flash_attn_rocm
