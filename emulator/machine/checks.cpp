// Reads the settings of the optional checks.
#include "machine/checks.hpp"

#include <charconv>
#include <stdexcept>
#include <string>

#include "platform/platform.hpp"

namespace emu {

Checks parse_checks(std::string_view names, std::uint64_t seed) {
  Checks checks{false, false, false, seed};
  while (!names.empty()) {
    const std::size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
    if (name == "all")
      checks.races = checks.waits = checks.order = true;
    else if (name == "races")
      checks.races = true;
    else if (name == "waits")
      checks.waits = true;
    else if (name == "order")
      checks.order = true;
    else if (name != "none")
      throw std::runtime_error("checks of the emulated GPU: \"" + std::string(name) +
                               "\" is not one of all, none, races, waits, order (FLASH_ATTN_ROCM_EMULATOR_CHECKS)");
  }
  return checks;
}

Checks checks_from_environment() {
  const std::string names = platform::environment("FLASH_ATTN_ROCM_EMULATOR_CHECKS");
  const std::string digits = platform::environment("FLASH_ATTN_ROCM_EMULATOR_SEED");
  std::uint64_t seed = 0;
  if (!digits.empty()) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
    if (error != std::errc{} || end != digits.data() + digits.size())
      throw std::runtime_error("FLASH_ATTN_ROCM_EMULATOR_SEED is \"" + digits +
                               "\", expected a number from 0 to 2^64 - 1");
  }
  return parse_checks(names.empty() ? "all" : names, seed);
}

}  // namespace emu
