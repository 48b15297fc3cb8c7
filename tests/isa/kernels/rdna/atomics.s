// Atomics on memory: pointer 0 has, per lane, the memory (8 bytes) and the data (8); pointer 1 gets what came back and pointer 2
// the second operand of compare and swap.
.include "kernel.inc"

.macro ATOMIC_SETUP
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 4, v0
  s_load_b128 s[4:7], s[0:1], 0x0
  s_load_b64 s[8:9], s[0:1], 0x10
  s_wait_kmcnt 0x0
  global_load_b64 v[4:5], v1, s[4:5] offset:8
  global_load_b64 v[6:7], v1, s[8:9]
  v_add_co_u32 v2, vcc_lo, s4, v1
  v_mov_b32 v9, s5
  v_add_co_ci_u32 v3, vcc_lo, 0, v9, vcc_lo
  s_mov_b32 s12, s4
  s_mov_b32 s13, s5
  s_mov_b32 s14, 0x1f0
  s_mov_b32 s15, 0x31004000
  v_mov_b32 v10, 0x5a5a5a5a
  v_mov_b32 v11, 0x5a5a5a5a
  s_wait_loadcnt 0x0
.endm
// A kernel for an instruction without and one with the old value returned.
.macro ATOMIC_KERNEL kernel, returns, instruction, operands:vararg
KERNEL \kernel
  ATOMIC_SETUP
  .if \returns
    RETURNING \instruction \operands
  .else
    \instruction \operands
  .endif
.endm
.macro END_ATOMIC kernel
  s_wait_loadcnt 0x0
  global_store_b64 v1, v[10:11], s[6:7]
END_KERNEL \kernel
.endm
.macro ATOMIC op, data, result
  ATOMIC_KERNEL global_\op, 0, global_atomic_\op, v1, \data, s[4:5]
  END_ATOMIC global_\op
  ATOMIC_KERNEL global_\op\()_rtn, 1, global_atomic_\op, \result, v1, \data, s[4:5]
  END_ATOMIC global_\op\()_rtn
  ATOMIC_KERNEL flat_\op, 0, flat_atomic_\op, v[2:3], \data
  END_ATOMIC flat_\op
  ATOMIC_KERNEL flat_\op\()_rtn, 1, flat_atomic_\op, \result, v[2:3], \data
  END_ATOMIC flat_\op\()_rtn
  ATOMIC_KERNEL buffer_\op, 0, buffer_atomic_\op, \data, v1, s[12:15], null offen
  END_ATOMIC buffer_\op
  ATOMIC_KERNEL buffer_\op\()_rtn, 1, buffer_atomic_\op, \data, v1, s[12:15], null offen
  s_wait_loadcnt 0x0
  v_mov_b32 v10, v4
  v_mov_b32 v11, v5
  END_ATOMIC buffer_\op\()_rtn
.endm
.irp op, add_u32, sub_u32, inc_u32, dec_u32, min_i32, max_i32, min_u32, max_u32, and_b32, or_b32, xor_b32, swap_b32, add_f32, min_num_f32, max_num_f32
  ATOMIC \op, v4, v10
.endr
.irp op, add_u64, sub_u64, inc_u64, dec_u64, min_i64, max_i64, min_u64, max_u64, and_b64, or_b64, xor_b64, swap_b64
  ATOMIC \op, v[4:5], v[10:11]
.endr
ATOMIC cmpswap_b32, v[4:5], v10
ATOMIC cmpswap_b64, v[4:7], v[10:11]
.ifdef HAS_GFX12
  ATOMIC pk_add_f16, v4, v10
  ATOMIC pk_add_bf16, v4, v10
.endif
