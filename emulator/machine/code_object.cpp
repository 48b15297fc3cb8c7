// Loads ELF code objects. Every offset and size of the file is checked: a damaged file is an error, never a crash.
#include "machine/code_object.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "host/sha256.hpp"
#include "machine/family.hpp"
#include "machine/msgpack.hpp"
#include "platform/elf.hpp"

namespace emu {
namespace {

constexpr std::align_val_t kPage{4096};
constexpr std::uint32_t kNoteMetadata = 32;  // NT_AMDGPU_METADATA
// EF_AMDGPU_MACH of e_flags (LLVM's AMDGPU usage document, "AMDGPU Machine"), for code objects whose metadata does not
// name the GPU, as that of AMD's hand-written kernels.
struct MachineName {
  std::uint32_t number;
  const char* gfx;
};
constexpr std::uint32_t kMachineMask = 0xFF;
constexpr MachineName kMachineNames[] = {
#include "machines.inc"
};
constexpr std::uint64_t kLargestImage = std::uint64_t(1) << 30;

std::span<const std::uint8_t> part(std::span<const std::uint8_t> data, std::uint64_t offset, std::uint64_t size,
                                   const char* what) {
  if (offset > data.size() || size > data.size() - offset)
    throw std::runtime_error("code object is truncated: " + std::string(what) + " needs bytes " +
                             std::to_string(offset) + " to " + std::to_string(offset + size) + ", there are " +
                             std::to_string(data.size()));
  return data.subspan(offset, size);
}

template <class T>
T read(std::span<const std::uint8_t> data, std::uint64_t offset, const char* what) {
  T value;
  std::memcpy(&value, part(data, offset, sizeof value, what).data(), sizeof value);
  return value;
}

std::string text_at(std::span<const std::uint8_t> strings, std::uint64_t offset) {
  if (offset >= strings.size()) throw std::runtime_error("code object has a name outside its string table");
  const auto* begin = strings.data() + offset;
  return {reinterpret_cast<const char*>(begin), strnlen(reinterpret_cast<const char*>(begin), strings.size() - offset)};
}

template <class Visit>  // visit(type, owner, description)
void each_note(std::span<const std::uint8_t> notes, Visit visit) {
  const auto padded = [](std::uint64_t size) { return (size + 3) & ~std::uint64_t(3); };
  while (notes.size() >= 12) {
    const auto name_size = read<std::uint32_t>(notes, 0, "a note"), size = read<std::uint32_t>(notes, 4, "a note");
    const auto type = read<std::uint32_t>(notes, 8, "a note");
    visit(type, part(notes, 12 + padded(name_size), size, "a note"));
    notes = notes.subspan(std::min<std::uint64_t>(notes.size(), 12 + padded(name_size) + padded(size)));
  }
}

}  // namespace

void CodeObject::AlignedDelete::operator()(std::uint8_t* memory) const { operator delete[](memory, kPage); }

CodeObject::CodeObject(std::span<const std::uint8_t> file)
    : file_(file.begin(), file.end()), sha256_(flash_attn_rocm::sha256_hex(file.data(), file.size())) {
  const auto header = read<Elf64_Ehdr>(file_, 0, "the ELF header");
  constexpr std::uint16_t kMachineAmdgpu = 224;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_machine != kMachineAmdgpu)
    throw std::runtime_error("not an AMD GPU code object: no 64-bit ELF header of machine 224");
  load_segments();
  for (auto& [name, kernel] : kernels_) read_descriptor(kernel);
}

