// One kernel per vector ALU instruction: loads its operands per lane, executes it once, stores the result.
// Kernel op_<name>; operands are in v4, v6, v8 (pairs for 64 bits), the result is v16 or v[16:17].
.include "kernel.inc"

.macro BEGIN_OP name, bits0, bits1=0, bits2=0
KERNEL op_\name
  LANE_OFFSETS
  LOAD_OPERAND 0, \bits0
  .if \bits1
    LOAD_OPERAND 1, \bits1
  .endif
  .if \bits2
    LOAD_OPERAND 2, \bits2
  .endif
.endm

.macro END_OP name, result=32
  STORE_RESULT \result
END_KERNEL op_\name
.endm

.macro UNARY name
  BEGIN_OP \name, 32
  \name v16, v4
  END_OP \name
.endm
.macro BINARY name
  BEGIN_OP \name, 32, 32
  \name v16, v4, v6
  END_OP \name
.endm
.macro TERNARY name
  BEGIN_OP \name, 32, 32, 32
  \name v16, v4, v6, v8
  END_OP \name
.endm
.macro UNARY64 name
  BEGIN_OP \name, 64
  \name v[16:17], v[4:5]
  END_OP \name, 64
.endm
.macro BINARY64 name
  BEGIN_OP \name, 64, 64
  \name v[16:17], v[4:5], v[6:7]
  END_OP \name, 64
.endm
.macro TERNARY64 name
  BEGIN_OP \name, 64, 64, 64
  \name v[16:17], v[4:5], v[6:7], v[8:9]
  END_OP \name, 64
.endm

.irp name, v_mov_b32, v_not_b32, v_bfrev_b32, v_floor_f32, v_ceil_f32, v_trunc_f32, v_rndne_f32, v_fract_f32, v_rcp_f32, v_rcp_iflag_f32, v_rsq_f32, v_sqrt_f32, v_exp_f32, v_log_f32, v_sin_f32, v_cos_f32, v_cvt_f32_i32, v_cvt_f32_u32, v_cvt_i32_f32, v_cvt_u32_f32, v_cvt_f32_ubyte0, v_cvt_f32_ubyte1, v_cvt_f32_ubyte2, v_cvt_f32_ubyte3
  UNARY \name
.endr
.irp name, v_and_b32, v_or_b32, v_xor_b32, v_xnor_b32, v_add_nc_u32, v_sub_nc_u32, v_subrev_nc_u32, v_lshlrev_b32, v_lshrrev_b32, v_ashrrev_i32, v_min_u32, v_max_u32, v_min_i32, v_max_i32, v_mul_lo_u32, v_mul_hi_u32, v_mul_hi_i32, v_mul_u32_u24, v_mul_i32_i24, v_bcnt_u32_b32, v_mbcnt_lo_u32_b32, v_mbcnt_hi_u32_b32, v_add_f32, v_sub_f32, v_subrev_f32, v_mul_f32, v_mul_dx9_zero_f32, v_min_num_f32, v_max_num_f32, v_ldexp_f32, v_cvt_pk_rtz_f16_f32
  BINARY \name
.endr
.ifdef HAS_GFX12
  BINARY v_minimum_f32
  BINARY v_maximum_f32
.endif
.irp name, v_or3_b32, v_xor3_b32, v_and_or_b32, v_add3_u32, v_add_lshl_u32, v_lshl_add_u32, v_lshl_or_b32, v_xad_u32, v_min3_u32, v_max3_u32, v_min3_i32, v_max3_i32, v_med3_i32, v_med3_u32, v_mad_u32_u24, v_mad_i32_i24, v_bfe_u32, v_bfe_i32, v_bfi_b32, v_alignbit_b32, v_alignbyte_b32, v_perm_b32, v_sad_u16, v_sad_u32, v_fma_f32, v_max3_num_f32, v_min3_num_f32, v_maxmin_num_f32, v_minmax_num_f32, v_med3_num_f32, v_div_fixup_f32
  TERNARY \name
.endr
UNARY64 v_rcp_f64
UNARY64 v_sqrt_f64
UNARY64 v_rsq_f64
BINARY64 v_add_f64
BINARY64 v_mul_f64
TERNARY64 v_fma_f64
TERNARY64 v_div_fixup_f64

.irp name, v_lshlrev_b64, v_lshrrev_b64, v_ashrrev_i64
  BEGIN_OP \name, 32, 64
  \name v[16:17], v4, v[6:7]
  END_OP \name, 64
.endr
.irp name, v_cvt_f64_f32, v_cvt_f64_i32, v_cvt_f64_u32
  BEGIN_OP \name, 32
  \name v[16:17], v4
  END_OP \name, 64
.endr
.irp name, v_cvt_f32_f64, v_cvt_i32_f64, v_cvt_u32_f64
  BEGIN_OP \name, 64
  \name v16, v[4:5]
  END_OP \name
