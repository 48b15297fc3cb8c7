// What the emulator knows about a family of GPUs: its instruction shapes and the machine's properties, from isa/*.toml.
#pragma once
#include <string_view>
#include <unordered_map>
#include <vector>

#include "machine/instruction_traits.hpp"
#include "machine/wait_model.hpp"
#include "machine/wave.hpp"

namespace emu {

struct ShapeRow {
  const char* shape;
  Handler handler;    // null: the instruction has no effect on values and is left out
  const char* codes;  // one letter per operand, how a constant becomes bits: see lower_constant in program.cpp
  ShapeTraits traits;
};

// [machine] of isa/<family>.toml, where each property is explained.
struct Family {
  std::string_view name;
  u32 wave_size;
  bool accumulators;
  bool workgroup_ids_in_sgprs;
  bool scratch_wave_offset;
  std::string_view target_features;
  std::vector<ShapeRow> (*make_shapes)();
  WaitModel (*make_waits)();
};

// Null where the library has no handlers of that family.
const Family* find_family(std::string_view name);

using ShapeTable = std::unordered_map<std::string_view, ShapeRow>;
// Shape key -> row; made at the first call.
const ShapeTable& shapes_of(const Family& family);
const WaitModel& waits_of(const Family& family);

}  // namespace emu
