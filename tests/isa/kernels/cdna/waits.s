// The wait counter of LDS counts to 15: the sixteenth load is issued when the first has returned.
.include "kernel.inc"

.macro LOADS count
  v_mov_b32 v1, 0
  ds_read_b32 v4, v1
  .rept \count - 1
  ds_read_b32 v5, v1
  .endr
  v_mov_b32 v6, v4
.endm
KERNEL loads_16
  LOADS 16
END_KERNEL loads_16, lds=256
KERNEL loads_15
  LOADS 15
END_KERNEL loads_15, lds=256
