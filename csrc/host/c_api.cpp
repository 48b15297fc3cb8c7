// The C interface: exceptions become -1 and a text per thread.
#include "c_api.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "describe.hpp"
#include "error.hpp"
#include "head_grouping.hpp"
#include "kfd_topology.hpp"
#include "library.hpp"
#include "split.hpp"
#include "text.hpp"

namespace {

using flash_attn_rocm::Library;
using flash_attn_rocm::path_of;

thread_local std::string last_error;

void keep_error(const char* text) noexcept
{
    try
    {
        last_error = text;
    }
    catch(...) // no memory for the text
    {
        last_error.clear();
    }
}

template <class Function>
int guarded(Function&& function) noexcept
{
    try
    {
        return function();
    }
    catch(const std::exception& error)
    {
        keep_error(error.what());
    }
    catch(...)
    {
        keep_error("an exception of unknown type");
    }
    return -1;
}

// A path argument of the function with this name.
std::string required_path(const char* function, const char* path)
{
    if(path == nullptr || *path == '\0')
    {
        flash_attn_rocm::fail(function, ": the path is ", path == nullptr ? "NULL" : "empty", "; expected a path");
    }
    return path;
}

int copy_text(const char* function, const std::string& text, char* buffer, std::size_t size)
{
    if(buffer == nullptr && size != 0)
    {
        flash_attn_rocm::fail(function, ": the buffer is NULL, but its size is ", size, "; expected size 0");
    }
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
        Library::instance().use_hip_library(required_path("fa_rocm_use_hip_library", path));
        return 0;
    });
}

int fa_rocm_add_kernel_path(const char* directory)
{
    return guarded([&] {
        Library::instance().add_kernel_path(path_of(required_path("fa_rocm_add_kernel_path", directory)));
        return 0;
    });
}

int fa_rocm_set_kernel_paths(const char* const* directories, size_t count)
{
    return guarded([&] {
        constexpr const char* name = "fa_rocm_set_kernel_paths";
        if(directories == nullptr && count != 0)
        {
            flash_attn_rocm::fail(name, ": the list is NULL, but its length is ", count, "; expected length 0");
        }
        std::vector<std::filesystem::path> paths;
        for(std::size_t i = 0; i < count; ++i)
        {
            paths.push_back(path_of(required_path(name, directories[i])));
        }
        Library::instance().set_kernel_paths(std::move(paths));
        return 0;
    });
}

int fa_rocm_describe(char* buffer, size_t size)
{
    return guarded([&] {
        return copy_text("fa_rocm_describe", flash_attn_rocm::describe(Library::instance()), buffer, size);
    });
}

int fa_rocm_launch_counts(char* buffer, size_t size)
{
    return guarded([&] {
        const std::string text = flash_attn_rocm::describe_launches(Library::instance());
        return copy_text("fa_rocm_launch_counts", text, buffer, size);
    });
}

int fa_rocm_choose_num_splits(int batch, int heads, int seqlen_q, int seqlen_k, int tile_m, int multiprocessors)
{
    return guarded([&] {
        if(tile_m <= 0 || multiprocessors <= 0)
        {
            flash_attn_rocm::fail("fa_rocm_choose_num_splits: tile_m is ", tile_m, ", multiprocessors ",
                                  multiprocessors, "; expected positive numbers");
        }
        const flash_attn_rocm::SplitProblem problem{batch, heads, seqlen_q, seqlen_k, tile_m, multiprocessors};
        return static_cast<int>(flash_attn_rocm::choose_num_splits(problem));
    });
}

int fa_rocm_set_last_level_cache(const char* gfx, long long bytes, int head_grouping)
{
    return guarded([&] {
        if(gfx == nullptr || bytes < 0)
        {
            flash_attn_rocm::fail("fa_rocm_set_last_level_cache: gfx is ", gfx == nullptr ? "NULL" : gfx, ", bytes ", bytes,
                                  "; expected a GPU's name and a size from 0");
        }
        Library::instance().devices().set_cache(gfx, {bytes, head_grouping != 0});
        return 0;
    });
}

int fa_rocm_read_environment(void)
{
    return guarded([&] {
        Library::instance().read_environment();
        return 0;
    });
}

int fa_rocm_choose_kv_heads(int heads_k, long long head_bytes, int query_tiles, long long cache_bytes)
{
    return guarded([&] {
        return static_cast<int>(
            flash_attn_rocm::kv_heads_per_launch({heads_k, head_bytes, query_tiles, cache_bytes}));
    });
}

int fa_rocm_kfd_cache_kib(const char* nodes, int domain, int bus, int device, const char* gfx)
{
    return guarded([&] {
        const std::string directory = required_path("fa_rocm_kfd_cache_kib", nodes);
        const flash_attn_rocm::PciAddress address{domain, bus, device};
        return static_cast<int>(flash_attn_rocm::kfd_cache_bytes(directory, address, gfx == nullptr ? "" : gfx) / 1024);
    });
}
