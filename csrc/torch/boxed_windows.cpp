// Raises an error inside torch, for a library that MinGW compiled (boxed.hpp).
#include "boxed.hpp"

#ifdef __MINGW32__

#include <cstdio>
#include <cstdlib>

#include "../host/dynamic_library.hpp"

namespace flash_attn_rocm {

void throw_in_torch(const char* text)
{
    // void c10::detail::torchCheckFail(const char* function, const char* file, uint32_t line, const char* text), which
    // every TORCH_CHECK of an extension calls. The stable ABI has no function that throws.
    using CheckFail           = void (*)(const char*, const char*, std::uint32_t, const char*);
    const LibraryHandle c10   = find_loaded_library("c10.dll");
    const auto check_fail     = reinterpret_cast<CheckFail>(
        c10 != nullptr ? find_symbol(c10, "?torchCheckFail@detail@c10@@YAXPEBD0I0@Z") : nullptr);
    if(check_fail != nullptr)
    {
        check_fail("flash_attn_rocm", "flash_attn_rocm", 0, text);
    }
    std::fprintf(stderr, "flash_attn_rocm: this torch cannot be told of the error: %s\n", text);
    std::abort();
}

} // namespace flash_attn_rocm

#endif