void CodeObject::load_segments() {
  const auto header = read<Elf64_Ehdr>(file_, 0, "the ELF header");
  std::vector<Elf64_Phdr> segments;
  for (unsigned i = 0; i < header.e_phnum; ++i)
    segments.push_back(
        read<Elf64_Phdr>(file_, header.e_phoff + std::uint64_t(i) * sizeof(Elf64_Phdr), "the program headers"));
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_LOAD) {
      if (segment.p_vaddr > kLargestImage || segment.p_memsz > kLargestImage || segment.p_filesz > segment.p_memsz)
        throw std::runtime_error("code object has a segment of impossible size");
      image_bytes_ = std::max(image_bytes_, segment.p_vaddr + segment.p_memsz);
      if ((segment.p_flags & PF_W) != 0) writable_.push_back({segment.p_vaddr, segment.p_vaddr + segment.p_memsz});
    }
  if (image_bytes_ == 0) throw std::runtime_error("code object has no loadable segment");
  image_bytes_ = (image_bytes_ + 4095) & ~std::uint64_t(4095);
  image_.reset(new(kPage) std::uint8_t[image_bytes_]);
  std::memset(image_.get(), 0, image_bytes_);
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_LOAD && segment.p_filesz != 0)
      std::memcpy(image_.get() + segment.p_vaddr, part(file_, segment.p_offset, segment.p_filesz, "a segment").data(),
                  segment.p_filesz);
  std::vector<Elf64_Shdr> sections;
  for (unsigned i = 0; i < header.e_shnum; ++i)
    sections.push_back(
        read<Elf64_Shdr>(file_, header.e_shoff + std::uint64_t(i) * sizeof(Elf64_Shdr), "the section headers"));
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_DYNSYM) continue;
    if (section.sh_link >= sections.size()) throw std::runtime_error("code object has a symbol table without names");
    const auto strings =
        part(file_, sections[section.sh_link].sh_offset, sections[section.sh_link].sh_size, "the symbol names");
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read<Elf64_Sym>(file_, section.sh_offset + at, "the symbols");
      const std::string name = text_at(strings, symbol.st_name);
      symbols_[name] = symbol.st_value;
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_size <= image_bytes_)
        code_end_ = std::max(code_end_, symbol.st_value + symbol.st_size);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_size <= image_bytes_ &&
          symbol.st_value <= image_bytes_ - symbol.st_size)
        objects_[name] = {symbol.st_value, symbol.st_value + symbol.st_size};
    }
  }
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_NOTE)
      each_note(part(file_, segment.p_offset, segment.p_filesz, "the notes"),
                [this](std::uint32_t type, std::span<const std::uint8_t> note) {
                  if (type == kNoteMetadata) read_metadata(note);
                });
  for (const MachineName& machine : kMachineNames)
    if (gfx_.empty() && !kernels_.empty() && (header.e_flags & kMachineMask) == machine.number) gfx_ = machine.gfx;
  if (gfx_.empty()) throw std::runtime_error("code object has no metadata that names its GPU");
}

const CodeObject::Range* CodeObject::find_object(const std::string& name) const {
  const auto found = objects_.find(name);
  return found == objects_.end() ? nullptr : &found->second;
}

void CodeObject::read_metadata(std::span<const std::uint8_t> note) {
  const PackValue root = read_msgpack(note);
  gfx_ = root["amdhsa.target"].string;  // amdgcn-amd-amdhsa--gfx1201[:features]
  gfx_ = gfx_.substr(gfx_.rfind('-') + 1);
  gfx_ = gfx_.substr(0, gfx_.find(':'));
  for (const PackValue& entry : root["amdhsa.kernels"].array) {
    KernelDescriptor kernel;
    kernel.name = entry[".name"].string;
    const auto symbol = symbols_.find(entry[".symbol"].string);
    if (symbol == symbols_.end()) throw std::runtime_error("code object has no symbol " + entry[".symbol"].string);
    kernel.address = symbol->second;
    kernel.kernarg_bytes = std::uint32_t(entry[".kernarg_segment_size"].integer);
    kernel.wave_size = std::uint32_t(entry[".wavefront_size"].integer);
    if (entry[".max_flat_workgroup_size"].integer > 0)
      kernel.max_workgroup_size = std::uint32_t(entry[".max_flat_workgroup_size"].integer);
    for (const PackValue& argument : entry[".args"].array) {
      KernelArgument parsed{argument[".value_kind"].string, std::uint32_t(argument[".offset"].integer),
                            std::uint32_t(argument[".size"].integer)};
      if (std::uint64_t(parsed.offset) + parsed.size > kernel.kernarg_bytes)
        throw std::runtime_error("kernel " + kernel.name + " has an argument outside its argument segment");
      if (parsed.kind.starts_with("hidden_")) {
        kernel.hidden.push_back(parsed);
      } else {
        kernel.arguments.push_back(parsed);
        kernel.explicit_kernarg_bytes = std::max(kernel.explicit_kernarg_bytes, parsed.offset + parsed.size);
      }
    }
    kernels_[kernel.name] = std::move(kernel);
  }
}

