// One kernel per scalar ALU instruction. Workgroup i reads 64-bit operands a[i] and b[i] and the initial scc from c[i], and stores
// the 64-bit result and scc (three dwords and a zero) at 16 * i. A 32-bit result has the high half of a.
.include "kernel.inc"

.macro BEGIN_SALU name
KERNEL op_\name
  WORKGROUP_IDS
  s_load_b256 s[8:15], s[0:1], 0x0
  s_lshl_b32 s2, s60, 3
  s_lshl_b32 s3, s60, 2
  s_wait_kmcnt 0x0
  s_load_b64 s[16:17], s[10:11], s2 offset:0x0
  s_load_b64 s[18:19], s[12:13], s2 offset:0x0
  s_load_b32 s20, s[14:15], s3 offset:0x0
  s_wait_kmcnt 0x0
  s_mov_b64 s[22:23], s[16:17]
  s_cmp_lg_u32 s20, 0
.endm
.macro END_SALU name
  s_cselect_b32 s24, 1, 0
  s_lshl_b32 s2, s60, 4
  v_mov_b32 v1, s2
  v_mov_b32 v4, s22
  v_mov_b32 v5, s23
  v_mov_b32 v6, s24
  v_mov_b32 v7, 0
  s_mov_b32 exec_lo, 1
  global_store_b128 v1, v[4:7], s[8:9]
END_KERNEL op_\name
.endm

.macro SALU1 name, d, a
  BEGIN_SALU \name
  \name \d, \a
  END_SALU \name
.endm
.macro SALU2 name, d, a, b
  BEGIN_SALU \name
  \name \d, \a, \b
  END_SALU \name
.endm

.irp name, s_mov_b32, s_not_b32, s_cmov_b32, s_brev_b32, s_abs_i32, s_bcnt1_i32_b32, s_ctz_i32_b32, s_clz_i32_u32, s_sext_i32_i16, s_sext_i32_i8, s_bitset0_b32, s_bitset1_b32
  SALU1 \name, s22, s18
.endr
SALU1 s_mov_b64, s[22:23], s[18:19]
SALU1 s_not_b64, s[22:23], s[18:19]
SALU1 s_cmov_b64, s[22:23], s[18:19]
SALU1 s_bcnt1_i32_b64, s22, s[18:19]
SALU1 s_ctz_i32_b64, s22, s[18:19]
.irp name, s_and_b32, s_or_b32, s_xor_b32, s_and_not1_b32, s_or_not1_b32, s_nand_b32, s_nor_b32, s_xnor_b32, s_cselect_b32, s_lshl_b32, s_lshr_b32, s_ashr_i32, s_add_co_u32, s_sub_co_u32, s_add_co_ci_u32, s_sub_co_ci_u32, s_add_co_i32, s_sub_co_i32, s_mul_i32, s_mul_hi_u32, s_mul_hi_i32, s_min_u32, s_max_u32, s_min_i32, s_max_i32, s_lshl1_add_u32, s_lshl2_add_u32, s_lshl3_add_u32, s_lshl4_add_u32, s_bfe_u32, s_bfe_i32, s_bfm_b32, s_pack_ll_b32_b16, s_pack_lh_b32_b16, s_pack_hl_b32_b16, s_pack_hh_b32_b16
  SALU2 \name, s22, s16, s18
.endr
.irp name, s_and_b64, s_or_b64, s_xor_b64, s_and_not1_b64, s_or_not1_b64, s_nand_b64, s_nor_b64, s_xnor_b64, s_cselect_b64
  SALU2 \name, s[22:23], s[16:17], s[18:19]
.endr
.irp name, s_lshl_b64, s_lshr_b64, s_ashr_i64, s_bfe_u64
  SALU2 \name, s[22:23], s[16:17], s18
.endr
.irp name, s_cmp_eq_i32, s_cmp_lg_i32, s_cmp_gt_i32, s_cmp_ge_i32, s_cmp_lt_i32, s_cmp_le_i32, s_cmp_eq_u32, s_cmp_lg_u32, s_cmp_gt_u32, s_cmp_ge_u32, s_cmp_lt_u32, s_cmp_le_u32, s_bitcmp0_b32, s_bitcmp1_b32
  SALU1 \name, s16, s18
.endr
SALU1 s_cmp_eq_u64, s[16:17], s[18:19]
SALU1 s_cmp_lg_u64, s[16:17], s[18:19]
SALU1 s_movk_i32, s22, 0x8765
SALU1 s_addk_co_i32, s22, 0x8765
SALU1 s_mulk_i32, s22, 0x8765
.ifdef HAS_GFX12
  .irp name, s_add_nc_u64, s_sub_nc_u64, s_mul_u64
    SALU2 \name, s[22:23], s[16:17], s[18:19]
  .endr
.endif
.ifdef HAS_SCALAR_FLOAT
  .irp name, s_ceil_f32, s_floor_f32, s_trunc_f32, s_rndne_f32, s_cvt_f32_i32, s_cvt_f32_u32, s_cvt_u32_f32, s_cvt_i32_f32
    SALU1 \name, s22, s18
  .endr
  .irp name, s_add_f32, s_sub_f32, s_mul_f32, s_fmac_f32, s_min_num_f32, s_max_num_f32
    SALU2 \name, s22, s16, s18
  .endr
  .irp name, s_cmp_eq_f32, s_cmp_lt_f32, s_cmp_le_f32, s_cmp_gt_f32, s_cmp_ge_f32, s_cmp_neq_f32, s_cmp_nlt_f32, s_cmp_nle_f32, s_cmp_ngt_f32, s_cmp_nge_f32
    SALU1 \name, s16, s18
  .endr
.endif

// exec is the destination: 32-bit result is the new exec, the old exec is in the high half.
.irp name, s_and_saveexec_b32, s_or_saveexec_b32, s_xor_saveexec_b32, s_and_not1_saveexec_b32, s_and_not0_saveexec_b32, s_or_not1_saveexec_b32, s_or_not0_saveexec_b32, s_and_not1_wrexec_b32, s_and_not0_wrexec_b32
  BEGIN_SALU \name
  s_mov_b32 exec_lo, s16
  \name s23, s18
  s_mov_b32 s22, exec_lo
  s_mov_b32 exec_lo, -1
  END_SALU \name
.endr
// Constants: an inline 64-bit integer is sign extended, `null` as destination discards.
BEGIN_SALU inline_b64
  s_mov_b64 s[22:23], -2
END_SALU inline_b64
BEGIN_SALU null_destination
  s_add_co_u32 null, s16, s18
END_SALU null_destination
