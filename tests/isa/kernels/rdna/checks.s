// Kernels that break one rule each (races, waits), and beside each one that just does not.
.include "kernel.inc"

// Two waves; v1 is the work-item's dword in LDS, v2 the one of the other wave.
.macro TWO_WAVES
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 0x80, v1
.endm
.macro BARRIER
  s_wait_dscnt 0x0
  s_barrier_signal -1
  s_barrier_wait -1
.endm

// Reads what the other wave writes, without and with a barrier between.
KERNEL race_write_read
  TWO_WAVES
  ds_store_b32 v1, v0
  ds_load_b32 v4, v2
  s_wait_dscnt 0x0
END_KERNEL race_write_read, lds=256
KERNEL ordered_write_read
  TWO_WAVES
  ds_store_b32 v1, v0
  BARRIER
  ds_load_b32 v4, v2
  s_wait_dscnt 0x0
END_KERNEL ordered_write_read, lds=256
// The second round overwrites what the other wave may still read.
.macro ROUNDS name, last_barrier
KERNEL \name
  TWO_WAVES
  s_mov_b32 s4, 3
.L\name:
  ds_store_b32 v1, v0
  BARRIER
  ds_load_b32 v4, v2
  .if \last_barrier
    BARRIER
  .else
    s_wait_dscnt 0x0
  .endif
  s_sub_co_u32 s4, s4, 1
  s_cmp_lg_u32 s4, 0
  s_cbranch_scc1 .L\name
END_KERNEL \name, lds=256
.endm
ROUNDS race_read_write, 0
ROUNDS ordered_read_write, 1
// Both waves write the same byte, or neighbouring bytes.
.macro BYTES name, shift
KERNEL \name
  TWO_WAVES
  v_lshrrev_b32 v3, \shift, v0
  ds_store_b8 v3, v0
  s_wait_dscnt 0x0
END_KERNEL \name, lds=256
.endm
BYTES race_write_write, 6
BYTES ordered_write_write, 5
// Both waves write the same value to one dword, which is no race, and then read it, which still needs a barrier.
.macro SAME name, barrier
KERNEL \name
  TWO_WAVES
  v_and_b32 v3, 0x7c, v1
  v_and_b32 v4, 31, v0
  v_lshlrev_b32 v5, 2, v4
  v_sub_nc_u32 v5, 0x7c, v5
  ds_store_b32 v3, v4
  .if \barrier
    BARRIER
  .else
    s_wait_dscnt 0x0
  .endif
  ds_load_b32 v6, v5
  s_wait_dscnt 0x0
END_KERNEL \name, lds=256
.endm
SAME race_same_write_read, 0
SAME ordered_same_write_read, 1
// Both read a dword, then one of them writes it: the last reader may be the writer.
.macro READERS name, barrier
KERNEL \name
  TWO_WAVES
  v_mov_b32 v3, 0
  ds_load_b32 v4, v3
  .if \barrier
    BARRIER
  .else
    s_wait_dscnt 0x0
  .endif
  v_cmp_eq_u32 vcc_lo, 63, v0
  s_and_saveexec_b32 s4, vcc_lo
  ds_store_b32 v3, v0
  s_wait_dscnt 0x0
END_KERNEL \name, lds=256
.endm
READERS race_readers_write, 0
READERS ordered_readers_write, 1
// More reads than the detector keeps by, or reads of several widths by all or some lanes, then a write.
.macro READS name, barrier, many
KERNEL \name
  TWO_WAVES
  .if \many
    s_mov_b32 s4, 300
    ds_load_b32 v4, v2
.L\name:
    ds_load_b32 v4, v1
    s_sub_co_u32 s4, s4, 1
    s_cmp_lg_u32 s4, 0
    s_cbranch_scc1 .L\name
  .else
    v_and_b32 v3, 0xfffffff0, v2
    ds_load_b128 v[4:7], v3
    s_mov_b32 exec_lo, 0x10
    ds_load_u8 v4, v2 offset:1
    s_mov_b32 exec_lo, -1
    ds_load_u16 v4, v2 offset:2
  .endif
  .if \barrier
    BARRIER
  .else
    s_wait_dscnt 0x0
  .endif
  ds_store_b32 v1, v0
  s_wait_dscnt 0x0
