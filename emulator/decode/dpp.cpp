// Packs the modifiers of a DPP instruction.
#include "decode/dpp.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

namespace emu {
namespace {

// Modifiers that name a source lane: dpp_ctrl is `base`, plus the modifier's number where it has one.
struct Selection {
  std::string_view name;
  std::uint32_t base;
  bool has_number;
};
// gfx90a's row_newbcast is what later families call row_share. The wave and row_bcast ones are gfx9's.
constexpr std::array<Selection, 12> kSelections{{{"row_shl", 0x100, true},
                                                 {"row_shr", 0x110, true},
                                                 {"row_ror", 0x120, true},
                                                 {"wave_shl", 0x12F, true},
                                                 {"wave_rol", 0x133, true},
                                                 {"wave_shr", 0x137, true},
                                                 {"wave_ror", 0x13B, true},
                                                 {"row_mirror", 0x140, false},
                                                 {"row_half_mirror", 0x141, false},
                                                 {"row_newbcast", 0x150, true},
                                                 {"row_share", 0x150, true},
                                                 {"row_xmask", 0x160, true}}};
constexpr std::array<std::string_view, 4> kOptions{"row_mask", "bank_mask", "bound_ctrl", "fi"};

const Selection* find_selection(std::string_view name) {
  const auto* found =
      std::find_if(kSelections.begin(), kSelections.end(), [name](const Selection& row) { return row.name == name; });
  return found == kSelections.end() ? nullptr : found;
}

bool selects_lanes(std::string_view name) {
  return name == "quad_perm" || name == "dpp8" || name == "row_bcast" || find_selection(name) != nullptr;
}

// [3,2,1,0]: `count` numbers of `bits` bits, the first lowest.
std::uint32_t packed_list(const Modifier& modifier, std::size_t count, std::uint32_t bits) {
  const std::string& text = modifier.value;
  std::uint32_t result = 0;
  bool right = text.size() == 2 * count + 1;
  for (std::size_t i = 0; right && i < count; ++i) {
    const std::uint32_t digit = static_cast<std::uint32_t>(text[2 * i + 1] - '0');
    right = digit < (1u << bits);
    result |= digit << (bits * i);
  }
  if (!right) throw std::runtime_error("modifier " + modifier.name + ":" + text + " is not a list of lanes");
  return result;
}

std::uint32_t selection_of(const Instruction& instruction, const Modifier& modifier) {
  if (modifier.name == "dpp8") return DppControl::kDpp8 | packed_list(modifier, 8, 3);
  if (modifier.name == "quad_perm") return packed_list(modifier, 4, 2);
  if (modifier.name == "row_bcast") {
    if (modifier.value == "15") return 0x142;
    if (modifier.value == "31") return 0x143;
    throw std::runtime_error("modifier row_bcast:" + modifier.value + " is not row_bcast:15 or row_bcast:31");
  }
  const Selection& row = *find_selection(modifier.name);
  return row.base + (row.has_number ? static_cast<std::uint32_t>(modifier_number(instruction, row.name, 0)) : 0);
}

}  // namespace

bool is_dpp_modifier(std::string_view name) {
  return selects_lanes(name) || std::find(kOptions.begin(), kOptions.end(), name) != kOptions.end();
}

bool has_dpp(const Instruction& instruction) {
  return std::any_of(instruction.modifiers.begin(), instruction.modifiers.end(),
                     [](const Modifier& modifier) { return selects_lanes(modifier.name); });
}

std::uint32_t dpp_control(const Instruction& instruction) {
  const auto number = [&](std::string_view name, std::int64_t fallback) {
    return static_cast<std::uint32_t>(modifier_number(instruction, name, fallback));
  };
  std::uint32_t control = 0;
  for (const Modifier& modifier : instruction.modifiers)
    if (selects_lanes(modifier.name)) control |= selection_of(instruction, modifier);
  if ((control & DppControl::kDpp8) == 0) {
    control |= number("row_mask", 15) << DppControl::kRowMask | number("bank_mask", 15) << DppControl::kBankMask;
    // Written bound_ctrl:0 by older tools; its presence is what counts.
    for (const Modifier& modifier : instruction.modifiers)
      if (modifier.name == "bound_ctrl") control |= DppControl::kBoundZero;
  }
  return control | (number("fi", 0) != 0 ? DppControl::kFetchInactive : 0);
}

}  // namespace emu
