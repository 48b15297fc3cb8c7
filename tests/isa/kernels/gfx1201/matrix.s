// WMMA: pointers to D, A, B and C; each lane's registers are contiguous in memory.
.include "kernel.inc"

.macro WMMA name, c
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 4, v0
  v_lshlrev_b32 v2, 5, v0
  s_load_b256 s[4:11], s[0:1], 0x0
  s_wait_kmcnt 0x0
  global_load_b128 v[4:7], v1, s[6:7]
  global_load_b128 v[8:11], v1, s[8:9]
  global_load_b128 v[16:19], v2, s[10:11]
  global_load_b128 v[20:23], v2, s[10:11] offset:16
  s_wait_loadcnt 0x0
  s_mov_b32 exec_lo, 0xff
  \name v[16:23], v[4:7], v[8:11], \c
  s_mov_b32 exec_lo, -1
  global_store_b128 v2, v[16:19], s[4:5]
  global_store_b128 v2, v[20:23], s[4:5] offset:16
.endm
.irp type, f16, bf16
KERNEL wmma_\type
  WMMA v_wmma_f32_16x16x16_\type, v[16:23]
END_KERNEL wmma_\type
KERNEL wmma_zero_\type
  WMMA v_wmma_f32_16x16x16_\type, 0
END_KERNEL wmma_zero_\type
.endr
