// Arithmetic and conversions of f64, f32, f16 and bf16 whose results IEEE 754 defines to the last bit.
#include "kernel.h"

// out[i][...]: see DOUBLES.
KERNEL doubles(__global double* out, __global const double* a, __global const double* b) {
  const double x = a[global_id()], y = b[global_id()];
  __global double* to = out + global_id() * 13;
  to[0] = x + y;
  to[1] = x - y;
  to[2] = x * y;
  to[3] = x / y;
  to[4] = __builtin_fma(x, y, x);
  to[5] = (double)(float)x;
  to[6] = (double)(s32)(x * 0.001);
  to[7] = (double)(u32)(x < 0.0 ? -x : x);
  to[8] = x < y ? x : y;
  to[9] = __builtin_floor(x);
  to[10] = __builtin_trunc(y);
  to[11] = __builtin_fabs(x) - y;
  double polynomial = 0.0;
  for (s32 i = 8; i > 0; --i) polynomial = polynomial * (x * 0.0009765625) + 1.0 / (double)i;
  to[12] = polynomial;
}

// out[i][...]: see FLOATS.
KERNEL floats(__global float* out, __global const float* a, __global const float* b) {
  const float x = a[global_id()], y = b[global_id()];
  __global float* to = out + global_id() * 18;
  to[0] = x + y;
  to[1] = x - y;
  to[2] = x * y;
  to[3] = x / y;
  to[4] = __builtin_fmaf(x, y, -x);
  to[5] = (float)(half)x;
  to[6] = (float)(s32)x;
  to[7] = (float)(u32)(x < 0.0f ? -x : x);
  to[8] = (float)(bits_of(x) >> 3);
  to[9] = (float)(s32)bits_of(y);
  to[10] = __builtin_rintf(x);
  to[11] = __builtin_ceilf(y);
  to[12] = x >= y ? x : -y;
  to[13] = (float)(u8)(bits_of(x) >> 9);
  to[14] = (float)(short)(bits_of(y) >> 5);
  to[15] = __builtin_ldexpf(x, (s32)(bits_of(y) & 7) - 3);
  to[16] = (float)(s64)(x * 1048576.0f);
  to[17] = float_of((bits_of(x) + 0x7FFF + (bits_of(x) >> 16 & 1)) & 0xFFFF0000u);  // rounded to bf16
}

// out[i][...]: see HALVES.
KERNEL halves(__global half* out, __global const half* a, __global const half* b) {
  const half x = a[global_id()], y = b[global_id()];
  __global half* to = out + global_id() * 8;
  to[0] = x + y;
  to[1] = x - y;
  to[2] = x * y;
  to[3] = (half)((float)x + (float)y * 3.0f);
  to[4] = (half)(short)((float)x * 16.0f);
  to[5] = x < y ? x : y;
  to[6] = x == y ? (half)1 : -x;
  to[7] = (half)(u16)((float)x < 0.0f ? -(float)x : (float)x);
}
