// In the place of CK's header of this path: keeps the compiler from moving WMMA into the branches that store padded tiles, where
// lanes are inactive. CK does so on gfx12 only, and this header names gfx12 for nothing else.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "ck_tile/core.hpp"
#include "ck_tile/ops/common.hpp"
#include "ck_tile/ops/fmha/block/block_attention_bias_enum.hpp"
#include "ck_tile/ops/fmha/pipeline/block_fmha_bwd_dq_dk_dv_pipeline_selector.hpp"

#define __gfx12__
#include_next "ck_tile/ops/fmha/kernel/fmha_bwd_kernel.hpp"
#undef __gfx12__
