// fa-emu-listing OUT_DIR CODE_OBJECT OBJDUMP_TEXT [CODE_OBJECT OBJDUMP_TEXT]...: writes the compact listing of each
// code object to OUT_DIR/<sha256>.txt, where the emulated runtime looks first.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "decode/disassembler.hpp"
#include "decode/listing.hpp"
#include "host/sha256.hpp"

namespace {

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + std::string(path));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2 || argc % 2 != 0) {
    std::fprintf(stderr, "usage: fa-emu-listing OUT_DIR [CODE_OBJECT OBJDUMP_TEXT]...\n");
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::remove_all(directory);  // listings of kernels that are gone must not be shipped
  std::filesystem::create_directories(directory);
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string object = read(argv[i]);
    const std::string digest = flash_attn_rocm::sha256_hex(object.data(), object.size());
    const std::filesystem::path path = directory / emu::listing_name(digest);
    std::ofstream file(path, std::ios::binary);
    file << emu::write_listing(emu::parse_objdump(read(argv[i + 1])));
    if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "fa-emu-listing: %s\n", error.what());
  return 1;
}
