// Whether tensors share memory that a kernel writes.
#pragma once

#include "tensors.hpp"

namespace flash_attn_rocm {

// Whether every element has memory of its own; false for some unusual layouts that do, too.
bool elements_apart(const Tensor& tensor);

// Throws where several elements are one place in memory, which several waves would write in any order.
void check_not_expanded(const Tensor& tensor, const char* name);

// Whether some byte is in both. The byte_range of views that take turns in one buffer, as q, k and v of a packed tensor,
// meet though the views share no element.
bool ranges_meet(ByteRange a, ByteRange b);

// Whether an element of one is an element of the other, for tensors of two-byte elements and as many dimensions. False,
// too, for layouts with different strides, where it takes a search.
bool elements_shared(const Tensor& a, const Tensor& b);

} // namespace flash_attn_rocm
