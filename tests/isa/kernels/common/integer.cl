// Integer arithmetic and bits: 8, 16, 32 and 64 bits wide.
#include "kernel.h"

// out[i][...]: see OPERATIONS_32 in test_common_kernels.py.
KERNEL integers_32(__global u32* out, __global const u32* a, __global const u32* b) {
  const u32 x = a[global_id()], y = b[global_id()], shift = y & 31;
  const s32 sx = (s32)x, sy = (s32)y;
  __global u32* to = out + global_id() * 24;
  to[0] = x + y;
  to[1] = x - y;
  to[2] = x * y;
  to[3] = (u32)(((u64)x * y) >> 32);
  to[4] = (u32)((s32)(((s64)sx * sy) >> 32));
  to[5] = x / (y | 1);
  to[6] = x % (y | 1);
  to[7] = (u32)(sx / (s32)(y >> 8 | 1));
  to[8] = (u32)(sx % (s32)(y >> 8 | 1));
  to[9] = x << shift;
  to[10] = x >> shift;
  to[11] = (u32)(sx >> shift);
  to[12] = (x << shift) | (x >> ((32 - shift) & 31));
  to[13] = (u32)__builtin_popcount(x);
  to[14] = x ? (u32)__builtin_clz(x) : 32;
  to[15] = x ? (u32)__builtin_ctz(x) : 32;
  to[16] = __builtin_bitreverse32(x);
  to[17] = x < y ? x : y;
  to[18] = sx > sy ? x : y;
  to[19] = (x & y) | (~x & 0x0F0F0F0F);
  to[20] = (x ^ y) & 0x00FFFF00;
  to[21] = (x >> 8 & 0xFF) + (u32)(s32)(signed char)(y >> 16);
  to[22] = sx < 0 ? -x : x;
  to[23] = (u32)((u16)x * (u16)y) + (u32)((s32)(short)x * (short)y);
}

// out[i][...]: see OPERATIONS_64.
KERNEL integers_64(__global u64* out, __global const u64* a, __global const u64* b) {
  const u64 x = a[global_id()], y = b[global_id()], shift = y & 63;
  const s64 sx = (s64)x, sy = (s64)y;
  __global u64* to = out + global_id() * 14;
  to[0] = x + y;
  to[1] = x - y;
  to[2] = x * y;
  to[3] = x / (y >> 20 | 1);
  to[4] = x % (y >> 20 | 1);
  to[5] = (u64)(sx / (s64)(y >> 40 | 1));
  to[6] = x << shift;
  to[7] = x >> shift;
  to[8] = (u64)(sx >> shift);
  to[9] = (u64)__builtin_popcountl(x);
  to[10] = (u64)__builtin_clzl(x | 1);
  to[11] = __builtin_bitreverse64(x);
  to[12] = x < y ? x : y;
  to[13] = sx < sy ? x ^ y : x & y;
}

// The CRC-32 of each row of 16 bytes, bit by bit.
KERNEL crc32(__global u32* out, __global const u8* bytes) {
  u32 crc = 0xFFFFFFFF;
  for (u32 i = 0; i < 16; ++i) {
    crc ^= bytes[global_id() * 16 + i];
    for (u32 bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0xEDB88320u : 0);
  }
  out[global_id()] = ~crc;
}
