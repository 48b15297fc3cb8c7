// Finds or makes the disassembly of a code object.
#include "decode/disassembler.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

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

// Written beside its final name and renamed, so that concurrent readers never see half a file. Failure only costs time.
void store(const fs::path& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path temporary = path.string() + "." + std::to_string(getpid());
  {
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    if (!file.flush()) {
      fs::remove(temporary, error);
      return;
    }
  }
  fs::rename(temporary, path, error);
  if (error) fs::remove(temporary, error);
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
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
      output.text.append(buffer, static_cast<std::size_t>(n));
    int status = 0;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status)) output.exit_code = WEXITSTATUS(status);
  }
  close(ends[0]);
  return output;
}

// Major version from "LLVM version 22.1.8" or "clang version 20...". 0 where there is none.
int major_version(const std::string& text) {
  const std::size_t at = text.find("version ");
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + 8);
}

std::string find_objdump(const DisassemblyRequest& request) {
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
  throw std::runtime_error("this code object is not among the decoded ones and no llvm-objdump of LLVM " +
                           std::to_string(kOldestObjdump) + " or later was found:" + rejected +
                           "\nInstall one (conda package llvm-tools) or set FLASH_ATTN_ROCM_LLVM_OBJDUMP to its path.");
}

std::vector<CodeSymbol> run_objdump(const DisassemblyRequest& request) {
  const std::string tool = find_objdump(request);
  std::string path = (fs::temp_directory_path() / "flash-attn-rocm-XXXXXX").string();
  const int file = mkstemp(path.data());
  if (file < 0) throw std::runtime_error("cannot make the temporary file " + path + " for llvm-objdump");
  const bool written =
      write(file, request.file.data(), request.file.size()) == static_cast<ssize_t>(request.file.size());
  close(file);
  std::vector<std::string> words{tool, "-d", path};
  if (!request.target_features.empty()) words.push_back("--mattr=" + request.target_features);
  const Output output = written ? run_program(words) : Output{};
  unlink(path.c_str());
  if (output.exit_code != 0)
    throw std::runtime_error(tool + " failed on the code object (exit code " + std::to_string(output.exit_code) + ")");
  return parse_objdump(output.text);
}

}  // namespace

std::string listing_name(const std::string& sha256) { return sha256 + ".txt"; }

std::vector<CodeSymbol> disassemble(const DisassemblyRequest& request) {
  const std::string name = listing_name(request.sha256);
  if (const auto text = read_file(request.library_directory / "decoded" / name)) return read_listing(*text);
  const fs::path cache = cache_directory();
  if (!cache.empty())
    if (const auto text = read_file(cache / name)) try {
        return read_listing(*text);
      } catch (const std::runtime_error&) {  // of an older version or damaged: decoded again below
      }
  std::vector<CodeSymbol> symbols = run_objdump(request);
  if (!cache.empty()) store(cache / name, write_listing(symbols));
  return symbols;
}

}  // namespace emu
