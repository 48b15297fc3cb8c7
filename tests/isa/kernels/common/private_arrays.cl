// Arrays of a work-item with indices known only at run time: they live in scratch memory.
#include "kernel.h"

#define COUNT 24

// Sorts 24 numbers per work-item by insertion, and says where each came from.
KERNEL sort_numbers(__global s32* sorted, __global u8* origins, __global const s32* in) {
  s32 numbers[COUNT];
  u8 from[COUNT];
  for (u32 i = 0; i < COUNT; ++i) {
    const s32 next = in[global_id() * COUNT + i];
    u32 at = i;
    while (at > 0 && numbers[at - 1] > next) {
      numbers[at] = numbers[at - 1];
      from[at] = from[at - 1];
      --at;
    }
    numbers[at] = next;
    from[at] = (u8)i;
  }
  for (u32 i = 0; i < COUNT; ++i) {
    sorted[global_id() * COUNT + i] = numbers[i];
    origins[global_id() * COUNT + i] = from[i];
  }
}

// Follows a random permutation in memory, elements of 2, 8 and 16 bytes.
KERNEL follow(__global u64* out, __global const u32* steps) {
  typedef u32 u32x4 __attribute__((ext_vector_type(4)));
  u16 shorts[16];
  u64 longs[16];
  u32x4 quads[16];
  u32 at = 0;
  for (u32 i = 0; i < 16; ++i) {
    const u32 word = steps[global_id() * 16 + i];
    shorts[i] = (u16)word;
    longs[i] = (u64)word << 16 | i;
    quads[i] = (u32x4){word, ~word, word >> 1, i};
  }
  u64 total = 0;
  for (u32 i = 0; i < 40; ++i) {
    const u32 next = (shorts[at] ^ i) & 15;
    total += longs[next] ^ quads[(next + i) & 15].y;
    shorts[next] += (u16)quads[at].z;
    longs[at] = total;
    at = next;
  }
  out[global_id()] = total;
}
