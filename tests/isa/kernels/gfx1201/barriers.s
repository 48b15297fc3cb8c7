// Split barriers used wrongly, each in one way, and rightly.
.include "kernel.inc"

KERNEL wait_without_signal
  s_barrier_wait -1
END_KERNEL wait_without_signal
KERNEL wait_before_signal
  s_barrier_wait -1
  s_barrier_signal -1
END_KERNEL wait_before_signal
KERNEL second_wait
  s_barrier_signal -1
  s_barrier_wait -1
  s_barrier_wait -1
END_KERNEL second_wait
KERNEL second_signal
  s_barrier_signal -1
  s_barrier_signal -1
  s_barrier_wait -1
END_KERNEL second_signal
KERNEL signal_without_wait
  s_barrier_signal -1
END_KERNEL signal_without_wait
// Only the wave with work-item 0 signals again, so that it stands for the other one.
KERNEL signal_for_another
  v_cmp_eq_u32 vcc_lo, 0, v0
  s_barrier_signal -1
  s_cbranch_vccz .Lother
  s_barrier_signal -1
.Lother:
  s_barrier_wait -1
END_KERNEL signal_for_another
KERNEL wait_for_trap_barrier
  s_barrier_signal -1
  s_barrier_wait -2
END_KERNEL wait_for_trap_barrier
// Every wave writes a dword of LDS before each of two barriers with work between signal and wait, and then reads its
// neighbour's.
KERNEL used_rightly
  v_and_b32 v0, 0x3ff, v0
  s_load_b64 s[4:5], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 0x80, v1
  ds_store_b32 v1, v0
  s_wait_dscnt 0x0
  s_barrier_signal -1
  v_mov_b32 v4, 1
  s_barrier_wait -1
  ds_load_b32 v3, v2
  s_wait_dscnt 0x0
  s_barrier_signal -1
  v_add_nc_u32 v3, v3, v4
  s_barrier_wait -1
  ds_store_b32 v1, v4
  s_wait_kmcnt 0x0
  global_store_b32 v1, v3, s[4:5]
END_KERNEL used_rightly, lds=256
