// Gets the disassembly of a code object: from the listings shipped beside the library, the user's cache, or
// llvm-objdump.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "decode/instruction.hpp"

namespace emu {

inline constexpr int kOldestObjdump = 20;  // gfx12 with real true16 operands

struct DisassemblyRequest {
  std::span<const std::uint8_t> file;
  std::string sha256;
  std::uint64_t code_end = 0;               // where the last function ends, 0 where that is not known
  std::string target_features;              // for llvm-objdump, may be empty
  std::filesystem::path library_directory;  // holds decoded/ and, three levels up, the prefix's bin/
};

// Throws std::runtime_error that names every decoder tried and why it was rejected.
std::vector<CodeSymbol> disassemble(const DisassemblyRequest& request);

// Name of a listing inside decoded/ or the cache.
std::string listing_name(const std::string& sha256);

}  // namespace emu
