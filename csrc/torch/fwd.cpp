// The torch op `fwd`: checks tensors, makes their memory layout one the kernels can read, and launches.
#include "fwd.hpp"

#include <limits>
#include <mutex>
#include <vector>

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>

#include "../host/checks.hpp"
#include "../host/error.hpp"
#include "../host/host_memory.hpp"
#include "../host/launch.hpp"
#include "torch_runtime.hpp"

namespace flash_attn_rocm {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

std::string describe_shape(const Tensor& tensor)
{
    std::string text;
    for(std::int64_t i = 0; i < tensor.dim(); ++i)
    {
        text += concat(i == 0 ? "" : ", ", tensor.size(i));
    }
    return "(" + text + ")";
}

bool same_device(const Tensor& a, const Tensor& b)
{
    return a.is_cuda() == b.is_cuda() && a.is_cpu() == b.is_cpu() && a.get_device_index() == b.get_device_index();
}

// Elements from the first to the last one in memory.
std::int64_t spanned_elements(const Tensor& tensor)
{
    if(tensor.numel() == 0)
    {
        return 0;
    }
    std::int64_t last = 0;
    for(std::int64_t i = 0; i < tensor.dim(); ++i)
    {
        last += (tensor.size(i) - 1) * tensor.stride(i);
    }
    return last + 1;
}

// A storage can be shrunk under its tensors (as sharded training does to free parameters); reading on would crash.
void check_storage(const Tensor& tensor, const char* name)
{
    std::int64_t bytes  = 0;
    std::int64_t offset = 0;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_size(tensor.get(), &bytes));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_offset(tensor.get(), &offset));
    const std::int64_t elements = spanned_elements(tensor);
    const std::int64_t needed   = elements == 0 ? 0 : (offset + elements) * kElementBytes;
    STD_TORCH_CHECK(needed <= bytes,
                    name, " has shape ", describe_shape(tensor), " and needs ", needed, " bytes, but its storage is "
                    "too small: it has ", bytes, ". It was resized after the tensor was made: restore it first");
}

void check_tensors(const Tensor& q, const Tensor& k, const Tensor& v)
{
    for(const Tensor* tensor : {&q, &k, &v})
    {
        STD_TORCH_CHECK(tensor->dim() == 4,
                        "q, k and v must have 4 dimensions (batch, seqlen, nheads, headdim), but one has shape ",
                        describe_shape(*tensor));
    }
    const ScalarType dtype = q.scalar_type();
    STD_TORCH_CHECK(dtype == ScalarType::Half || dtype == ScalarType::BFloat16,
                    "q has dtype ", torch::headeronly::toString(dtype), "; allowed: Half (float16) and BFloat16");
    STD_TORCH_CHECK(k.scalar_type() == dtype && v.scalar_type() == dtype,
                    "q, k and v must have one dtype, but have ",
                    torch::headeronly::toString(dtype), ", ",
                    torch::headeronly::toString(k.scalar_type()), " and ",
                    torch::headeronly::toString(v.scalar_type()));
    STD_TORCH_CHECK(same_device(q, k) && same_device(q, v), "q, k and v must be on one device");
    const bool shapes_agree = k.size(0) == q.size(0) && v.size(0) == q.size(0) && k.size(1) == v.size(1) &&
                              k.size(2) == v.size(2) && k.size(3) == q.size(3) && v.size(3) == q.size(3);
    STD_TORCH_CHECK(shapes_agree,
                    "shapes do not agree: q ", describe_shape(q), ", k ", describe_shape(k), ", v ",
                    describe_shape(v), "; expected (batch, seqlen, nheads, headdim) with k and v alike");
    check_storage(q, "q");
    check_storage(k, "k");
    check_storage(v, "v");
}

// Strides of a dimension of size 1 are arbitrary in torch and multiplied by 0 in the kernels; they are replaced by those
// of a contiguous tensor, or for rows, whose stride must fit 32 bits, by that of adjacent rows.
TensorView view_of(const Tensor& tensor)
{
    const std::int64_t heads = tensor.size(2);
    const std::int64_t hdim  = tensor.size(3);
    TensorView view;
    view.data         = tensor.data_ptr();
    view.batch_stride = tensor.size(0) == 1 ? tensor.size(1) * heads * hdim : tensor.stride(0);
    view.row_stride   = tensor.size(1) == 1 ? hdim : tensor.stride(1);
    view.head_stride  = heads == 1 ? hdim : tensor.stride(2);
    return view;
}

bool head_dim_contiguous(const Tensor& tensor) { return tensor.size(3) == 1 || tensor.stride(3) == 1; }

// Copies only when the layout is one that no kernel can read; the copy may not help a tensor that is itself too large.
Tensor readable(const Tensor& tensor, const char* name)
{
    const std::int64_t seqlen = tensor.size(1);
    const std::int64_t hdim   = tensor.size(3);
    if(head_dim_contiguous(tensor) && !layout_too_large(view_of(tensor), seqlen, hdim))
    {
        return tensor;
    }
    Tensor copy = torch::stable::contiguous(tensor);
    STD_TORCH_CHECK(!layout_too_large(view_of(copy), seqlen, hdim),
                    name, " has shape ", describe_shape(tensor),
                    ": one head spans more than 2 GiB, which the kernels' 32-bit offsets cannot address. "
                    "Split the heads or the sequence into chunks");
    return copy;
}

