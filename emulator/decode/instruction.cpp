// Parses llvm-objdump's operand syntax and derives instruction shapes.
#include "decode/instruction.hpp"

#include <array>
#include <charconv>
#include <stdexcept>
#include <utility>

#include "decode/dpp.hpp"

namespace emu {
namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

bool consume(std::string_view& s, std::string_view prefix) {
  if (!s.starts_with(prefix)) return false;
  s.remove_prefix(prefix.size());
  return true;
}

bool consume_number(std::string_view& s, std::uint32_t& number) {
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), number);
  if (error != std::errc{}) return false;
  s.remove_prefix(static_cast<std::size_t>(end - s.data()));
  return true;
}

struct NamedScalar {
  std::string_view name;
  std::uint16_t index;
  std::uint16_t width;
};
// Slots of the named scalar registers: the numbers of gfx11 and gfx12 (ISA guide, "Scalar operands"). gfx9 numbers m0
// differently, which text does not show, and keeps two pairs where later families have ordinary SGPRs.
constexpr std::array<NamedScalar, 15> kNamedScalars{{{"flat_scratch_lo", 102, 1},
                                                     {"flat_scratch_hi", 103, 1},
                                                     {"flat_scratch", 102, 2},
                                                     {"xnack_mask_lo", 104, 1},
                                                     {"xnack_mask_hi", 105, 1},
                                                     {"xnack_mask", 104, 2},
                                                     {"vcc_lo", 106, 1},
                                                     {"vcc_hi", 107, 1},
                                                     {"vcc", 106, 2},
                                                     {"null", 124, 1},
                                                     {"m0", 125, 1},
                                                     {"exec_lo", 126, 1},
                                                     {"exec_hi", 127, 1},
                                                     {"exec", 126, 2},
                                                     {"scc", 253, 1}}};

// Numbers of each file that an instruction can name. Which of them a wave has is the kernel's affair.
constexpr std::uint32_t kVectorRegisters = 256, kScalarRegisters = 106, kTrapRegisters = 16;

// v12, v12.l, v[12:15], s3, s[4:7], ttmp9, ttmp[8:9]. Throws where the register does not exist.
bool parse_register(std::string_view s, Operand& operand) {
  const std::string_view whole = s;
  for (const NamedScalar& named : kNamedScalars) {
    if (s != named.name) continue;
    operand.kind = Operand::Kind::kScalar;
    operand.index = named.index;
    operand.width = named.width;
    return true;
  }
  std::uint32_t base = 0, count = kVectorRegisters;
  if (consume(s, "ttmp")) {
    operand.kind = Operand::Kind::kScalar;
    base = 108;
    count = kTrapRegisters;
  } else if (consume(s, "v")) {
    operand.kind = Operand::Kind::kVgpr;
  } else if (s.size() > 1 && (s[1] == '[' || (s[1] >= '0' && s[1] <= '9')) && consume(s, "a")) {
    operand.kind = Operand::Kind::kVgpr;
    base = 256;  // accumulation registers follow the VGPRs
  } else if (consume(s, "s")) {
    operand.kind = Operand::Kind::kScalar;
    count = kScalarRegisters;
  } else {
    return false;
  }
  std::uint32_t first = 0, last = 0;
  if (consume(s, "[")) {
    if (!consume_number(s, first) || !consume(s, ":") || !consume_number(s, last) || !consume(s, "]")) return false;
  } else {
    if (!consume_number(s, first)) return false;
    last = first;
    if (consume(s, ".l")) operand.half = 'l';
    if (consume(s, ".h")) operand.half = 'h';
  }
  if (!s.empty()) return false;
  if (last < first || last >= count) throw std::runtime_error("register " + std::string(whole) + " does not exist");
  operand.index = static_cast<std::uint16_t>(base + first);
  operand.width = static_cast<std::uint16_t>(last - first + 1);
  return true;
}

