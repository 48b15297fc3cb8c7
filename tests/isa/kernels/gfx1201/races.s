// Runs a program of LDS accesses out of memory, for random tests of the race detector.
.include "kernel.inc"

// Arguments: pointer to the addresses of the 128 work-items at each step (-1: no access), pointer to the steps' opcodes,
// number of steps. v[12:15] hold a value of 16 bits that no other step or work-item has.
KERNEL run_program
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  v_add_nc_u32 v12, 1, v0
  s_load_b128 s[4:7], s[0:1], 0x0
  s_load_b32 s8, s[0:1], 0x10
  s_wait_kmcnt 0x0
.Lstep:
  v_mov_b32 v13, v12
  v_mov_b32 v14, v12
  v_mov_b32 v15, v12
  s_load_b32 s9, s[6:7], 0x0
  global_load_b32 v3, v1, s[4:5]
  s_wait_kmcnt 0x0
  s_wait_loadcnt 0x0
  v_cmp_ne_u32 vcc_lo, -1, v3
  s_and_b32 exec_lo, exec_lo, vcc_lo
  .irp opcode, 1, 2, 3, 4, 5, 6, 7, 8
    s_cmp_eq_u32 s9, \opcode
    s_cbranch_scc1 .Lopcode\opcode
  .endr
  s_barrier_signal -1
  s_barrier_wait -1
.macro OPCODE number, text:vararg
  s_branch .Lnext
.Lopcode\number:
  \text
.endm
  OPCODE 1, ds_load_u8 v4, v3
  OPCODE 2, ds_load_b32 v4, v3
  OPCODE 3, ds_load_b64 v[4:5], v3
  OPCODE 4, ds_load_b128 v[4:7], v3
  OPCODE 5, ds_store_b16 v3, v12
  OPCODE 6, ds_store_b32 v3, v12
  OPCODE 7, ds_store_b128 v3, v[12:15]
  OPCODE 8, ds_load_2addr_b32 v[4:5], v3 offset1:1
.Lnext:
  s_mov_b32 exec_lo, -1
  s_wait_dscnt 0x0
  v_add_nc_u32 v12, 0x80, v12
  s_add_co_u32 s6, s6, 4
  s_add_co_ci_u32 s7, s7, 0
  s_add_co_u32 s4, s4, 0x200
  s_add_co_ci_u32 s5, s5, 0
  s_sub_co_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 .Lstep
END_KERNEL run_program, lds=2048
