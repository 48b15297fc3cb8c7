// Wrapper around CK's forward FMHA kernel with the pipeline that loads Q, K and V into LDS directly and reads them transposed
// (gfx950).
#pragma once

#include "fmha_fwd.hpp"

#include "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs_async_trload.hpp"

namespace flash_attn_rocm {

// As FmhaFwd with an exact head dim, for equal lengths and without bias, soft cap and dropout. It takes any lengths: what lies
// beyond the last row or key is outside the buffer descriptors, and the pipeline masks it.
template <class Element_, class Shape_, bool kPadSeqlen_, bool kGroup_, bool kMask_, bool kSoftcap_, bool kAlibi_, bool kDropout_>
struct FmhaFwdTransposed
{
    static_assert(!kGroup_ && !kSoftcap_ && !kAlibi_ && !kDropout_);
    struct Problem : FmhaFwd<Element_, Shape_, false, false, false, kMask_, false, false, false>::Problem
    {
        static constexpr bool kUseTrLoad = true;
    };
    using Epilogue = ck_tile::Default2DEpilogue<ck_tile::Default2DEpilogueProblem<float, Element_, false, false>>;
    using Kernel   = ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVSAsyncTrload<Problem>, Epilogue>;
};

} // namespace flash_attn_rocm