bool parse_constant(std::string_view s, Operand& operand) {
  const bool minus = s.starts_with("-");
  const std::string_view digits = minus ? s.substr(1) : s;
  if (digits.empty() || digits.front() < '0' || digits.front() > '9') return false;
  const char* const end = digits.data() + digits.size();
  if (digits.starts_with("0x")) {
    std::uint64_t value = 0;
    if (std::from_chars(digits.data() + 2, end, value, 16).ptr != end) return false;
    operand.kind = Operand::Kind::kHex;
    operand.integer = static_cast<std::int64_t>(minus ? 0 - value : value);
    return true;
  }
  if (digits.find_first_of(".e") != std::string_view::npos) {
    double value = 0;
    if (std::from_chars(digits.data(), end, value).ptr != end) return false;
    operand.kind = Operand::Kind::kFloat;
    operand.real = minus ? -value : value;
    return true;
  }
  std::int64_t value = 0;
  if (std::from_chars(digits.data(), end, value).ptr != end) return false;
  operand.kind = Operand::Kind::kInteger;
  operand.integer = minus ? -value : value;
  return true;
}

Operand parse_operand(std::string_view text) {
  Operand operand;
  std::string_view s = text;
  if (s == "off") {
    operand.kind = Operand::Kind::kOff;
    return operand;
  }
  if (parse_constant(s, operand)) return operand;
  if (s.starts_with("neg(") && s.ends_with(")")) {
    operand.neg = true;
    s = s.substr(4, s.size() - 5);
  } else if (s.size() > 1 && s.front() == '-') {
    operand.neg = true;
    s.remove_prefix(1);
  }
  if (s.starts_with("sext(") && s.ends_with(")")) {
    operand.sign_extended = true;
    s = s.substr(5, s.size() - 6);
  }
  if (s.size() > 2 && s.front() == '|' && s.back() == '|') {
    operand.abs = true;
    s = s.substr(1, s.size() - 2);
  }
  if (parse_register(s, operand) || parse_constant(s, operand)) return operand;
  operand.kind = Operand::Kind::kText;
  operand.text = std::string(text);
  return operand;
}

// Splits at top-level commas: brackets and parentheses protect theirs.
std::vector<std::string_view> split_operands(std::string_view s) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= s.size(); ++i) {
    const char c = i < s.size() ? s[i] : ',';
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c != ',' || depth != 0) continue;
    const std::string_view part = trim(s.substr(start, i - start));
    if (!part.empty()) parts.push_back(part);
    start = i + 1;
  }
  return parts;
}

void parse_modifiers(std::string_view s, Instruction& instruction) {
  for (s = trim(s); !s.empty(); s = trim(s)) {
    const std::size_t end = s.find(' ');
    const std::string_view word = s.substr(0, end);
    const std::size_t colon = word.find(':');
    instruction.modifiers.push_back(colon == std::string_view::npos ? Modifier{std::string(word), ""}
                                                                    : Modifier{std::string(word.substr(0, colon)),
                                                                               std::string(word.substr(colon + 1))});
    s.remove_prefix(word.size());
  }
}

Instruction parse_one(std::string_view text, const CodeLine& line) {
  Instruction result;
  result.pc = line.pc;
  result.size = static_cast<std::uint32_t>(4 * line.words.size());
  result.words = line.words;
  result.text = line.text;
  text = trim(text);
  const std::size_t space = text.find(' ');
  std::string_view name = text.substr(0, space);
  for (const std::string_view suffix : {"_dpp", "_sdwa", "_e32", "_e64"})
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  result.mnemonic = std::string(name);
  if (space == std::string_view::npos) return result;
  std::string_view rest = trim(text.substr(space));
  // Hints to the scheduler have a syntax of their own and no effect on values.
  if (name == "s_delay_alu" || name.starts_with("s_wait")) return result;
  std::vector<std::string_view> parts = split_operands(rest);
  if (parts.empty()) return result;
  // Modifiers follow the last operand, separated by spaces.
  const std::string_view last = parts.back();
  const std::size_t closing = last.starts_with("hwreg(") ? last.find(')') : 0;
  const std::size_t cut = last.find(' ', closing == std::string_view::npos ? 0 : closing);
  if (cut != std::string_view::npos) {
    parts.back() = last.substr(0, cut);
    parse_modifiers(last.substr(cut), result);
  }
  const bool is_branch = name == "s_branch" || name.starts_with("s_cbranch_");
  for (const std::string_view part : parts) {
    if (parts.size() == 1 && part.find(':') != std::string_view::npos && part.find('[') == std::string_view::npos)
      parse_modifiers(part, result);  // an instruction that has modifiers only
    else
      result.operands.push_back(parse_operand(part));
    if (result.operands.empty() || result.operands.back().kind != Operand::Kind::kText) continue;
    // Which hardware register, and which bits of it, is data that the instruction's words hold.
    if (result.operands.back().text.starts_with("hwreg(")) {
      result.operands.back().kind = Operand::Kind::kInteger;
      result.operands.back().integer = result.words[0] & 0xFFFF;
    }
    // A label that the object names is printed by name; where it is, the instruction's words say.
    if (is_branch) {
      result.operands.back().kind = Operand::Kind::kInteger;
      result.operands.back().text.clear();
    }
  }
  return result;
}

