// Lane-wise floating-point operations. Capital names are entries of the RDNA4 ISA guide, chapter 16; comments give the
// definitions there in our words. Denormal handling of f32 arithmetic comes from MXCSR, set from the kernel's
// descriptor.
#pragma once
#include <cmath>
#include <limits>

#include "machine/lanes.hpp"
#include "semantics/vector_integer.hpp"

namespace emu::inline EMU_WAVE::sem {

// V_ADD_F32, V_SUB_F32, V_SUBREV_F32, V_MUL_F32 and the f64 forms: IEEE 754, round to nearest even.
template <class V>
LANES V add(V a, V b) {
  return a + b;
}
template <class V>
LANES V sub(V a, V b) {
  return a - b;
}
template <class V>
LANES V subrev(V a, V b) {
  return b - a;
}
template <class V>
LANES V mul(V a, V b) {
  return a * b;
}
// V_MUL_DX9_ZERO_F32: 0 * anything is 0.
LANES F32 mul_dx9_zero(F32 a, F32 b) { return select((a == F32(0)) | (b == F32(0)), F32(0), a * b); }
// V_FMA_F32, V_FMAC_F32 (S0 * S1 + D), V_FMAMK_F32 (S0 * K + S1), V_FMAAK_F32 (S0 * S1 + K): one rounding. Text order
// of operands.
template <class V>
LANES V fma(V a, V b, V c) {
  return __builtin_elementwise_fma(a, b, c);
}

// V_MIN_NUM_F32, V_MAX_NUM_F32: minimumNumber/maximumNumber of IEEE 754-2019: a NaN loses to a number, -0 < +0.
LANES F32 quiet(F32 a) { return select(a != a, bits<F32>(bits<U32>(a) | U32(0x400000)), a); }
LANES F32 max_num(F32 a, F32 b) {
  const F32 equal = bits<F32>(bits<U32>(a) & bits<U32>(b));
  const F32 larger = select(a > b, a, select(a == b, equal, b));
  return quiet(select(b != b, a, larger));
}
LANES F32 min_num(F32 a, F32 b) {
  const F32 equal = bits<F32>(bits<U32>(a) | bits<U32>(b));
  const F32 smaller = select(a < b, a, select(a == b, equal, b));
  return quiet(select(b != b, a, smaller));
}
// V_MAX3_NUM_F32, V_MIN3_NUM_F32, V_MED3_NUM_F32 and the combined forms: built from the two-operand ones.
LANES F32 max3_num(F32 a, F32 b, F32 c) { return max_num(max_num(a, b), c); }
LANES F32 min3_num(F32 a, F32 b, F32 c) { return min_num(min_num(a, b), c); }
LANES F32 maxmin_num(F32 a, F32 b, F32 c) { return min_num(max_num(a, b), c); }
LANES F32 minmax_num(F32 a, F32 b, F32 c) { return max_num(min_num(a, b), c); }
LANES F32 med3_num(F32 a, F32 b, F32 c) {
  const F32 largest = max3_num(a, b, c);
  const F32 ordered = select(largest == a, max_num(b, c), select(largest == b, max_num(a, c), max_num(a, b)));
  return select((a != a) | (b != b) | (c != c), min3_num(a, b, c), ordered);
}
// V_MAXIMUM_F32, V_MINIMUM_F32: as above, but a NaN wins.
LANES F32 maximum(F32 a, F32 b) { return select((a != a) | (b != b), quiet(a + b), max_num(a, b)); }
LANES F32 minimum(F32 a, F32 b) { return select((a != a) | (b != b), quiet(a + b), min_num(a, b)); }

// V_MIN_F64, V_MAX_F64 of gfx9: as the f32 forms, but a signalling NaN wins (IEEE 754-2008 minNum and maxNum).
inline bool is_signalling(double x) { return x != x && (bits<u64>(x) >> 51 & 1) == 0; }
template <bool kLarger>
LANES F64 extreme64(F64 a, F64 b) {
  return per_lane<F64>(
      [](double x, double y) {
        if (is_signalling(x) || is_signalling(y)) return (is_signalling(x) ? x : y) + 0;
        if (x != x || y != y) return x != x ? y : x;
        if (x == y) return std::signbit(x) == kLarger ? y : x;
        return (x < y) == kLarger ? y : x;
      },
      a, b);
}
LANES F64 max_num64(F64 a, F64 b) { return extreme64<true>(a, b); }
LANES F64 min_num64(F64 a, F64 b) { return extreme64<false>(a, b); }

// V_FLOOR_F32, V_CEIL_F32, V_TRUNC_F32, V_RNDNE_F32 (ties to even), V_FRACT_F32 (S0 - floor(S0), below 1).
template <class V>
LANES V floor(V a) {
  return __builtin_elementwise_floor(a);
}
template <class V>
LANES V ceil(V a) {
  return __builtin_elementwise_ceil(a);
}
template <class V>
LANES V trunc(V a) {
  return __builtin_elementwise_trunc(a);
}
template <class V>
LANES V rndne(V a) {
  return __builtin_elementwise_roundeven(a);
}
// V_FREXP_MANT_F32, V_FREXP_EXP_I32_F32: S0 = mantissa in [0.5, 1) * 2 ** exponent; infinities and NaNs pass with
// exponent 0.
LANES F32 frexp_mant(F32 a) {
  return per_lane<F32>(
      [](float x) {
        int exponent = 0;
        return std::isfinite(x) ? std::frexp(x, &exponent) : x;
      },
      a);
}
LANES S32 frexp_exp(F32 a) {
  return per_lane<S32>(
      [](float x) {
        int exponent = 0;
        if (std::isfinite(x)) std::frexp(x, &exponent);
        return exponent;
      },
      a);
}
LANES F32 fract(F32 a) {
  const F32 below_one = bits<F32>(U32(0x3F7FFFFF));
  const F32 part = a - floor(a);
  return select(part > below_one, below_one, part);
}

// The transcendental unit flushes f32 denormals on input and output whatever the mode says ("denormals are flushed").
LANES F32 flush_denormal(F32 a) {
  const U32 raw = bits<U32>(a);
  return select((raw & U32(0x7F800000)) == U32(0), bits<F32>(raw & U32(0x80000000)), a);
}
// V_RCP_F32, V_RCP_IFLAG_F32: 1 / S0, 1 ulp.
LANES F32 rcp(F32 a) { return flush_denormal(F32(1) / flush_denormal(a)); }
// V_SQRT_F32, V_RSQ_F32.
LANES F32 sqrt(F32 a) { return __builtin_elementwise_sqrt(flush_denormal(a)); }
LANES F32 rsq(F32 a) { return F32(1) / sqrt(a); }
// V_RCP_F64, V_SQRT_F64, V_RSQ_F64: estimates that the compiler refines; here exact.
LANES F64 rcp64(F64 a) { return F64(1) / a; }
LANES F64 sqrt64(F64 a) { return __builtin_elementwise_sqrt(a); }
LANES F64 rsq64(F64 a) { return F64(1) / sqrt64(a); }
// V_EXP_F32: 2 ** S0. Degree 6 minimax on [-0.5, 0.5], scaled in two steps so that no intermediate leaves the range.
LANES F32 exp2(F32 a) {
  const F32 x = __builtin_elementwise_min(__builtin_elementwise_max(a, F32(-200)), F32(200));
  const F32 whole = rndne(x);
  const F32 f = x - whole;
  F32 p = F32(0.00015353361f);
  p = fma(p, f, F32(0.0013398874f));
  p = fma(p, f, F32(0.0096184373f));
  p = fma(p, f, F32(0.055503324f));
  p = fma(p, f, F32(0.24022647f));
  p = fma(p, f, F32(0.69314718f));
  p = fma(p, f, F32(1));
  const S32 n = convert<S32>(whole);
  const S32 half = n >> S32(1);
  const auto power = [](S32 e) { return bits<F32>((e + S32(127)) << S32(23)); };
  const F32 scaled = p * power(half) * power(n - half);
  return select(a != a, a, select(a < F32(-126), F32(0), scaled));
}
// V_LOG_F32: log2(S0); -inf at zero, NaN below.
LANES F32 log2(F32 a) {
  return per_lane<F32>([](float x) { return float(std::log2(double(x))); }, flush_denormal(a));
}
// V_SIN_F32, V_COS_F32: of S0 revolutions. The sine of -0 is -0.
LANES F32 sin(F32 a) {
  const F32 result = per_lane<F32>(
      [](float x) { return float(std::sin((double(x) - std::floor(double(x))) * 6.283185307179586)); }, a);
  return select(a == F32(0), a, result);
}
LANES F32 cos(F32 a) {
  return per_lane<F32>([](float x) { return float(std::cos((double(x) - std::floor(double(x))) * 6.283185307179586)); },
                       a);
}

// V_PK_FMA_F16: one rounding to f16, so the f32 that is passed on is rounded to odd.
LANES F32 fma16(F32 a, F32 b, F32 c) {
  return per_lane<F32>(
      [](float x, float y, float z) {
        const double exact = std::fma(double(x), double(y), double(z));
        const float nearest = float(exact);
        if (double(nearest) == exact || nearest != nearest || (bits<u32>(nearest) & 1) != 0) return nearest;
        return std::nextafter(nearest, exact > double(nearest) ? std::numeric_limits<float>::infinity()
                                                               : -std::numeric_limits<float>::infinity());
      },
      a, b, c);
}
// V_CMP_CLASS_F32: whether S0 is of a class whose bit S1 has: signalling NaN, quiet NaN, -inf, -normal, -denormal, -0, +0,
// +denormal, +normal, +inf.
LANES S32 cmp_class(F32 a, U32 mask) {
  return per_lane<S32>(
      [](float x, u32 wanted) {
        const u32 raw = bits<u32>(x), exponent = raw >> 23 & 0xFF, fraction = raw & 0x7FFFFF;
        const bool negative = raw >> 31 != 0;
        const u32 magnitude = exponent == 0xFF ? 3 : exponent != 0 ? 2 : fraction != 0 ? 1 : 0;  // 0, denormal, normal, inf
        const u32 number = exponent == 0xFF && fraction != 0 ? fraction >> 22 : negative ? 5 - magnitude : 6 + magnitude;
        return (wanted >> number & 1) != 0 ? -1 : 0;
      },
      a, mask);
}

// V_MAC_F32 (S0 * S1 + D), V_MADMK_F32 (S0 * K + S1): two roundings, denormals flushed whatever the mode (CDNA2 ISA
// guide).
LANES F32 mad(F32 a, F32 b, F32 c) {
  return flush_denormal(flush_denormal(flush_denormal(a) * flush_denormal(b)) + flush_denormal(c));
}

// V_LDEXP_F32, V_LDEXP_F64: S0 * 2 ** S1, one rounding.
LANES F32 ldexp(F32 a, S32 e) {
  const S32 limited = sem::min_i32(sem::max_i32(e, S32(-400)), S32(400));
  const F64 power = bits<F64>((convert<S64>(limited) + S64(1023)) << S64(52));
  const F32 scaled = convert<F32>(convert<F64>(a) * power);
  return select((a != a), quiet(a), scaled);
}
LANES F64 ldexp64(F64 a, S32 e) {
  return per_lane<F64>([](double x, s32 n) { return std::ldexp(x, n); }, a, e);
}

// Exponent field of an f32 or f64, as exponent() of the guide's pseudo-code.
inline int exponent_field(float x) { return int((bits<u32>(x) >> 23) & 0xFF); }
inline int exponent_field(double x) { return int((bits<u64>(x) >> 52) & 0x7FF); }
inline bool is_denormal(float x) { return exponent_field(x) == 0 && x != 0; }
inline bool is_denormal(double x) { return exponent_field(x) == 0 && x != 0; }

template <class T>
struct DivisionLimits;  // constants of V_DIV_* for the type
template <>
struct DivisionLimits<float> {
  static constexpr int near_max = 96, scale = 64, tiny = 23, underflow = -150, special = 255, bias = 127;
};
template <>
struct DivisionLimits<double> {
  static constexpr int near_max = 768, scale = 128, tiny = 53, underflow = -1075, special = 2047, bias = 1023;
};

// V_DIV_SCALE_F32/F64: S0 is the numerator (S2) or the denominator (S1), to be scaled so that the Newton steps of a
// division neither overflow nor lose bits; the mask operand says that V_DIV_FMAS must undo the scaling.
template <class T>
inline T div_scale_lane(T s0, T s1, T s2, bool& rescale) {
  using L = DivisionLimits<T>;
  rescale = false;
  if (s2 == 0 || s1 == 0) return std::numeric_limits<T>::quiet_NaN();
  const T reciprocal = T(1) / s1, quotient = s2 / s1;
  if (exponent_field(s2) - exponent_field(s1) >= L::near_max) {
    rescale = true;
    return s0 == s1 ? std::ldexp(s0, L::scale) : s0;
  }
  if (is_denormal(s1)) return std::ldexp(s0, L::scale);
  if (is_denormal(reciprocal) && is_denormal(quotient)) {  // a huge denominator alone is scaled, so downwards
    rescale = true;
    return s0 == s1 ? std::ldexp(s0, -L::scale) : s0;
  }
  if (is_denormal(reciprocal)) return std::ldexp(s0, -L::scale);
  if (is_denormal(quotient)) {
    rescale = true;
    return s0 == s2 ? std::ldexp(s0, L::scale) : s0;
  }
  if (exponent_field(s2) <= L::tiny) return std::ldexp(s0, L::scale);
  return s0;
}
template <class V>
LANES V div_scale(V a, V b, V c, S32& rescale) {
  V result;
  for (int lane = 0; lane < kLanes; ++lane) {
    bool flag = false;
    using T = typename ScalarOf<V>::type;
    result[lane] = div_scale_lane(T(a[lane]), T(b[lane]), T(c[lane]), flag);
    rescale[lane] = flag ? -1 : 0;
  }
  return result;
}
// V_DIV_FMAS_F32/F64: fma, then where vcc is set undoes the scaling (up if the scaled quotient is large, else down),
// all with one rounding, for which the sum is taken in a wider type: a denormal quotient must not be rounded twice.
inline float div_fmas_lane(float a, float b, float c, int scale) {
  return float(std::ldexp(std::fma(double(a), double(b), double(c)), scale));
}
inline double div_fmas_lane(double a, double b, double c, int scale) {
  return double(std::ldexp(
      std::fma(static_cast<long double>(a), static_cast<long double>(b), static_cast<long double>(c)), scale));
}
template <class V>
LANES V div_fmas(V a, V b, V c, S32 vcc) {
  using T = typename ScalarOf<V>::type;
  using L = DivisionLimits<T>;
  V result = fma(a, b, c);
  for (int lane = 0; lane < kLanes; ++lane)
    if (vcc[lane] != 0)
      result[lane] = div_fmas_lane(T(a[lane]), T(b[lane]), T(c[lane]),
                                   exponent_field(T(c[lane])) > L::bias ? L::scale : -L::scale);
  return result;
}
// V_DIV_FIXUP_F32/F64: S0 is the quotient so far, S1 the denominator, S2 the numerator; puts in the special cases.
template <class T>
inline T div_fixup_lane(T s0, T s1, T s2) {
  using L = DivisionLimits<T>;
  using Limits = std::numeric_limits<T>;
  const bool negative = std::signbit(s1) != std::signbit(s2);
  const auto with_sign = [negative](T magnitude) { return negative ? -magnitude : magnitude; };
  if (std::isnan(s2)) return s2 + s2;
  if (std::isnan(s1)) return s1 + s1;
  if ((s1 == 0 && s2 == 0) || (std::isinf(s1) && std::isinf(s2))) return -Limits::quiet_NaN();
  if (s1 == 0 || std::isinf(s2)) return with_sign(Limits::infinity());
  if (std::isinf(s1) || s2 == 0) return with_sign(T(0));
  if (exponent_field(s2) - exponent_field(s1) < L::underflow) return with_sign(T(0));
  if (exponent_field(s1) == L::special) return with_sign(Limits::infinity());
  return with_sign(std::fabs(s0));
}
template <class V>
LANES V div_fixup(V a, V b, V c) {
  using T = typename ScalarOf<V>::type;
  return per_lane<V>([](T s0, T s1, T s2) { return div_fixup_lane(s0, s1, s2); }, a, b, c);
}

}  // namespace emu::inline EMU_WAVE::sem
