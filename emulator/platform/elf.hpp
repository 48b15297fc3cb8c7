// What the emulator reads of an ELF file, by the names of <elf.h>, which only ELF systems have (ELF-64 Object File
// Format, version 1.5).
#pragma once

#if __has_include(<elf.h>)
#include <elf.h>
#else
#include <cstdint>

inline constexpr char ELFMAG[] = "\177ELF";
enum { SELFMAG = 4, EI_CLASS = 4, EI_NIDENT = 16, ELFCLASS64 = 2 };
enum { PT_LOAD = 1, PT_NOTE = 4, PF_W = 2, SHT_NOBITS = 8, SHT_DYNSYM = 11, STT_OBJECT = 1, STT_FUNC = 2 };

struct Elf64_Ehdr {
  unsigned char e_ident[EI_NIDENT];
  std::uint16_t e_type, e_machine;
  std::uint32_t e_version;
  std::uint64_t e_entry, e_phoff, e_shoff;
  std::uint32_t e_flags;
  std::uint16_t e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx;
};
struct Elf64_Phdr {
  std::uint32_t p_type, p_flags;
  std::uint64_t p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align;
};
struct Elf64_Shdr {
  std::uint32_t sh_name, sh_type;
  std::uint64_t sh_flags, sh_addr, sh_offset, sh_size;
  std::uint32_t sh_link, sh_info;
  std::uint64_t sh_addralign, sh_entsize;
};
struct Elf64_Sym {
  std::uint32_t st_name;
  unsigned char st_info, st_other;
  std::uint16_t st_shndx;
  std::uint64_t st_value, st_size;
};
static_assert(sizeof(Elf64_Ehdr) == 64 && sizeof(Elf64_Phdr) == 56 && sizeof(Elf64_Shdr) == 64 &&
              sizeof(Elf64_Sym) == 24);

constexpr unsigned ELF64_ST_TYPE(unsigned char info) { return info & 0xFu; }
#endif
