// Instructions that move values between lanes, registers and parts of registers, and branches. Each lane's 16 bytes of
// pointer 1 go in, 16 bytes to pointer 0 come out.
.include "kernel.inc"

// v0 = lane, v1 = lane * 16, v[8:11] = the lane's input, v[12:15] = old values of destinations.
.macro BEGIN name
KERNEL \name
  READ_INPUT
.endm
.macro FINISH name
  s_mov_b64 exec, -1
  global_store_dwordx4 v1, v[12:15], s[4:5]
  END_KERNEL \name
.endm

// v12: first active lane's value (lane 3), v13: that of lane 0 where none is active, v14: lane 37's, v15: its own, but 9 in lane 41.
BEGIN read_lanes
  s_mov_b64 exec, -8
  v_readfirstlane_b32 s8, v8
  s_mov_b64 exec, 0
  v_readfirstlane_b32 s9, v8
  s_movk_i32 s10, 37
  v_readlane_b32 s11, v8, s10
  s_movk_i32 s12, 9
  s_mov_b64 exec, -1
  v_mov_b32 v15, v8
  s_mov_b64 exec, 0
  v_writelane_b32 v15, s12, 41
  s_mov_b64 exec, -1
  v_mov_b32 v12, s8
  v_mov_b32 v13, s9
  v_mov_b32 v14, s11
FINISH read_lanes

// Through accumulation registers; lanes 0 to 7 are inactive.
BEGIN accumulators
  v_accvgpr_write_b32 a5, 1.0
  v_accvgpr_write_b32 a7, v9
  s_movk_i32 exec_lo, 0xff00
  v_accvgpr_write_b32 a5, v8
  v_accvgpr_mov_b32 a6, a5
  v_accvgpr_read_b32 v12, a6
  v_accvgpr_write_b32 a7, v10
  s_mov_b64 exec, -1
  v_accvgpr_read_b32 v13, a5
  v_accvgpr_read_b32 v14, a7
FINISH accumulators

// Accumulation registers as data of memory instructions.
BEGIN accumulator_memory
  global_load_dwordx2 a[8:9], v1, s[6:7] offset:4
  s_waitcnt vmcnt(0)
  global_store_dwordx2 v1, a[8:9], s[4:5]
  END_KERNEL accumulator_memory

// The f32 and f64 modes of the descriptor: round to nearest even, keep denormals. Writing what is there changes nothing.
BEGIN mode
  s_getreg_b32 s8, hwreg(HW_REG_MODE, 0, 8)
  s_setreg_b32 hwreg(HW_REG_MODE, 0, 8), s8
  s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3
  v_mov_b32 v12, s8
FINISH mode

.ifdef HAS_CDNA4
.irp rows, 16, 32
BEGIN swap_\rows
  v_mov_b32 v12, v8
  v_mov_b32 v13, v9
  v_permlane\rows\()_swap_b32 v12, v13
FINISH swap_\rows
BEGIN swap_\rows\()_of_some_lanes
  s_mov_b64 exec, -2
  v_permlane\rows\()_swap_b32 v12, v13
FINISH swap_\rows\()_of_some_lanes
.endr
BEGIN bitop3
  v_bitop3_b32 v12, v8, v9, v10 bitop3:0xca
  v_bitop3_b32 v13, v8, v9, v10 bitop3:0x96
  s_mov_b32 s8, 0x0f0f0f0f
  v_bitop3_b32 v14, v8, v9, s8 bitop3:0x1b
FINISH bitop3
.endif

// Parts of registers: sources, destinations and what becomes of the rest.
BEGIN sdwa
  v_add_u32_sdwa v12, v8, v9 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:BYTE_2
  v_mov_b32_sdwa v13, v8 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3
  v_lshlrev_b32_sdwa v14, v9, v8 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:WORD_0
  v_add_f16_sdwa v15, v8, v9 dst_sel:WORD_0 dst_unused:UNUSED_SEXT src0_sel:WORD_1 src1_sel:WORD_0
FINISH sdwa
BEGIN sdwa_compare
  v_cmp_lt_u32_sdwa vcc, v8, v9 src0_sel:BYTE_1 src1_sel:WORD_1
  v_cndmask_b32 v12, 0, 1, vcc
FINISH sdwa_compare

// Components of packed operands: halves by op_sel, signs by neg.
BEGIN packed
  v_pk_add_f32 v[12:13], v[8:9], v[10:11] op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1] neg_hi:[1,0]
  s_mov_b32 s8, 0x40400000
  s_mov_b32 s9, 0x40a00000
  v_pk_mul_f32 v[14:15], v[8:9], s[8:9] op_sel_hi:[1,0]
FINISH packed
BEGIN packed_halves
  v_pk_add_f16 v12, v8, v9 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1] neg_hi:[1,0]
  v_pk_mul_f16 v13, v8, 2.0 op_sel_hi:[1,0]
  v_pack_b32_f16 v14, v8, v9 op_sel:[1,0,0]
FINISH packed_halves

// A bit of v12 for each branch taken as it should be.
.macro TAKEN bit, branch
  s_\branch .Lgo\@
  s_branch .Lend\@
.Lgo\@:
  s_or_b32 s8, s8, 1 << \bit
.Lend\@:
.endm
.macro NOT_TAKEN bit, branch
  s_\branch .Lend\@
  s_or_b32 s8, s8, 1 << \bit
.Lend\@:
.endm
BEGIN branches
  s_mov_b32 s8, 0
  s_cmp_eq_u32 s8, 0
  TAKEN 0, cbranch_scc1
  s_cmp_eq_u32 s8, 0
  TAKEN 1, cbranch_scc0
  s_cmp_eq_u32 s8, s8
  NOT_TAKEN 2, cbranch_scc0
  s_mov_b64 vcc, 0
  TAKEN 3, cbranch_vccz
  NOT_TAKEN 4, cbranch_vccnz
  s_brev_b32 vcc_hi, 1
  TAKEN 5, cbranch_vccnz
  NOT_TAKEN 6, cbranch_vccz
  TAKEN 7, cbranch_execnz
  s_mov_b64 exec, 0
  TAKEN 8, cbranch_execz
  NOT_TAKEN 9, cbranch_execnz
  s_mov_b64 exec, -1
  TAKEN 10, branch
  v_mov_b32 v12, s8
FINISH branches
