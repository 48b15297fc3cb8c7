// Lane-wise integer operations. Capital names are entries of the RDNA4 ISA guide, chapter 16 ("Instructions": VOP1,
// VOP2, VOP3); each comment gives the definition there in our words. Functions know nothing of registers, exec or
// encodings.
#pragma once
#include "machine/lanes.hpp"

namespace emu::inline EMU_WAVE::sem {

#define LANES [[gnu::always_inline]] inline

// V_MOV_B32: D = S0.
LANES U32 mov_b32(U32 a) { return a; }
// V_NOT_B32: D = ~S0.
LANES U32 not_b32(U32 a) { return ~a; }
// V_AND_B32, V_OR_B32, V_XOR_B32, V_XNOR_B32: bitwise.
LANES U32 and_b32(U32 a, U32 b) { return a & b; }
LANES U32 or_b32(U32 a, U32 b) { return a | b; }
LANES U32 xor_b32(U32 a, U32 b) { return a ^ b; }
LANES U32 xnor_b32(U32 a, U32 b) { return ~(a ^ b); }
// V_OR3_B32, V_XOR3_B32, V_AND_OR_B32: two bitwise steps, left to right.
LANES U32 or3_b32(U32 a, U32 b, U32 c) { return a | b | c; }
LANES U32 xor3_b32(U32 a, U32 b, U32 c) { return a ^ b ^ c; }
LANES U32 and_or_b32(U32 a, U32 b, U32 c) { return (a & b) | c; }
// V_CNDMASK_B32: D = mask bit of the lane ? S1 : S0.
LANES F32 cndmask_b32(F32 a, F32 b, S32 mask) { return select(mask, b, a); }

// V_ADD_NC_U32, V_SUB_NC_U32, V_SUBREV_NC_U32: wrap around, no carry.
LANES U32 add_u32(U32 a, U32 b) { return a + b; }
LANES U32 sub_u32(U32 a, U32 b) { return a - b; }
LANES U32 subrev_u32(U32 a, U32 b) { return b - a; }
// V_ADD_CO_U32 and V_ADD_CO_CI_U32: the carry out of bit 31 goes to the mask operand.
LANES U32 add_co_u32(U32 a, U32 b, S32& carry) {
  const U32 sum = a + b;
  carry = sum < a;
  return sum;
}
LANES U32 add_co_ci_u32(U32 a, U32 b, S32 carry_in, S32& carry) {
  const U64 sum = convert<U64>(a) + convert<U64>(b) + convert<U64>(bits<U32>(carry_in) & U32(1));
  carry = high_half(sum) != U32(0);
  return low_half(sum);
}
// V_SUB_CO_U32, V_SUBREV_CO_U32, V_SUB_CO_CI_U32: the borrow goes to the mask operand.
LANES U32 sub_co_u32(U32 a, U32 b, S32& borrow) {
  borrow = a < b;
  return a - b;
}
LANES U32 subrev_co_u32(U32 a, U32 b, S32& borrow) { return sub_co_u32(b, a, borrow); }
LANES U32 sub_co_ci_u32(U32 a, U32 b, S32 borrow_in, S32& borrow) {
  const U32 in = bits<U32>(borrow_in) & U32(1);
  borrow = (a < b) | ((a == b) & (in != U32(0)));
  return a - b - in;
}
// V_SUBREV_CO_CI_U32 (gfx9: V_SUBBREV_CO_U32): the same with the operands in reverse.
LANES U32 subrev_co_ci_u32(U32 a, U32 b, S32 borrow_in, S32& borrow) { return sub_co_ci_u32(b, a, borrow_in, borrow); }
// V_ADD3_U32: D = S0 + S1 + S2. V_ADD_LSHL_U32: (S0 + S1) << S2[4:0]. V_LSHL_ADD_U32: (S0 << S1[4:0]) + S2.
LANES U32 add3_u32(U32 a, U32 b, U32 c) { return a + b + c; }
LANES U32 add_lshl_u32(U32 a, U32 b, U32 c) { return (a + b) << (c & U32(31)); }
LANES U32 lshl_add_u32(U32 a, U32 b, U32 c) { return (a << (b & U32(31))) + c; }
// V_LSHL_OR_B32: (S0 << S1[4:0]) | S2. V_XAD_U32: (S0 ^ S1) + S2.
LANES U32 lshl_or_b32(U32 a, U32 b, U32 c) { return (a << (b & U32(31))) | c; }
LANES U32 xad_u32(U32 a, U32 b, U32 c) { return (a ^ b) + c; }
// V_LSHLREV_B32, V_LSHRREV_B32, V_ASHRREV_I32: shift S1 by S0[4:0].
LANES U32 lshlrev_b32(U32 a, U32 b) { return b << (a & U32(31)); }
LANES U32 lshrrev_b32(U32 a, U32 b) { return b >> (a & U32(31)); }
LANES S32 ashrrev_i32(U32 a, S32 b) { return b >> bits<S32>(a & U32(31)); }
// V_LSHLREV_B16, V_LSHRREV_B16: the same by S0[3:0] of the low halves; who calls keeps 16 bits.
LANES U32 lshlrev_b16(U32 a, U32 b) { return b << (a & U32(15)); }
LANES U32 lshrrev_b16(U32 a, U32 b) { return b >> (a & U32(15)); }
// V_MOV_B64, V_LSHL_ADD_U64: (S0 << S1[2:0]) + S2.
LANES U64 mov_b64(U64 a) { return a; }
LANES U64 lshl_add_u64(U64 a, U32 b, U64 c) { return (a << convert<U64>(b & U32(7))) + c; }
// V_CLZ_I32_U32, V_CTZ_I32_B32: zeros before the highest or after the lowest one; -1 where there is none.
LANES U32 clz_i32_u32(U32 a) {
  return per_lane<U32>([](u32 x) { return x == 0 ? ~0u : u32(__builtin_clz(x)); }, a);
}
LANES U32 ctz_i32_b32(U32 a) {
  return per_lane<U32>([](u32 x) { return x == 0 ? ~0u : u32(__builtin_ctz(x)); }, a);
}
// 16-bit operands come zero extended; of a result the low half counts. V_MAD_U16, V_MAD_I16, V_MAD_U32_U16,
// V_MAD_I32_I16, V_ASHRREV_I16, V_MIN_I16, V_MAX_I16, V_CVT_I32_I16, V_CNDMASK_B16.
LANES S32 from_i16(U32 a) { return bits<S32>(a << U32(16)) >> S32(16); }
LANES U32 mad_u16(U32 a, U32 b, U32 c) { return a * b + c; }
LANES U32 mad_u32_u16(U32 a, U32 b, U32 c) { return a * b + c; }
LANES U32 mad_i32_i16(U32 a, U32 b, U32 c) { return bits<U32>(from_i16(a) * from_i16(b)) + c; }
LANES U32 ashrrev_i16(U32 a, U32 b) { return bits<U32>(from_i16(b) >> bits<S32>(a & U32(15))); }
LANES U32 cvt_i32_i16(U32 a) { return bits<U32>(from_i16(a)); }
LANES U32 cndmask_b16(U32 a, U32 b, S32 mask) { return select(mask, b, a); }
// V_BFM_B32: S0[4:0] ones from bit S1[4:0]. V_BITOP3_B32: bit 4 * a + 2 * b + c of the table, per bit.
LANES U32 bfm_b32(U32 a, U32 b) { return ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31)); }
template <u32 kTable>
LANES U32 bitop3_b32(U32 a, U32 b, U32 c, std::integral_constant<u32, kTable>) {
  U32 result = U32(0);
  for (u32 i = 0; i < 8; ++i)
    if ((kTable >> i & 1) != 0) result |= ((i & 4) ? a : ~a) & ((i & 2) ? b : ~b) & ((i & 1) ? c : ~c);
  return result;
}
// V_FFBH_U32, V_FFBL_B32: zeros above the highest one, or the position of the lowest; -1 where there is none.
LANES U32 ffbh_u32(U32 a) {
  return per_lane<U32>([](u32 x) { return x == 0 ? ~u32(0) : u32(std::countl_zero(x)); }, a);
}
LANES U32 ffbl_b32(U32 a) {
  return per_lane<U32>([](u32 x) { return x == 0 ? ~u32(0) : u32(std::countr_zero(x)); }, a);
}
// V_FFBH_I32, V_CLS_I32: how many of the highest bits are as the sign; -1 where all are.
LANES U32 cls_i32(U32 a) { return ffbh_u32(a ^ bits<U32>(bits<S32>(a) >> S32(31))); }
// V_LSHLREV_B64, V_LSHRREV_B64, V_ASHRREV_I64: shift S1 by S0[5:0].
LANES U64 lshlrev_b64(U32 a, U64 b) { return b << convert<U64>(a & U32(63)); }
LANES U64 lshrrev_b64(U32 a, U64 b) { return b >> convert<U64>(a & U32(63)); }
LANES S64 ashrrev_i64(U32 a, S64 b) { return b >> convert<S64>(a & U32(63)); }

