// Disassembly listings: reads llvm-objdump's output and the compact form in which it is cached.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "decode/instruction.hpp"

namespace emu {

// Version of the compact form, part of its first line; a file of another version is decoded again.
inline constexpr std::string_view kListingHeader = "flash-attn-rocm decoded 1";

// Parses the output of `llvm-objdump -d`. Throws std::runtime_error with the line that cannot be read.
std::vector<CodeSymbol> parse_objdump(std::string_view text);

// Compact form: the header, then "@begin name" per symbol and "words<TAB>text" per instruction.
std::string write_listing(const std::vector<CodeSymbol>& symbols);
std::vector<CodeSymbol> read_listing(std::string_view text);

}  // namespace emu
