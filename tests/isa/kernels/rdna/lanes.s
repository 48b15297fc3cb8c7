// Reads and writes across lanes, workitem ids, workgroup ids, branches.
.include "kernel.inc"

// readfirstlane, readlane and writelane under a partial exec: results in v16.
.macro BEGIN_LANES name
KERNEL \name
  LANE_OFFSETS
  LOAD_OPERAND 0, 32
  v_mov_b32 v16, v4
.endm
.macro END_LANES name
  s_mov_b32 exec_lo, -1
  STORE_RESULT 32
END_KERNEL \name
.endm
BEGIN_LANES readfirstlane
  s_mov_b32 exec_lo, 0xffffffe0
  v_readfirstlane_b32 s6, v4
  v_mov_b32 v16, s6
END_LANES readfirstlane
BEGIN_LANES readfirstlane_empty
  s_mov_b32 exec_lo, 0
  v_readfirstlane_b32 s6, v4
  s_mov_b32 exec_lo, -1
  v_mov_b32 v16, s6
END_LANES readfirstlane_empty
BEGIN_LANES readlane
  s_mov_b32 exec_lo, 1
  s_mov_b32 s7, 45
  v_readlane_b32 s6, v4, s7
  s_mov_b32 exec_lo, -1
  v_mov_b32 v16, s6
END_LANES readlane
BEGIN_LANES writelane
  s_mov_b32 exec_lo, 1
  s_mov_b32 s6, 0x77
  v_writelane_b32 v16, s6, 9
END_LANES writelane
BEGIN_LANES permlanex16
  s_mov_b32 s6, 0x76543210
  s_mov_b32 s7, 0x89abcdef
  v_permlanex16_b32 v16, v4, s6, s7
END_LANES permlanex16
BEGIN_LANES permlane16
  s_mov_b32 s6, 0x76543210
  s_mov_b32 s7, 0x89abcdef
  v_permlane16_b32 v16, v4, s6, s7
END_LANES permlane16
.macro PERMLANE_OF_INACTIVE fetch, bound
  BEGIN_LANES permlanex16_\fetch\bound
  s_mov_b32 s6, 0x76543210
  s_mov_b32 s7, 0x89abcdef
  s_mov_b32 exec_lo, 0xffffff00
  v_permlanex16_b32 v16, v4, s6, s7 op_sel:[\fetch,\bound]
  END_LANES permlanex16_\fetch\bound
.endm
PERMLANE_OF_INACTIVE 0, 0
PERMLANE_OF_INACTIVE 0, 1
PERMLANE_OF_INACTIVE 1, 0
PERMLANE_OF_INACTIVE 1, 1
// Does nothing in a wave of 32.
BEGIN_LANES permlane64
  v_mov_b32 v16, 7
  v_permlane64_b32 v16, v4
END_LANES permlane64
// Registers, then halves: active lanes end with the data in the high half and 7 in the low one.
BEGIN_LANES swap
  v_mov_b32 v5, 7
  s_mov_b32 exec_lo, 0xffffffe0
  v_swap_b32 v16, v5
  v_swap_b16 v16.h, v5.l
END_LANES swap
BEGIN_LANES swizzle_quad
  ds_swizzle_b32 v16, v4 offset:swizzle(QUAD_PERM,3,0,2,1)
  s_wait_dscnt 0x0
END_LANES swizzle_quad
BEGIN_LANES swizzle_bits
  ds_swizzle_b32 v16, v4 offset:0x245c
  s_wait_dscnt 0x0
END_LANES swizzle_bits
// The kernel keeps denormals of all types and rounds to nearest; writing the same again is allowed.
BEGIN_LANES getreg
  s_getreg_b32 s6, hwreg(1, 0, 8)
  s_setreg_b32 hwreg(1, 0, 8), s6
  s_setreg_imm32_b32 hwreg(1, 4, 2), 3
  s_denorm_mode 15
  s_round_mode 0
  v_mov_b32 v16, s6
END_LANES getreg

.ifndef HAS_GFX12
// gfx11's hints, waits and cache control, which change no values.
BEGIN_LANES hints
  s_clause 0x1
  s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)
  s_waitcnt_depctr 0xfffe
  s_waitcnt vmcnt(1) expcnt(0) lgkmcnt(2)
  s_waitcnt_vmcnt null, 0x0
  s_waitcnt_lgkmcnt null, 0x0
  s_waitcnt_expcnt null, 0x0
  s_waitcnt_vscnt null, 0x0
  s_wait_idle
  buffer_gl0_inv
  buffer_gl1_inv
  s_icache_inv
  s_dcache_inv
  s_set_inst_prefetch_distance 0x1
  s_setprio 1
  s_sleep 1
  s_nop 2
  v_nop
  v_xor_b32 v16, -1, v4
  s_mov_b32 exec_lo, -1
  STORE_RESULT 32
  s_waitcnt_vscnt null, 0x0
  s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)
