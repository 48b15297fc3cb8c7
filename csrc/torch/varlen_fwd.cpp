// The torch op `varlen_fwd`, attention of sequences of different lengths, one after the other: checks tensors and sequence
// tables, chooses between keys as a whole and in parts, and launches.
#include <algorithm>
#include <optional>
#include <tuple>
#include <variant>

#include "../host/checks.hpp"
#include "../host/error.hpp"
#include "../host/integers.hpp"
#include "../host/launch.hpp"
#include "../host/split.hpp"
#include "ops.hpp"
#include "options.hpp"
#include "page_checks.hpp"
#include "workspace.hpp"

namespace flash_attn_rocm {
namespace {

// Where queries and keys are.
struct VarlenArguments
{
    const Tensor& q; // (rows of all sequences, nheads, headdim)
    const Tensor& k; // like q with nheads_k, or with a block_table (pages, page size, nheads_k, headdim)
    const Tensor& v;
    const Tensor& cu_seqlens_q; // (batch + 1)
    const Tensor& cu_seqlens_k;
    const std::optional<Tensor>& seqused_k;   // (batch)
    const std::optional<Tensor>& block_table; // (batch, pages of a sequence)
    std::int64_t max_seqlen_q;
    std::int64_t max_seqlen_k;

    std::int64_t batch() const { return cu_seqlens_q.size(0) - 1; }
    bool paged() const { return block_table.has_value(); }
};

void check_tensors(const VarlenArguments& a)
{
    const Tensor& q         = a.q;
    const std::int64_t dims = a.paged() ? 4 : 3;
    const char* expected    = a.paged() ? "(pages, page size, nheads, headdim)" : "(total rows, nheads, headdim)";
    STD_TORCH_CHECK(q.dim() == 3,
                    "q must have 3 dimensions (total rows, nheads, headdim), but has shape ", describe_shape(q));
    for(const Tensor* tensor : {&a.k, &a.v})
    {
        STD_TORCH_CHECK(tensor->dim() == dims,
                        "k and v must have ", dims, " dimensions ", expected, ", but one has shape ",
                        describe_shape(*tensor));
    }
    check_dtypes(q, a.k, a.v);
    bool shapes_agree = a.k.size(dims - 1) == q.size(2);
    for(std::int64_t i = 0; i < dims; ++i)
    {
        shapes_agree = shapes_agree && a.k.size(i) == a.v.size(i);
    }
    STD_TORCH_CHECK(shapes_agree,
                    "shapes do not agree: q ", describe_shape(q), ", k ", describe_shape(a.k), ", v ",
                    describe_shape(a.v), "; expected ", expected, ", k and v alike, with q's headdim");
}

// Lengths of keys: within their sequence of cu_seqlens_k, or, where keys are in pages and cu_seqlens_k says nothing about
// them, within their pages (check_pages); no longer than max_seqlen_k.
void check_used(const VarlenArguments& a)
{
    const Tensor& used = *a.seqused_k;
    check_int32(used, "seqused_k", {a.batch()}, a.q);
    if(used.is_cuda())
    {
        return;
    }
    const std::int64_t longest = a.max_seqlen_k;
    const auto* length         = static_cast<const std::int32_t*>(used.data_ptr());
    const auto* start          = static_cast<const std::int32_t*>(a.cu_seqlens_k.data_ptr());
    for(std::int64_t i = 0; i < used.size(0); ++i)
    {
        const std::int64_t most = a.paged() ? longest : std::min<std::int64_t>(longest, start[i + 1] - start[i]);
        STD_TORCH_CHECK(length[i] >= 0 && length[i] <= most,
                        "seqused_k has ", length[i], " at ", i, "; expected 0 to ", most, a.paged() ? ", max_seqlen_k" :
                        ", the smaller of max_seqlen_k and the sequence's length");
    }
}

// Lengths of sequences in pages: within the pages of their row of the table, all of them in the cache.
void check_pages(const VarlenArguments& a)
{
    const Tensor& table = *a.block_table;
    check_int32(table, "block_table", {a.batch(), -1}, a.q);
    check_page_size(a.k.size(1));
    STD_TORCH_CHECK(a.k.stride(3) == 1 && a.v.stride(3) == 1,
                    "the last dimension of k and v in pages must be contiguous: a cache is never copied");
    if(table.is_cuda())
    {
        return;
    }
    const auto* start   = static_cast<const std::int32_t*>(a.cu_seqlens_k.data_ptr());
    const auto* lengths = a.seqused_k ? static_cast<const std::int32_t*>(a.seqused_k->data_ptr()) : nullptr;
    for(std::int64_t i = 0; i < table.size(0); ++i)
    {
        check_page_row(table, i, lengths != nullptr ? lengths[i] : start[i + 1] - start[i], a.k);
    }
}

void check_sequences(const VarlenArguments& a)
{
    check_starts(a.cu_seqlens_q, "cu_seqlens_q", a.q.size(0), a.max_seqlen_q, a.q);
    const std::int64_t rows_k = a.paged() ? kInt32Max : a.k.size(0);
    // With seqused_k, cu_seqlens_k only says where keys lie, and with pages not even that.
    const std::int64_t longest_k = a.seqused_k ? kInt32Max : a.max_seqlen_k;
    check_starts(a.cu_seqlens_k, "cu_seqlens_k", rows_k, longest_k, a.q, a.batch() + 1);
    if(a.seqused_k)
    {
        check_used(a);
    }
    if(a.block_table)
    {
        check_pages(a);
    }
}

// Extents and tables; options and other pointers follow.
FwdRequest make_request(const VarlenArguments& a)
{
    FwdRequest request;
    request.mode              = Mode::group;
    request.dtype             = dtype_name(a.q);
    request.batch             = a.batch();
    request.seqlen_q          = a.max_seqlen_q;
    request.seqlen_k          = a.max_seqlen_k;
    request.heads_q           = a.q.size(1);
    request.heads_k           = a.k.size(a.k.dim() - 2);
    request.hdim              = a.q.size(2);
    request.lse_head_stride   = a.q.size(0);
    request.sequences.start_q = a.cu_seqlens_q.data_ptr();
    request.sequences.start_k = a.cu_seqlens_k.data_ptr();
    if(a.seqused_k)
    {
        request.sequences.length_k = a.seqused_k->data_ptr();
    }
    if(a.block_table)
    {
        request.pages = {a.block_table->data_ptr(), a.block_table->size(1), a.k.size(1)};
    }
    return request;
}

// Zeros where no kernel writes.
Tensor make_dropout_map(const Tensor& q, FwdRequest& request, bool wanted)
{
    if(!wanted || request.dropout.p == 0.0)
    {
        return make_tensor(q, {0}, ScalarType::Byte);
    }
    Tensor map = make_zeros(q, {request.heads_q, q.size(0), request.seqlen_k}, ScalarType::Byte);
    request.dropout.map             = map.data_ptr();
    request.dropout.map_row_stride  = request.seqlen_k;
    request.dropout.map_head_stride = q.size(0) * request.seqlen_k;
    return map;
}

// Keys are cut into parts where they are in pages, where that is asked for or fills the GPU better, and for ALiBi of
// lengths that only those kernels compute right. Dropout needs them whole.
std::optional<SplitPlan> plan_parts(const VarlenArguments& a, const FwdRequest& request, int device, std::int64_t num_splits)
{
    check_num_splits(num_splits);
    const bool asked = a.paged() || num_splits > 1;
    if(request.dropout.p > 0.0 && !asked)
    {
        return std::nullopt;
    }
    STD_TORCH_CHECK(request.dropout.p == 0.0,
                    "dropout_p is ", request.dropout.p, ": block_table and num_splits above 1 go without dropout");
    const bool fits  = !layout_misaligned(view_of(a.k)) && !layout_misaligned(view_of(a.v));
    Library& library = Library::instance();
    if(asked || !alibi_fits_whole(request))
    {
        return plan_split(library, device, request, fits, num_splits);
    }
    if(num_splits != 0 || request.seqlen_k < 2 * kMinKeysOfSplit)
    {
        return std::nullopt;
    }
    const std::optional<SplitPlan> plan = find_split(library, device, request, fits);
    return plan && plan->splits > 1 ? plan : std::nullopt;
}

using Plan = std::variant<InstalledKernel, SplitPlan>;

Plan make_plan(const VarlenArguments& a, const FwdRequest& request, int device, std::int64_t num_splits)
{
    if(const std::optional<SplitPlan> parts = plan_parts(a, request, device, num_splits))
    {
        return *parts;
    }
    return select_fwd_kernel(Library::instance(), device, request);
}

// Sequences of keys in one piece, read once per query tile.
void run_plan(const InstalledKernel& chosen, FwdRequest& request, Tensor q, Tensor k, Tensor v, CallDevice& device)
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
    for(const Tensor* tensor : {&q, &k, &v})
    {
        device.use(*tensor);
    }
    device.run([&](const Queue& queue) { launch_fwd(queue, chosen, request); });
}

// Keys in pages, or in one piece and cut into parts.
void run_plan(const SplitPlan& plan, FwdRequest& request, Tensor q, Tensor k, Tensor v, CallDevice& device)
{
    if(needs_alignment(*plan.kernel)) // as plan_parts has looked whether k and v are
    {
        q = aligned(q);
    }
    request.q = view_of(q);
    request.k = view_of(k);
    request.v = view_of(v);
    for(const Tensor* tensor : {&q, &k, &v})
    {
        device.use(*tensor);
    }
    Workspace workspace;
    const SplitWorkspace parts(workspace, request, plan.splits, q.size(0));
    workspace.make(q);
    const SplitBuffers buffers = parts.use(workspace, device);
    const SplitOutput output{request.out, request.lse, request.lse_head_stride, 0, request.sequences.start_q};
    device.run([&](const Queue& queue) { launch_split(queue, plan, request, buffers, output); });
}

// Fills in the pointers that are left and runs; `map` may be empty.
void run(const VarlenArguments& a, const Plan& plan, FwdRequest& request, const Tensor& out, const Tensor& lse,
         const Tensor& map, CallDevice& device)
{
    STD_TORCH_CHECK(!layout_too_large(view_of(out), a.max_seqlen_q, request.hdim),
                    "out has shape ", describe_shape(out), ": ", a.max_seqlen_q, " rows of one head span more than 2 GiB. "
                    "Split the heads or the sequences into chunks");
    const std::int64_t span_k = a.paged() ? a.k.size(1) : a.max_seqlen_k;
    const Tensor q            = readable(a.q, a.max_seqlen_q, "q");
    const Tensor k            = readable(a.k, span_k, "k");
    const Tensor v            = readable(a.v, span_k, "v");
    request.out               = view_of(out);
    request.lse               = lse.data_ptr();
    for(const Tensor* tensor : {&a.cu_seqlens_q, &a.cu_seqlens_k, &out, &lse, &map})
    {
        device.use(*tensor);
    }
    device.use(a.seqused_k);
    device.use(a.block_table);
    std::visit([&](const auto& chosen) { run_plan(chosen, request, q, k, v, device); }, plan);
}

// Returns out, like q; lse, float32 (nheads, rows of q); the dropout map, uint8 (nheads, rows of q, max_seqlen_k), or empty.
std::tuple<Tensor, Tensor, Tensor> varlen_fwd(const Tensor& q,
                                              const Tensor& k,
                                              const Tensor& v,
                                              const Tensor& cu_seqlens_q,
                                              const Tensor& cu_seqlens_k,
                                              const std::optional<Tensor>& seqused_k,
                                              const std::optional<Tensor>& block_table,
                                              const std::optional<Tensor>& alibi_slopes,
                                              const std::optional<Tensor>& rng_state,
                                              std::int64_t max_seqlen_q,
                                              std::int64_t max_seqlen_k,
                                              double softmax_scale,
                                              std::int64_t window_left,
                                              std::int64_t window_right,
                                              double softcap,
                                              double dropout_p,
                                              bool return_dropout_map,
                                              std::int64_t num_splits,
                                              bool /*deterministic*/) // of the gradients: nothing to do here
{
    const VarlenArguments a{q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_k, block_table, max_seqlen_q, max_seqlen_k};
    check_tensors(a);
    CallDevice device(q);
    check_sequences(a);
    FwdRequest request = make_request(a);
    set_options(
        request, q, {softmax_scale, window_left, window_right, softcap, dropout_p, alibi_slopes, rng_state}, device);
    const Plan plan = make_plan(a, request, device.index(), num_splits);

    const Tensor out = make_tensor_like(q);
    const Tensor lse = make_tensor(q, {q.size(1), q.size(0)}, ScalarType::Float);
    const Tensor map = make_dropout_map(q, request, return_dropout_map);
    if(out.numel() == 0)
    {
        return {out, lse, map};
    }
    if(request.batch == 0 || max_seqlen_q == 0 || max_seqlen_k == 0 || k.numel() == 0)
    {
        fill_unseen(out, lse);
        return {out, lse, map};
    }
    run(a, plan, request, out, lse, map, device);
    return {out, lse, map};
}

} // namespace

constinit const BoxedOp varlen_fwd_op = FA_BOX(&varlen_fwd);

} // namespace flash_attn_rocm
