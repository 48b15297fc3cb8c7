// What tests/isa/hip_program.c launches: a kernel with three parameters of its own, and a global variable.
.include "kernel.inc"
.purgem METADATA
.macro METADATA name, args, lds, scratch, threads
  .amdgpu_metadata
amdhsa.target: amdgcn-amd-amdhsa--gfx1201
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: scale
    .symbol: scale.kd
    .kernarg_segment_size: 24
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 64
    .private_segment_fixed_size: 16
    .wavefront_size: 32
    .sgpr_count: 64
    .vgpr_count: 64
    .max_flat_workgroup_size: 256
    .args:
      - .offset: 0
        .size: 8
        .value_kind: global_buffer
      - .offset: 8
        .size: 8
        .value_kind: global_buffer
      - .offset: 16
        .size: 4
        .value_kind: by_value
...
  .end_amdgpu_metadata
.endm

// result[i] = i * factor + *base, then *base = factor.
KERNEL scale
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  s_load_b128 s[4:7], s[0:1], 0x0
  s_load_b32 s8, s[0:1], 0x10
  s_wait_kmcnt 0x0
  s_load_b32 s9, s[6:7], 0x0
  v_mul_lo_u32 v2, v0, s8
  v_mov_b32 v3, 0
  v_mov_b32 v4, s8
  s_wait_kmcnt 0x0
  v_add_nc_u32 v2, s9, v2
  global_store_b32 v1, v2, s[4:5]
  global_store_b32 v3, v4, s[6:7]
END_KERNEL scale, args=24, lds=64, scratch=16, threads=256

  .data
  .globl base
  .p2align 2
  .type base,@object
  .size base, 4
base:
  .long 1000
