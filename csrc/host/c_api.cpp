// The C interface: exceptions become -1 and a text per thread.
#include "c_api.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "describe.hpp"
#include "library.hpp"

namespace {

using flash_attn_rocm::Library;

thread_local std::string last_error;

template <class Function>
int guarded(Function&& function)
{
    try
    {
        return function();
    }
    catch(const std::exception& error)
    {
        last_error = error.what();
        return -1;
    }
}

int copy_text(const std::string& text, char* buffer, std::size_t size)
{
    if(size != 0)
    {
        const std::size_t copied = std::min(text.size(), size - 1);
        std::memcpy(buffer, text.data(), copied);
        buffer[copied] = '\0';
    }
    return static_cast<int>(text.size());
}

} // namespace

const char* fa_rocm_version(void) { return FLASH_ATTN_ROCM_VERSION; }

const char* fa_rocm_last_error(void) { return last_error.c_str(); }

int fa_rocm_use_hip_library(const char* path)
{
    return guarded([&] {
        Library::instance().use_hip_library(path);
        return 0;
    });
}

int fa_rocm_add_kernel_path(const char* directory)
{
    return guarded([&] {
        Library::instance().add_kernel_path(directory);
        return 0;
    });
}

int fa_rocm_describe(char* buffer, size_t size)
{
    return guarded([&] { return copy_text(flash_attn_rocm::describe(Library::instance()), buffer, size); });
}

int fa_rocm_launch_counts(char* buffer, size_t size)
{
    return guarded([&] { return copy_text(flash_attn_rocm::describe_launches(Library::instance()), buffer, size); });
}