.endr
BEGIN_OP v_ldexp_f64, 64, 32
  v_ldexp_f64 v[16:17], v[4:5], v6
END_OP v_ldexp_f64, 64

// Results that go through the old destination.
BEGIN_OP v_fmac_f32, 32, 32, 32
  v_mov_b32 v16, v8
  v_fmac_f32 v16, v4, v6
END_OP v_fmac_f32
BEGIN_OP v_fmamk_f32, 32, 32
  v_fmamk_f32 v16, v4, 0x40490fdb, v6
END_OP v_fmamk_f32
BEGIN_OP v_fmaak_f32, 32, 32
  v_fmaak_f32 v16, v4, v6, 0x40490fdb
END_OP v_fmaak_f32

// Carries: the result is {carry, sum} as 64 bits.
.irp name, v_add_co_u32, v_sub_co_u32, v_subrev_co_u32
  BEGIN_OP \name, 32, 32
  \name v16, vcc_lo, v4, v6
  v_cndmask_b32 v17, 0, 1, vcc_lo
  END_OP \name, 64
.endr
.irp name, v_add_co_ci_u32, v_sub_co_ci_u32
  BEGIN_OP \name, 32, 32, 32
  v_cmp_ne_u32 vcc_lo, 0, v8
  \name v16, vcc_lo, v4, v6, vcc_lo
  v_cndmask_b32 v17, 0, 1, vcc_lo
  END_OP \name, 64
.endr
.irp name, v_mad_co_u64_u32, v_mad_co_i64_i32
  BEGIN_OP \name, 32, 32, 64
  \name v[16:17], null, v4, v6, v[8:9]
  END_OP \name, 64
.endr

// A select by a mask that a compare made.
BEGIN_OP v_cndmask_b32, 32, 32, 32
  v_cmp_ne_u32 s6, 0, v8
  v_cndmask_b32 v16, v4, v6, s6
END_OP v_cndmask_b32

// A whole division, as compilers expand it: the correctly rounded quotient of operand 0 by operand 1.
BEGIN_OP division_f32, 32, 32
  v_div_scale_f32 v20, null, v6, v6, v4
  v_div_scale_f32 v21, vcc_lo, v4, v6, v4
  v_rcp_f32 v22, v20
  v_fma_f32 v23, -v20, v22, 1.0
  v_fma_f32 v22, v23, v22, v22
  v_mul_f32 v24, v21, v22
  v_fma_f32 v25, -v20, v24, v21
  v_fma_f32 v24, v25, v22, v24
  v_fma_f32 v20, -v20, v24, v21
  v_div_fmas_f32 v20, v20, v22, v24
  v_div_fixup_f32 v16, v20, v6, v4
END_OP division_f32
BEGIN_OP division_f64, 64, 64
  v_div_scale_f64 v[20:21], null, v[6:7], v[6:7], v[4:5]
  v_div_scale_f64 v[22:23], vcc_lo, v[4:5], v[6:7], v[4:5]
  v_rcp_f64 v[24:25], v[20:21]
  v_fma_f64 v[26:27], -v[20:21], v[24:25], 1.0
  v_fma_f64 v[24:25], v[24:25], v[26:27], v[24:25]
  v_mul_f64 v[28:29], v[22:23], v[24:25]
  v_fma_f64 v[30:31], -v[20:21], v[28:29], v[22:23]
  v_div_fmas_f64 v[30:31], v[30:31], v[24:25], v[28:29]
  v_div_fixup_f64 v[16:17], v[30:31], v[6:7], v[4:5]
END_OP division_f64, 64

// f16: halves of a VGPR, of which the other must survive.
BEGIN_OP v_cvt_f32_f16, 32
  v_cvt_f32_f16 v16, v4.h
END_OP v_cvt_f32_f16
BEGIN_OP v_cvt_f16_f32, 32, 32
  v_mov_b32 v16, v6
  v_cvt_f16_f32 v16.h, v4
END_OP v_cvt_f16_f32
BEGIN_OP v_pack_b32_f16, 32, 32
  v_pack_b32_f16 v16, v4.h, v6.l
END_OP v_pack_b32_f16
BEGIN_OP v_fma_mixlo_f16, 32, 32, 32
  v_mov_b32 v16, v4
  v_fma_mixlo_f16 v16, v4, v6, v8
END_OP v_fma_mixlo_f16
BEGIN_OP v_fma_mixhi_f16, 32, 32, 32
  v_mov_b32 v16, v4
  v_fma_mixhi_f16 v16, v4, v6, v8
END_OP v_fma_mixhi_f16
// f16 sources by op_sel_hi, the high half by op_sel.
BEGIN_OP v_fma_mix_f32, 32, 32, 32
  v_fma_mix_f32 v16, v4, v6, -v8 op_sel:[1,0,0] op_sel_hi:[1,0,1]
