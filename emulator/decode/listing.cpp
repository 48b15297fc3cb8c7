// Reads and writes disassembly listings.
#include "decode/listing.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include "host/sha256.hpp"

namespace emu {
namespace {

class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  bool next(std::string_view& line) {
    if (rest_.empty()) return false;
    const std::size_t end = rest_.find('\n');
    line = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return true;
  }

 private:
  std::string_view rest_;
};

template <class Integer>
std::string_view take_hex(std::string_view s, Integer& value, std::string_view line) {
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, 16);
  if (error != std::errc{}) throw std::runtime_error("no hexadecimal number where one is due in: " + std::string(line));
  return s.substr(static_cast<std::size_t>(end - s.data()));
}

std::vector<std::uint32_t> take_words(std::string_view s, std::string_view line) {
  std::vector<std::uint32_t> words;
  while (true) {
    while (s.starts_with(' ')) s.remove_prefix(1);
    if (s.empty() || s.starts_with('<')) return words;
    s = take_hex(s, words.emplace_back(), line);
  }
}

std::string_view without_trailing_blanks(std::string_view s) {
  while (s.ends_with(' ') || s.ends_with('\t')) s.remove_suffix(1);
  return s;
}

bool is_any_of(const CodeLine& line, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&line](std::string_view name) { return line.text.starts_with(name); });
}

bool is_branch(const CodeLine& line) { return is_any_of(line, {"s_branch ", "s_cbranch_"}); }

std::uint64_t branch_target(const CodeLine& line) {
  return line.pc + 4 + static_cast<std::uint64_t>(static_cast<std::int16_t>(line.words[0] & 0xFFFF) * std::int64_t{4});
}

// Whether execution may go on behind the code, which padding may follow.
bool runs_on(const std::vector<CodeLine>& code) {
  const auto last = std::find_if(code.rbegin(), code.rend(),
                                 [](const CodeLine& line) { return !is_any_of(line, {"s_nop ", "s_code_end"}); });
  return last == code.rend() || !is_any_of(*last, {"s_endpgm", "s_branch ", "s_setpc_b64 "});
}

}  // namespace

std::vector<CodeSymbol> parse_objdump(std::string_view text) {
  std::vector<CodeSymbol> symbols;
  Lines lines(text);
  for (std::string_view line; lines.next(line);) {
    if (line.ends_with(">:")) {  // 0000000000002400 <name>:
      CodeSymbol symbol;
      const std::string_view rest = take_hex(line, symbol.begin, line);
      if (!rest.starts_with(" <")) throw std::runtime_error("not a symbol line: " + std::string(line));
      symbol.name = std::string(rest.substr(2, rest.size() - 4));
      symbols.push_back(std::move(symbol));
    } else if (line.starts_with('\t')) {  // <TAB>text // pc: words <label>
      const std::size_t comment = line.rfind("// ");
      if (comment == std::string_view::npos || symbols.empty()) continue;  // "..." stands for skipped zeros
      CodeLine code;
      code.text = std::string(without_trailing_blanks(line.substr(1, comment - 1)));
      const std::string_view rest = take_hex(line.substr(comment + 3), code.pc, line);
      if (!rest.starts_with(':')) throw std::runtime_error("no address in: " + std::string(line));
      code.words = take_words(rest.substr(1), line);
      symbols.back().lines.push_back(std::move(code));
    }
  }
  std::erase_if(symbols, [](const CodeSymbol& symbol) { return symbol.lines.empty(); });
  if (symbols.empty() || !text.ends_with('\n')) throw std::runtime_error("the disassembly is empty or ends inside a line");
  return symbols;
}

std::optional<CodeSymbol> code_from(const std::vector<CodeSymbol>& symbols, std::uint64_t begin) {
  const auto first = std::find_if(symbols.begin(), symbols.end(),
                                  [begin](const CodeSymbol& symbol) { return symbol.begin == begin; });
  if (first == symbols.end()) return std::nullopt;
  CodeSymbol code{first->name, begin, {}};
  std::uint64_t furthest = 0;  // target of a branch
  for (auto symbol = first; symbol != symbols.end(); ++symbol) {
    const bool wanted = runs_on(code.lines) || furthest >= symbol->begin;
    if (!wanted) break;
    for (const CodeLine& line : symbol->lines)
      if (is_branch(line)) furthest = std::max(furthest, branch_target(line));
    code.lines.insert(code.lines.end(), symbol->lines.begin(), symbol->lines.end());
  }
  return code;
}

std::string write_listing(const std::vector<CodeSymbol>& symbols) {
  std::string out;
  char number[24];
  for (const CodeSymbol& symbol : symbols) {
    std::snprintf(number, sizeof number, "@%llx ", static_cast<unsigned long long>(symbol.begin));
    out += number + symbol.name + "\n";
    for (const CodeLine& line : symbol.lines) {
      for (std::size_t i = 0; i < line.words.size(); ++i) {
        std::snprintf(number, sizeof number, "%s%x", i == 0 ? "" : " ", line.words[i]);
        out += number;
      }
      out += "\t" + line.text + "\n";
    }
  }
  return std::string(kListingHeader) + flash_attn_rocm::sha256_hex(out.data(), out.size()) + "\n" + out;
}

std::vector<CodeSymbol> read_listing(std::string_view text) {
  const std::string_view head = text.substr(0, text.find('\n'));
  if (!head.starts_with(kListingHeader))
    throw std::runtime_error("decoded listing starts with \"" + std::string(head.substr(0, 80)) + "\", expected \"" +
                             std::string(kListingHeader) + "\"");
  const std::string_view body = text.substr(std::min(text.size(), head.size() + 1));
  if (head.substr(kListingHeader.size()) != flash_attn_rocm::sha256_hex(body.data(), body.size()))
    throw std::runtime_error("decoded listing is damaged: its checksum is not that of its text");
  Lines lines(body);
  std::string_view line;
  std::vector<CodeSymbol> symbols;
  std::uint64_t pc = 0;
  while (lines.next(line)) {
    if (line.starts_with('@')) {
      CodeSymbol& symbol = symbols.emplace_back();
      const std::string_view rest = take_hex(line.substr(1), symbol.begin, line);
      symbol.name = std::string(rest.substr(rest.empty() ? 0 : 1));
      pc = symbol.begin;
      continue;
    }
    const std::size_t tab = line.find('\t');
    if (symbols.empty() || tab == std::string_view::npos)
      throw std::runtime_error("decoded listing has a line that is neither a symbol nor an instruction: " +
                               std::string(line));
    CodeLine code;
    code.pc = pc;
    code.words = take_words(line.substr(0, tab), line);
    code.text = std::string(line.substr(tab + 1));
    pc += 4 * code.words.size();
    symbols.back().lines.push_back(std::move(code));
  }
  return symbols;
}

}  // namespace emu
