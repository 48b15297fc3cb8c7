// Operands from other lanes (DPP): pointer 1 has the source, pointer 2 the old destination. Lanes 0, 13 and 19 are inactive.
.include "kernel.inc"

.macro BEGIN_DPP name
KERNEL dpp_\name
  LANE_OFFSETS
  LOAD_OPERAND 0, 32
  LOAD_OPERAND 1, 32
  v_mov_b32 v16, v6
  s_mov_b32 exec_lo, 0xfff7dffe
.endm
.macro END_DPP name
  s_mov_b32 exec_lo, -1
  STORE_RESULT 32
END_KERNEL dpp_\name
.endm
.macro DPP name, option, control:vararg
  BEGIN_DPP \name\()_\option
  v_mov_b32_dpp v16, v4 \control
  END_DPP \name\()_\option
.endm
.macro ALL_OPTIONS name, control:vararg
  DPP \name, plain, \control
  DPP \name, zero, \control bound_ctrl:1
  DPP \name, fetch, \control fi:1
  DPP \name, both, \control bound_ctrl:1 fi:1
  DPP \name, masks, \control row_mask:0x2 bank_mask:0x6
.endm
ALL_OPTIONS quad_perm, quad_perm:[3,0,2,1]
ALL_OPTIONS row_shl, row_shl:3
ALL_OPTIONS row_shr, row_shr:15
ALL_OPTIONS row_ror, row_ror:5
ALL_OPTIONS row_mirror, row_mirror
ALL_OPTIONS row_half_mirror, row_half_mirror
ALL_OPTIONS row_share, row_share:13
ALL_OPTIONS row_xmask, row_xmask:9
DPP dpp8, plain, dpp8:[7,1,0,5,2,2,6,3]
DPP dpp8, fetch, dpp8:[7,1,0,5,2,2,6,3] fi:1

// Other encodings: two sources with modifiers, three sources, halves, carries, compares.
BEGIN_DPP neg_abs
  v_sub_f32_dpp v16, -v4, |v6| row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1
END_DPP neg_abs
BEGIN_DPP three_sources
  v_mov_b32 v7, 3
  v_bfi_b32_e64_dpp v16, v4, v6, v7 row_xmask:1
END_DPP three_sources
BEGIN_DPP half
  v_mov_b16_dpp v16.l, v4.h row_shl:2
END_DPP half
BEGIN_DPP carry
  s_mov_b32 vcc_lo, 0x0f0f0f0f
  v_add_co_ci_u32_dpp v16, vcc_lo, v4, v6, vcc_lo row_shr:1
  s_mov_b32 exec_lo, -1
  v_cndmask_b32 v16, 0, 1, vcc_lo
END_DPP carry
BEGIN_DPP compare
  v_cmp_lt_u32_dpp vcc_lo, v4, v6 row_shr:1 row_mask:0x3 bank_mask:0x7
  s_mov_b32 exec_lo, -1
  v_cndmask_b32 v16, 0, 1, vcc_lo
END_DPP compare
BEGIN_DPP compare_zero
  v_cmp_lt_u32_e64_dpp s6, v4, v6 row_shr:1 bound_ctrl:1
  s_mov_b32 exec_lo, -1
  v_cndmask_b32 v16, 0, 1, s6
END_DPP compare_zero
BEGIN_DPP compare_exec
  v_cmpx_lt_u32_dpp v4, v6 row_shr:1 fi:1
  s_mov_b32 vcc_lo, exec_lo
  s_mov_b32 exec_lo, -1
  v_cndmask_b32 v16, 0, 1, vcc_lo
END_DPP compare_exec
