// Loading shared libraries and finding symbols at run time: dlopen on Linux, LoadLibrary on Windows.
#include "dynamic_library.hpp"

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace flash_attn_rocm {

#ifdef _WIN32

LibraryHandle find_loaded_library(const std::string& name) { return GetModuleHandleA(name.c_str()); }

LibraryHandle open_library(const std::string& path, std::string& reason)
{
    // With a full path, DLLs beside the library are searched for its own dependencies.
    const bool full_path = path.find_first_of("/\\") != std::string::npos;
    const DWORD flags    = full_path ? LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS : 0;
    HMODULE library      = LoadLibraryExA(path.c_str(), nullptr, flags);
    if(library == nullptr)
    {
        reason = "LoadLibrary failed with Windows error " + std::to_string(GetLastError());
    }
    return library;
}

void* find_symbol(LibraryHandle library, const char* name)
{
    return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

std::string path_of_address(const void* address)
{
    HMODULE library   = nullptr;
    const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    char path[MAX_PATH];
    if(!GetModuleHandleExA(flags, static_cast<const char*>(address), &library) ||
       GetModuleFileNameA(library, path, MAX_PATH) == 0)
    {
        return {};
    }
    return path;
}

#else

LibraryHandle find_loaded_library(const std::string& name) { return dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD); }

LibraryHandle open_library(const std::string& path, std::string& reason)
{
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if(library == nullptr)
    {
        const char* text = dlerror();
        reason           = text != nullptr ? text : "dlopen failed";
    }
    return library;
}

void* find_symbol(LibraryHandle library, const char* name) { return dlsym(library, name); }

std::string path_of_address(const void* address)
{
    Dl_info info{};
    return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : std::string();
}

#endif

} // namespace flash_attn_rocm
