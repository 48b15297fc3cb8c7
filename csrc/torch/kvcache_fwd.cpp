// The torch op `kvcache_fwd`, attention with a KV cache to which new keys and values are appended first: checks tensors,
// prepares the cache, and launches split-KV attention.
#include <optional>
#include <tuple>
#include <utility>

#include "../host/checks.hpp"
#include "../host/dispatch.hpp"
#include "../host/integers.hpp"
#include "../host/kv_prepare.hpp"
#include "../host/split.hpp"
#include "ops.hpp"
#include "options.hpp"
#include "overlap.hpp"
#include "page_checks.hpp"
#include "workspace.hpp"

namespace flash_attn_rocm {
namespace {

constexpr std::int64_t kRotaryStep = 16; // rotary_dim is a multiple of it, as upstream requires

// Where queries and keys are, and how they are rotated; all tensors are on q's device.
struct CacheArguments
{
    const Tensor& q;       // (batch, seqlen_q, nheads, headdim)
    const Tensor& k_cache; // (batch entries, capacity, nheads_k, headdim), or with block_table (pages, page size, ...)
    const Tensor& v_cache;
    const std::optional<Tensor>& k; // (batch, seqlen_new, nheads_k, headdim)
    const std::optional<Tensor>& v;
    const std::optional<Tensor>& rotary_cos; // (seqlen, rotary_dim / 2)
    const std::optional<Tensor>& rotary_sin;
    const std::optional<Tensor>& cache_seqlens; // (batch), as the next two
    const std::optional<Tensor>& cache_batch_idx;
    const std::optional<Tensor>& cache_leftpad;
    const std::optional<Tensor>& block_table; // (batch, pages of a sequence)
    bool rotary_interleaved;

