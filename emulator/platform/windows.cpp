// The operating system's part on Windows. Texts are UTF-8; the C library's own environment and file names are not used,
// since they are in the code page of the user, and the environment is a copy of another C library than Python's.
#include "platform/platform.hpp"

#define WIN32_LEAN_AND_MEAN
#ifndef NOMINMAX // libstdc++ defines it
#define NOMINMAX
#endif
#include <windows.h>

#include <algorithm>
#include <atomic>
#include <bitset>

namespace emu::platform {
namespace {

std::wstring wide(const std::string& text) {
  const int length = MultiByteToWideChar(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), nullptr, 0);
  std::wstring result(static_cast<std::size_t>(length), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), result.data(), length);
  return result;
}

std::string narrow(const std::wstring& text) {
  const int length =
      WideCharToMultiByte(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), nullptr, 0, nullptr, nullptr);
  std::string result(static_cast<std::size_t>(length), '\0');
  WideCharToMultiByte(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), result.data(), length, nullptr, nullptr);
  return result;
}

std::wstring environment_text(const std::wstring& name) {
  std::wstring value(GetEnvironmentVariableW(name.c_str(), nullptr, 0), L'\0');
  if (value.empty()) return value;
  value.resize(GetEnvironmentVariableW(name.c_str(), value.data(), static_cast<DWORD>(value.size())));
  return value;
}

// One argument of a command line, as the C library of the started program takes it apart: quotes and the backslashes
// before them are escaped by backslashes.
std::wstring quoted(const std::string& word) {
  std::wstring result = L"\"";
  std::size_t backslashes = 0;
  for (const wchar_t c : wide(word)) {
    if (c == L'"') result.append(backslashes + 1, L'\\');
    backslashes = c == L'\\' ? backslashes + 1 : 0;
    result += c;
  }
  return result.append(backslashes, L'\\') + L'"';
}

class Handle {
 public:
  Handle() = default;
  explicit Handle(HANDLE handle) : handle_(handle) {}
  ~Handle() { close(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  HANDLE get() const { return handle_; }
  HANDLE* out() { return &handle_; }
  bool valid() const { return handle_ != nullptr && handle_ != INVALID_HANDLE_VALUE; }
  void close() {
    if (valid()) CloseHandle(handle_);
    handle_ = nullptr;
  }

 private:
  HANDLE handle_ = nullptr;
};

// A program's full path: one with a directory as it is, else from PATH. Never from the working directory.
std::wstring find_program(const std::string& name) {
  if (name.find_first_of("/\\") != std::string::npos) {
    const std::wstring path = wide(name);
    return path.ends_with(L".exe") ? path : path + L".exe";
  }
  const std::wstring path = environment_text(L"PATH");
  std::wstring found(32768, L'\0');
  const DWORD length = SearchPathW(path.c_str(), wide(name).c_str(), L".exe", static_cast<DWORD>(found.size()),
                                   found.data(), nullptr);
  return found.substr(0, length < found.size() ? length : 0);
}

}  // namespace

std::string environment(const char* name) { return narrow(environment_text(wide(name))); }

unsigned usable_cores() {
  DWORD_PTR process = 0, system = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &process, &system) == 0) return 1;
  return std::max(1u, static_cast<unsigned>(std::bitset<64>(process).count()));
}

std::filesystem::path library_of(const void* address) {
  HMODULE library = nullptr;
  const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (!GetModuleHandleExW(flags, static_cast<const wchar_t*>(address), &library)) return {};
  std::wstring path(32768, L'\0');
  path.resize(GetModuleFileNameW(library, path.data(), static_cast<DWORD>(path.size())));
  return path;
}

bool copy_checked(void* target, const void* source, std::size_t bytes) {
  SIZE_T copied = 0;
  return bytes == 0 || (ReadProcessMemory(GetCurrentProcess(), source, target, bytes, &copied) && copied == bytes);
}

void* map_pages(std::size_t bytes) { return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }

void unmap_pages(void* memory, std::size_t) { VirtualFree(memory, 0, MEM_RELEASE); }

// Pages cannot be mapped over those of another mapping here.
Sharing share_pages(unsigned char*, std::size_t, std::size_t, void (*)(unsigned char*, std::size_t)) {
  return Sharing::kImpossible;
}

std::filesystem::path user_cache() { return environment_text(L"LOCALAPPDATA"); }

std::filesystem::path write_new_file(const std::filesystem::path& stem, std::span<const char> contents) {
  static std::atomic<unsigned> number{0};
  const std::filesystem::path path =
      stem.wstring() + L"." + std::to_wstring(GetCurrentProcessId()) + L"-" + std::to_wstring(number++);
  Handle file(CreateFileW(path.c_str(), GENERIC_WRITE, 0, nullptr, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, nullptr));
  if (!file.valid()) return {};
  while (!contents.empty()) {
    const auto part = static_cast<DWORD>(std::min<std::size_t>(contents.size(), 1u << 30));
    DWORD written = 0;
    if (!WriteFile(file.get(), contents.data(), part, &written, nullptr) || written == 0) {
      file.close();
      DeleteFileW(path.c_str());
      return {};
    }
    contents = contents.subspan(written);
  }
  return path;
}

Output run_program(const std::vector<std::string>& words) {
  const std::wstring program = find_program(words.front());
  if (program.empty()) return {};
  std::wstring command;
  for (const std::string& word : words) command += (command.empty() ? L"" : L" ") + quoted(word);
  SECURITY_ATTRIBUTES inherited{sizeof inherited, nullptr, TRUE};
  Handle from, to;
  if (!CreatePipe(from.out(), to.out(), &inherited, 0)) return {};
  SetHandleInformation(from.get(), HANDLE_FLAG_INHERIT, 0);
  Handle nothing(CreateFileW(L"NUL", GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, &inherited,
                             OPEN_EXISTING, 0, nullptr));
  STARTUPINFOW start{};
  start.cb = sizeof start;
  start.dwFlags = STARTF_USESTDHANDLES;
  start.hStdInput = start.hStdError = nothing.get();
  start.hStdOutput = to.get();
  PROCESS_INFORMATION process{};
  if (!CreateProcessW(program.c_str(), command.data(), nullptr, nullptr, TRUE, CREATE_NO_WINDOW, nullptr, nullptr,
                      &start, &process))
    return {};
  const Handle child(process.hProcess), thread(process.hThread);
  to.close();
  Output output;
  char buffer[65536];
  for (DWORD n = 0; ReadFile(from.get(), buffer, sizeof buffer, &n, nullptr) && n != 0;) output.text.append(buffer, n);
  std::erase(output.text, '\r');  // line ends as on Linux
  WaitForSingleObject(child.get(), INFINITE);
  DWORD code = 0;
  if (GetExitCodeProcess(child.get(), &code)) output.exit_code = static_cast<int>(code);
  return output;
}

}  // namespace emu::platform
