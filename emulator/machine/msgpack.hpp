// Reader of MessagePack, the format of a code object's metadata note.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace emu {

// A decoded value. Maps keep string keys only, which is what AMD's metadata has.
struct PackValue {
  enum class Kind { kNil, kBool, kInteger, kString, kArray, kMap } kind = Kind::kNil;
  std::int64_t integer = 0;
  std::string string;
  std::vector<PackValue> array;
  std::map<std::string, PackValue> map;

  // Member of a map; a nil value where there is none.
  const PackValue& operator[](const std::string& key) const;
};

// Throws std::runtime_error on truncated or unknown input.
PackValue read_msgpack(std::span<const std::uint8_t> data);

}  // namespace emu