    std::int64_t batch() const { return q.size(0); }
    std::int64_t new_rows() const { return k ? k->size(1) : 0; }
    std::int64_t capacity() const { return block_table ? block_table->size(1) * k_cache.size(1) : k_cache.size(1); }
};

void check_shapes(const CacheArguments& a)
{
    for(const Tensor* tensor : {&a.q, &a.k_cache, &a.v_cache})
    {
        STD_TORCH_CHECK(tensor->dim() == 4,
                        "q, k_cache and v_cache must have 4 dimensions, but one has shape ", describe_shape(*tensor));
        STD_TORCH_CHECK(tensor->size(3) == 1 || tensor->stride(3) == 1,
                        "the last dimension of q, k_cache and v_cache must be contiguous, but one has stride ",
                        tensor->stride(3), ". A cache is never copied: lay it out anew");
    }
    check_dtypes(a.q, a.k_cache, a.v_cache);
    bool agree = a.k_cache.size(3) == a.q.size(3);
    for(std::int64_t i = 0; i < 4; ++i)
    {
        agree = agree && a.k_cache.size(i) == a.v_cache.size(i);
    }
    STD_TORCH_CHECK(agree,
                    "shapes do not agree: q ", describe_shape(a.q), ", k_cache ", describe_shape(a.k_cache),
                    ", v_cache ", describe_shape(a.v_cache), "; expected q (batch, seqlen, nheads, headdim) and caches "
                    "(batch, seqlen, nheads_k, headdim), or with block_table (pages, page size, nheads_k, headdim)");
    STD_TORCH_CHECK(a.block_table || a.cache_batch_idx || a.k_cache.size(0) == a.batch(),
                    "the cache has ", a.k_cache.size(0), " batch entries, q has ", a.batch(), "; pass cache_batch_idx");
}

void check_new(const CacheArguments& a)
{
    STD_TORCH_CHECK(a.k.has_value() == a.v.has_value(), "k and v must be given together");
    if(!a.k)
    {
        return;
    }
    STD_TORCH_CHECK(a.cache_seqlens.has_value(), "k and v are given, so cache_seqlens must say where they go");
    check_dtypes(a.q, *a.k, *a.v);
    check_not_expanded(a.k_cache, "k_cache");
    check_not_expanded(a.v_cache, "v_cache");
    for(const Tensor* tensor : {&*a.k, &*a.v})
    {
        STD_TORCH_CHECK(tensor->dim() == 4 && tensor->size(0) == a.batch() && tensor->size(1) == a.k->size(1) &&
                            tensor->size(2) == a.k_cache.size(2) && tensor->size(3) == a.q.size(3),
                        "k and v must have shape (", a.batch(), ", seqlen_new, ", a.k_cache.size(2), ", ", a.q.size(3),
                        "), but one has shape ", describe_shape(*tensor));
    }
    STD_TORCH_CHECK(a.new_rows() <= a.capacity(),
                    "k has ", a.new_rows(), " rows, but the cache has room for ", a.capacity());
}

void check_tables(const CacheArguments& a)
{
    const std::pair<const std::optional<Tensor>*, const char*> tables[] = {
        {&a.cache_seqlens, "cache_seqlens"},
        {&a.cache_batch_idx, "cache_batch_idx"},
        {&a.cache_leftpad, "cache_leftpad"}};
    for(const auto& [table, name] : tables)
    {
        if(*table)
        {
            check_int32(**table, name, {a.batch()}, a.q);
        }
    }
    if(a.block_table)
    {
        check_int32(*a.block_table, "block_table", {a.batch(), -1}, a.q);
        check_page_size(a.k_cache.size(1));
        STD_TORCH_CHECK(!a.cache_batch_idx, "block_table and cache_batch_idx cannot be given together");
        STD_TORCH_CHECK(!a.cache_leftpad, "block_table and cache_leftpad cannot be given together");
    }
}

// Values in host memory (emulated GPU). On a GPU the kernel clamps lengths to the cache, and treats a batch entry whose
// index or page is out of range as one without keys.
void check_values(const CacheArguments& a)
{
    if(a.q.is_cuda())
    {
        return;
    }
    const auto value = [](const std::optional<Tensor>& table, std::int64_t i, std::int64_t otherwise) {
        return table ? std::int64_t{static_cast<const std::int32_t*>(table->data_ptr())[i]} : otherwise;
    };
    for(std::int64_t i = 0; i < a.batch(); ++i)
    {
        const std::int64_t length = value(a.cache_seqlens, i, a.capacity());
        STD_TORCH_CHECK(length >= 0 && length + a.new_rows() <= a.capacity(),
                        "cache_seqlens has ", length, " at ", i, "; with ", a.new_rows(), " new rows and room for ",
                        a.capacity(), " allowed: 0 to ", a.capacity() - a.new_rows());
        const std::int64_t index = value(a.cache_batch_idx, i, i);
        STD_TORCH_CHECK(a.block_table || (index >= 0 && index < a.k_cache.size(0)),
                        "cache_batch_idx has ", index, " at ", i, "; allowed: 0 to ", a.k_cache.size(0) - 1);
        const std::int64_t leftpad = value(a.cache_leftpad, i, 0);
        STD_TORCH_CHECK(leftpad >= 0 && leftpad <= length,
                        "cache_leftpad has ", leftpad, " at ", i, "; allowed: 0 to cache_seqlens, ", length);
        if(a.block_table)
        {
            check_page_row(*a.block_table, i, length + a.new_rows(), a.k_cache);
        }
    }
}

Rotary make_rotary(const CacheArguments& a, bool per_row)
{
    const std::optional<Tensor>& cosine = a.rotary_cos;
    const std::optional<Tensor>& sine   = a.rotary_sin;
    STD_TORCH_CHECK(cosine.has_value() == sine.has_value(), "rotary_cos and rotary_sin must be given together");
    if(!cosine)
    {
        return {};
    }
    STD_TORCH_CHECK(a.k.has_value(), "rotary_cos is given without new k and v");
    const std::int64_t dim = cosine->dim() == 2 ? 2 * cosine->size(1) : 0;
    for(const Tensor* tensor : {&*cosine, &*sine})
    {
        STD_TORCH_CHECK(tensor->dim() == 2 && 2 * tensor->size(1) == dim && tensor->size(0) == cosine->size(0) &&
                            dim > 0 && dim % kRotaryStep == 0 && dim <= a.q.size(3),
                        "rotary_cos and rotary_sin must have shape (seqlen, rotary_dim / 2), rotary_dim a multiple of ",
                        kRotaryStep, " up to ", a.q.size(3), ", but one has shape ", describe_shape(*tensor));
        STD_TORCH_CHECK(tensor->scalar_type() == a.q.scalar_type() && tensor->is_contiguous(),
                        "rotary_cos and rotary_sin must be contiguous and have q's dtype");
        check_place(*tensor, "rotary_cos or rotary_sin", a.q);
    }
    STD_TORCH_CHECK(cosine->size(0) >= a.capacity(),
                    "rotary_cos has ", cosine->size(0), " positions; the cache has room for ", a.capacity());
    return {cosine->data_ptr(), sine->data_ptr(), dim, cosine->size(0), a.rotary_interleaved, per_row};
}

// Extents, keys and pages; options, queries and results follow.
FwdRequest make_request(const CacheArguments& a)
{
    FwdRequest request;
    request.mode     = Mode::group;
    request.dtype    = dtype_name(a.q);
    request.batch    = a.batch();
    request.seqlen_q = a.q.size(1);
    request.seqlen_k = a.capacity();
    request.heads_q  = a.q.size(2);
    request.heads_k  = a.k_cache.size(2);
    request.hdim     = a.q.size(3);
    request.k        = view_of(a.k_cache);
    request.v        = view_of(a.v_cache);
    if(a.block_table)
    {
        request.pages = {a.block_table->data_ptr(), a.block_table->size(1), a.k_cache.size(1)};
    }
    return request;
}

// With one query, heads that share keys are rows of one tile: keys are then read once for all of them.
std::int64_t heads_to_pack(const FwdRequest& request)
{
    const bool same_for_rows = !clamp_window(request).bounded() && request.alibi_slopes == nullptr;
    return request.seqlen_q == 1 && same_for_rows ? request.heads_q / request.heads_k : 1;
}

// The kernels' 32-bit numbers: offsets within a head of the cache, rows of q of all batch entries.
void check_extents(const CacheArguments& a, const FwdRequest& request)
{
    const std::int64_t span = a.block_table ? a.k_cache.size(1) : request.seqlen_k;
    STD_TORCH_CHECK(!layout_too_large(request.k, span, request.hdim) && !layout_too_large(request.v, span, request.hdim),
                    "one head of the cache spans more than 2 GiB, which the kernels' 32-bit offsets cannot address");
    STD_TORCH_CHECK(request.seqlen_q == 0 || request.batch * heads_to_pack(request) <= kInt32Max / request.seqlen_q,
                    "q has shape ", describe_shape(a.q), ", more rows than 32 bits can number. Split the batch");
}

KvPrepareRequest make_prepare(const CacheArguments& a, const FwdRequest& request, const Rotary& rotary)
{
    KvPrepareRequest prepare;
    prepare.dtype       = request.dtype;
    prepare.batch       = request.batch;
    prepare.seqlen_q    = request.seqlen_q;
    prepare.seqlen_knew = a.new_rows();
    prepare.capacity    = request.seqlen_k;
    prepare.heads_q     = request.heads_q;
    prepare.heads_k     = request.heads_k;
    prepare.hdim        = request.hdim;
    prepare.q           = view_of(a.q);
    prepare.k_cache     = request.k;
    prepare.v_cache     = request.v;
    prepare.pages       = request.pages;
    prepare.rotary      = rotary;
    prepare.group_heads = heads_to_pack(request);
    (a.block_table ? prepare.num_pages : prepare.cache_batches) = a.k_cache.size(0);
    const auto data = [](const std::optional<Tensor>& table) -> const void* {
        return table ? table->data_ptr() : nullptr;
    };
    prepare.cache_seqlens   = data(a.cache_seqlens);
    prepare.cache_batch_idx = data(a.cache_batch_idx);
    prepare.cache_leftpad   = data(a.cache_leftpad);
    return prepare;
}

// Queries that are not packed and not rotated are used as they are, if rows of all batch entries are one row apart.
bool queries_fit(const KvPrepareRequest& prepare)
{
    const TensorView& q = prepare.q;
    return prepare.group_heads == 1 && prepare.rotary.cosine == nullptr && !layout_misaligned(q) &&
           (prepare.batch == 1 || q.batch_stride == prepare.seqlen_q * q.row_stride) &&
           !layout_too_large(q, prepare.seqlen_q, prepare.hdim);
}

// The request of split-KV, in which the heads of a group are rows of one head.
FwdRequest pack_heads(FwdRequest request, std::int64_t pack)
{
    request.seqlen_q *= pack;
    request.heads_q /= pack;
    if(pack > 1) // its rows are one query, which a causal mask hides nothing from
    {
        request.window_left = request.window_right = -1;
    }
    if(request.pages.table == nullptr) // batch entries are found by their rows, however far apart
    {
        request.k.batch_stride = request.v.batch_stride = 0;
    }
    return request;
}

SplitOutput make_output(const FwdRequest& request, const Tensor& out, const Tensor& lse, std::int64_t pack)
{
    SplitOutput output;
    output.out              = view_of(out);
    output.lse              = lse.data_ptr();
    output.lse_head_stride  = request.seqlen_q;
    output.lse_batch_stride = request.heads_q * request.seqlen_q;
    if(pack > 1)
    {
        output.out.row_stride  = request.hdim;
        output.out.head_stride = pack * request.hdim;
        output.lse_head_stride = pack;
    }
    return output;
}

// Queries one after the other, as the kernel that prepares the cache copies them where they do not fit.
TensorView copied_queries(const CacheArguments& a, const FwdRequest& packed)
{
    const TensorView view{nullptr, 0, packed.heads_q * packed.hdim, packed.hdim};
    STD_TORCH_CHECK(!layout_too_large(view, packed.seqlen_q, packed.hdim),
                    "q has shape ", describe_shape(a.q), ": one head of its rows one after the other spans more than "
                    "2 GiB, which the kernels' 32-bit offsets cannot address. Split the heads or the queries into "
                    "chunks");
    return view;
}

// New keys or values as the kernel reads them while it writes the cache; q where there are none.
Tensor new_rows(const CacheArguments& a, const std::optional<Tensor>& rows)
{
    if(!rows)
    {
        return a.q;
    }
    Tensor found = dense(*rows);
    const ByteRange own = byte_range(found);
    const bool in_cache = ranges_meet(own, byte_range(a.k_cache)) || ranges_meet(own, byte_range(a.v_cache));
    return in_cache ? copy_of(found) : found;
}

// Everything but workspace that the kernels touch; `knew` and `vnew`: new rows as the kernels get them.
void use_tensors(const CacheArguments& a, const Tensor& knew, const Tensor& vnew, const Tensor& out, const Tensor& lse,
                 CallDevice& device)
{
    for(const Tensor* tensor : {&a.q, &a.k_cache, &a.v_cache, &knew, &vnew, &out, &lse})
    {
        device.use(*tensor);
    }
    for(const auto* tensor :
        {&a.cache_seqlens, &a.cache_batch_idx, &a.cache_leftpad, &a.block_table, &a.rotary_cos, &a.rotary_sin})
    {
        device.use(*tensor);
    }
}

// Appends, rotates and attends.
void run(const CacheArguments& a, const FwdRequest& request, const Rotary& rotary, std::int64_t num_splits,
         const Tensor& out, const Tensor& lse, CallDevice& device)
{
    KvPrepareRequest prepare = make_prepare(a, request, rotary);
    const SplitOutput output = make_output(request, out, lse, prepare.group_heads);
    const Tensor knew        = new_rows(a, a.k);
    const Tensor vnew        = new_rows(a, a.v);
    if(a.k)
    {
        prepare.knew = view_of(knew);
        prepare.vnew = view_of(vnew);
    }
    FwdRequest packed       = pack_heads(request, prepare.group_heads);
    const bool copied       = !queries_fit(prepare);
    packed.q                = copied ? copied_queries(a, packed) : prepare.q;
    packed.q.batch_stride   = 0;
    const bool fits         = !layout_misaligned(packed.k) && !layout_misaligned(packed.v);
    const SplitPlan plan    = plan_split(Library::instance(), device.index(), packed, fits, num_splits);
    const std::int64_t rows = packed.batch * packed.seqlen_q;

    Workspace workspace;
    const auto start_q  = workspace.reserve((packed.batch + 1) * kInt32Bytes);
    const auto start_k  = workspace.reserve((packed.batch + 1) * kInt32Bytes);
    const auto length_k = workspace.reserve(packed.batch * kInt32Bytes);
    const auto queries  = workspace.reserve(copied ? rows * packed.heads_q * packed.hdim * kElementBytes : 0);
    const SplitWorkspace parts(workspace, packed, plan.splits, rows);
    workspace.make(a.q);
    prepare.start_q  = workspace.use(start_q, device);
    prepare.start_k  = workspace.use(start_k, device);
    prepare.length_k = workspace.use(length_k, device);
    if(copied)
    {
        prepare.q_out = workspace.use(queries, device);
        packed.q.data = prepare.q_out;
    }
    packed.sequences           = {prepare.start_q, prepare.start_k, prepare.length_k};
    const SplitBuffers buffers = parts.use(workspace, device);
    use_tensors(a, knew, vnew, out, lse, device);
    device.run([&](const Queue& queue) {
        launch_kv_prepare(queue, prepare);
        if(packed.seqlen_q > 0)
        {
            launch_split(queue, plan, packed, buffers, output);
        }
    });
}

// Returns out, like q, and lse, float32 (batch, nheads, seqlen_q).
std::tuple<Tensor, Tensor> kvcache_fwd(const Tensor& q,
                                       const Tensor& k_cache,
                                       const Tensor& v_cache,
                                       const std::optional<Tensor>& k,
                                       const std::optional<Tensor>& v,
                                       const std::optional<Tensor>& rotary_cos,
                                       const std::optional<Tensor>& rotary_sin,
                                       const std::optional<Tensor>& cache_seqlens,
                                       const std::optional<Tensor>& cache_batch_idx,
                                       const std::optional<Tensor>& cache_leftpad,
                                       const std::optional<Tensor>& block_table,
                                       const std::optional<Tensor>& alibi_slopes,
                                       double softmax_scale,
                                       std::int64_t window_left,
                                       std::int64_t window_right,
                                       double softcap,
                                       bool rotary_interleaved,
                                       std::int64_t num_splits)
{
    const CacheArguments a{q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx,
                           cache_leftpad, block_table, rotary_interleaved};
    check_shapes(a);
    CallDevice device(q);
    check_tables(a);
    check_new(a);
    check_values(a);
    FwdRequest request = make_request(a);
    set_options(request, q, {softmax_scale, window_left, window_right, softcap, 0.0, alibi_slopes, {}}, device);
    const Rotary rotary = make_rotary(a, window_left >= 0 || window_right >= 0);

    const Tensor out = make_tensor_like(q);
    const Tensor lse = make_tensor(q, {request.batch, request.heads_q, request.seqlen_q}, ScalarType::Float);
    if(request.batch == 0 || request.heads_q == 0 || (request.seqlen_q == 0 && a.new_rows() == 0))
    {
        return {out, lse};
    }
    if(request.seqlen_k == 0 || k_cache.numel() == 0)
    {
        fill_unseen(out, lse);
        return {out, lse};
    }
    check_extents(a, request);
    run(a, request, rotary, num_splits, out, lse, device);
    return {out, lse};
}

} // namespace

constinit const BoxedOp kvcache_fwd_op = FA_BOX(&kvcache_fwd);

} // namespace flash_attn_rocm
