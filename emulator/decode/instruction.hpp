// A decoded instruction, as parsed from the text of llvm-objdump.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emu {

struct Operand {
  enum class Kind : std::uint8_t { kVgpr, kScalar, kInteger, kHex, kFloat, kOff, kText };
  Kind kind = Kind::kText;
  std::uint16_t index = 0;  // register number; scalars use the hardware's numbering (vcc 106, exec 126, ...)
  std::uint16_t width = 1;  // registers covered
  char half = 0;            // 'l' or 'h' for a 16-bit half of a VGPR
  bool neg = false, abs = false;
  bool sign_extended = false;  // an SDWA part with sext()
  std::int64_t integer = 0;  // kInteger, kHex
  double real = 0;           // kFloat
  std::string text;          // kText, e.g. sendmsg(...)
};

struct Modifier {
  std::string name;   // "offset", "offen", "neg_lo", ...
  std::string value;  // text after the colon, may be empty
};

struct Instruction {
  std::uint64_t pc = 0;  // address inside the code object
  std::uint32_t size = 0;
  std::string mnemonic;  // without _e32, _e64 or _dpp
  std::vector<Operand> operands;
  std::vector<Modifier> modifiers;
  std::vector<std::uint32_t> words;
  std::string text;  // as printed, for reports
};

// One line of disassembly: text, address and raw words.
struct CodeLine {
  std::uint64_t pc = 0;
  std::string text;
  std::vector<std::uint32_t> words;
};

struct CodeSymbol {
  std::string name;
  std::uint64_t begin = 0;
  std::vector<CodeLine> lines;
};

// Parses the text of one instruction into its parts; a VOPD pair gives two instructions.
// Throws std::runtime_error where a part cannot be understood.
std::vector<Instruction> parse_instruction(const CodeLine& line);

// The shape of an instruction: mnemonic, operand kinds and the modifiers that change its meaning.
// Register numbers, constants, memory offsets and the lanes that DPP selects are data, not shape.
std::string shape_key(const Instruction& instruction);

// Value of a numeric modifier such as offset:16, or `fallback` where it is absent.
std::int64_t modifier_number(const Instruction& instruction, std::string_view name, std::int64_t fallback);

}  // namespace emu
