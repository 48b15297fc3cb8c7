// Launches the kernel that prepares a call with a KV cache.
#include "kv_prepare.hpp"

#include <algorithm>

#include "dispatch.hpp"
#include "error.hpp"
#include "integers.hpp"
#include "kernel_args.hpp"
#include "launch.hpp"

namespace flash_attn_rocm {
namespace {

constexpr const char* kRemedy = ". Lay the cache out anew, use one in pages, or set FLASH_ATTN_ROCM_BACKEND=sdpa";

void set_view(ArgValues& values, const TensorView& view, Arg row, Arg head, Arg batch)
{
    values.set(row, view.row_stride);
    values.set(head, view.head_stride);
    values.set(batch, view.batch_stride);
}

ArgValues arg_values(const KvPrepareRequest& request)
{
    ArgValues values;
    values.set(Arg::q_ptr, request.q.data);
    values.set(Arg::q_out_ptr, static_cast<const void*>(request.q_out));
    values.set(Arg::knew_ptr, request.knew.data);
    values.set(Arg::vnew_ptr, request.vnew.data);
    values.set(Arg::k_ptr, request.k_cache.data);
    values.set(Arg::v_ptr, request.v_cache.data);
    values.set(Arg::rotary_cos_ptr, request.rotary.cosine);
    values.set(Arg::rotary_sin_ptr, request.rotary.sine);
    values.set(Arg::cache_seqlens_ptr, request.cache_seqlens);
    values.set(Arg::cache_batch_idx_ptr, request.cache_batch_idx);
    values.set(Arg::cache_leftpad_ptr, request.cache_leftpad);
    values.set(Arg::block_table_ptr, request.pages.table);
    values.set(Arg::seqstart_q_out_ptr, static_cast<const void*>(request.start_q));
    values.set(Arg::seqstart_k_out_ptr, static_cast<const void*>(request.start_k));
    values.set(Arg::seqlen_k_out_ptr, static_cast<const void*>(request.length_k));
    set_view(values, request.q, Arg::stride_q, Arg::nhead_stride_q, Arg::batch_stride_q);
    set_view(values, request.knew, Arg::stride_knew, Arg::nhead_stride_knew, Arg::batch_stride_knew);
    set_view(values, request.vnew, Arg::stride_vnew, Arg::nhead_stride_vnew, Arg::batch_stride_vnew);
    set_view(values, request.k_cache, Arg::stride_k, Arg::nhead_stride_k, Arg::batch_stride_k);
    set_view(values, request.v_cache, Arg::stride_v, Arg::nhead_stride_v, Arg::batch_stride_v);
    values.set(Arg::stride_out, request.heads_q / request.group_heads * request.hdim);
    values.set(Arg::nhead_stride_out, request.hdim);
    values.set(Arg::batch_stride_block_table, request.pages.table_stride);
    values.set(Arg::rows_per_batch, rows_per_batch(request));
    values.set(Arg::batch, request.batch);
    values.set(Arg::seqlen_q, request.seqlen_q);
    values.set(Arg::seqlen_k, request.capacity);
    values.set(Arg::seqlen_knew, request.seqlen_knew);
    values.set(Arg::num_head_q, request.heads_q);
    values.set(Arg::num_head_k, request.heads_k);
    values.set(Arg::hdim_q, request.hdim);
    values.set(Arg::cache_batches, request.cache_batches);
    values.set(Arg::num_pages, request.num_pages);
    values.set(Arg::page_block_size, std::max(request.pages.size, std::int64_t{1}));
    values.set(Arg::rotary_dim, request.rotary.dim);
    values.set(Arg::rotary_seqlen, request.rotary.seqlen);
    values.set(Arg::group_heads, request.group_heads);
    values.set(Arg::is_rotary_interleaved, std::int64_t{request.rotary.interleaved});
    values.set(Arg::is_rotary_per_row, std::int64_t{request.rotary.per_row});
    return values;
}

} // namespace

std::int64_t rows_per_batch(const KvPrepareRequest& request)
{
    if(request.pages.table != nullptr)
    {
        return 0;
    }
    const TensorView& k = request.k_cache;
    const TensorView& v = request.v_cache;
    if(k.row_stride <= 0 || v.row_stride <= 0)
    {
        fail(kNoKernel, "k_cache and v_cache have row strides ", k.row_stride, " and ", v.row_stride,
             "; allowed: above 0, since a cache must have memory for each row", kRemedy);
    }
    if(k.batch_stride % k.row_stride != 0 || v.batch_stride % v.row_stride != 0 ||
       k.batch_stride / k.row_stride != v.batch_stride / v.row_stride)
    {
        fail(kNoKernel, "k_cache has strides ", k.batch_stride, " (batch) and ", k.row_stride, " (row), v_cache ",
             v.batch_stride, " and ", v.row_stride, "; batch strides must be the same whole number of rows in both, "
             "by which the CK kernels find sequences", kRemedy);
    }
    const std::int64_t rows = k.batch_stride / k.row_stride;
    if(rows * request.cache_batches > kInt32Max)
    {
        fail(kNoKernel, "the cache spans ", rows * request.cache_batches, " rows; allowed: up to ",
             kInt32Max, kRemedy);
    }
    return rows;
}

void launch_kv_prepare(const Queue& queue, const KvPrepareRequest& request)
{
    const Manifest& manifest = usable_manifest(queue.library, queue.device);
    const KernelInfo* kernel = find_own_kernel(manifest, "kv_prepare", request.dtype, request.hdim);
    if(kernel == nullptr)
    {
        fail(kNoKernel, missing_own_kernel(manifest, "kv_prepare", request.hdim));
    }
    const bool writes_q      = request.q_out != nullptr;
    const std::int64_t rows  = std::max({writes_q ? request.seqlen_q : 0, request.seqlen_knew, std::int64_t{1}});
    const std::int64_t heads = std::max(writes_q ? request.heads_q : 1, request.seqlen_knew > 0 ? request.heads_k : 1);
    const Grid grid          = make_grid(*kernel, ceil_div(rows, kernel->tile_m), heads, request.batch);
    launch_kernel(queue, {manifest, *kernel}, arg_values(request), grid);
}

} // namespace flash_attn_rocm
