// Kernels that do something wrong, each in one way.
.include "kernel.inc"

// Lane 5 loads 4 bytes at the address that is the argument at 8, the others nothing.
KERNEL load_at
  s_load_b128 s[4:7], s[0:1], 0x0
  v_mov_b32 v1, 0
  s_mov_b32 exec_lo, 0x20
  s_wait_kmcnt 0x0
  global_load_b32 v4, v1, s[6:7]
END_KERNEL load_at
KERNEL store_at
  s_load_b128 s[4:7], s[0:1], 0x0
  v_mov_b32 v1, 0
  s_mov_b32 exec_lo, 0x20
  s_wait_kmcnt 0x0
  global_store_b16 v1, v1, s[6:7]
END_KERNEL store_at
KERNEL scalar_load_at
  s_load_b128 s[4:7], s[0:1], 0x0
  s_wait_kmcnt 0x0
  s_load_b64 s[8:9], s[6:7], 0x0
END_KERNEL scalar_load_at
// A buffer whose descriptor claims more bytes than the allocation has.
KERNEL buffer_too_large
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  s_load_b128 s[4:7], s[0:1], 0x0
  s_mov_b32 s10, 0x1000
  s_mov_b32 s11, 0x31004000
  s_wait_kmcnt 0x0
  s_mov_b32 s8, s6
  s_mov_b32 s9, s7
  buffer_load_b32 v4, v1, s[8:11], null offen
END_KERNEL buffer_too_large
// The address was never written.
KERNEL poison_address
  global_load_b32 v4, v[10:11], off
END_KERNEL poison_address
// Stores a VGPR, an SGPR, LDS and scratch that were never written.
KERNEL store_poison
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 4, v0
  s_load_b64 s[4:5], s[0:1], 0x0
  v_mov_b32 v21, s40
  ds_load_b32 v22, v1
  scratch_load_b32 v23, off, off offset:4
  s_wait_loadcnt_dscnt 0x0
  s_wait_kmcnt 0x0
  global_store_b128 v1, v[20:23], s[4:5]
END_KERNEL store_poison, lds=1024, scratch=16
KERNEL lds_outside
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  ds_load_b64 v[4:5], v1
END_KERNEL lds_outside, lds=128
KERNEL scratch_outside
  scratch_store_b32 off, v0, off offset:16
END_KERNEL scratch_outside, scratch=16
KERNEL forever
  s_mov_b32 s4, 0
.Lforever:
  s_add_co_u32 s4, s4, 1
  s_branch .Lforever
END_KERNEL forever
// The last instruction before the padding is no s_endpgm.
KERNEL runs_past_end
  s_branch .Lpast
  s_endpgm
.Lpast:
  s_code_end
END_KERNEL runs_past_end
// A plain instruction that a test replaces in the file.
KERNEL to_be_patched
  v_add_nc_u32 v4, v5, v6
END_KERNEL to_be_patched

// The mode and another hardware register.
KERNEL set_round_mode
  s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1
END_KERNEL set_round_mode
KERNEL set_denorm_mode
  s_denorm_mode 0
END_KERNEL set_denorm_mode
KERNEL set_shader_cycles
  s_setreg_imm32_b32 hwreg(29), 0
END_KERNEL set_shader_cycles

// A swizzled descriptor, or one that adds the lane's number.
.macro UNUSUAL_BUFFER name, word1, word3
KERNEL \name\()_load
  s_mov_b32 s8, 0
  s_mov_b32 s9, \word1
  s_mov_b32 s10, 0x1000
  s_mov_b32 s11, \word3
  buffer_load_b32 v4, v0, s[8:11], null offen
END_KERNEL \name\()_load
KERNEL \name\()_atomic
  s_mov_b32 s8, 0
  s_mov_b32 s9, \word1
  s_mov_b32 s10, 0x1000
  s_mov_b32 s11, \word3
  buffer_atomic_add_u32 v4, v0, s[8:11], null offen
END_KERNEL \name\()_atomic
.endm
UNUSUAL_BUFFER swizzled, 0x40000000, 0x31004000
UNUSUAL_BUFFER add_tid, 0, 0x31804000

.ifndef HAS_GFX12
KERNEL send_interrupt
  s_sendmsg sendmsg(MSG_INTERRUPT)
END_KERNEL send_interrupt
KERNEL bf16_matrix_with_integer
  v_wmma_bf16_16x16x16_bf16 v[4:11], v[12:19], v[20:27], 1
END_KERNEL bf16_matrix_with_integer
.endif
