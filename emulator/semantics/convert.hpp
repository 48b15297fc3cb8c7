// Lane-wise conversions between types. Capital names are entries of the RDNA4 ISA guide, chapter 16 (VOP1, VOP3).
#pragma once
#include "machine/access.hpp"
#include "machine/lanes.hpp"
#include "semantics/scalar.hpp"
#include "semantics/vector_float.hpp"

namespace emu::inline EMU_WAVE::sem {

// V_CVT_F64_F32, V_CVT_F32_F64, V_CVT_F32_I32, V_CVT_F32_U32, V_CVT_F64_I32, V_CVT_F64_U32: round to nearest even.
LANES F64 cvt_f64_f32(F32 a) { return convert<F64>(a); }
LANES F32 cvt_f32_f64(F64 a) { return convert<F32>(a); }
LANES F32 cvt_f32_i32(S32 a) { return convert<F32>(a); }
LANES F32 cvt_f32_u32(U32 a) { return convert<F32>(convert<F64>(a)); }
LANES F32 cvt_f32_i16(U32 a) { return convert<F32>(from_i16(a)); }  // then rounded to f16: V_CVT_F16_I16
LANES F64 cvt_f64_i32(S32 a) { return convert<F64>(a); }
LANES F64 cvt_f64_u32(U32 a) { return convert<F64>(a); }
// V_CVT_I32_F32, V_CVT_U32_F32: truncate, saturate, NaN gives 0.
LANES S32 cvt_i32_f32(F32 a) {
  return per_lane<S32>([](float x) { return s_cvt_i32_f32(x); }, a);
}
LANES U32 cvt_u32_f32(F32 a) {
  return per_lane<U32>([](float x) { return s_cvt_u32_f32(x); }, a);
}
// V_CVT_I32_F64, V_CVT_U32_F64: the same from f64.
LANES S32 cvt_i32_f64(F64 a) {
  return per_lane<S32>(
      [](double x) {
        return x != x ? 0 : x >= 2147483647.0 ? 0x7FFFFFFF : x <= -2147483648.0 ? s32(0x80000000u) : s32(x);
      },
      a);
}
LANES U32 cvt_u32_f64(F64 a) {
  return per_lane<U32>([](double x) { return !(x > 0) ? 0u : x >= 4294967295.0 ? 0xFFFFFFFFu : u32(x); }, a);
}
// V_CVT_F32_UBYTE0 ... V_CVT_F32_UBYTE3: byte n of S0 as f32.
template <int N>
LANES F32 cvt_f32_ubyte(U32 a) {
  return convert<F32>(bits<S32>((a >> U32(8 * N)) & U32(0xFF)));
}
// V_CVT_F32_F16, V_CVT_F16_F32: the f16 side is handled by the operand types, so these only pass the value through.
LANES F32 same(F32 a) { return a; }
// V_CVT_PK_RTZ_F16_F32: two f32 to packed f16, rounding towards zero.
LANES U32 cvt_pk_rtz_f16_f32(F32 a, F32 b) {
  return narrow_f16<_MM_FROUND_TO_ZERO>(a) | (narrow_f16<_MM_FROUND_TO_ZERO>(b) << U32(16));
}
// V_CVT_PK_F16_F32, V_CVT_PK_BF16_F32: two f32 to packed f16 or bf16, to nearest even.
LANES U32 cvt_pk_f16_f32(F32 a, F32 b) { return narrow_f16(a) | (narrow_f16(b) << U32(16)); }
LANES U32 narrow_bf16(F32 a) {
  const U32 raw = bits<U32>(a);
  const U32 rounded = raw + U32(0x7FFF) + ((raw >> U32(16)) & U32(1));
  return select(a != a, raw | U32(0x400000), rounded) >> U32(16);
}
LANES U32 cvt_pk_bf16_f32(F32 a, F32 b) { return narrow_bf16(a) | (narrow_bf16(b) << U32(16)); }
// V_PACK_B32_F16: S0 in the low half, S1 in the high half, bits unchanged.
LANES U32 pack_b32_f16(U32 a, U32 b) { return (a & U32(0xFFFF)) | (b << U32(16)); }
// V_FMA_MIX_F32, V_FMA_MIXLO_F16, V_FMA_MIXHI_F16 with f32 sources: fma in f32, the result rounded once more to f16.
LANES F32 fma_mix(F32 a, F32 b, F32 c) { return fma(a, b, c); }

}  // namespace emu::inline EMU_WAVE::sem
