// LDS loads and stores of every width, and the exchange of data between lanes and waves through it.
.include "kernel.inc"

.macro LDS_SETUP
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 4, v0
  s_load_b128 s[4:7], s[0:1], 0x0
  s_wait_kmcnt 0x0
  global_load_b128 v[8:11], v1, s[6:7]
  v_mov_b32 v4, 0x5a5a5a5a
  v_mov_b32 v5, 0x5a5a5a5a
  v_mov_b32 v6, 0x5a5a5a5a
  v_mov_b32 v7, 0x5a5a5a5a
  s_wait_loadcnt 0x0
.endm
// Loads: LDS holds the input, 16 bytes a lane.
.macro DS_LOAD name, data, offset
KERNEL ds_load_\name
  LDS_SETUP
  ds_store_b128 v1, v[8:11]
  s_wait_dscnt 0x0
  ds_load_\name \data, v1 \offset
  s_wait_dscnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL ds_load_\name, lds=1024
.endm
.irp name, b32, u8, i8, u16, i16, u16_d16, u16_d16_hi, u8_d16, u8_d16_hi
  DS_LOAD \name, v4, offset:4
.endr
DS_LOAD b64, v[4:5], offset:8
DS_LOAD b96, v[4:6]
DS_LOAD b128, v[4:7]
DS_LOAD 2addr_b32, v[4:5], "offset0:3 offset1:1"
DS_LOAD 2addr_b64, v[4:7], "offset0:1 offset1:0"
DS_LOAD 2addr_stride64_b32, v[4:5], "offset0:0 offset1:1"
DS_LOAD 2addr_stride64_b64, v[4:7], "offset0:1 offset1:0"
// Stores: LDS holds 0x33333333 where nothing is stored.
.macro DS_STORE name, operands:vararg
KERNEL ds_store_\name
  LDS_SETUP
  v_mov_b32 v12, 0x33333333
  v_mov_b32 v13, v12
  v_mov_b32 v14, v12
  v_mov_b32 v15, v12
  ds_store_b128 v1, v[12:15]
  ds_store_b128 v1, v[12:15] offset:512
  ds_store_\name v1, \operands
  s_wait_dscnt 0x0
  ds_load_b128 v[4:7], v1
  s_wait_dscnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL ds_store_\name, lds=1280
.endm
.irp name, b8, b16, b32, b8_d16_hi, b16_d16_hi
  DS_STORE \name, v8 offset:4
.endr
DS_STORE b64, v[8:9] offset:8
DS_STORE b96, v[8:10]
DS_STORE b128, v[8:11]
DS_STORE 2addr_b32, v8, v9 offset0:3 offset1:1
DS_STORE 2addr_b64, v[8:9], v[10:11] offset0:1 offset1:0
DS_STORE 2addr_stride64_b32, v8, v9 offset0:0 offset1:1
DS_STORE 2addr_stride64_b64, v[8:9], v[10:11] offset0:0 offset1:1

// ds_bpermute and ds_permute: lane numbers times 4 from the first input dword, data from the second; lanes 0-7 inactive as sources.
.irp name, bpermute, permute
KERNEL ds_\name
  LDS_SETUP
  s_mov_b32 exec_lo, 0xffffff00
  ds_\name\()_b32 v4, v8, v9 offset:4
  s_mov_b32 exec_lo, -1
  s_wait_dscnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL ds_\name
.endr

// Atomics: pointer 1 has memory and data (8 bytes each a lane), pointer 2 the second operand; the result is what came back (or the
// old register) and what is in memory then.
.macro DS_ATOMIC name, operands:vararg
KERNEL ds_\name
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 4, v0
  s_load_b128 s[4:7], s[0:1], 0x0
  s_load_b64 s[8:9], s[0:1], 0x10
  v_mov_b32 v4, 0x5a5a5a5a
  v_mov_b32 v5, 0x5a5a5a5a
  s_wait_kmcnt 0x0
  global_load_b128 v[8:11], v1, s[6:7]
  global_load_b64 v[12:13], v1, s[8:9]
  s_wait_loadcnt 0x0
  ds_store_b64 v1, v[8:9] offset:8
  s_wait_dscnt 0x0
  ds_\name \operands offset:8
  s_wait_dscnt 0x0
  ds_load_b64 v[6:7], v1 offset:8
  s_wait_dscnt 0x0
  global_store_b128 v1, v[4:7], s[4:5]
