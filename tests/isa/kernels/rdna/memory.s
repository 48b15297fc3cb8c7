// Loads and stores of every width: global, buffer (raw, structured, out of range), scratch, scalar.
.include "kernel.inc"

// Each kernel moves one element per lane from pointer 1 + 16 * lane to pointer 0 + 16 * lane through the tested load or store;
// the other side is plain dwords. Operand registers start as 0x5a5a5a5a.
.macro MOVE_SETUP
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 4, v0
  s_load_b128 s[4:7], s[0:1], 0x0
  v_mov_b32 v4, 0x5a5a5a5a
  v_mov_b32 v5, 0x5a5a5a5a
  v_mov_b32 v6, 0x5a5a5a5a
  v_mov_b32 v7, 0x5a5a5a5a
  s_wait_kmcnt 0x0
  s_mov_b32 s8, s6
  s_mov_b32 s9, s7
  s_mov_b32 s10, 0x200
  s_mov_b32 s11, 0x31004000
.endm

.macro GLOBAL_LOAD name, data
KERNEL flat_load_\name
  MOVE_SETUP
  v_add_co_u32 v2, vcc_lo, s6, v1
  v_mov_b32 v9, s7
  v_add_co_ci_u32 v3, vcc_lo, 0, v9, vcc_lo
  flat_load_\name \data, v[2:3]
  s_wait_loadcnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL flat_load_\name
KERNEL scratch_load_\name
  MOVE_SETUP
  global_load_b128 v[8:11], v1, s[6:7]
  s_wait_loadcnt 0x0
  scratch_store_b128 off, v[8:11], off
  scratch_load_\name \data, off, off
  s_wait_loadcnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL scratch_load_\name, scratch=16
KERNEL global_load_\name
  MOVE_SETUP
  global_load_\name \data, v1, s[6:7]
  s_wait_loadcnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL global_load_\name
KERNEL buffer_load_\name
  MOVE_SETUP
  buffer_load_\name \data, v1, s[8:11], null offen
  s_wait_loadcnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL buffer_load_\name
.endm
.irp name, b32, u8, i8, u16, i16, d16_b16, d16_hi_b16, d16_u8, d16_hi_u8
  GLOBAL_LOAD \name, v4
.endr
GLOBAL_LOAD b64, v[4:5]
GLOBAL_LOAD b96, v[4:6]
GLOBAL_LOAD b128, v[4:7]

.macro STORES name, data
KERNEL flat_store_\name
  MOVE_SETUP
  global_load_b128 v[4:7], v1, s[6:7]
  v_add_co_u32 v2, vcc_lo, s4, v1
  v_mov_b32 v9, s5
  v_add_co_ci_u32 v3, vcc_lo, 0, v9, vcc_lo
  s_wait_loadcnt 0x0
  flat_store_\name v[2:3], \data
END_KERNEL flat_store_\name
KERNEL global_store_\name
  MOVE_SETUP
  global_load_b128 v[4:7], v1, s[6:7]
  s_wait_loadcnt 0x0
  global_store_\name v1, \data, s[4:5]
END_KERNEL global_store_\name
KERNEL buffer_store_\name
  MOVE_SETUP
  global_load_b128 v[4:7], v1, s[6:7]
  s_mov_b32 s8, s4
  s_mov_b32 s9, s5
  s_wait_loadcnt 0x0
  buffer_store_\name \data, v1, s[8:11], null offen
END_KERNEL buffer_store_\name
// Through the lane's private memory, at a different place for each lane.
KERNEL scratch_store_\name
  MOVE_SETUP
  global_load_b128 v[4:7], v1, s[6:7]
  v_mov_b32 v8, 0x33333333
  v_mov_b32 v9, 0x33333333
  v_mov_b32 v10, 0x33333333
  v_mov_b32 v11, 0x33333333
  v_and_b32 v2, 0x70, v1
  scratch_store_b128 v2, v[8:11], off offset:16
  s_wait_loadcnt 0x0
  scratch_store_\name v2, \data, off offset:16
  scratch_load_b128 v[12:15], v2, off offset:16
  s_wait_loadcnt 0x0
  global_store_b128 v1, v[12:15], s[4:5]
END_KERNEL scratch_store_\name, scratch=160
.endm
.irp name, b8, b16, b32, d16_hi_b8, d16_hi_b16
  STORES \name, v4
.endr
STORES b64, v[4:5]
STORES b96, v[4:6]
STORES b128, v[4:7]

// 64-bit address in VGPRs, with a negative constant offset.
KERNEL global_address_pair
  MOVE_SETUP
  v_add_co_u32 v2, vcc_lo, s6, v1
  v_mov_b32 v9, s7
  v_add_co_ci_u32 v3, vcc_lo, 0, v9, vcc_lo
  v_add_co_u32 v2, vcc_lo, 64, v2
  v_add_co_ci_u32 v3, vcc_lo, 0, v3, vcc_lo
  global_load_b128 v[4:7], v[2:3], off offset:-64
  s_wait_loadcnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL global_address_pair

