// Loading shared libraries and finding symbols at run time: dlopen on Linux, LoadLibrary on Windows.
#include "dynamic_library.hpp"

#ifdef _WIN32
#include <windows.h>

#include <filesystem>

#include "error.hpp"
#include "text.hpp"
#else
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>
#endif

namespace flash_attn_rocm {

#ifdef _WIN32

namespace {

constexpr std::size_t kLongestPath = 32768; // characters of any path, the limit of Windows

// What the loader's errors mean; Windows' own texts do not name the file, and are in the user's language.
std::string text_of_error(DWORD error)
{
    switch(error)
    {
    case ERROR_MOD_NOT_FOUND: return "the file, or a DLL that it needs, was not found";
    case ERROR_PROC_NOT_FOUND: return "a DLL that it needs lacks a function: that DLL is of another version";
    case ERROR_BAD_EXE_FORMAT: return "not a 64-bit DLL, or damaged";
    case ERROR_DLL_INIT_FAILED: return "it was found, but it failed to start";
    case ERROR_FILENAME_EXCED_RANGE: return "its path is too long";
    case ERROR_ACCESS_DENIED: return "access denied";
    default: return "it cannot be loaded";
    }
}

} // namespace

LibraryHandle find_loaded_library(const std::string& name) { return GetModuleHandleW(path_of(name).c_str()); }

LibraryHandle open_library(const std::string& path, std::string& reason)
{
    // Never the working directory nor PATH, where anybody may have put a file of that name: a name without a directory
    // is looked for beside the program, in System32, and in directories that the program added; with one, the DLLs
    // that the library needs are looked for beside it as well.
    const bool has_directory           = path.find_first_of("/\\") != std::string::npos;
    const std::filesystem::path target = has_directory ? std::filesystem::absolute(path_of(path)) : path_of(path);
    const DWORD flags =
        LOAD_LIBRARY_SEARCH_DEFAULT_DIRS | (has_directory ? LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR : DWORD{0});
    HMODULE library = LoadLibraryExW(target.c_str(), nullptr, flags);
    if(library == nullptr)
    {
        const DWORD error = GetLastError();
        reason            = concat("Windows error ", error, ": ", text_of_error(error));
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
    if(!GetModuleHandleExW(flags, static_cast<const wchar_t*>(address), &library))
    {
        return {};
    }
    std::wstring path(kLongestPath, L'\0');
    path.resize(GetModuleFileNameW(library, path.data(), static_cast<DWORD>(path.size())));
    return text_of(path);
}

#else

namespace {

// Why dlopen must not be tried on this file; empty when it may. A pipe would block it, and it maps a file that was cut
// off without a look at its size: the process then dies of SIGBUS.
std::string why_unsafe(const std::string& path)
{
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if(!std::filesystem::exists(path, error))
    {
        return {}; // dlopen says so
    }
    if(!std::filesystem::is_regular_file(path, error))
    {
        return "not a regular file";
    }
    std::ifstream file(path, std::ios::binary);
    Elf64_Ehdr header{};
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    const bool elf64 = file && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                       header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_phentsize == sizeof(Elf64_Phdr);
    if(!elf64)
    {
        return {}; // dlopen rejects these itself
    }
    std::uint64_t end = header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize;
    std::vector<Elf64_Phdr> segments(header.e_phnum);
    file.seekg(static_cast<std::streamoff>(header.e_phoff));
    file.read(reinterpret_cast<char*>(segments.data()),
              static_cast<std::streamsize>(segments.size() * sizeof(Elf64_Phdr)));
    for(const Elf64_Phdr& segment : segments)
    {
        end = std::max<std::uint64_t>(end, segment.p_type == PT_LOAD ? segment.p_offset + segment.p_filesz : 0);
    }
    if(!file || end > size)
    {
        return "the file is cut off: it has " + std::to_string(size) + " bytes and needs " + std::to_string(end);
    }
    return {};
}

} // namespace

LibraryHandle find_loaded_library(const std::string& name) { return dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD); }

LibraryHandle open_library(const std::string& path, std::string& reason)
{
    // A name without a directory is found by the system's search, in files that its package manager looks after.
    if(path.find('/') != std::string::npos)
    {
        reason = why_unsafe(path);
        if(!reason.empty())
        {
            return nullptr;
        }
    }
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