END_KERNEL \name, lds=256
.endm
READS race_many_reads, 0, 1
READS ordered_many_reads, 1, 1
READS race_mixed_reads, 0, 0
READS ordered_mixed_reads, 1, 0
// An access between the signal and the wait is not ordered by that barrier.
.macro SPLIT name, first
KERNEL \name
  TWO_WAVES
  .if \first
    ds_store_b32 v1, v0
    s_wait_dscnt 0x0
  .endif
  s_barrier_signal -1
  .if \first == 0
    ds_store_b32 v1, v0
    s_wait_dscnt 0x0
  .endif
  s_barrier_wait -1
  ds_load_b32 v4, v2
  s_wait_dscnt 0x0
END_KERNEL \name, lds=256
.endm
SPLIT race_split_barrier, 0
SPLIT ordered_split_barrier, 1
// Atomic accesses are ordered among themselves, but not with plain ones; the atomic of the own wave may hide the other's.
.macro ATOMICS name, before, after, between
KERNEL \name
  TWO_WAVES
  v_mov_b32 v3, 0
  \before
  .if \between
    BARRIER
  .else
    s_wait_dscnt 0x0
  .endif
  \after
  s_wait_dscnt 0x0
END_KERNEL \name, lds=256
.endm
ATOMICS race_atomic_read, "ds_add_u32 v3, v0", "ds_load_b32 v4, v3", 0
ATOMICS ordered_atomic_read, "ds_add_u32 v3, v0", "ds_load_b32 v4, v3", 1
ATOMICS race_write_atomic, "ds_store_b32 v1, v0", "ds_add_u32 v2, v0", 0
ATOMICS ordered_write_atomic, "ds_store_b32 v1, v0", "ds_add_u32 v2, v0", 1
ATOMICS race_read_atomic, "ds_load_b32 v4, v1", "ds_add_rtn_u32 v5, v2, v0", 0
ATOMICS ordered_read_atomic, "ds_load_b32 v4, v1", "ds_add_rtn_u32 v5, v2, v0", 1
ATOMICS race_atomic_write, "ds_add_u32 v3, v0", "ds_store_b8 v3, v0 offset:3", 0
ATOMICS ordered_atomics, "ds_add_u32 v3, v0", "ds_add_u64 v3, v[4:5]", 0

// Uses of a register after two loads and a wait: `early` ones are not covered by it.
.macro WAIT name, wait:vararg
KERNEL \name
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  s_load_b64 s[4:5], s[0:1], 0x0
  s_wait_kmcnt 0x0
  global_load_b32 v4, v1, s[4:5]
  global_load_b32 v5, v1, s[4:5]
  ds_load_b32 v6, v1
  ds_load_b32 v7, v1
  \wait
.endm
.macro END_WAIT name
END_KERNEL \name, lds=128
.endm
.macro WAITS kind, wait, covered, early
  WAIT early_\kind, \wait
  v_mov_b32 v8, \early
  END_WAIT early_\kind
  WAIT waited_\kind, \wait
  v_mov_b32 v8, \covered
  END_WAIT waited_\kind
.endm
WAITS load, "s_wait_loadcnt 0x1", v4, v5
WAITS lds, "s_wait_dscnt 0x1", v6, v7
WAITS both, "s_wait_loadcnt_dscnt 0x1", v5, v7
WAITS idle, "s_nop 0", v1, v4
// A store's data and a load's address are uses too; a load into a register that another kind of load fills is early.
WAIT early_store, s_nop 0
  global_store_b32 v1, v4, s[4:5]
END_WAIT early_store
WAIT early_address, s_nop 0
  global_load_b32 v8, v4, s[4:5]
END_WAIT early_address
WAIT early_overwrite, s_nop 0
  ds_load_b32 v4, v1
