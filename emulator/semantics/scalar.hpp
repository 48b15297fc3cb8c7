// Scalar ALU operations. Capital names are entries of the RDNA4 ISA guide, chapter 16 (SOP1, SOP2, SOPC, SOPK);
// comments give the definitions there in our words. Functions that set scc take it by reference.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>

#include "machine/lanes.hpp"

namespace emu::inline EMU_WAVE::sem {

template <class T>
inline T s_set(T value, bool& scc) {
  scc = value != 0;
  return value;
}
// S_MOV_B32/B64, S_NOT_B32/B64 (scc = result != 0), S_BREV_B32.
template <class T>
inline T s_mov(T a) {
  return a;
}
template <class T>
inline T s_not(T a, bool& scc) {
  return s_set<T>(~a, scc);
}
inline u64 s_brev_b64(u64 a) { return __builtin_bitreverse64(a); }
inline u32 s_brev_b32(u32 a) { return __builtin_bitreverse32(a); }
// S_CMOV_B32: D = S0 where scc.
template <class T>
inline T s_cmov(T a, T old, bool& scc) {
  return scc ? a : old;
}
// S_AND, S_OR, S_XOR, S_AND_NOT1 (S0 & ~S1), S_OR_NOT1, S_NAND, S_NOR, S_XNOR: scc = result != 0.
template <class T>
inline T s_and(T a, T b, bool& scc) {
  return s_set<T>(a & b, scc);
}
template <class T>
inline T s_or(T a, T b, bool& scc) {
  return s_set<T>(a | b, scc);
}
template <class T>
inline T s_xor(T a, T b, bool& scc) {
  return s_set<T>(a ^ b, scc);
}
template <class T>
inline T s_and_not1(T a, T b, bool& scc) {
  return s_set<T>(a & ~b, scc);
}
template <class T>
inline T s_or_not1(T a, T b, bool& scc) {
  return s_set<T>(a | ~b, scc);
}
template <class T>
inline T s_nand(T a, T b, bool& scc) {
  return s_set<T>(~(a & b), scc);
}
template <class T>
inline T s_nor(T a, T b, bool& scc) {
  return s_set<T>(~(a | b), scc);
}
template <class T>
inline T s_xnor(T a, T b, bool& scc) {
  return s_set<T>(~(a ^ b), scc);
}

// S_ADD_CO_U32, S_SUB_CO_U32, S_ADD_CO_CI_U32, S_SUB_CO_CI_U32: scc = carry or borrow.
inline u32 s_add_co_u32(u32 a, u32 b, bool& scc) {
  scc = u64(a) + b > 0xFFFFFFFFu;
  return a + b;
}
inline u32 s_sub_co_u32(u32 a, u32 b, bool& scc) {
  scc = b > a;
  return a - b;
}
inline u32 s_add_co_ci_u32(u32 a, u32 b, bool& scc) {
  const u64 sum = u64(a) + b + (scc ? 1 : 0);
  scc = sum > 0xFFFFFFFFu;
  return u32(sum);
}
inline u32 s_sub_co_ci_u32(u32 a, u32 b, bool& scc) {
  const u64 taken = u64(b) + (scc ? 1 : 0);
  scc = taken > a;
  return u32(a - taken);
}
// S_ADD_CO_I32, S_SUB_CO_I32, S_ADDK_CO_I32: scc = signed overflow.
inline s32 s_add_co_i32(s32 a, s32 b, bool& scc) {
  s32 sum = 0;
  scc = __builtin_add_overflow(a, b, &sum);
  return sum;
}
inline s32 s_sub_co_i32(s32 a, s32 b, bool& scc) {
  s32 difference = 0;
  scc = __builtin_sub_overflow(a, b, &difference);
  return difference;
}
inline s32 s_addk_co_i32(s32 k, s32 old, bool& scc) { return s_add_co_i32(old, k, scc); }
// S_ADD_NC_U64, S_SUB_NC_U64, S_MUL_U64, S_MUL_I32, S_MULK_I32: low bits, scc unchanged.
inline u64 s_add_nc_u64(u64 a, u64 b) { return a + b; }
inline u64 s_sub_nc_u64(u64 a, u64 b) { return a - b; }
inline u64 s_mul_u64(u64 a, u64 b) { return a * b; }
inline u32 s_mul_i32(u32 a, u32 b) { return a * b; }
// S_MUL_HI_U32, S_MUL_HI_I32: high 32 bits.
inline u32 s_mul_hi_u32(u32 a, u32 b) { return u32((u64(a) * b) >> 32); }
inline u32 s_mul_hi_i32(s32 a, s32 b) { return u32(u64(s64(a) * b) >> 32); }
// S_ABS_I32, S_MIN_*, S_MAX_*: abs sets scc = result != 0, min and max set it where S0 is the result.
inline u32 s_abs_i32(s32 a, bool& scc) { return s_set<u32>(a < 0 ? 0u - u32(a) : u32(a), scc); }
template <class T>
inline T s_min(T a, T b, bool& scc) {
  scc = a < b;
  return scc ? a : b;
}
template <class T>
inline T s_max(T a, T b, bool& scc) {
  scc = a >= b;
  return scc ? a : b;
}
// S_LSHL_B32/B64, S_LSHR_B32/B64, S_ASHR_I32/I64: shift by S1[4:0] or S1[5:0]; scc = result != 0.
template <class T>
inline T s_lshl(T a, u32 b, bool& scc) {
  return s_set<T>(a << (b & (8 * sizeof(T) - 1)), scc);
}
template <class T>
inline T s_shr(T a, u32 b, bool& scc) {
  return s_set<T>(a >> (b & (8 * sizeof(T) - 1)), scc);
}
// S_LSHL1_ADD_U32 ... S_LSHL4_ADD_U32: (S0 << n) + S1, scc = carry.
template <int N>
inline u32 s_lshl_add_u32(u32 a, u32 b, bool& scc) {
  const u64 sum = (u64(a) << N) + b;
  scc = sum > 0xFFFFFFFFu;
  return u32(sum);
}
// S_BFE_U32, S_BFE_I32, S_BFE_U64: S1[4:0] is the first bit, S1[22:16] the width; scc = result != 0. S_BFM_B32: S0[4:0]
// ones from bit S1[4:0].
inline u32 s_bfe_u32(u32 a, u32 b, bool& scc) {
  const u32 width = (b >> 16) & 0x7F;
  const u64 mask = width >= 32 ? 0xFFFFFFFFu : (u64(1) << width) - 1;
  return s_set<u32>(u32((a >> (b & 31)) & mask), scc);
}
inline s32 s_bfe_i32(s32 a, u32 b, bool& scc) {
  const u32 width = std::min<u32>((b >> 16) & 0x7F, 32);
  const s64 field = s64(a) >> (b & 31);
  return s_set<s32>(width == 0 ? 0 : s32(s64(u64(field) << (64 - width)) >> (64 - width)), scc);
}
inline u64 s_bfe_u64(u64 a, u32 b, bool& scc) {
  const u32 width = (b >> 16) & 0x7F;
  const u64 mask = width >= 64 ? ~u64(0) : (u64(1) << width) - 1;
  return s_set<u64>((a >> (b & 63)) & mask, scc);
}
inline s64 s_bfe_i64(s64 a, u32 b, bool& scc) {
  const u32 first = b & 63, width = (b >> 16) & 0x7F;
  if (width == 0) return s_set<s64>(0, scc);
  const s64 shifted = a >> first;
  return s_set<s64>(width >= 64 ? shifted : s64(u64(shifted) << (64 - width)) >> (64 - width), scc);
}
inline u64 s_bfm_b64(u32 a, u32 b) { return ((u64(1) << (a & 63)) - 1) << (b & 63); }
inline u32 s_bfm_b32(u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }
// S_BITSET0_B32, S_BITSET1_B32: clear or set bit S0[4:0] of D.
inline u32 s_bitset0_b32(u32 a, u32 old) { return old & ~(1u << (a & 31)); }
inline u64 s_bitset0_b64(u32 a, u64 old) { return old & ~(u64(1) << (a & 63)); }
inline u64 s_bitset1_b64(u32 a, u64 old) { return old | (u64(1) << (a & 63)); }
inline u32 s_bitset1_b32(u32 a, u32 old) { return old | (1u << (a & 31)); }
// S_CSELECT_B32/B64: scc ? S0 : S1.
template <class T>
inline T s_cselect(T a, T b, bool& scc) {
  return scc ? a : b;
}
// S_PACK_LL_B32_B16, S_PACK_LH, S_PACK_HL, S_PACK_HH: low half from S0, high half from S1.
inline u32 s_pack_ll(u32 a, u32 b) { return (a & 0xFFFF) | (b << 16); }
inline u32 s_pack_lh(u32 a, u32 b) { return (a & 0xFFFF) | (b & 0xFFFF0000); }
inline u32 s_pack_hl(u32 a, u32 b) { return (a >> 16) | (b << 16); }
inline u32 s_pack_hh(u32 a, u32 b) { return (a >> 16) | (b & 0xFFFF0000); }
// S_SEXT_I32_I16, S_SEXT_I32_I8, S_MOVK_I32 (the constant is sign extended by the assembler).
inline s32 s_sext_i16(u32 a) { return s32(s16(a)); }
inline s32 s_sext_i8(u32 a) { return s32(static_cast<signed char>(a)); }
// S_BCNT1_I32_B32/B64: ones, scc = any. S_CTZ_I32_B32: lowest one, -1 if none. S_CLZ_I32_U32: leading zeros, -1 if S0
// is 0.
template <class T>
inline u32 s_bcnt1(T a, bool& scc) {
  return s_set<u32>(u32(std::popcount(a)), scc);
}
// S_BCNT0_I32_B32/B64: counts zeros.
template <class T>
inline u32 s_bcnt0(T a, bool& scc) {
  return s_bcnt1<T>(T(~a), scc);
}
template <class T>
inline s32 s_ctz(T a) {
  return a == 0 ? -1 : s32(std::countr_zero(a));
}
inline s32 s_clz_u64(u64 a) { return a == 0 ? -1 : s32(std::countl_zero(a)); }
// S_ABSDIFF_I32: |S0 - S1|, scc = result != 0.
inline u32 s_absdiff_i32(s32 a, s32 b, bool& scc) { return s_abs_i32(s32(u32(a) - u32(b)), scc); }
inline s32 s_clz_u32(u32 a) { return a == 0 ? -1 : s32(std::countl_zero(a)); }

// S_CMP_*: scc = comparison.
template <class T>
inline void s_cmp_eq(T a, T b, bool& scc) {
  scc = a == b;
}
template <class T>
inline void s_cmp_lg(T a, T b, bool& scc) {
  scc = a != b;
}
template <class T>
inline void s_cmp_lt(T a, T b, bool& scc) {
  scc = a < b;
}
template <class T>
inline void s_cmp_le(T a, T b, bool& scc) {
  scc = a <= b;
}
template <class T>
inline void s_cmp_gt(T a, T b, bool& scc) {
  scc = a > b;
}
template <class T>
inline void s_cmp_ge(T a, T b, bool& scc) {
  scc = a >= b;
}
inline void s_cmp_neq(float a, float b, bool& scc) { scc = a != b; }
inline void s_cmp_lg_f32(float a, float b, bool& scc) { scc = a < b || a > b; }
inline void s_cmp_nlg(float a, float b, bool& scc) { scc = !(a < b || a > b); }
inline void s_cmp_o(float a, float b, bool& scc) { scc = !std::isnan(a) && !std::isnan(b); }
inline void s_cmp_u(float a, float b, bool& scc) { scc = std::isnan(a) || std::isnan(b); }
inline void s_cmp_nlt(float a, float b, bool& scc) { scc = !(a < b); }
inline void s_cmp_nle(float a, float b, bool& scc) { scc = !(a <= b); }
inline void s_cmp_ngt(float a, float b, bool& scc) { scc = !(a > b); }
inline void s_cmp_nge(float a, float b, bool& scc) { scc = !(a >= b); }
// S_BITCMP0_B32, S_BITCMP1_B32: scc = bit S1[4:0] of S0 is 0 or 1.
inline void s_bitcmp0_b32(u32 a, u32 b, bool& scc) { scc = ((a >> (b & 31)) & 1) == 0; }
inline void s_bitcmp0_b64(u64 a, u32 b, bool& scc) { scc = ((a >> (b & 63)) & 1) == 0; }
inline void s_bitcmp1_b64(u64 a, u32 b, bool& scc) { scc = ((a >> (b & 63)) & 1) == 1; }
inline void s_bitcmp1_b32(u32 a, u32 b, bool& scc) { scc = ((a >> (b & 31)) & 1) == 1; }

// Scalar float unit (ISA guide 6.7): S_ADD_F32, S_SUB_F32, S_MUL_F32, S_FMAC_F32, S_MIN_NUM_F32, S_MAX_NUM_F32,
// conversions.
inline float s_add_f32(float a, float b) { return a + b; }
inline float s_sub_f32(float a, float b) { return a - b; }
inline float s_mul_f32(float a, float b) { return a * b; }
inline float s_fmac_f32(float a, float b, float old) { return std::fma(a, b, old); }
inline float s_min_num_f32(float a, float b) {
  return std::isnan(b) || a < b || (a == b && std::signbit(a)) ? (std::isnan(a) ? b : a) : b;
}
inline float s_max_num_f32(float a, float b) {
  return std::isnan(b) || a > b || (a == b && !std::signbit(a)) ? (std::isnan(a) ? b : a) : b;
}
inline float s_ceil_f32(float a) { return std::ceil(a); }
inline float s_floor_f32(float a) { return std::floor(a); }
inline float s_trunc_f32(float a) { return std::trunc(a); }
inline float s_rndne_f32(float a) { return std::nearbyint(a); }
inline float s_cvt_f32_i32(s32 a) { return float(a); }
inline float s_cvt_f32_u32(u32 a) { return float(a); }
// Conversions to integer truncate, saturate, and give 0 for NaN.
inline u32 s_cvt_u32_f32(float a) { return !(a > 0) ? 0 : a >= 4294967296.0f ? 0xFFFFFFFFu : u32(a); }
inline s32 s_cvt_i32_f32(float a) {
  return std::isnan(a) ? 0 : a >= 2147483648.0f ? 0x7FFFFFFF : a < -2147483648.0f ? s32(0x80000000u) : s32(a);
}

}  // namespace emu::inline EMU_WAVE::sem
