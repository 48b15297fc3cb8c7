// A family's wait counters: what each counts, and which instructions wait for them.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "machine/types.hpp"

namespace emu {

// What is outstanding until a wait. kNone is last, so that the others index WaitModel::events.
enum class Event : u8 { kVmemLoad, kVmemStore, kLds, kSmem, kNone };

struct EventRule {
  u8 counter;
  int queue;  // within a queue results come in the order of issue; -1: in any order
  u32 limit;  // the counter's largest value: while it is reached nothing more is issued
};

// A counter's value in the immediate of a wait instruction; without parts it is 0.
struct WaitField {
  struct Part {
    u8 first, width;
  };
  u8 counter;
  std::vector<Part> parts;  // low bits first
};

struct WaitInstruction {
  std::string_view mnemonic;
  std::vector<WaitField> fields;
};

struct WaitModel {
  std::array<EventRule, 4> events;
  std::vector<WaitInstruction> instructions;
};

}  // namespace emu
