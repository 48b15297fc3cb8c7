// Loading shared libraries and finding symbols at run time, the same on Linux and Windows. Nothing is ever unloaded.
#pragma once

#include <string>

namespace flash_attn_rocm {

using LibraryHandle = void*;

// The library of that file name if this process has loaded it already, else nullptr; loads nothing.
LibraryHandle find_loaded_library(const std::string& name);

// Loads a library by path or by a name the system's loader searches for; nullptr and the reason on failure.
LibraryHandle open_library(const std::string& path, std::string& reason);

// Address of an exported symbol, or nullptr.
void* find_symbol(LibraryHandle library, const char* name);

// Path of the library that contains this address; empty if unknown.
std::string path_of_address(const void* address);

} // namespace flash_attn_rocm
