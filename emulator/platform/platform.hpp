// What the emulator needs of the operating system, the same on Linux and Windows (linux.cpp, windows.cpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace emu::platform {

// Where conda puts programs, in an environment's directory.
#ifdef _WIN32
inline constexpr const char* kCondaPrograms = "Library/bin";
#else
inline constexpr const char* kCondaPrograms = "bin";
#endif

// An environment variable as it is now, in UTF-8 on Windows; empty where it is not set.
std::string environment(const char* name);

// The path that a text in UTF-8 names; on Linux any bytes.
inline std::filesystem::path path_of(const std::string& text) { return std::u8string(text.begin(), text.end()); }

inline std::string text_of(const std::filesystem::path& path) {
  const std::u8string text = path.u8string();
  return {text.begin(), text.end()};
}

// Processors that this process may use; at least 1.
unsigned usable_cores();

// The file that holds this address of code; empty where that is not known.
std::filesystem::path library_of(const void* address);

// Copies memory that may not be readable; false where it is not.
bool copy_checked(void* target, const void* source, std::size_t bytes);

// Whole pages of memory, readable and writable; nullptr where there are none left.
void* map_pages(std::size_t bytes);
void unmap_pages(void* memory, std::size_t bytes);

enum class Sharing { kDone, kImpossible, kOutOfMemory };
// Fills pages with the same contents again and again, `part` bytes that `fill` writes once, so that those which are
// never written take no memory. Where that is impossible nothing has changed.
Sharing share_pages(unsigned char* memory, std::size_t bytes, std::size_t part,
                    void (*fill)(unsigned char* memory, std::size_t bytes));

// The user's directory for caches of programs; empty where there is none.
std::filesystem::path user_cache();

// Writes a new file whose name starts with `stem`, which no other process uses; empty where that failed.
std::filesystem::path write_new_file(const std::filesystem::path& stem, std::span<const char> contents);

struct Output {
  int exit_code = -1;
  std::string text;
};
// Runs a program without a shell and collects its standard output. A name without a directory is looked for on PATH.
Output run_program(const std::vector<std::string>& words);

}  // namespace emu::platform