// V_MIN_U32, V_MAX_U32, V_MIN_I32, V_MAX_I32 and their three-operand forms.
LANES U32 min_u32(U32 a, U32 b) { return __builtin_elementwise_min(a, b); }
LANES U32 max_u32(U32 a, U32 b) { return __builtin_elementwise_max(a, b); }
LANES S32 min_i32(S32 a, S32 b) { return __builtin_elementwise_min(a, b); }
LANES S32 max_i32(S32 a, S32 b) { return __builtin_elementwise_max(a, b); }
LANES U32 max3_u32(U32 a, U32 b, U32 c) { return max_u32(max_u32(a, b), c); }
LANES S32 max3_i32(S32 a, S32 b, S32 c) { return max_i32(max_i32(a, b), c); }
LANES U32 min3_u32(U32 a, U32 b, U32 c) { return min_u32(min_u32(a, b), c); }
LANES S32 min3_i32(S32 a, S32 b, S32 c) { return min_i32(min_i32(a, b), c); }
LANES S32 med3_i32(S32 a, S32 b, S32 c) { return max_i32(min_i32(a, b), min_i32(max_i32(a, b), c)); }
LANES U32 med3_u32(U32 a, U32 b, U32 c) { return max_u32(min_u32(a, b), min_u32(max_u32(a, b), c)); }

