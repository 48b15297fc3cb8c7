// One kernel per vector compare: the lane masks that v_cmp and v_cmpx leave, as two dwords per workgroup.
.include "kernel.inc"

.macro STORE_MASKS
  s_mov_b32 exec_lo, -1
  s_load_b64 s[4:5], s[0:1], 0x0
  s_lshl_b32 s8, s60, 3
  v_mov_b32 v16, s6
  v_mov_b32 v17, s7
  v_mov_b32 v18, s8
  s_wait_kmcnt 0x0
  global_store_b64 v18, v[16:17], s[4:5]
.endm

// The first mask is v_cmp's with lanes 0, 1 and 31 inactive; the second is exec after v_cmpx.
.macro COMPARE name, bits, xname, a, b
KERNEL op_\name
  LANE_OFFSETS
  LOAD_OPERAND 0, \bits
  LOAD_OPERAND 1, \bits
  s_mov_b32 exec_lo, 0x7ffffffc
  \name s6, \a, \b
  s_mov_b32 exec_lo, -1
  \xname \a, \b
  s_mov_b32 s7, exec_lo
  STORE_MASKS
END_KERNEL op_\name
.endm
.irp op, lt, eq, le, gt, lg, ge, o, u, nge, nlg, ngt, nle, neq, nlt
  COMPARE v_cmp_\op\()_f32, 32, v_cmpx_\op\()_f32, v4, v6
  COMPARE v_cmp_\op\()_f64, 64, v_cmpx_\op\()_f64, v[4:5], v[6:7]
.endr
.irp op, lt, eq, le, gt, ne, ge
  COMPARE v_cmp_\op\()_i32, 32, v_cmpx_\op\()_i32, v4, v6
  COMPARE v_cmp_\op\()_u32, 32, v_cmpx_\op\()_u32, v4, v6
  COMPARE v_cmp_\op\()_i64, 64, v_cmpx_\op\()_i64, v[4:5], v[6:7]
  COMPARE v_cmp_\op\()_u64, 64, v_cmpx_\op\()_u64, v[4:5], v[6:7]
  COMPARE v_cmp_\op\()_u16, 32, v_cmpx_\op\()_u16, v4.l, v6.h
.endr
