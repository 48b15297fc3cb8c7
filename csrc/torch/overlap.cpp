// Shared memory of strided tensors.
#include "overlap.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "../host/integers.hpp"

namespace flash_attn_rocm {
namespace {

// One dimension of two tensors that have one stride there.
struct Dim
{
    std::int64_t stride, size_a, size_b;
};

// By stride, largest first, without dimensions that move neither; nullopt where strides differ.
std::optional<std::vector<Dim>> common_dims(const Tensor& a, const Tensor& b)
{
    std::vector<Dim> dims;
    for(std::int64_t i = 0; i < a.dim(); ++i)
    {
        const std::int64_t size_a = a.size(i);
        const std::int64_t size_b = b.size(i);
        if(size_a > 1 && size_b > 1 && a.stride(i) != b.stride(i))
        {
            return std::nullopt;
        }
        if(size_a > 1 || size_b > 1)
        {
            dims.push_back({size_a > 1 ? a.stride(i) : b.stride(i), size_a, size_b});
        }
    }
    std::sort(dims.begin(), dims.end(), [](const Dim& x, const Dim& y) { return x.stride > y.stride; });
    return dims;
}

// Whether sum over dims of (i_a - i_b) * stride can be `distance`, for indices i_a and i_b within the sizes.
bool reaches(const std::vector<Dim>& dims, std::size_t at, std::int64_t distance)
{
    if(at == dims.size())
    {
        return distance == 0;
    }
    std::int64_t rest_a = 0; // how far the dimensions after this one reach
    std::int64_t rest_b = 0;
    for(std::size_t i = at + 1; i < dims.size(); ++i)
    {
        rest_a += (dims[i].size_a - 1) * dims[i].stride;
        rest_b += (dims[i].size_b - 1) * dims[i].stride;
    }
    // Where elements lie apart, the rest is less than one stride, so that this tries three steps at most.
    const Dim& dim          = dims[at];
    const std::int64_t near = distance / dim.stride;
    for(std::int64_t steps = near - 1; steps <= near + 1; ++steps)
    {
        const std::int64_t left = distance - steps * dim.stride;
        if(steps > -dim.size_b && steps < dim.size_a && left <= rest_a && left >= -rest_b && reaches(dims, at + 1, left))
        {
            return true;
        }
    }
    return false;
}

} // namespace

bool elements_apart(const Tensor& tensor)
{
    std::vector<std::pair<std::int64_t, std::int64_t>> dims; // stride, size
    for(std::int64_t i = 0; i < tensor.dim(); ++i)
    {
        dims.emplace_back(tensor.stride(i), tensor.size(i));
    }
    std::sort(dims.begin(), dims.end());
    std::int64_t span = 1; // elements from the first to the last one of the dimensions so far
    for(const auto& [stride, size] : dims)
    {
        if(size > 1 && stride < span)
        {
            return false;
        }
        span += (size - 1) * stride;
    }
    return true;
}

void check_not_expanded(const Tensor& tensor, const char* name)
{
    for(std::int64_t i = 0; i < tensor.dim(); ++i)
    {
        STD_TORCH_CHECK(tensor.stride(i) != 0 || tensor.size(i) <= 1,
                        name, " has shape ", describe_shape(tensor), " and stride 0 in dimension ", i,
                        ": several of its elements are one place in memory. Pass a tensor that is not expanded");
    }
}

bool ranges_meet(ByteRange a, ByteRange b) { return a.begin < b.end && b.begin < a.end; }

bool elements_shared(const Tensor& a, const Tensor& b)
{
    if(!ranges_meet(byte_range(a), byte_range(b)) || !elements_apart(a) || !elements_apart(b))
    {
        return false;
    }
    const auto address  = [](const Tensor& tensor) { return reinterpret_cast<std::intptr_t>(tensor.data_ptr()); };
    const auto distance = static_cast<std::int64_t>(address(b) - address(a)) / kElementBytes;
    const std::optional<std::vector<Dim>> dims = common_dims(a, b);
    return dims && reaches(*dims, 0, distance);
}

} // namespace flash_attn_rocm
