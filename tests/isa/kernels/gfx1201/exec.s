// Instructions that write exec as an ordinary destination. Each stores which lanes were active afterwards.
.include "kernel.inc"

// s8 = the first argument behind the pointer, v4 = the same in all lanes.
.macro BEGIN name
  KERNEL \name
  v_and_b32 v0, 0x3ff, v0
  s_load_b64 s[4:5], s[0:1], 0x0
  s_load_b32 s8, s[0:1], 0x8
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v5, 0
  s_wait_kmcnt 0x0
  v_mov_b32 v4, s8
.endm
.macro END name
  v_mov_b32 v5, 1
  s_mov_b32 exec_lo, -1
  global_store_b32 v1, v5, s[4:5]
  END_KERNEL \name
.endm

BEGIN by_readfirstlane
  v_readfirstlane_b32 exec_lo, v4
END by_readfirstlane
BEGIN by_readlane
  v_readlane_b32 exec_lo, v4, 3
END by_readlane
BEGIN by_mov
  s_mov_b32 exec_lo, s8
END by_mov
BEGIN by_mov_b64
  s_mov_b32 s9, 0
  s_mov_b64 exec, s[8:9]
END by_mov_b64
BEGIN by_not
  s_not_b32 exec_lo, s8
END by_not
BEGIN by_cmov
  s_cmp_eq_u32 s8, s8
  s_cmov_b32 exec_lo, s8
END by_cmov
BEGIN by_movk
  s_movk_i32 exec_lo, 0x7531
END by_movk
BEGIN by_bitset
  s_mov_b32 exec_lo, 0
  s_bitset1_b32 exec_lo, 7
END by_bitset
BEGIN by_select
  s_cmp_lg_u32 s8, s8
  s_cselect_b32 exec_lo, 0, s8
END by_select
BEGIN by_and
  s_and_b32 exec_lo, exec_lo, s8
END by_and
BEGIN by_add
  s_add_co_u32 exec_lo, s8, 1
END by_add
BEGIN by_compare
  v_cmp_gt_u32 exec_lo, 9, v0
END by_compare
BEGIN by_saveexec
  s_and_saveexec_b32 s10, s8
END by_saveexec
