// Disassembly listings: reads llvm-objdump's output and the compact form in which it is cached.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/instruction.hpp"

namespace emu {

// First line of the compact form up to the sha256 of all that follows the line. The number is the form's version.
inline constexpr std::string_view kListingHeader = "flash-attn-rocm decoded 2 ";

// The code that begins at an address, or nothing. Labels that a hand-written object names are symbols of their own: those
// that the code runs into or branches to belong to it.
std::optional<CodeSymbol> code_from(const std::vector<CodeSymbol>& symbols, std::uint64_t begin);

// Parses the output of `llvm-objdump -d`. Throws std::runtime_error with the line that cannot be read, or where the
// text has no instruction or ends inside a line.
std::vector<CodeSymbol> parse_objdump(std::string_view text);

// Compact form: the header with its checksum, then "@begin name" per symbol and "words<TAB>text" per instruction.
// Reading throws std::runtime_error for another version, a wrong checksum or a line that is neither.
std::string write_listing(const std::vector<CodeSymbol>& symbols);
std::vector<CodeSymbol> read_listing(std::string_view text);

}  // namespace emu