END_WAIT early_overwrite
WAIT early_atomic, s_nop 0
  ds_add_rtn_u32 v8, v1, v0
  v_mov_b32 v9, v8
END_WAIT early_atomic
WAIT waited_overwrite, s_nop 0
  global_load_b32 v4, v1, s[4:5]
END_WAIT waited_overwrite
// The source of a store may change at once.
WAIT waited_source, s_nop 0
  global_store_b32 v1, v0, s[4:5]
  v_mov_b32 v0, 0
END_WAIT waited_source
// Scalar loads come in any order, so only a wait for all covers one.
.macro SCALAR name, count
KERNEL \name
  s_load_b32 s4, s[0:1], 0x0
  s_load_b32 s5, s[0:1], 0x4
  s_wait_kmcnt \count
  s_mov_b32 s6, s4
END_KERNEL \name
.endm
SCALAR early_scalar, 0x1
SCALAR waited_scalar, 0x0
// The use is before the load in the text, and after it in the second round of a loop.
.macro LOOP name, wait
KERNEL \name
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  s_load_b64 s[4:5], s[0:1], 0x0
  s_mov_b32 s6, 2
  v_mov_b32 v4, 0
  s_wait_kmcnt 0x0
.L\name:
  v_add_nc_u32 v5, v4, v4
  global_load_b32 v4, v1, s[4:5]
  \wait
  s_sub_co_u32 s6, s6, 1
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 .L\name
END_KERNEL \name
.endm
LOOP early_loop, "s_nop 0"
LOOP waited_loop, "s_wait_loadcnt 0x0"
// Whether the load is outstanding at its use depends on the argument: the load is on the path where s4 is not 0.
KERNEL early_on_one_path
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  s_load_b128 s[4:7], s[0:1], 0x0
  v_mov_b32 v4, 0
  s_wait_kmcnt 0x0
  s_cmp_eq_u32 s6, 0
  s_cbranch_scc1 .Lno_load
  global_load_b32 v4, v1, s[4:5]
.Lno_load:
  v_mov_b32 v5, v4
END_KERNEL early_on_one_path

// Each wave takes a ticket from a counter in LDS, with nothing that orders the waves: who gets which depends on the order.
// Stores the wave's ticket; pointer 0 gets one dword per wave.
KERNEL tickets
  v_and_b32 v0, 0x3ff, v0
  s_load_b64 s[4:5], s[0:1], 0x0
  v_lshrrev_b32 v1, 5, v0
  v_lshlrev_b32 v1, 2, v1
  v_mov_b32 v2, 0
  ds_store_b32 v2, v2
  BARRIER
  ds_load_b32 v3, v2
  s_wait_dscnt 0x0
  v_add_nc_u32 v4, v3, 1
  ds_store_b32 v2, v4
  s_wait_kmcnt 0x0
  global_store_b32 v1, v3, s[4:5]
END_KERNEL tickets, lds=128

.ifdef HAS_GFX12
// One wave executes what COUNTED in test_profile.py says: instructions of every class, and a loop of two rounds.
KERNEL counted
  s_load_b64 s[4:5], s[0:1], 0x0
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v2, 0
  s_wait_kmcnt 0x0
  s_clause 0x1
  global_load_b128 v[8:11], v2, s[4:5]
  global_load_b128 v[12:15], v2, s[4:5]
  s_delay_alu instid0(VALU_DEP_1)
  v_dual_mov_b32 v4, 0 :: v_dual_mov_b32 v5, 1
  scratch_store_b32 off, v4, off offset:4
  scratch_load_b32 v6, off, off offset:4
  s_wait_loadcnt 0x0
  v_wmma_f32_16x16x16_f16 v[16:23], v[8:11], v[12:15], 0
  s_mov_b32 s6, 2
.Lcounted:
  ds_store_b32 v1, v0
  s_sub_co_u32 s6, s6, 1
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 .Lcounted
  ds_load_b32 v7, v1
  s_wait_dscnt 0x0
  s_nop 0
  global_store_b32 v1, v7, s[4:5]
END_KERNEL counted, lds=256, scratch=16
.endif
