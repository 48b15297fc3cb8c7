// Loops whose number of rounds differs per lane, nested branches, early returns.
#include "kernel.h"

// Rounds of the Collatz sequence to 1, and its largest number; 0 and 0 for 0.
KERNEL collatz(__global u32* rounds, __global u32* largest, __global const u32* in) {
  u32 x = in[global_id()], count = 0, top = x;
  if (x == 0) {
    rounds[global_id()] = largest[global_id()] = 0;
    return;
  }
  while (x != 1) {
    x = (x & 1) ? 3 * x + 1 : x / 2;
    top = x > top ? x : top;
    ++count;
  }
  rounds[global_id()] = count;
  largest[global_id()] = top;
}

// A small machine: each lane runs its own program of four-bit instructions.
KERNEL machine(__global s32* out, __global const u32* programs) {
  s32 a = (s32)local_id(), b = 1;
  for (u32 step = 0; step < 24; ++step) {
    const u32 word = programs[global_id() * 3 + step / 8], code = word >> (step % 8 * 4) & 15;
    switch (code) {
      case 0: a += b; break;
      case 1: a -= 3 * b; break;
      case 2: b = a; break;
      case 3: a ^= b << 2; break;
      case 4: a = -a; break;
      case 5: if (a > b) { const s32 old = a; a = b; b = old; } break;
      case 6: for (s32 i = 0; i < (b & 7); ++i) { a += i; if (a > 1000) break; } break;
      case 7: if (a & 1) continue; a /= 2; break;
      case 8: a *= b; break;
      case 9: a = a < 0 ? a >> 3 : a >> 1; break;
      case 10: if (b == 0) { out[global_id()] = a; return; } a %= b; break;
      default: b += (s32)code; break;
    }
  }
  out[global_id()] = a ^ (b << 1);
}

// Greatest common divisor and how often 2 divides both.
KERNEL common_divisor(__global u32* out, __global const u32* a, __global const u32* b) {
  u32 x = a[global_id()], y = b[global_id()], twos = 0;
  while (x && y && !((x | y) & 1)) {
    x >>= 1;
    y >>= 1;
    ++twos;
  }
  while (y) {
    const u32 rest = x % y;
    x = y;
    y = rest;
  }
  out[global_id() * 2] = x << twos;
  out[global_id() * 2 + 1] = twos;
}
