// The torch op `varlen_fwd`: checks tensors and sequence tables, and launches.
#include "varlen_fwd.hpp"

#include <algorithm>
#include <vector>

#include <torch/csrc/stable/ops.h>

#include "../host/checks.hpp"
#include "../host/error.hpp"
#include "../host/integers.hpp"
#include "../host/launch.hpp"
#include "../host/split.hpp"
#include "page_checks.hpp"
#include "run.hpp"
#include "split_buffers.hpp"

namespace flash_attn_rocm {
namespace {

void check_tensors(const Tensor& q, const Tensor& k, const Tensor& v, bool paged)
{
    const std::int64_t dims = paged ? 4 : 3;
    const char* expected    = paged ? "(pages, page size, nheads, headdim)" : "(total rows, nheads, headdim)";
    STD_TORCH_CHECK(q.dim() == 3,
                    "q must have 3 dimensions (total rows, nheads, headdim), but has shape ", describe_shape(q));
    for(const Tensor* tensor : {&k, &v})
    {
        STD_TORCH_CHECK(tensor->dim() == dims,
                        "k and v must have ", dims, " dimensions ", expected, ", but one has shape ",
                        describe_shape(*tensor));
    }
    check_dtypes(q, k, v);
    bool shapes_agree = k.size(dims - 1) == q.size(2);
    for(std::int64_t i = 0; i < dims; ++i)
    {
        shapes_agree = shapes_agree && k.size(i) == v.size(i);
    }
    STD_TORCH_CHECK(shapes_agree,
                    "shapes do not agree: q ", describe_shape(q), ", k ", describe_shape(k), ", v ",
                    describe_shape(v), "; expected ", expected, ", k and v alike, with q's headdim");
}

// Lengths of keys: within their sequence of cu_seqlens_k, or, where keys are in pages and cu_seqlens_k says nothing about
// them, within their pages (check_pages); no longer than max_seqlen_k.
void check_used(const Tensor& used, const Tensor& starts, bool paged, std::int64_t longest)
{
    if(used.is_cuda())
    {
        return;
    }
    const auto* length = static_cast<const std::int32_t*>(used.data_ptr());
    const auto* start  = static_cast<const std::int32_t*>(starts.data_ptr());
    for(std::int64_t i = 0; i < used.size(0); ++i)
    {
        const std::int64_t most = paged ? longest : std::min<std::int64_t>(longest, start[i + 1] - start[i]);
        STD_TORCH_CHECK(length[i] >= 0 && length[i] <= most,
                        "seqused_k has ", length[i], " at ", i, "; expected 0 to ", most, paged ? ", max_seqlen_k" :
                        ", the smaller of max_seqlen_k and the sequence's length");
    }
}

// Lengths of sequences in pages: within the pages of their row of the table, all of them in the cache.
void check_pages(const Tensor& table, const Tensor& starts, const std::optional<Tensor>& used, const Tensor& k)
{
    if(table.is_cuda())
    {
        return;
    }
    const auto* start   = static_cast<const std::int32_t*>(starts.data_ptr());
    const auto* lengths = used ? static_cast<const std::int32_t*>(used->data_ptr()) : nullptr;
    for(std::int64_t i = 0; i < table.size(0); ++i)
    {
        check_page_row(table, i, lengths != nullptr ? lengths[i] : start[i + 1] - start[i], k);
    }
}

FwdRequest make_request(const Tensor& q, const Tensor& k, std::int64_t batch)
{
    FwdRequest request;
    request.mode            = Mode::group;
    request.dtype           = q.scalar_type() == ScalarType::Half ? "fp16" : "bf16";
    request.batch           = batch;
    request.heads_q         = q.size(1);
    request.heads_k         = k.size(k.dim() - 2);
    request.hdim            = q.size(2);
    request.lse_head_stride = q.size(0);
    return request;
}

// uint8 (nheads, total rows of q, max_seqlen_k), zeros where no kernel writes.
Tensor make_dropout_map(const Tensor& q, FwdRequest& request, bool wanted)
{
    using Shape = std::vector<std::int64_t>;
    if(!wanted || request.dropout.p == 0.0)
    {
        return make_tensor(q, {0}, ScalarType::Byte);
    }
    Tensor map = torch::stable::new_zeros(q, Shape{request.heads_q, q.size(0), request.seqlen_k}, ScalarType::Byte);
    request.dropout.map             = map.data_ptr();
    request.dropout.map_row_stride  = request.seqlen_k;
    request.dropout.map_head_stride = q.size(0) * request.seqlen_k;
    return map;
}

// Sequences of keys in one piece, read once per query tile.
void run_whole(const FwdKernel& chosen, FwdRequest request, Tensor q, Tensor k, Tensor v, std::vector<Tensor> used)
{
    if(needs_alignment(chosen.kernel))
    {
        q = aligned(q);
        k = aligned(k);
        v = aligned(v);
    }
    request.q = view_of(q);
    request.k = view_of(k);
    request.v = view_of(v);
    used.insert(used.end(), {q, k, v});
    run_where(q, used, [&](int device, HipStream stream) {
        launch_fwd(Library::instance(), device, stream, chosen, request);
    });
}

// Keys in pages, or in one piece and cut into parts.
void run_split(const SplitPlan& plan, FwdRequest request, Tensor q, Tensor k, Tensor v, std::vector<Tensor> used)
{
    if(needs_alignment(*plan.kernel))
    {
        q = aligned(q);
    }
    request.q               = view_of(q);
    request.k               = view_of(k);
    request.v               = view_of(v);
    const SplitTensors made = make_split_tensors(q, request, plan.splits, q.size(0));
    const SplitOutput output{request.out, request.lse, request.lse_head_stride, 0, request.sequences.start_q};
    used.insert(used.end(), {q, k, v, made.lse_acc, made.o_acc});
    run_where(q, used, [&](int device, HipStream stream) {
        launch_split(Library::instance(), device, stream, plan, request, made.buffers, output);
    });
}

// Keys are cut into parts where they are in pages, where that is asked for or fills the GPU better, and for ALiBi of
// lengths that only those kernels compute right. Dropout needs them whole.
std::optional<SplitPlan> plan_parts(const FwdRequest& request, const Tensor& q, const Tensor& k, const Tensor& v,
                                    std::int64_t num_splits)
{
    check_num_splits(num_splits);
    const bool asked = request.pages.table != nullptr || num_splits > 1;
    if(request.dropout.p > 0.0 && !asked)
    {
        return std::nullopt;
    }
    STD_TORCH_CHECK(request.dropout.p == 0.0,
                    "dropout_p is ", request.dropout.p, ": block_table and num_splits above 1 go without dropout");
    const bool fits = !layout_misaligned(view_of(k)) && !layout_misaligned(view_of(v));
    Library& library = Library::instance();
    if(asked || !alibi_fits_whole(request))
    {
        return plan_split(library, device_of(q), request, fits, num_splits);
    }
    if(num_splits != 0 || request.seqlen_k < 2 * kMinKeysOfSplit)
    {
        return std::nullopt;
    }
    const std::optional<SplitPlan> plan = find_split(library, device_of(q), request, fits);
    return plan && plan->splits > 1 ? plan : std::nullopt;
}

} // namespace

FwdResult varlen_fwd(Tensor q,
                     Tensor k,
                     Tensor v,
                     Tensor cu_seqlens_q,
                     Tensor cu_seqlens_k,
                     std::optional<Tensor> seqused_k,
                     std::optional<Tensor> block_table,
                     std::optional<Tensor> alibi_slopes,
                     std::optional<Tensor> rng_state,
                     std::int64_t max_seqlen_q,
                     std::int64_t max_seqlen_k,
                     double softmax_scale,
                     std::int64_t window_left,
                     std::int64_t window_right,
                     double softcap,
                     double dropout_p,
                     bool return_dropout_map,
                     std::int64_t num_splits,
                     bool /*deterministic*/)
{
    check_tensors(q, k, v, block_table.has_value());
    check_device(q);
    const CurrentDevice current(q);
    check_starts(cu_seqlens_q, "cu_seqlens_q", q.size(0), max_seqlen_q, q);
    const std::int64_t batch  = cu_seqlens_q.size(0) - 1;
    const std::int64_t rows_k = block_table ? kInt32Max : k.size(0);
    // With seqused_k, cu_seqlens_k only says where keys lie, and with pages not even that.
    check_starts(cu_seqlens_k, "cu_seqlens_k", rows_k, seqused_k ? kInt32Max : max_seqlen_k, q, batch + 1);
    std::vector<Tensor> used = {cu_seqlens_q, cu_seqlens_k};

    FwdRequest request        = make_request(q, k, batch);
    request.seqlen_q          = max_seqlen_q;
    request.seqlen_k          = max_seqlen_k;
    request.softmax_scale     = softmax_scale;
    request.window_left       = window_left;
    request.window_right      = window_right;
    request.softcap           = softcap;
    request.dropout.p         = dropout_p;
    request.sequences.start_q = cu_seqlens_q.data_ptr();
    request.sequences.start_k = cu_seqlens_k.data_ptr();
    if(seqused_k)
    {
        check_int32(*seqused_k, "seqused_k", {batch}, q);
        check_used(*seqused_k, cu_seqlens_k, block_table.has_value(), max_seqlen_k);
        request.sequences.length_k = seqused_k->data_ptr();
        used.push_back(*seqused_k);
    }
    if(block_table)
    {
        check_int32(*block_table, "block_table", {batch, -1}, q);
        check_page_size(k.size(1));
        STD_TORCH_CHECK(k.stride(3) == 1 && v.stride(3) == 1,
                        "the last dimension of k and v in pages must be contiguous: a cache is never copied");
        check_pages(*block_table, cu_seqlens_k, seqused_k, k);
        request.pages = {block_table->data_ptr(), block_table->size(1), k.size(1)};
        used.push_back(*block_table);
    }
    set_features(request, q, alibi_slopes, rng_state, used);
    check_fwd_request(request);
    const std::optional<SplitPlan> parts = plan_parts(request, q, k, v, num_splits);
    std::optional<FwdKernel> whole;
    if(!parts)
    {
        whole.emplace(select_fwd_kernel(Library::instance(), device_of(q), request));
    }

    Tensor out = make_tensor_like(q);
    Tensor lse = make_tensor(q, {q.size(1), q.size(0)}, ScalarType::Float);
    Tensor map = make_dropout_map(q, request, return_dropout_map);
    if(out.numel() == 0)
    {
        return {out, lse, map};
    }
    if(batch == 0 || max_seqlen_q == 0 || max_seqlen_k == 0 || k.numel() == 0)
    {
        fill_unseen(out, lse);
        return {out, lse, map};
    }
    STD_TORCH_CHECK(!layout_too_large(view_of(out), max_seqlen_q, request.hdim),
                    "out has shape ", describe_shape(out), ": ", max_seqlen_q, " rows of one head span more than 2 GiB. "
                    "Split the heads or the sequences into chunks");
    const std::int64_t span_k = block_table ? k.size(1) : max_seqlen_k;
    q                         = readable(q, max_seqlen_q, "q");
    k                         = readable(k, span_k, "k");
    v                         = readable(v, span_k, "v");
    request.out               = view_of(out);
    request.lse               = lse.data_ptr();
    used.insert(used.end(), {out, lse, map});
    if(parts)
    {
        run_split(*parts, request, q, k, v, used);
    }
    else
    {
        run_whole(*whole, request, q, k, v, used);
    }
    return {out, lse, map};
}

} // namespace flash_attn_rocm
