// A flash-attention forward tile: one query row per work-item, keys and values in LDS, softmax while it goes along.
#include "kernel.h"

#define DIM 32
#define TILE 16

// q, k, v: [heads, n, DIM] f16; o: the same in f32; lse: [heads, n]. One group is 64 rows of a head; n is a multiple of 64.
KERNEL attention(__global float* o, __global float* lse, __global const half* q, __global const half* k,
                 __global const half* v, u32 n, u32 causal) {
  __local float keys[TILE][DIM + 1];
  __local float values[TILE][DIM + 1];
  const u32 groups = n / THREADS, head = group_id() / groups, row = group_id() % groups * THREADS + local_id();
  const u32 base = head * n * DIM;
  float query[DIM], sum[DIM];
  for (u32 d = 0; d < DIM; ++d) {
    query[d] = (float)q[base + row * DIM + d] * 0.17677669529663687f * 1.4426950408889634f;
    sum[d] = 0.0f;
  }
  float largest = -__builtin_inff(), total = 0.0f;
  for (u32 start = 0; start < n; start += TILE) {
    barrier_of_group();
    for (u32 i = local_id(); i < TILE * DIM; i += THREADS) {
      keys[i / DIM][i % DIM] = (float)k[base + start * DIM + i];
      values[i / DIM][i % DIM] = (float)v[base + start * DIM + i];
    }
    barrier_of_group();
    for (u32 j = 0; j < TILE; ++j) {
      if (causal && start + j > row) break;
      float score = 0.0f;
      for (u32 d = 0; d < DIM; ++d) score = __builtin_fmaf(query[d], keys[j][d], score);
      const float top = largest > score ? largest : score;
      const float rescale = __builtin_amdgcn_exp2f(largest - top), weight = __builtin_amdgcn_exp2f(score - top);
      total = total * rescale + weight;
      for (u32 d = 0; d < DIM; ++d) sum[d] = __builtin_fmaf(weight, values[j][d], sum[d] * rescale);
      largest = top;
    }
  }
  for (u32 d = 0; d < DIM; ++d) o[base + row * DIM + d] = sum[d] / total;
  lse[head * n + row] = (largest + __builtin_amdgcn_logf(total)) * 0.69314718055994531f;
}
