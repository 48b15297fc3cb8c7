// fa-emu-shapes OBJDUMP_TEXT...: prints the distinct instruction shapes of disassembly texts, one a line, sorted.
// Each line is "shape<TAB>example", the example being the first instruction seen with that shape.
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "decode/instruction.hpp"
#include "decode/listing.hpp"

int main(int argc, char** argv) try {
  std::map<std::string, std::string> shapes;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "fa-emu-shapes: cannot read %s\n", argv[i]);
      return 1;
    }
    std::ostringstream text;
    text << file.rdbuf();
    for (const emu::CodeSymbol& symbol : emu::parse_objdump(text.str()))
      for (const emu::CodeLine& line : symbol.lines)
        for (const emu::Instruction& instruction : emu::parse_instruction(line))
          shapes.emplace(emu::shape_key(instruction), instruction.text);
  }
  for (const auto& [shape, example] : shapes) std::printf("%s\t%s\n", shape.c_str(), example.c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "fa-emu-shapes: %s\n", error.what());
  return 1;
}
