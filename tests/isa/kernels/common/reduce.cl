// Reductions and a scan over LDS with barriers.
#include "kernel.h"

// Per group of 64: sum, smallest, largest of f32 in the order of a binary tree; out: [groups, 3].
KERNEL reduce_floats(__global float* out, __global const float* in) {
  __local float sums[THREADS], lows[THREADS], highs[THREADS];
  const u32 id = local_id();
  sums[id] = lows[id] = highs[id] = in[global_id()];
  for (u32 half_width = THREADS / 2; half_width > 0; half_width /= 2) {
    barrier_of_group();
    if (id < half_width) {
      sums[id] += sums[id + half_width];
      lows[id] = __builtin_fminf(lows[id], lows[id + half_width]);
      highs[id] = __builtin_fmaxf(highs[id], highs[id + half_width]);
    }
  }
  barrier_of_group();
  if (id == 0) {
    out[group_id() * 3] = sums[0];
    out[group_id() * 3 + 1] = lows[0];
    out[group_id() * 3 + 2] = highs[0];
  }
}

// Inclusive prefix sum of u32 and prefix xor of u16 within each group of 64.
KERNEL scan(__global u32* sums, __global u16* parities, __global const u32* in) {
  __local u32 numbers[2][THREADS];
  __local u16 bits[2][THREADS];
  const u32 id = local_id();
  u32 from = 0;
  numbers[0][id] = in[global_id()];
  bits[0][id] = (u16)(in[global_id()] >> 7);
  for (u32 distance = 1; distance < THREADS; distance *= 2) {
    barrier_of_group();
    numbers[1 - from][id] = numbers[from][id] + (id >= distance ? numbers[from][id - distance] : 0);
    bits[1 - from][id] = bits[from][id] ^ (id >= distance ? bits[from][id - distance] : (u16)0);
    from = 1 - from;
  }
  sums[global_id()] = numbers[from][id];
  parities[global_id()] = bits[from][id];
}

// Transposes a 64 x 64 tile of bytes through LDS, a row per work-item.
KERNEL transpose(__global u8* out, __global const u8* in) {
  __local u8 tile[THREADS][THREADS + 4];
  const u32 id = local_id();
  for (u32 i = 0; i < THREADS; ++i) tile[id][i] = in[(group_id() * THREADS + id) * THREADS + i];
  barrier_of_group();
  for (u32 i = 0; i < THREADS; ++i) out[(group_id() * THREADS + id) * THREADS + i] = tile[i][id];
}