Tensor aligned(const Tensor& tensor)
{
    if(!layout_misaligned(view_of(tensor)))
    {
        return tensor;
    }
    const Tensor contiguous = torch::stable::contiguous(tensor);
    return layout_misaligned(view_of(contiguous)) ? torch::stable::clone(contiguous) : contiguous;
}

// First to last byte of the elements; the storage may be larger.
ByteRange byte_range(const Tensor& tensor)
{
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
    return {begin, begin + static_cast<std::uintptr_t>(spanned_elements(tensor)) * tensor.element_size()};
}

FwdRequest make_request(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse)
{
    FwdRequest request;
    request.dtype    = q.scalar_type() == ScalarType::Half ? "fp16" : "bf16";
    request.batch    = q.size(0);
    request.seqlen_q = q.size(1);
    request.seqlen_k = k.size(1);
    request.heads_q  = q.size(2);
    request.heads_k  = k.size(2);
    request.hdim     = q.size(3);
    request.q        = view_of(q);
    request.k        = view_of(k);
    request.v        = view_of(v);
    request.out      = view_of(out);
    request.lse      = lse.data_ptr();
    return request;
}

// Replaces tensors by copies where the kernel cannot read them as they lie in memory.
void make_readable(const KernelInfo& kernel, Tensor& q, Tensor& k, Tensor& v)
{
    q = readable(q, "q");
    k = readable(k, "k");
    v = readable(v, "v");
    if(needs_alignment(kernel))
    {
        q = aligned(q);
        k = aligned(k);
        v = aligned(v);
    }
}

void launch_emulated(const FwdKernel& chosen, const FwdRequest& request, std::vector<ByteRange> memory)
{
    // One at a time: calls on other threads may share tensors, and memory can be registered only once.
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    Library& library      = Library::instance();
    const HipRuntime& hip = library.hip();
    check_hip(hip, hip.api.hipSetDevice(0), "hipSetDevice(0)");
    const HostRegistration registration(hip, std::move(memory));
    launch_fwd(library, 0, nullptr, chosen, request);
    check_hip(hip, hip.api.hipStreamSynchronize(nullptr), concat("running ", chosen.kernel.name));
}

// The request's launches are queued on torch's current stream, or done when this returns on the emulated GPU.
void launch(const FwdKernel& chosen, FwdRequest request, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse)
{
    STD_TORCH_CHECK(!layout_too_large(view_of(out), request.seqlen_q, request.hdim),
                    "out has shape ", describe_shape(out),
                    ": one head spans more than 2 GiB. Split the heads or the sequence into chunks");
    make_readable(chosen.kernel, q, k, v);
    request.q = view_of(q);
    request.k = view_of(k);
    request.v = view_of(v);
    if(q.is_cuda())
    {
        const std::int32_t device = q.get_device_index();
        launch_fwd(Library::instance(), device, current_stream(device), chosen, request);
        return;
    }
    launch_emulated(chosen,
                    request,
                    {byte_range(q), byte_range(k), byte_range(v), byte_range(out), byte_range(lse)});
}

} // namespace

std::tuple<Tensor, Tensor> fwd(Tensor q,
                               Tensor k,
                               Tensor v,
                               std::optional<Tensor> alibi_slopes,
                               double softmax_scale,
                               std::int64_t window_left,
                               std::int64_t window_right,
                               double softcap,
                               double dropout_p)
{
    check_tensors(q, k, v);
    std::optional<torch::stable::accelerator::DeviceGuard> guard;
    if(q.is_cuda())
    {
        guard.emplace(q.get_device_index());
    }
    else
    {
        STD_TORCH_CHECK(Library::instance().hip().emulated(),
                        "tensors are on the CPU and no emulated GPU is in use. Move them to an AMD GPU, or set "
                        "FLASH_ATTN_ROCM_EMULATE=<gfx> before the first call");
    }
    const std::vector<std::int64_t> lse_shape = {q.size(0), q.size(2), q.size(1)};
    Tensor out                                = torch::stable::new_empty(q, q.sizes());
    Tensor lse                                = torch::stable::new_empty(q, lse_shape, ScalarType::Float);

    FwdRequest request    = make_request(q, k, v, out, lse);
    request.softmax_scale = softmax_scale;
    request.window_left   = window_left;
    request.window_right  = window_right;
    request.softcap       = softcap;
    request.dropout_p     = dropout_p;
    request.alibi_slopes  = alibi_slopes ? static_cast<const float*>(alibi_slopes->data_ptr()) : nullptr;
    check_fwd_request(request);
    const int device       = q.is_cuda() ? q.get_device_index() : 0;
    const FwdKernel chosen = select_fwd_kernel(Library::instance(), device, request);
    if(out.numel() == 0)
    {
        return {out, lse};
    }
    if(request.seqlen_k == 0)
    {
        torch::stable::fill_(out, 0.0);
        torch::stable::fill_(lse, -std::numeric_limits<double>::infinity());
        return {out, lse};
    }
    launch(chosen, request, q, k, v, out, lse);
    return {out, lse};
}

} // namespace flash_attn_rocm
