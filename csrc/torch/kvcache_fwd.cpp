// The torch op `kvcache_fwd`: checks tensors, prepares the cache, and launches split-KV attention.
#include "kvcache_fwd.hpp"

#include <vector>

#include <torch/csrc/stable/ops.h>

#include "../host/checks.hpp"
#include "../host/dispatch.hpp"
#include "../host/kv_prepare.hpp"
#include "../host/split.hpp"
#include "page_checks.hpp"
#include "run.hpp"
#include "split_buffers.hpp"

namespace flash_attn_rocm {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kRotaryStep = 16; // rotary_dim is a multiple of it, as upstream requires

// The arguments of the op that say where keys are; all tensors are on q's device.
struct CacheArguments
{
    const Tensor& q;
    const Tensor& k_cache;
    const Tensor& v_cache;
    const std::optional<Tensor>& k;
    const std::optional<Tensor>& v;
    const std::optional<Tensor>& cache_seqlens;
    const std::optional<Tensor>& cache_batch_idx;
    const std::optional<Tensor>& cache_leftpad;
    const std::optional<Tensor>& block_table;

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

Rotary make_rotary(const CacheArguments& a, const std::optional<Tensor>& cosine, const std::optional<Tensor>& sine)
{
    STD_TORCH_CHECK(cosine.has_value() == sine.has_value(), "rotary_cos and rotary_sin must be given together");
    Rotary rotary;
    if(!cosine)
    {
        return rotary;
    }
    STD_TORCH_CHECK(a.k.has_value(), "rotary_cos is given without new k and v");
    const std::int64_t dim = 2 * cosine->size(cosine->dim() - 1);
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
    rotary.cosine = cosine->data_ptr();
    rotary.sine   = sine->data_ptr();
    rotary.dim    = dim;
    rotary.seqlen = cosine->size(0);
    return rotary;
}

FwdRequest make_request(const CacheArguments& a)
{
    FwdRequest request;
    request.mode     = Mode::group;
    request.dtype    = a.q.scalar_type() == ScalarType::Half ? "fp16" : "bf16";
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

// A packed query's rows are the heads of one group.
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

} // namespace

std::tuple<Tensor, Tensor> kvcache_fwd(Tensor q,
                                       Tensor k_cache,
                                       Tensor v_cache,
                                       std::optional<Tensor> k,
                                       std::optional<Tensor> v,
                                       std::optional<Tensor> rotary_cos,
                                       std::optional<Tensor> rotary_sin,
                                       std::optional<Tensor> cache_seqlens,
                                       std::optional<Tensor> cache_batch_idx,
                                       std::optional<Tensor> cache_leftpad,
                                       std::optional<Tensor> block_table,
                                       std::optional<Tensor> alibi_slopes,
                                       double softmax_scale,
                                       std::int64_t window_left,
                                       std::int64_t window_right,
                                       double softcap,
                                       bool rotary_interleaved,
                                       std::int64_t num_splits)
{
    const CacheArguments a{q, k_cache, v_cache, k, v, cache_seqlens, cache_batch_idx, cache_leftpad, block_table};
    check_shapes(a);
    check_device(q);
    check_tables(a);
    check_new(a);
    check_values(a);
    const CurrentDevice current(q);
    FwdRequest request    = make_request(a);
    request.softmax_scale = softmax_scale;
    request.window_left   = window_left;
    request.window_right  = window_right;
    request.softcap       = softcap;
    std::vector<Tensor> used;
    set_features(request, q, alibi_slopes, std::nullopt, used);
    check_fwd_request(request);
    Rotary rotary      = make_rotary(a, rotary_cos, rotary_sin);
    rotary.interleaved = rotary_interleaved;
    rotary.per_row     = window_left >= 0 || window_right >= 0;

    Tensor out = make_tensor_like(q);
    Tensor lse = make_tensor(q, {request.batch, request.heads_q, request.seqlen_q}, ScalarType::Float);
    if(request.batch == 0 || request.heads_q == 0 || (request.seqlen_q == 0 && a.new_rows() == 0))
    {
        return {out, lse};
    }
    if(request.seqlen_k == 0 || k_cache.numel() == 0)
    {
        fill_unseen(out, lse);
        return {out, lse};
    }
    const std::int64_t span = block_table ? k_cache.size(1) : request.seqlen_k;
    STD_TORCH_CHECK(!layout_too_large(request.k, span, request.hdim) && !layout_too_large(request.v, span, request.hdim),
                    "one head of the cache spans more than 2 GiB, which the kernels' 32-bit offsets cannot address");

    const std::int64_t pack  = heads_to_pack(request);
    KvPrepareRequest prepare = make_prepare(a, request, rotary);
    prepare.group_heads      = pack;
    const Tensor knew        = k ? torch::stable::contiguous(*k) : q;
    const Tensor vnew        = v ? torch::stable::contiguous(*v) : q;
    if(k)
    {
        prepare.knew = view_of(knew);
        prepare.vnew = view_of(vnew);
    }
    // Starts of queries and keys, lengths of keys.
    const Tensor sequences = make_tensor(q, {3 * request.batch + 2}, ScalarType::Int);
    auto* table            = static_cast<std::int32_t*>(sequences.data_ptr());
    prepare.start_q        = table;
    prepare.start_k        = table + request.batch + 1;
    prepare.length_k       = table + 2 * (request.batch + 1);
    Tensor queries         = q;
    if(!queries_fit(prepare))
    {
        const std::int64_t heads = request.heads_q / pack;
        STD_TORCH_CHECK(!layout_too_large({nullptr, 0, heads * request.hdim, request.hdim}, request.seqlen_q * pack,
                                          request.hdim),
                        "q has shape ", describe_shape(q), ": one head of its rows one after the other spans more than "
                        "2 GiB, which the kernels' 32-bit offsets cannot address. Split the heads or the queries into "
                        "chunks");
        queries = make_tensor(q, {request.batch * request.seqlen_q * pack, heads, request.hdim}, q.scalar_type());
        prepare.q_out = queries.data_ptr();
    }
    used.insert(used.end(), {q, k_cache, v_cache, knew, vnew, sequences, queries, out, lse});
    for(const auto* table_of : {&cache_seqlens, &cache_batch_idx, &cache_leftpad, &block_table, &rotary_cos, &rotary_sin})
    {
        if(*table_of)
        {
            used.push_back(**table_of);
        }
    }
    const SplitOutput output = make_output(request, out, lse, pack);
    request.q                = view_of(queries);
    request.q.batch_stride   = 0;
    if(!block_table) // batch entries are found by their rows, however far apart
    {
        request.k.batch_stride = request.v.batch_stride = 0;
    }
    request.seqlen_q *= pack;
    request.heads_q /= pack;
    if(pack > 1) // its rows are one query, which a causal mask hides nothing from
    {
        request.window_left = request.window_right = -1;
    }
    request.sequences = {prepare.start_q, prepare.start_k, prepare.length_k};
    Library& library  = Library::instance();
    const bool fits   = !layout_misaligned(request.k) && !layout_misaligned(request.v);
    const SplitPlan plan    = plan_split(library, device_of(q), request, fits, num_splits);
    const SplitTensors made = make_split_tensors(q, request, plan.splits, request.batch * request.seqlen_q);
    used.insert(used.end(), {made.lse_acc, made.o_acc});
    run_where(q, used, [&](int device, HipStream stream) {
        launch_kv_prepare(library, device, stream, prepare);
        if(request.seqlen_q > 0)
        {
            launch_split(library, device, stream, plan, request, made.buffers, output);
        }
    });
    return {out, lse};
}

} // namespace flash_attn_rocm
