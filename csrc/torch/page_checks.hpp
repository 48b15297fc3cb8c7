// Checks of caches in pages. Tables in GPU memory are not read: that would cost a synchronisation.
#pragma once

#include "tensors.hpp"

namespace flash_attn_rocm {

// Throws unless kernels exist that read pages of this many rows.
void check_page_size(std::int64_t rows);

// Throws unless the pages of batch entry `batch` of a table in host memory hold `length` rows and lie in `cache`,
// (pages, page size, nheads, headdim).
void check_page_row(const Tensor& table, std::int64_t batch, std::int64_t length, const Tensor& cache);

} // namespace flash_attn_rocm
