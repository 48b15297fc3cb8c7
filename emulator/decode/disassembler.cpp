// Finds or makes the disassembly of a code object.
#include "decode/disassembler.hpp"

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "decode/listing.hpp"
#include "platform/platform.hpp"

namespace emu {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

fs::path cache_directory() {
  if (const std::string root = platform::environment("FLASH_ATTN_ROCM_CACHE"); !root.empty()) return platform::path_of(root) / "decoded";
  const fs::path caches = platform::user_cache();
  return caches.empty() ? caches : caches / "flash-attn-rocm" / "decoded";
}

// Written beside its final name and renamed, so that concurrent readers never see half a file. Failure only costs time.
void store(const fs::path& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path temporary = platform::write_new_file(path, text);
  if (temporary.empty()) return;
  fs::rename(temporary, path, error);
  if (error) fs::remove(temporary, error);
}

// Major version from "LLVM version 22.1.8" or "clang version 20...". 0 where there is none.
int major_version(const std::string& text) {
  const std::size_t at = text.find("version ");
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + 8);
}

std::string find_objdump(const DisassemblyRequest& request, const std::string& damaged) {
  std::vector<std::string> candidates;
  const std::string chosen = platform::environment("FLASH_ATTN_ROCM_LLVM_OBJDUMP");
  if (!chosen.empty()) {
    candidates = {chosen};  // an explicit choice is the only candidate
  } else {
    const fs::path programs = request.library_directory / "../../.." / platform::kCondaPrograms;
    candidates.push_back(platform::text_of((programs / "llvm-objdump").lexically_normal()));
    candidates.push_back("llvm-objdump");
    for (int version = 22; version >= kOldestObjdump; --version)
      candidates.push_back("llvm-objdump-" + std::to_string(version));
  }
  std::string rejected;
  for (const std::string& candidate : candidates) {
    const platform::Output output = platform::run_program({candidate, "--version"});
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
  const fs::path stem = fs::temp_directory_path() / "flash-attn-rocm";
  const auto* bytes = reinterpret_cast<const char*>(request.file.data());
  const fs::path path = platform::write_new_file(stem, {bytes, request.file.size()});
  if (path.empty()) throw std::runtime_error("cannot write a temporary file " + stem.string() + ".* for llvm-objdump");
  std::vector<std::string> words{tool, "-d", platform::text_of(path)};
  if (!request.target_features.empty()) words.push_back("--mattr=" + request.target_features);
  const platform::Output output = platform::run_program(words);
  std::error_code error;
  fs::remove(path, error);
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
