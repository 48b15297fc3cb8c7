// Checks of caches in pages.
#include "page_checks.hpp"

namespace flash_attn_rocm {
namespace {

constexpr std::int64_t kPageStep = 16; // keys that one matrix instruction takes

} // namespace

void check_page_size(std::int64_t rows)
{
    STD_TORCH_CHECK(rows > 0 && rows % kPageStep == 0,
                    "pages have ", rows, " rows; allowed: multiples of ", kPageStep,
                    " (fastest: multiples of 64). Use a cache with such pages");
}

void check_page_row(const Tensor& table, std::int64_t batch, std::int64_t length, const Tensor& cache)
{
    const std::int64_t rows = cache.size(1);
    STD_TORCH_CHECK(length >= 0 && length <= table.size(1) * rows,
                    "batch entry ", batch, " has ", length, " keys, but its row of block_table has ", table.size(1),
                    " pages of ", rows, " rows");
    const auto* pages = static_cast<const std::int32_t*>(table.data_ptr()) + batch * table.size(1);
    for(std::int64_t i = 0; i * rows < length; ++i)
    {
        STD_TORCH_CHECK(pages[i] >= 0 && pages[i] < cache.size(0),
                        "block_table has page ", pages[i], " at (", batch, ", ", i, "); the cache has pages 0 to ",
                        cache.size(0) - 1);
    }
}

} // namespace flash_attn_rocm