// V_MUL_LO_U32: low 32 bits of the product. V_MUL_HI_U32, V_MUL_HI_I32: high 32 bits.
LANES U32 mul_lo_u32(U32 a, U32 b) { return a * b; }
LANES U32 mul_hi_u32(U32 a, U32 b) { return high_half(convert<U64>(a) * convert<U64>(b)); }
LANES U32 mul_hi_i32(S32 a, S32 b) { return high_half(bits<U64>(convert<S64>(a) * convert<S64>(b))); }
// V_MUL_U32_U24, V_MAD_U32_U24: bits [23:0] of S0 and S1 are multiplied, the low 32 bits kept.
LANES U32 mul_u32_u24(U32 a, U32 b) { return (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)); }
LANES U32 mad_u32_u24(U32 a, U32 b, U32 c) { return mul_u32_u24(a, b) + c; }
// V_MUL_I32_I24, V_MAD_I32_I24: the same with bits [23:0] read as signed.
LANES S32 sign_extend_24(S32 a) { return (a << S32(8)) >> S32(8); }
LANES S32 mul_i32_i24(S32 a, S32 b) { return bits<S32>(bits<U32>(sign_extend_24(a)) * bits<U32>(sign_extend_24(b))); }
LANES S32 mad_i32_i24(S32 a, S32 b, S32 c) { return bits<S32>(bits<U32>(mul_i32_i24(a, b)) + bits<U32>(c)); }
// V_MAD_CO_U64_U32: 64-bit S0 * S1 + S2; bit 64 of the exact result (the carry out, or the
// sign) goes to the mask operand.
LANES U64 mad_co_u64_u32(U32 a, U32 b, U64 c, S32& carry) {
  const U64 sum = convert<U64>(a) * convert<U64>(b) + c;
  carry = convert<S32>(sum < c);
  return sum;
}
LANES S64 mad_co_i64_i32(S32 a, S32 b, S64 c, S32& carry) {
  const S64 product = convert<S64>(a) * convert<S64>(b);
  const S64 sum = bits<S64>(bits<U64>(product) + bits<U64>(c));
  const S64 carry_out = (product & c) | ((product | c) & ~sum);
  carry = convert<S32>((product ^ c ^ carry_out) < S64(0));
  return sum;
}

