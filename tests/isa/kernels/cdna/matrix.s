// MFMA: A and B from pointers 1 and 2, C from pointer 3, D to pointer 0, each as [register][lane] dwords.
.include "kernel.inc"

// Loads `count` registers from `letter`[first] on, beginning at a pair of SGPRs.
.macro LOAD_REGISTERS letter, first, count, base
  v_mov_b32 v5, v2
  .set index, 0
  .rept \count
    global_load_dword \letter[\first + index], v5, s[\base : \base + 1]
    v_add_u32 v5, 0x100, v5
    .set index, index + 1
  .endr
.endm
.macro STORE_REGISTERS letter, first, count
  s_nop 15
  s_nop 15
  v_mov_b32 v5, v2
  .set index, 0
  .rept \count
    global_store_dword v5, \letter[\first + index], s[4:5]
    v_add_u32 v5, 0x100, v5
    .set index, index + 1
  .endr
.endm
.macro BEGIN name
KERNEL \name
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v2, 2, v0
  s_load_dwordx8 s[4:11], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
.endm

// held: VGPRs of A and B; results: of C and D. One kernel with VGPRs, where exec leaves 8 lanes, one with B, C and D in
// accumulation registers, one with a constant C, one that a test changes so that C
// begins at v16, two VGPRs below D: assemblers refuse most such overlaps.
.macro MATRIX name, held, results
BEGIN \name
  LOAD_REGISTERS v, 8, \held, 6
  LOAD_REGISTERS v, 12, \held, 8
  LOAD_REGISTERS v, 16, \results, 10
  s_waitcnt vmcnt(0)
  s_movk_i32 exec_lo, 0xff
  s_mov_b32 exec_hi, 0
  v_\name v[16 : 15 + \results], v[8 : 7 + \held], v[12 : 11 + \held], v[16 : 15 + \results]
  s_mov_b64 exec, -1
  STORE_REGISTERS v, 16, \results
END_KERNEL \name
BEGIN \name\()_acc
  LOAD_REGISTERS v, 8, \held, 6
  LOAD_REGISTERS a, 32, \held, 8
  LOAD_REGISTERS a, 0, \results, 10
  s_waitcnt vmcnt(0)
  v_\name a[0 : \results - 1], v[8 : 7 + \held], a[32 : 31 + \held], a[0 : \results - 1]
  STORE_REGISTERS a, 0, \results
END_KERNEL \name\()_acc
BEGIN \name\()_one
  LOAD_REGISTERS v, 8, \held, 6
  LOAD_REGISTERS v, 12, \held, 8
  s_waitcnt vmcnt(0)
  v_\name v[16 : 15 + \results], v[8 : 7 + \held], v[12 : 11 + \held], 1.0
  STORE_REGISTERS v, 16, \results
END_KERNEL \name\()_one
BEGIN \name\()_overlap
  LOAD_REGISTERS v, 8, \held, 6
  LOAD_REGISTERS v, 12, \held, 8
  LOAD_REGISTERS v, 16, \results, 10
  s_waitcnt vmcnt(0)
  v_\name v[18 : 17 + \results], v[8 : 7 + \held], v[12 : 11 + \held], v[18 : 17 + \results]
  STORE_REGISTERS v, 18, \results
END_KERNEL \name\()_overlap
.endm

.ifdef HAS_CDNA2
.irp type, f16, bf16_1k
MATRIX mfma_f32_32x32x8\type, 2, 16
MATRIX mfma_f32_16x16x16\type, 2, 4
MATRIX mfma_f32_32x32x4\type, 2, 32
MATRIX mfma_f32_16x16x4\type, 2, 16
.endr
MATRIX mfma_f32_32x32x4bf16, 1, 16
MATRIX mfma_f32_16x16x8bf16, 1, 4
MATRIX mfma_f32_32x32x2f32, 1, 16
MATRIX mfma_f32_16x16x4f32, 1, 4
MATRIX mfma_f32_32x32x1f32, 1, 32
MATRIX mfma_f32_16x16x1f32, 1, 16
.endif
.ifdef HAS_CDNA3
.irp type, f16, bf16
MATRIX mfma_f32_32x32x8_\type, 2, 16
MATRIX mfma_f32_16x16x16_\type, 2, 4
MATRIX mfma_f32_32x32x4_2b_\type, 2, 32
MATRIX mfma_f32_16x16x4_4b_\type, 2, 16
.endr
MATRIX mfma_f32_32x32x2_f32, 1, 16
MATRIX mfma_f32_16x16x4_f32, 1, 4
MATRIX mfma_f32_32x32x1_2b_f32, 1, 32
MATRIX mfma_f32_16x16x1_4b_f32, 1, 16
.endif
.ifdef HAS_CDNA4
.irp type, f16, bf16
MATRIX mfma_f32_32x32x16_\type, 4, 16
MATRIX mfma_f32_16x16x32_\type, 4, 4
.endr
.endif
