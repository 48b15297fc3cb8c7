// Checks of tensors, their views and copies for the kernels, and new tensors.
#include "tensors.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <torch/csrc/stable/ops.h>

#include "../host/checks.hpp"
#include "../host/error.hpp"
#include "torch_runtime.hpp"

namespace flash_attn_rocm {
namespace {

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
    const auto element_bytes    = static_cast<std::int64_t>(tensor.element_size());
    const std::int64_t needed   = elements == 0 ? 0 : (offset + elements) * element_bytes;
    STD_TORCH_CHECK(needed <= bytes,
                    name, " has shape ", describe_shape(tensor), " and needs ", needed, " bytes, but its storage is "
                    "too small: it has ", bytes, ". It was resized after the tensor was made: restore it first");
}

constexpr std::size_t kMostDims = 8;

std::int32_t dtype_code(ScalarType dtype)
{
    switch(dtype)
    {
    case ScalarType::Float: return aoti_torch_dtype_float32();
    case ScalarType::Int: return aoti_torch_dtype_int32();
    case ScalarType::Byte: return aoti_torch_dtype_uint8();
    case ScalarType::Half: return aoti_torch_dtype_float16();
    case ScalarType::BFloat16: return aoti_torch_dtype_bfloat16();
    default: fail("tensors of ", torch::headeronly::toString(dtype), " are not made here");
    }
}

// "2, any, 64": negative sizes are any.
std::string list(const std::int64_t* first, const std::int64_t* last)
{
    std::string text;
    for(const std::int64_t* size = first; size != last; ++size)
    {
        text += concat(size == first ? "" : ", ", *size < 0 ? std::string("any") : std::to_string(*size));
    }
    return text;
}

Tensor make(const Tensor& like, const std::int64_t* shape, std::size_t dims, std::int32_t dtype)
{
    std::array<std::int64_t, kMostDims> strides{};
    std::int64_t stride = 1;
    for(std::size_t i = dims; i-- > 0;)
    {
        strides.at(i) = stride;
        stride *= std::max<std::int64_t>(shape[i], 1);
    }
    std::int32_t device_type  = 0;
    std::int32_t device_index = 0;
    AtenTensorHandle handle   = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(like.get(), &device_index));
    const AOTITorchError status = aoti_torch_empty_strided(
        static_cast<std::int64_t>(dims), shape, strides.data(), dtype, device_type, device_index, &handle);
    STD_TORCH_CHECK(status == TORCH_SUCCESS,
                    "cannot allocate a tensor of shape (", list(shape, shape + dims), "), out of memory? ", torch_error());
    return Tensor(handle);
}

} // namespace

Tensor make_tensor(const Tensor& like, std::initializer_list<std::int64_t> shape, ScalarType dtype)
{
    return make(like, shape.begin(), shape.size(), dtype_code(dtype));
}

Tensor make_zeros(const Tensor& like, std::initializer_list<std::int64_t> shape, ScalarType dtype)
{
    const Tensor zeros = make_tensor(like, shape, dtype);
    torch::stable::fill_(zeros, 0.0);
    return zeros;
}

Tensor make_tensor_like(const Tensor& like)
{
    std::int32_t dtype = 0;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &dtype));
    const auto sizes = like.sizes();
    return make(like, sizes.data(), sizes.size(), dtype);
}

bool last_dim_contiguous(const Tensor& tensor)
{
    const std::int64_t last = tensor.dim() - 1;
    return tensor.size(last) == 1 || tensor.stride(last) == 1;
}

std::string describe_shape(const Tensor& tensor)
{
    const auto sizes = tensor.sizes();
    return concat("(", list(sizes.begin(), sizes.end()), ")");
}

void check_place(const Tensor& tensor, const char* name, const Tensor& q)
{
    STD_TORCH_CHECK(same_device(q, tensor), name, " is not on q's device: q, k, v and all others must be on one device");
    check_storage(tensor, name);
}

void check_dtypes(const Tensor& q, const Tensor& k, const Tensor& v)
{
    const ScalarType dtype = q.scalar_type();
    STD_TORCH_CHECK(dtype == ScalarType::Half || dtype == ScalarType::BFloat16,
                    "q has dtype ", torch::headeronly::toString(dtype), "; allowed: Half (float16) and BFloat16");
    STD_TORCH_CHECK(k.scalar_type() == dtype && v.scalar_type() == dtype,
                    "q, k and v must have one dtype, but have ",
                    torch::headeronly::toString(dtype), ", ",
                    torch::headeronly::toString(k.scalar_type()), " and ",
                    torch::headeronly::toString(v.scalar_type()));
    STD_TORCH_CHECK(same_device(q, k) && same_device(q, v), "q, k and v must be on one device");
    check_storage(q, "q");
    check_storage(k, "k");
    check_storage(v, "v");
}