END_KERNEL hints
.endif

// Work-item ids of a 3-d block and the workgroup's ids: 4 dwords per work-item of the whole grid.
KERNEL ids
  WORKGROUP_IDS
  v_and_b32 v4, 0x3ff, v0
  v_bfe_u32 v5, v0, 10, 10
  v_bfe_u32 v6, v0, 20, 10
  s_load_b64 s[4:5], s[0:1], 0x0
  s_lshl_b32 s8, s62, 16
  s_lshl_b32 s9, s61, 8
  s_or_b32 s8, s8, s9
  s_or_b32 s8, s8, s60
  v_mov_b32 v7, s8
  // Flat index for a block of (4, 3, 2) and a grid of (2, 3, 2).
  v_mad_u32_u24 v8, v6, 3, v5
  v_lshl_add_u32 v8, v8, 2, v4
  s_mul_i32 s10, s62, 3
  s_add_co_u32 s10, s10, s61
  s_lshl_b32 s10, s10, 1
  s_add_co_u32 s10, s10, s60
  s_mul_i32 s10, s10, 24
  v_add_nc_u32 v8, s10, v8
  v_lshlrev_b32 v8, 4, v8
  s_wait_kmcnt 0x0
  global_store_b128 v8, v[4:7], s[4:5]
END_KERNEL ids
  WORKGROUP_IDS

// The sum of 1..n, n = the argument at 8, by a loop per lane: lanes with odd numbers leave after half of the rounds.
KERNEL loop_sum
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  s_load_b64 s[4:5], s[0:1], 0x0
  s_load_b32 s6, s[0:1], 0x8
  v_mov_b32 v16, 0
  v_and_b32 v2, 1, v0
  s_mov_b32 s7, 0
  s_wait_kmcnt 0x0
  s_lshr_b32 s8, s6, 1
.Lloop:
  s_add_co_i32 s7, s7, 1
  v_add_nc_u32 v16, s7, v16
  v_cmp_eq_u32 vcc_lo, 1, v2
  s_cmp_ge_u32 s7, s8
  s_cselect_b32 s9, vcc_lo, 0
  s_and_not1_b32 exec_lo, exec_lo, s9
  s_cbranch_execz .Ldone
  s_cmp_lt_u32 s7, s6
  s_cbranch_scc1 .Lloop
.Ldone:
  s_mov_b32 exec_lo, -1
  global_store_b32 v1, v16, s[4:5]
END_KERNEL loop_sum

// Each kind of branch, taken or not: a bit of v16 per branch that was taken.
.macro TRY_BRANCH branch, bit
  \branch .Ltaken\@
  s_branch .Lnext\@
.Ltaken\@:
  s_bitset1_b32 s6, \bit
.Lnext\@:
.endm
KERNEL branches
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  s_load_b64 s[4:5], s[0:1], 0x0
  s_mov_b32 s6, 0
  s_cmp_eq_u32 s6, 0
  TRY_BRANCH s_cbranch_scc1, 0
  TRY_BRANCH s_cbranch_scc0, 1
  s_cmp_lg_u32 s6, s6
  TRY_BRANCH s_cbranch_scc1, 2
  TRY_BRANCH s_cbranch_scc0, 3
  s_mov_b32 vcc_lo, 0
  TRY_BRANCH s_cbranch_vccz, 4
  TRY_BRANCH s_cbranch_vccnz, 5
  s_mov_b32 vcc_lo, 8
  TRY_BRANCH s_cbranch_vccz, 6
  TRY_BRANCH s_cbranch_vccnz, 7
  s_mov_b32 s7, exec_lo
  s_mov_b32 exec_lo, 0
  TRY_BRANCH s_cbranch_execz, 8
  TRY_BRANCH s_cbranch_execnz, 9
  s_mov_b32 exec_lo, s7
  TRY_BRANCH s_cbranch_execz, 10
  TRY_BRANCH s_cbranch_execnz, 11
  v_mov_b32 v16, s6
  s_wait_kmcnt 0x0
  global_store_b32 v1, v16, s[4:5]
END_KERNEL branches
