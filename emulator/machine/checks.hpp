// Which of the optional checks are on: races, waits and order.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace emu {

struct Checks {
  bool races = true;       // two waves touch a byte of LDS, one writes, and no barrier lies between
  bool waits = true;       // a register is used while a load into it is outstanding; takes effect when a kernel is looked up
  bool order = true;       // waves run in random order and change at random places
  std::uint64_t seed = 0;  // of the order
};

// Parses "all", "none" or a comma list of races, waits and order. Throws std::runtime_error naming what is allowed.
Checks parse_checks(std::string_view names, std::uint64_t seed);

// FLASH_ATTN_ROCM_EMULATOR_CHECKS (default: all) and FLASH_ATTN_ROCM_EMULATOR_SEED (default: 0). Throws as above.
Checks checks_from_environment();

}  // namespace emu