// V_BFE_U32: S2[4:0] bits of S0 from bit S1[4:0]. V_BFE_I32: the same, sign extended. V_BFI_B32: S0 selects S1 or S2
// per bit.
LANES U32 bfe_u32(U32 a, U32 b, U32 c) { return (a >> (b & U32(31))) & ((U32(1) << (c & U32(31))) - U32(1)); }
template <class V>
LANES S32 bfe_i32(V a, U32 b, U32 c) {
  const U32 width = c & U32(31);
  const U32 unused = (U32(32) - width) & U32(31);
  const S32 field = bits<S32>(a) >> bits<S32>(b & U32(31));  // bits beyond the sign are the sign
  return select(width == U32(0), S32(0), bits<S32>(bits<U32>(field) << unused) >> bits<S32>(unused));
}
LANES U32 bfi_b32(U32 a, U32 b, U32 c) { return (a & b) | (~a & c); }
// V_ALIGNBIT_B32, V_ALIGNBYTE_B32: bits of {S0, S1} from bit S2[4:0], or byte S2[1:0].
LANES U32 alignbit_b32(U32 a, U32 b, U32 c) { return low_half(join(b, a) >> convert<U64>(c & U32(31))); }
LANES U32 alignbyte_b32(U32 a, U32 b, U32 c) { return alignbit_b32(a, b, (c & U32(3)) << U32(3)); }

// V_PERM_B32: each byte of S2 selects a byte of {S0, S1} (S1 is 0-3), or the sign of an odd byte (8-11), 0 (12) or 0xFF
// (above).
LANES U32 perm_byte(U32 a, U32 b, u32 selector) {
  if (selector > 12) return U32(0xFF);
  if (selector == 12) return U32(0);
  const U32 source = (selector < 8 ? selector >= 4 : selector >= 10) ? a : b;
  if (selector < 8) return (source >> U32(8 * (selector & 3))) & U32(0xFF);
  return (U32(0) - ((source >> U32(selector & 1 ? 31 : 15)) & U32(1))) & U32(0xFF);
}
LANES U32 perm_b32(U32 a, U32 b, u32 selector) {
  return perm_byte(a, b, selector & 0xFF) | perm_byte(a, b, (selector >> 8) & 0xFF) << U32(8) |
         perm_byte(a, b, (selector >> 16) & 0xFF) << U32(16) | perm_byte(a, b, selector >> 24) << U32(24);
}
LANES U32 perm_b32(U32 a, U32 b, U32 selectors) {
  U32 result;
  if (collect_mask((selectors & U32(0xF8F8F8F8)) != U32(0)) == 0) {  // bytes of the operands only
    const __m256i places = _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12,  //
                                            0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    for (int part = 0; part < kLanes / 8; ++part) {
      __m256i high, low, chosen;
      std::memcpy(&high, reinterpret_cast<const char*>(&a) + 32 * part, 32);
      std::memcpy(&low, reinterpret_cast<const char*>(&b) + 32 * part, 32);
      std::memcpy(&chosen, reinterpret_cast<const char*>(&selectors) + 32 * part, 32);
      const __m256i byte = _mm256_add_epi8(_mm256_and_si256(chosen, _mm256_set1_epi8(3)), places);
      // Bit 2 of a selector, moved to bit 7 of its byte, says which operand.
      const __m256i picked = _mm256_blendv_epi8(_mm256_shuffle_epi8(low, byte), _mm256_shuffle_epi8(high, byte),
                                                _mm256_slli_epi16(chosen, 5));
      std::memcpy(reinterpret_cast<char*>(&result) + 32 * part, &picked, 32);
    }
    return result;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const u64 data = (u64(a[lane]) << 32) | b[lane];
    u32 out = 0;
    for (u32 i = 0; i < 4; ++i) {
      const u32 selector = (selectors[lane] >> (8 * i)) & 0xFF;
      u32 byte = selector > 12 ? 0xFF : 0;
      if (selector < 8)
        byte = u32(data >> (8 * selector)) & 0xFF;
      else if (selector < 12)
        byte = (data >> (16 * (selector - 8) + 15)) & 1 ? 0xFF : 0;
      out |= byte << (8 * i);
    }
    result[lane] = out;
  }
  return result;
}