END_OP v_fma_mix_f32
BEGIN_OP v_mov_b16, 32, 32
  v_mov_b32 v16, v6
  v_mov_b16 v16.l, v4.h
END_OP v_mov_b16
.irp name, v_add_f16, v_sub_f16, v_subrev_f16, v_mul_f16
  BEGIN_OP \name, 32, 32
  v_mov_b32 v16, v4
  \name v16.h, v4.l, v6.l
  END_OP \name
.endr

// Packed f16 and u16: halves by op_sel, negation by neg, and inline constants, whose high half is 0.
.macro PACKED name, instruction, operands:vararg
  BEGIN_OP \name, 32, 32
  \instruction v16, v4, \operands
  END_OP \name
.endm
.irp name, add, mul, min_num, max_num
  PACKED v_pk_\name\()_f16, v_pk_\name\()_f16, v6
.endr
PACKED pk_op_sel, v_pk_add_f16, v6 op_sel:[1,0] op_sel_hi:[0,1]
PACKED pk_neg, v_pk_add_f16, v6 neg_lo:[1,0] neg_hi:[0,1]
PACKED pk_clamp, v_pk_add_f16, v6 clamp
PACKED pk_inline_f16, v_pk_add_f16, 1.0
PACKED pk_inline_f16_twice, v_pk_add_f16, 1.0 op_sel_hi:[1,0]
PACKED pk_inline_u16, v_pk_add_u16, -3
PACKED pk_inline_u16_twice, v_pk_add_u16, -3 op_sel_hi:[1,0]
PACKED pk_literal, v_pk_add_u16, 0x12345678
BEGIN_OP v_pk_fma_f16, 32, 32, 32
  v_pk_fma_f16 v16, v4, v6, v8
END_OP v_pk_fma_f16

// Source and result modifiers, and constants of each kind.
BEGIN_OP neg_abs_f32, 32, 32
  v_add_f32 v16, -|v4|, |v6|
END_OP neg_abs_f32
BEGIN_OP clamp_f32, 32, 32
  v_add_f32 v16, v4, v6 clamp
END_OP clamp_f32
BEGIN_OP mul2_f32, 32, 32
  v_add_f32 v16, v4, v6 mul:2
END_OP mul2_f32
BEGIN_OP neg_f64, 64, 64
  v_add_f64 v[16:17], -v[4:5], |v[6:7]|
END_OP neg_f64, 64
BEGIN_OP inline_float, 32
  v_mul_f32 v16, -0.5, v4
END_OP inline_float
BEGIN_OP inline_integer, 32
  v_add_nc_u32 v16, -16, v4
END_OP inline_integer
BEGIN_OP literal, 32
  v_xor_b32 v16, 0xdeadbeef, v4
END_OP literal
BEGIN_OP scalar_source, 32
  s_mov_b32 s6, 0x1234567
  v_sub_nc_u32 v16, s6, v4
END_OP scalar_source
BEGIN_OP inline_f64, 64
  v_mul_f64 v[16:17], 4.0, v[4:5]
END_OP inline_f64, 64
BEGIN_OP literal_f64, 64
  v_add_f64 v[16:17], 0x40091eb8, v[4:5]
END_OP literal_f64, 64

// A kernel whose descriptor flushes f32 denormals.
BEGIN_OP flush_denormals, 32, 32
  v_mul_f32 v16, v4, v6
  STORE_RESULT 32
END_KERNEL op_flush_denormals, denormals=0

// Exec: inactive lanes keep the old result.
BEGIN_OP exec_mask, 32, 32
  v_mov_b32 v16, v6
  s_mov_b32 s7, exec_lo
  s_mov_b32 exec_lo, 0x0ff0f00f
  v_mov_b32 v16, v4
  s_mov_b32 exec_lo, s7
END_OP exec_mask

// VOPD: both halves read before either writes.
BEGIN_OP dual_swap, 32, 32
  v_mov_b32 v17, v4
  v_mov_b32 v18, v6
  v_dual_mov_b32 v17, v18 :: v_dual_mov_b32 v18, v17
  v_mov_b32 v16, v17
  v_mov_b32 v17, v18
END_OP dual_swap, 64
BEGIN_OP dual_chain, 32, 32
  v_mov_b32 v17, v4
  v_mov_b32 v18, v6
  v_dual_add_f32 v17, v17, v18 :: v_dual_lshlrev_b32 v18, 1, v17
  v_mov_b32 v16, v17
  v_mov_b32 v17, v18
END_OP dual_chain, 64
BEGIN_OP dual_cndmask, 32, 32, 32
  v_cmp_ne_u32 vcc_lo, 0, v8
  v_dual_cndmask_b32 v16, v4, v6 :: v_dual_mov_b32 v17, v6
END_OP dual_cndmask, 64
