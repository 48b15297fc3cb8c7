// Texts that the operating system gives and takes: UTF-8 in this library, whatever the system uses.
#pragma once

#include <filesystem>
#include <string>

namespace flash_attn_rocm {

// The path that a text names: UTF-8 on Windows, any bytes on Linux.
std::filesystem::path path_of(const std::string& text);
std::string text_of(const std::filesystem::path& path);

// An environment variable as it is now; empty where it is not set. Not getenv: on Windows its answer is in the user's
// code page, and from a copy that does not have what Python's os.environ set since.
std::string environment(const char* name);

} // namespace flash_attn_rocm
