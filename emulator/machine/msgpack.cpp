// Reader of the MessagePack types that AMD's metadata uses.
#include "machine/msgpack.hpp"

#include <stdexcept>

namespace emu {
namespace {

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> data) : rest_(data) {}

  PackValue value(int depth = 0) {
    if (depth > 32) throw std::runtime_error("metadata is nested more than 32 deep");
    const std::uint8_t tag = std::uint8_t(number(1));
    if (tag < 0x80) return integer(tag);
    if (tag < 0x90) return map(tag & 0x0F, depth);
    if (tag < 0xA0) return array(tag & 0x0F, depth);
    if (tag < 0xC0) return string(tag & 0x1F);
    if (tag >= 0xE0) return integer(std::int8_t(tag));
    switch (tag) {
      case 0xC0:
        return {};
      case 0xC2:
      case 0xC3: {
        PackValue result = integer(tag & 1);
        result.kind = PackValue::Kind::kBool;
        return result;
      }
      case 0xCC:
        return integer(std::int64_t(number(1)));
      case 0xCD:
        return integer(std::int64_t(number(2)));
      case 0xCE:
        return integer(std::int64_t(number(4)));
      case 0xCF:
        return integer(std::int64_t(number(8)));
      case 0xD0:
        return integer(std::int8_t(number(1)));
      case 0xD1:
        return integer(std::int16_t(number(2)));
      case 0xD2:
        return integer(std::int32_t(number(4)));
      case 0xD3:
        return integer(std::int64_t(number(8)));
      case 0xD9:
        return string(number(1));
      case 0xDA:
        return string(number(2));
      case 0xDB:
        return string(number(4));
      case 0xDC:
        return array(number(2), depth);
      case 0xDD:
        return array(number(4), depth);
      case 0xDE:
        return map(number(2), depth);
      case 0xDF:
        return map(number(4), depth);
      default:
        throw std::runtime_error("metadata has a value of unknown MessagePack type " + std::to_string(tag));
    }
  }

 private:
  static PackValue integer(std::int64_t number) {
    PackValue result;
    result.kind = PackValue::Kind::kInteger;
    result.integer = number;
    return result;
  }
  std::uint64_t number(std::size_t bytes) {
    if (rest_.size() < bytes) throw std::runtime_error("metadata is truncated");
    std::uint64_t result = 0;
    for (std::size_t i = 0; i < bytes; ++i) result = result << 8 | rest_[i];
    rest_ = rest_.subspan(bytes);
    return result;
  }
  PackValue string(std::uint64_t size) {
    if (rest_.size() < size) throw std::runtime_error("metadata is truncated");
    PackValue result;
    result.kind = PackValue::Kind::kString;
    result.string.assign(reinterpret_cast<const char*>(rest_.data()), size);
    rest_ = rest_.subspan(size);
    return result;
  }
  PackValue array(std::uint64_t size, int depth) {
    PackValue result;
    result.kind = PackValue::Kind::kArray;
    for (std::uint64_t i = 0; i < size; ++i) result.array.push_back(value(depth + 1));
    return result;
  }
  PackValue map(std::uint64_t size, int depth) {
    PackValue result;
    result.kind = PackValue::Kind::kMap;
    for (std::uint64_t i = 0; i < size; ++i) {
      PackValue key = value(depth + 1);
      if (key.kind != PackValue::Kind::kString) throw std::runtime_error("metadata has a map key that is not a string");
      result.map[key.string] = value(depth + 1);
    }
    return result;
  }

  std::span<const std::uint8_t> rest_;
};

}  // namespace

const PackValue& PackValue::operator[](const std::string& key) const {
  static const PackValue nil;
  const auto found = map.find(key);
  return found == map.end() ? nil : found->second;
}

PackValue read_msgpack(std::span<const std::uint8_t> data) { return Reader(data).value(); }

}  // namespace emu
