// Scratch through the swizzled descriptor in s[0:3]: the kernel adds the wave's offset to it, as compilers do.
.include "kernel.inc"

.macro END_SCRATCH_KERNEL name
  s_endpgm
.L\name\()_end:
  .size \name, .L\name\()_end - \name
  .section .rodata,"a"
  .p2align 6
  .amdhsa_kernel \name
    .amdhsa_private_segment_fixed_size 32
    .amdhsa_kernarg_size 32
    .amdhsa_user_sgpr_private_segment_buffer 1
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_system_sgpr_workgroup_id_x 1
    .amdhsa_system_sgpr_private_segment_wavefront_offset 1
    .amdhsa_system_vgpr_workitem_id 0
    .amdhsa_next_free_vgpr 64
    .amdhsa_next_free_sgpr 64
    .amdhsa_accum_offset 64
  .end_amdhsa_kernel
  METADATA \name, 32, 0, 64
.endm

KERNEL scratch_descriptor
  s_add_u32 s0, s0, s7
  s_addc_u32 s1, s1, 0
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 4, v0
  s_load_dwordx4 s[8:11], s[4:5], 0x0
  s_waitcnt lgkmcnt(0)
  global_load_dwordx4 v[8:11], v1, s[10:11]
  s_waitcnt vmcnt(0)
  s_movk_i32 s12, 0x400 // bytes of 64 lanes: 16 of each
  v_mov_b32 v2, 20
  v_mov_b32 v3, 8
  buffer_store_dwordx4 v[8:11], off, s[0:3], 0 offset:16
  buffer_store_byte v8, v2, s[0:3], 0 offen offset:3
  buffer_load_dword v12, off, s[0:3], s12
  buffer_load_dwordx2 v[14:15], v2, s[0:3], 0 offen
  buffer_load_ushort v13, v3, s[0:3], s12 offen offset:2
  s_waitcnt vmcnt(0)
  global_store_dwordx4 v1, v[12:15], s[8:9]
END_SCRATCH_KERNEL scratch_descriptor

// The scalar offset is no whole dword of each of the 64 lanes.
KERNEL scratch_scalar_offset
  s_add_u32 s0, s0, s7
  s_addc_u32 s1, s1, 0
  s_movk_i32 s12, 0x404
  buffer_load_dword v12, off, s[0:3], s12
END_SCRATCH_KERNEL scratch_scalar_offset
