// What the ops do with tensors: checks, views for the host library, copies where a layout needs them, results.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include <torch/csrc/stable/tensor.h>

#include "../host/fwd_request.hpp"
#include "../host/host_memory.hpp"

namespace flash_attn_rocm {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

std::string describe_shape(const Tensor& tensor);

// Elements of the last dimension lie side by side.
bool last_dim_contiguous(const Tensor& tensor);

// Throws unless the tensor lies on the device of `q` and its storage holds all of its elements.
void check_place(const Tensor& tensor, const char* name, const Tensor& q);

// Throws unless q, k and v are float16 or bfloat16, all alike, where check_place wants them.
void check_dtypes(const Tensor& q, const Tensor& k, const Tensor& v);

// Throws unless the tensor is int32, contiguous, of this shape (-1: any extent), where check_place wants it.
void check_int32(const Tensor& tensor, const char* name, std::initializer_list<std::int64_t> shape, const Tensor& q);

// Throws unless the tensor is int32 of `count` entries (-1: of one or more), ascending row numbers, up to `rows`, of
// sequences no longer than `longest`. Values in host memory (emulated GPU) are checked; on a GPU that would cost a
// synchronisation, so there they are the caller's promise.
void check_starts(const Tensor& starts,
                  const char* name,
                  std::int64_t rows,
                  std::int64_t longest,
                  const Tensor& q,
                  std::int64_t count = -1);

// An uninitialised contiguous tensor beside `like`, without the dispatcher's look-up by name that torch::stable's
// functions make; and where there is no memory, with an error that says so.
Tensor make_tensor(const Tensor& like, std::initializer_list<std::int64_t> shape, ScalarType dtype);

// The same with shape and dtype of `like`.
Tensor make_tensor_like(const Tensor& like);

// The same filled with zeros.
Tensor make_zeros(const Tensor& like, std::initializer_list<std::int64_t> shape, ScalarType dtype);

// A contiguous copy.
Tensor copy_of(const Tensor& tensor);

// A (batch, seqlen, heads, head dim) or (rows, heads, head dim) tensor.
TensorView view_of(const Tensor& tensor);

// The tensor, or a contiguous copy.
Tensor dense(const Tensor& tensor);

// The tensor, or a copy where no kernel can read it as it lies in memory: head dim not contiguous, or one head's
// `seqlen` rows beyond 32-bit offsets. Throws where a copy does not help.
Tensor readable(const Tensor& tensor, std::int64_t seqlen, const char* name);

// The tensor, or a copy whose rows start at multiples of 16 bytes.
Tensor aligned(const Tensor& tensor);

// First to last byte of the elements; the storage may be larger.
ByteRange byte_range(const Tensor& tensor);

// "fp16" or "bf16", of a tensor that check_dtypes let pass.
const char* dtype_name(const Tensor& tensor);

// Zeros in out, -inf in lse: no query sees a key.
void fill_unseen(const Tensor& out, const Tensor& lse);

} // namespace flash_attn_rocm