// Layout: LLVM's AMDGPU usage document, "Code Object V3+ Kernel Descriptor".
void CodeObject::read_descriptor(KernelDescriptor& kernel) const {
  const auto raw = at(kernel.address, 64);
  kernel.lds_bytes = read<std::uint32_t>(raw, 0, "a descriptor");
  kernel.scratch_bytes = read<std::uint32_t>(raw, 4, "a descriptor");
  kernel.kernarg_bytes = std::max(kernel.kernarg_bytes, read<std::uint32_t>(raw, 8, "a descriptor"));
  kernel.entry = kernel.address + std::uint64_t(read<std::int64_t>(raw, 16, "a descriptor"));
  const auto rsrc1 = read<std::uint32_t>(raw, 48, "a descriptor"), rsrc2 = read<std::uint32_t>(raw, 52, "a descriptor");
  const auto properties = read<std::uint16_t>(raw, 56, "a descriptor");
  kernel.vgprs = ((rsrc1 & 63) + 1) * 8;  // granule of wave32, and of wave64 on gfx90a and later
  kernel.accum_offset = ((read<std::uint32_t>(raw, 44, "a descriptor") & 63) + 1) * 4;
  kernel.mode = ((rsrc1 >> 12) & 0xFF) | ((rsrc1 >> 21) & 1) << 8 | ((rsrc1 >> 23) & 1) << 9;
  kernel.denormal_mode_f32 = (rsrc1 >> 16) & 3;
  kernel.user_sgprs = (rsrc2 >> 1) & 31;
  kernel.private_segment = rsrc2 & 1;
  for (unsigned axis = 0; axis < 3; ++axis) kernel.workgroup_id[axis] = (rsrc2 >> (7 + axis)) & 1;
  kernel.workgroup_info = (rsrc2 >> 10) & 1;
  kernel.workitem_id_mode = (rsrc2 >> 11) & 3;
  kernel.private_segment_buffer = properties & 1;
  kernel.dispatch_ptr = properties & 2;
  kernel.queue_ptr = properties & 4;
  kernel.kernarg_ptr = properties & 8;
  kernel.dispatch_id = properties & 16;
  kernel.flat_scratch_init = properties & 32;
  kernel.private_segment_size = properties & 64;
  kernel.preloaded_arguments = read<std::uint16_t>(raw, 58, "a descriptor") & 127;
  if (((properties >> 10) & 1) != (kernel.wave_size == 32 ? 1u : 0u))
    throw std::runtime_error("kernel " + kernel.name + ": descriptor and metadata disagree about the wave size");
  if (kernel.kernarg_bytes > 65536)
    throw std::runtime_error("kernel " + kernel.name + " has more than 64 KiB of arguments");
}

VgprCounts KernelDescriptor::vgpr_counts(const Family& family) const {
  const std::uint32_t vector = std::min<std::uint32_t>(vgprs, 256);
  if (!family.accumulators) return {vector, 0, 256};
  const std::uint32_t offset = std::min(accum_offset, vector);
  return {vector, std::min<std::uint32_t>(vgprs - offset, 256), offset};
}

std::span<const std::uint8_t> CodeObject::at(std::uint64_t address, std::uint64_t size) const {
  return part({image_.get(), image_bytes_}, address, size, "an address of the image");
}

}  // namespace emu