// V_SAD_U16: |S0.lo - S1.lo| + |S0.hi - S1.hi| + S2.
LANES U32 sad_u16(U32 a, U32 b, U32 c) {
  const auto distance = [](U32 x, U32 y) { return max_u32(x, y) - min_u32(x, y); };
  return distance(a & U32(0xFFFF), b & U32(0xFFFF)) + distance(a >> U32(16), b >> U32(16)) + c;
}
// V_SAD_U32: |S0 - S1| + S2.
LANES U32 sad_u32(U32 a, U32 b, U32 c) { return max_u32(a, b) - min_u32(a, b) + c; }
// V_BCNT_U32_B32: ones in S0, plus S1. V_MBCNT_LO_U32_B32: ones in S0 below the lane's own bit, plus S1.
LANES U32 bcnt_u32_b32(U32 a, U32 b) { return __builtin_elementwise_popcount(a) + b; }
LANES U32 mbcnt_lo_u32_b32(U32 a, U32 b) {
  const U32 below = (U32(1) << (lane_numbers() & U32(31))) - U32(1);
  return bcnt_u32_b32(a & select(lane_numbers() < U32(32), below, U32(0xFFFFFFFF)), b);
}
// V_MBCNT_HI_U32_B32: the same for lanes 32-63, of which a wave32 has none.
LANES U32 mbcnt_hi_u32_b32(U32 a, U32 b) {
  const U32 below = (U32(1) << (lane_numbers() & U32(31))) - U32(1);
  return bcnt_u32_b32(a & select(lane_numbers() < U32(32), U32(0), below), b);
}
// V_BFREV_B32: reverses the bits.
LANES U32 bfrev_b32(U32 a) { return __builtin_elementwise_bitreverse(a); }

LANES U32 min_i16(U32 a, U32 b) { return bits<U32>(min_i32(from_i16(a), from_i16(b))); }
LANES U32 max_i16(U32 a, U32 b) { return bits<U32>(max_i32(from_i16(a), from_i16(b))); }
// V_MAXMIN_U32, V_MINMAX_U32 and the signed forms: min(max(S0, S1), S2), max(min(S0, S1), S2).
LANES U32 maxmin_u32(U32 a, U32 b, U32 c) { return min_u32(max_u32(a, b), c); }
LANES U32 minmax_u32(U32 a, U32 b, U32 c) { return max_u32(min_u32(a, b), c); }
LANES S32 maxmin_i32(S32 a, S32 b, S32 c) { return min_i32(max_i32(a, b), c); }
LANES S32 minmax_i32(S32 a, S32 b, S32 c) { return max_i32(min_i32(a, b), c); }

// V_CMP_*: compares; floats compare as IEEE 754, so only NEQ, NLT, NGE... are true for NaN.
template <class V>
LANES S32 as_mask(V m) {
  if constexpr (sizeof(V) == sizeof(S32))
    return bits<S32>(m);
  else
    return convert<S32>(m);
}
template <class V>
LANES S32 cmp_lt(V a, V b) {
  return as_mask(a < b);
}
template <class V>
LANES S32 cmp_eq(V a, V b) {
  return as_mask(a == b);
}
template <class V>
LANES S32 cmp_le(V a, V b) {
  return as_mask(a <= b);
}
template <class V>
LANES S32 cmp_gt(V a, V b) {
  return as_mask(a > b);
}
template <class V>
LANES S32 cmp_ge(V a, V b) {
  return as_mask(a >= b);
}
template <class V>
LANES S32 cmp_ne(V a, V b) {
  return as_mask(a != b);
}
LANES S32 cmp_lt_i16(U32 a, U32 b) { return cmp_lt(from_i16(a), from_i16(b)); }
LANES S32 cmp_eq_i16(U32 a, U32 b) { return cmp_eq(a, b); }
LANES S32 cmp_le_i16(U32 a, U32 b) { return cmp_le(from_i16(a), from_i16(b)); }
LANES S32 cmp_gt_i16(U32 a, U32 b) { return cmp_gt(from_i16(a), from_i16(b)); }
LANES S32 cmp_ne_i16(U32 a, U32 b) { return cmp_ne(a, b); }
LANES S32 cmp_ge_i16(U32 a, U32 b) { return cmp_ge(from_i16(a), from_i16(b)); }
template <class V>
LANES S32 cmp_lg(V a, V b) {
  return as_mask((a < b) | (a > b));
}
template <class V>
LANES S32 cmp_o(V a, V b) {
  return as_mask((a == a) & (b == b));
}
template <class V>
LANES S32 cmp_u(V a, V b) {
  return as_mask((a != a) | (b != b));
}
template <class V>
LANES S32 cmp_nlt(V a, V b) {
  return ~cmp_lt(a, b);
}
template <class V>
LANES S32 cmp_nle(V a, V b) {
  return ~cmp_le(a, b);
}
template <class V>
LANES S32 cmp_ngt(V a, V b) {
  return ~cmp_gt(a, b);
}
template <class V>
LANES S32 cmp_nge(V a, V b) {
  return ~cmp_ge(a, b);
}
template <class V>
LANES S32 cmp_nlg(V a, V b) {
  return ~cmp_lg(a, b);
}

}  // namespace emu::inline EMU_WAVE::sem
