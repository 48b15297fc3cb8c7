// Finds or makes the disassembly of a code object.
#include "decode/disassembler.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "decode/listing.hpp"

extern char** environ;

namespace emu {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<std::string> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

fs::path cache_directory() {
  if (const std::string root = environment("FLASH_ATTN_ROCM_CACHE"); !root.empty()) return fs::path(root) / "decoded";
  if (const std::string root = environment("XDG_CACHE_HOME"); !root.empty())
    return fs::path(root) / "flash-attn-rocm" / "decoded";
  const std::string home = environment("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "flash-attn-rocm" / "decoded";
}

// Repeats a system call that a signal interrupted.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

bool write_all(int file, const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t written = uninterrupted([&] { return write(file, next, bytes); });
    if (written <= 0) return false;
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

// Written beside its final name and renamed, so that concurrent readers never see half a file. Failure only costs time.
void store(const fs::path& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::string temporary = path.string() + ".XXXXXX";
  const int file = mkstemp(temporary.data());
  if (file < 0) return;
  const bool written = write_all(file, text.data(), text.size()) && fchmod(file, 0644) == 0;
  if (close(file) == 0 && written) {
    fs::rename(temporary, path, error);
    if (!error) return;
  }
  fs::remove(temporary, error);
}

struct Output {
  int exit_code = -1;
  std::string text;
};

// Runs a program without a shell and collects its standard output.
Output run_program(const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Output output;
  if (error == 0) {
    char buffer[65536];
    ssize_t n = 0;
    while ((n = uninterrupted([&] { return read(ends[0], buffer, sizeof buffer); })) > 0)
      output.text.append(buffer, static_cast<std::size_t>(n));
    int status = 0;
    const bool ended = uninterrupted([&] { return waitpid(child, &status, 0); }) == child && WIFEXITED(status);
    if (ended && n == 0) output.exit_code = WEXITSTATUS(status);
  }
  close(ends[0]);
  return output;
}

// Major version from "LLVM version 22.1.8" or "clang version 20...". 0 where there is none.
int major_version(const std::string& text) {
  const std::size_t at = text.find("version ");
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + 8);
}

std::string find_objdump(const DisassemblyRequest& request, const std::string& damaged) {
  std::vector<std::string> candidates;
  const std::string chosen = environment("FLASH_ATTN_ROCM_LLVM_OBJDUMP");
  if (!chosen.empty()) {
    candidates = {chosen};  // an explicit choice is the only candidate
  } else {
    candidates.push_back((request.library_directory / "../../../bin/llvm-objdump").lexically_normal().string());
    candidates.push_back("llvm-objdump");
    for (int version = 22; version >= kOldestObjdump; --version)
      candidates.push_back("llvm-objdump-" + std::to_string(version));
  }
  std::string rejected;
  for (const std::string& candidate : candidates) {
    const Output output = run_program({candidate, "--version"});
    const int version = major_version(output.text);
    if (output.exit_code == 0 && version >= kOldestObjdump) return candidate;
    rejected += "\n  " + candidate +
                (output.exit_code != 0 ? ": cannot be run" : ": version " + std::to_string(version) + " is too old");
  }
  throw std::runtime_error("this code object is not among the decoded ones" + damaged +
                           ", and no llvm-objdump of LLVM " + std::to_string(kOldestObjdump) +
                           " or later was found:" + rejected +
                           "\nInstall one (conda package llvm-tools) or set FLASH_ATTN_ROCM_LLVM_OBJDUMP to its path.");
}

// `damaged` names the listings that could not be used, for the report.
std::vector<CodeSymbol> run_objdump(const DisassemblyRequest& request, const std::string& damaged) {
  const std::string tool = find_objdump(request, damaged);
  std::string path = (fs::temp_directory_path() / "flash-attn-rocm-XXXXXX").string();
  const int file = mkstemp(path.data());
  if (file < 0) throw std::runtime_error("cannot make the temporary file " + path + " for llvm-objdump");
  const bool written = write_all(file, request.file.data(), request.file.size());
  close(file);
  std::vector<std::string> words{tool, "-d", path};
  if (!request.target_features.empty()) words.push_back("--mattr=" + request.target_features);
  const Output output = written ? run_program(words) : Output{};
  unlink(path.c_str());
  if (output.exit_code != 0)
    throw std::runtime_error(tool + " failed on the code object (exit code " + std::to_string(output.exit_code) + ")");
  std::vector<CodeSymbol> symbols = parse_objdump(output.text);
  const CodeLine& last = symbols.back().lines.back();
  if (last.pc + 4 * last.words.size() < request.code_end)
    throw std::runtime_error(tool + " stopped before the end of the code: its last line is \"" + last.text + "\"");
  return symbols;
}

}  // namespace

std::string listing_name(const std::string& sha256) { return sha256 + ".txt"; }

std::vector<CodeSymbol> disassemble(const DisassemblyRequest& request) {
  const std::string name = listing_name(request.sha256);
  const fs::path cache = cache_directory();
  std::string damaged;
  for (const fs::path& directory : {request.library_directory / "decoded", cache}) {
    if (directory.empty()) continue;
    if (const auto text = read_file(directory / name)) try {
        return read_listing(*text);
      } catch (const std::runtime_error& error) {  // of another version or damaged: decoded again below
        damaged += " (" + (directory / name).string() + ": " + error.what() + ")";
      }
  }
  std::vector<CodeSymbol> symbols = run_objdump(request, damaged);
  if (!cache.empty()) store(cache / name, write_listing(symbols));
  return symbols;
}

}  // namespace emu