END_KERNEL ds_\name, lds=1024
.endm
.macro DS_ATOMICS bits, op, type
  .if \bits == 64
    DS_ATOMIC \op\()_\type, v1, v[10:11]
    DS_ATOMIC \op\()_rtn_\type, v[4:5], v1, v[10:11]
  .else
    DS_ATOMIC \op\()_\type, v1, v10
    DS_ATOMIC \op\()_rtn_\type, v4, v1, v10
  .endif
.endm
.macro DS_ALL_ATOMICS bits
  .irp op, add, sub, rsub, inc, dec, min, max
    DS_ATOMICS \bits, \op, u\bits
  .endr
  DS_ATOMICS \bits, min, i\bits
  DS_ATOMICS \bits, max, i\bits
  .irp op, and, or, xor
    DS_ATOMICS \bits, \op, b\bits
  .endr
  DS_ATOMICS \bits, min_num, f\bits
  DS_ATOMICS \bits, max_num, f\bits
.endm
DS_ALL_ATOMICS 32
DS_ALL_ATOMICS 64
DS_ATOMICS 32, add, f32
DS_ATOMIC storexchg_rtn_b32, v4, v1, v10
DS_ATOMIC storexchg_rtn_b64, v[4:5], v1, v[10:11]
.irp op, mskor, cmpstore
  DS_ATOMIC \op\()_b32, v1, v10, v12
  DS_ATOMIC \op\()_rtn_b32, v4, v1, v10, v12
  DS_ATOMIC \op\()_b64, v1, v[10:11], v[12:13]
  DS_ATOMIC \op\()_rtn_b64, v[4:5], v1, v[10:11], v[12:13]
.endr
.ifdef HAS_GFX12
  DS_ATOMICS 32, pk_add, f16
  DS_ATOMICS 32, pk_add, bf16
  DS_ATOMICS 32, sub_clamp, u32
  DS_ATOMICS 32, cond_sub, u32
.endif
// All lanes of four waves add their number to one dword, and store what it was.
KERNEL ds_tickets
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  s_load_b64 s[4:5], s[0:1], 0x0
  v_mov_b32 v2, 0
  v_cmp_eq_u32 vcc_lo, 0, v0
  s_and_saveexec_b32 s6, vcc_lo
  ds_store_b32 v2, v2
  s_wait_dscnt 0x0
  s_mov_b32 exec_lo, s6
  s_barrier_signal -1
  s_barrier_wait -1
  v_mov_b32 v3, 1
  ds_add_rtn_u32 v4, v2, v3
  s_wait_dscnt 0x0
  s_wait_kmcnt 0x0
  global_store_b32 v1, v4, s[4:5]
END_KERNEL ds_tickets, lds=16

// Four waves: each stores its lanes' numbers, passes the barrier, and reads what the next wave stored; three times over.
KERNEL barrier_exchange
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  s_load_b64 s[4:5], s[0:1], 0x0
  v_add_nc_u32 v2, 0x80, v1
  v_and_b32 v2, 0x1ff, v2
  v_mul_u32_u24 v3, 3, v0
  s_mov_b32 s6, 3
.Lagain:
  ds_store_b32 v1, v3
  s_wait_dscnt 0x0
  s_barrier_signal -1
  s_barrier_wait -1
  ds_load_b32 v3, v2
  s_wait_dscnt 0x0
  s_barrier_signal -1
  s_barrier_wait -1
  s_sub_co_i32 s6, s6, 1
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 .Lagain
  s_wait_kmcnt 0x0
  global_store_b32 v1, v3, s[4:5]
END_KERNEL barrier_exchange, lds=512