// One half of a VOPD pair under its ordinary name; the pair's v_cndmask reads vcc without naming it.
Instruction parse_dual(std::string_view text, const CodeLine& line) {
  Instruction result = parse_one(text, line);
  constexpr std::string_view kDual = "v_dual_";
  if (!std::string_view(result.mnemonic).starts_with(kDual))
    throw std::runtime_error("not a VOPD half: " + std::string(text));
  result.mnemonic = "v_" + result.mnemonic.substr(kDual.size());
  if (result.mnemonic == "v_cndmask_b32" && result.operands.size() == 3) {
    Operand vcc;
    vcc.kind = Operand::Kind::kScalar;
    vcc.index = 106;
    result.operands.push_back(vcc);
  }
  return result;
}

// Modifiers that are data (memory offsets) or that the emulator does not model (cache policy). Atomics of gfx9 return
// the old value where glc or sc0 is set; for loads and stores these are cache policy too.
bool is_outside_shape(std::string_view mnemonic, std::string_view name) {
  for (const std::string_view known : {"offset", "offset0", "offset1", "scope", "nv", "slc", "dlc", "sc1", "nt"})
    if (name == known) return true;
  return (name == "glc" || name == "sc0") && mnemonic.find("_atomic_") == std::string_view::npos;
}

}  // namespace

std::vector<Instruction> parse_instruction(const CodeLine& line) {
  const std::size_t pair = line.text.find(" :: ");
  if (pair == std::string::npos) return {parse_one(line.text, line)};
  return {parse_dual(std::string_view(line.text).substr(0, pair), line),
          parse_dual(std::string_view(line.text).substr(pair + 4), line)};
}

std::string shape_key(const Instruction& instruction) {
  std::string key = instruction.mnemonic;
  char separator = ' ';
  bool names_halves = false;
  for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
    const Operand& operand = instruction.operands[i];
    key += separator;
    separator = ',';
    if (operand.neg) key += '-';
    if (operand.abs) key += '|';
    if (operand.sign_extended) key += "sext:";
    switch (operand.kind) {
      case Operand::Kind::kVgpr:
        key += 'v';
        break;
      case Operand::Kind::kScalar:
        key += (operand.index == 126 || operand.index == 127) && i == 0 ? 'x' : operand.index == 253 ? 'c' : 'u';
        break;
      case Operand::Kind::kInteger:
      case Operand::Kind::kHex:
      case Operand::Kind::kFloat:
        key += 'u';
        break;
      case Operand::Kind::kOff:
        key += "off";
        break;
      case Operand::Kind::kText:
        key += operand.text;
        break;
    }
    if (operand.half == 0) continue;
    names_halves = true;
    (key += '.') += operand.half;
  }
  for (const Modifier& modifier : instruction.modifiers) {
    if (is_outside_shape(instruction.mnemonic, modifier.name) || is_dpp_modifier(modifier.name)) continue;
    // gfx12's name for what glc and sc0 say.
    if (modifier.name == "th" && modifier.value.find("RETURN") != std::string::npos) key += " return";
    if (modifier.name == "th") continue;
    if (names_halves && modifier.name == "op_sel") continue;  // repeats what the operands say
    key += ' ' + modifier.name;
    if (!modifier.value.empty()) key += ':' + modifier.value;
  }
  if (has_dpp(instruction)) key += " dpp";
  return key;
}

std::int64_t modifier_number(const Instruction& instruction, std::string_view name, std::int64_t fallback) {
  for (const Modifier& modifier : instruction.modifiers) {
    if (modifier.name != name) continue;
    std::int64_t value = 0;
    const bool hex = modifier.value.starts_with("0x");
    const char* const begin = modifier.value.data() + (hex ? 2 : 0);
    const char* const end = modifier.value.data() + modifier.value.size();
    if (begin == end || std::from_chars(begin, end, value, hex ? 16 : 10).ptr != end)
      throw std::runtime_error("modifier " + modifier.name + ":" + modifier.value +
                               " is not a number in: " + instruction.text);
    return value;
  }
  return fallback;
}

}  // namespace emu