void check_int32(const Tensor& tensor, const char* name, std::initializer_list<std::int64_t> shape, const Tensor& q)
{
    bool fits        = tensor.dim() == static_cast<std::int64_t>(shape.size());
    std::int64_t dim = 0;
    for(const std::int64_t wanted : shape)
    {
        fits = fits && (wanted < 0 || tensor.size(dim) == wanted);
        ++dim;
    }
    STD_TORCH_CHECK(fits, name, " has shape ", describe_shape(tensor), "; expected (", list(shape.begin(), shape.end()), ")");
    STD_TORCH_CHECK(tensor.scalar_type() == ScalarType::Int,
                    name, " has dtype ", torch::headeronly::toString(tensor.scalar_type()), "; expected Int (int32)");
    STD_TORCH_CHECK(tensor.is_contiguous(), name, " is not contiguous. Pass ", name, ".contiguous()");
    check_place(tensor, name, q);
}

void check_starts(const Tensor& starts,
                  const char* name,
                  std::int64_t rows,
                  std::int64_t longest,
                  const Tensor& q,
                  std::int64_t count)
{
    check_int32(starts, name, {count}, q);
    STD_TORCH_CHECK(starts.size(0) >= 1, name, " is empty; expected batch + 1 entries");
    if(starts.is_cuda())
    {
        return;
    }
    const auto* start = static_cast<const std::int32_t*>(starts.data_ptr());
    for(std::int64_t i = 0; i + 1 < starts.size(0); ++i)
    {
        const std::int64_t length = std::int64_t{start[i + 1]} - start[i];
        STD_TORCH_CHECK(start[i] >= 0 && length >= 0 && length <= longest && start[i + 1] <= rows,
                        name, " has entries ", start[i], " and ", start[i + 1], " at ", i,
                        "; expected ascending row numbers from 0 to ", rows, " with lengths up to ", longest);
    }
}

// Strides of a dimension of size 1 are arbitrary in torch and multiplied by 0 in the kernels; they are replaced by those
// of a contiguous tensor, or for rows, whose stride must fit 32 bits, by that of adjacent rows.
TensorView view_of(const Tensor& tensor)
{
    const std::int64_t row   = tensor.dim() - 3;
    const std::int64_t heads = tensor.size(row + 1);
    const std::int64_t hdim  = tensor.size(row + 2);
    TensorView view;
    view.data        = tensor.data_ptr();
    view.row_stride  = tensor.size(row) == 1 ? hdim : tensor.stride(row);
    view.head_stride = heads == 1 ? hdim : tensor.stride(row + 1);
    if(row == 1)
    {
        // Of one batch the stride says nothing; a whole number of rows is what caches need.
        view.batch_stride = tensor.size(0) == 1 ? tensor.size(1) * view.row_stride : tensor.stride(0);
    }
    return view;
}

Tensor copy_of(const Tensor& tensor)
{
    Tensor copy = make_tensor_like(tensor);
    torch::stable::copy_(copy, tensor);
    return copy;
}

Tensor dense(const Tensor& tensor) { return tensor.is_contiguous() ? tensor : copy_of(tensor); }

Tensor readable(const Tensor& tensor, std::int64_t seqlen, const char* name)
{
    const std::int64_t hdim = tensor.size(tensor.dim() - 1);
    if(last_dim_contiguous(tensor) && !layout_too_large(view_of(tensor), seqlen, hdim))
    {
        return tensor;
    }
    Tensor copy = dense(tensor);
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
    const Tensor rows = dense(tensor);
    return layout_misaligned(view_of(rows)) ? copy_of(rows) : rows;
}

ByteRange byte_range(const Tensor& tensor)
{
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
    return {begin, begin + static_cast<std::uintptr_t>(spanned_elements(tensor)) * tensor.element_size()};
}

void fill_unseen(const Tensor& out, const Tensor& lse)
{
    torch::stable::fill_(out, 0.0);
    torch::stable::fill_(lse, -std::numeric_limits<double>::infinity());
}

const char* dtype_name(const Tensor& tensor) { return tensor.scalar_type() == ScalarType::Half ? "fp16" : "bf16"; }

} // namespace flash_attn_rocm