// Scratch addressed by a scalar and by nothing but the constant offset.
KERNEL scratch_scalar
  MOVE_SETUP
  global_load_b32 v4, v1, s[6:7]
  s_mov_b32 s12, 8
  s_wait_loadcnt 0x0
  scratch_store_b32 off, v4, s12 offset:4
  scratch_load_b32 v5, off, off offset:12
  s_wait_loadcnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL scratch_scalar, scratch=16

// Raw buffer of records bytes (argument at 16): a b128 at 12 * lane, so that some loads are partly out of range, with a scalar
// offset and a constant one.
KERNEL buffer_partial
  MOVE_SETUP
  s_load_b32 s10, s[0:1], 0x10
  v_mul_u32_u24 v2, 12, v0
  s_mov_b32 s12, 4
  s_wait_kmcnt 0x0
  buffer_load_b128 v[4:7], v2, s[8:11], s12 offen offset:8
  s_wait_loadcnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL buffer_partial
// Structured buffer: stride 12, records by index; loads past the record (offset 8, 8 bytes) are out of range where OOB_SELECT is 0.
KERNEL buffer_structured
  MOVE_SETUP
  s_load_b64 s[10:11], s[0:1], 0x10
  s_or_b32 s9, s9, 0x000c0000
  v_mov_b32 v2, v0
  v_mov_b32 v3, 4
  s_wait_kmcnt 0x0
  buffer_load_b64 v[4:5], v[2:3], s[8:11], null idxen offen
  buffer_load_b64 v[6:7], v2, s[8:11], null idxen offset:8
  s_wait_loadcnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL buffer_structured
// Lane i adds 1 + i / 2 as f32 to the word at 4 * (i / 4), so that four lanes meet in one word; words from the end of the
// buffer (argument at 16: its bytes) on stay as they are. Then lane i copies word i.
KERNEL buffer_atomic_add_f32
  MOVE_SETUP
  s_load_b32 s10, s[0:1], 0x10
  v_lshrrev_b32 v2, 2, v0
  v_lshlrev_b32 v2, 2, v2
  v_cvt_f32_u32 v3, v0
  v_mul_f32 v3, 0.5, v3
  v_add_f32 v3, 1.0, v3
  s_wait_kmcnt 0x0
  buffer_atomic_add_f32 v3, v2, s[8:11], null offen
  s_wait_storecnt 0x0
  v_lshlrev_b32 v2, 2, v0
  global_load_b32 v4, v2, s[6:7]
  s_wait_loadcnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL buffer_atomic_add_f32
// The destination overlaps the address register.
KERNEL buffer_overlap
  MOVE_SETUP
  v_mov_b32 v4, v1
  buffer_load_b128 v[4:7], v4, s[8:11], null offen
  s_wait_loadcnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL buffer_overlap

// Scalar loads with a constant and a scalar offset; the result is stored by lane 0.
.macro SCALAR_LOAD bits, last
KERNEL s_load_b\bits
  MOVE_SETUP
  s_mov_b32 s3, 8
  s_load_b\bits s[16:\last], s[6:7], s3 offset:0x4
  s_wait_kmcnt 0x0
  .irp i, 0, 4, 8, 12
  v_mov_b32 v4, s[16 + \i]
  v_mov_b32 v5, s[17 + \i]
  v_mov_b32 v6, s[18 + \i]
  v_mov_b32 v7, s[19 + \i]
  v_mov_b32 v1, 4 * \i
  global_store_b128 v1, v[4:7], s[4:5]
  .endr
END_KERNEL s_load_b\bits
.endm
// The four narrow loads, of bytes 12 to 13.
.ifdef HAS_GFX12
KERNEL s_load_narrow
  MOVE_SETUP
  s_mov_b32 s3, 8
  s_load_u8 s16, s[6:7], s3 offset:0x4
  s_load_i8 s17, s[6:7], s3 offset:0x4
  s_load_u16 s18, s[6:7], s3 offset:0x4
  s_load_i16 s19, s[6:7], s3 offset:0x4
  s_wait_kmcnt 0x0
  v_mov_b32 v4, s16
  v_mov_b32 v5, s17
  v_mov_b32 v6, s18
  v_mov_b32 v7, s19
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL s_load_narrow
.endif

SCALAR_LOAD 32, 16
SCALAR_LOAD 64, 17
.ifdef HAS_GFX12
  SCALAR_LOAD 96, 18
.endif
SCALAR_LOAD 128, 19
SCALAR_LOAD 256, 23
SCALAR_LOAD 512, 31
