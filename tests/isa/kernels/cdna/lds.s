// LDS instructions, alone: each lane's 16 bytes of pointer 1 go in, 16 bytes to pointer 0 come out.
.include "kernel.inc"

// v0 = lane, v1 = lane * 16, v2 = lane * 4, v[8:11] = the lane's input, v[12:15] = old values of destinations.
.macro BEGIN name
KERNEL \name
  READ_INPUT
  v_lshlrev_b32 v2, 2, v0
.endm
.macro FINISH name, lds=2048
  s_waitcnt lgkmcnt(0)
  global_store_dwordx4 v1, v[12:15], s[4:5]
  END_KERNEL \name, lds=\lds
.endm

.macro READ name, destination
BEGIN ds_read_\name
  ds_write_b128 v1, v[8:11] offset:16
  ds_read_\name \destination, v1 offset:16
FINISH ds_read_\name
.endm
.irp name, b32, u8, i8, u16, i16, u16_d16, u16_d16_hi, u8_d16, u8_d16_hi
  READ \name, v12
.endr
READ b64, v[12:13]
READ b96, v[12:14]
READ b128, v[12:15]

.macro WRITE name, data
BEGIN ds_write_\name
  ds_write_b128 v1, v[12:15]
  ds_write_\name v1, \data
  ds_read_b128 v[12:15], v1
FINISH ds_write_\name
.endm
.irp name, b32, b8, b16, b16_d16_hi, b8_d16_hi
  WRITE \name, v8
.endr
WRITE b64, v[8:9]
WRITE b96, v[8:10]
WRITE b128, v[8:11]

// Two elements: 3 and 1 elements (or 64 of them) behind the address.
.macro ELEMENT_PAIR suffix, bytes, elements, width, first, second, destination
BEGIN ds_read2\suffix
  v_mul_u32_u24 v3, 4 * \bytes, v0
  v_add_u32 v3, v3, v3
  ds_write_\width v3, \first offset:3 * \bytes * \elements
  ds_write_\width v3, \second offset:\bytes * \elements
  ds_read2\suffix \destination, v3 offset0:3 offset1:1
FINISH ds_read2\suffix, 16384
BEGIN ds_write2\suffix
  v_mul_u32_u24 v3, 4 * \bytes, v0
  v_add_u32 v3, v3, v3
  ds_write2\suffix v3, \first, \second offset0:3 offset1:1
  ds_read2\suffix \destination, v3 offset0:3 offset1:1
FINISH ds_write2\suffix, 16384
.endm
ELEMENT_PAIR _b32, 4, 1, b32, v8, v9, v[12:13]
ELEMENT_PAIR _b64, 8, 1, b64, v[8:9], v[10:11], v[12:15]
ELEMENT_PAIR st64_b32, 4, 64, b32, v8, v9, v[12:13]
ELEMENT_PAIR st64_b64, 8, 64, b64, v[8:9], v[10:11], v[12:15]

// Four lanes change one dword, the lowest first: old values in v12, what is there afterwards in v13.
.macro ATOMIC base, type
BEGIN ds_\base\()_\type
  v_and_b32 v3, ~0xc, v2
  ds_write_b32 v2, v8
  ds_\base\()_\type v3, v9
  ds_read_b32 v13, v2
FINISH ds_\base\()_\type
BEGIN ds_\base\()_rtn_\type
  v_and_b32 v3, ~0xc, v2
  ds_write_b32 v2, v8
  ds_\base\()_rtn_\type v12, v3, v9
  ds_read_b32 v13, v2
FINISH ds_\base\()_rtn_\type
.endm
ATOMIC add, u32
ATOMIC min, i32
ATOMIC max, i32
ATOMIC min, u32
ATOMIC max, u32
ATOMIC and, b32
ATOMIC or, b32
ATOMIC xor, b32
ATOMIC add, f32
.ifdef HAS_CDNA3
ATOMIC pk_add, f16
ATOMIC pk_add, bf16
.endif

// Data from v8 by the lane numbers in v9; lanes 0 and 5 are inactive.
.macro PERMUTE name
BEGIN \name
  v_lshlrev_b32 v9, 2, v9
  s_movk_i32 exec_lo, ~0x21
  \name v12, v9, v8 offset:8
  s_mov_b64 exec, -1
FINISH \name
.endm
PERMUTE ds_bpermute_b32
PERMUTE ds_permute_b32
.macro SWIZZLE name, pattern
BEGIN \name
  s_movk_i32 exec_lo, ~0x21
  ds_swizzle_b32 v12, v8 offset:\pattern
  s_mov_b64 exec, -1
FINISH \name
.endm
SWIZZLE swizzle_quad, 0x8000 | 0b00011011
SWIZZLE swizzle_mask, 0x15 | 0x2 << 5 | 0x9 << 10

.ifdef HAS_CDNA4
BEGIN ds_read_b64_tr_b16
  v_lshlrev_b32 v3, 3, v0
  ds_write_b64 v3, v[8:9]
  ds_read_b64_tr_b16 v[12:13], v3
FINISH ds_read_b64_tr_b16
BEGIN transposing_read_of_some_lanes
  s_mov_b64 exec, -2
  ds_read_b64_tr_b16 v[12:13], v1
FINISH transposing_read_of_some_lanes
.endif

// Two waves exchange a dword a lane across a barrier.
BEGIN barrier
  v_xor_b32 v3, 0x100, v2
  ds_write_b32 v2, v8
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v12, v3
FINISH barrier, 512
