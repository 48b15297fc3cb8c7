// Loads and stores of every width through each kind of memory. Each lane has 16 bytes: pointer 0 is the output,
// pointer 1 the input, pointer 2 what atomics change.
.include "kernel.inc"

// v0 = lane, v1 = lane * 16, v2 = lane * 4, v[8:11] = the lane's input, v[12:15] = old values of destinations.
.macro BEGIN name
KERNEL \name
  READ_INPUT
  v_lshlrev_b32 v2, 2, v0
  s_load_dwordx2 s[12:13], s[0:1], 0x10
  v_mov_b32 v5, s7
  v_add_co_u32 v4, vcc, s6, v1
  v_addc_co_u32 v5, vcc, 0, v5, vcc
  v_mov_b32 v7, s5
  v_add_co_u32 v6, vcc, s4, v1
  v_addc_co_u32 v7, vcc, 0, v7, vcc
  s_waitcnt lgkmcnt(0)
.endm
// Descriptor in s[16:19] of 1024 bytes at the address in a pair of SGPRs.
.macro DESCRIPTOR low, high
  s_mov_b32 s16, \low
  s_mov_b32 s17, \high
  s_movk_i32 s18, 0x400
  s_mov_b32 s19, 0x20000
.endm
.macro FINISH name, scratch=0
  s_waitcnt vmcnt(0) lgkmcnt(0)
  global_store_dwordx4 v1, v[12:15], s[4:5]
  END_KERNEL \name, lds=4096, scratch=\scratch
.endm

.macro LOAD_KERNELS name, destination
BEGIN global_load_\name
  global_load_\name \destination, v1, s[6:7]
FINISH global_load_\name
BEGIN global_load_\name\()_pair
  global_load_\name \destination, v[4:5], off
FINISH global_load_\name\()_pair
BEGIN flat_load_\name
  flat_load_\name \destination, v[4:5]
FINISH flat_load_\name
BEGIN buffer_load_\name
  DESCRIPTOR s6, s7
  buffer_load_\name \destination, v1, s[16:19], 0 offen
FINISH buffer_load_\name
.ifdef HAS_CDNA3
BEGIN scratch_load_\name
  scratch_store_dwordx4 off, v[8:11], off offset:16
  scratch_load_\name \destination, off, off offset:16
FINISH scratch_load_\name, 64
.endif
.endm
.macro STORE_KERNELS name, data
KERNEL_STORE global, \name, \data
KERNEL_STORE flat, \name, \data
KERNEL_STORE buffer, \name, \data
.ifdef HAS_CDNA3
BEGIN scratch_store_\name
  v_mov_b32 v3, 32
  s_movk_i32 s3, 32
  scratch_store_dwordx4 off, v[12:15], s3
  scratch_store_\name v3, \data, off
  scratch_load_dwordx4 v[12:15], off, s3
FINISH scratch_store_\name, 64
.endif
.endm
.macro KERNEL_STORE space, name, data
BEGIN \space\()_store_\name
  DESCRIPTOR s4, s5
  .ifc \space,global
    global_store_\name v1, \data, s[4:5]
  .endif
  .ifc \space,flat
    flat_store_\name v[6:7], \data
  .endif
  .ifc \space,buffer
    buffer_store_\name \data, v1, s[16:19], 0 offen
  .endif
END_KERNEL \space\()_store_\name
.endm

.irp name, dword, ubyte, sbyte, ushort, sshort, short_d16, short_d16_hi, ubyte_d16, ubyte_d16_hi
  LOAD_KERNELS \name, v12
.endr
LOAD_KERNELS dwordx2, v[12:13]
LOAD_KERNELS dwordx3, v[12:14]
LOAD_KERNELS dwordx4, v[12:15]
.irp name, dword, byte, short, short_d16_hi, byte_d16_hi
  STORE_KERNELS \name, v8
.endr
STORE_KERNELS dwordx2, v[8:9]
STORE_KERNELS dwordx3, v[8:10]
STORE_KERNELS dwordx4, v[8:11]

// Range checks: num_records is pointer 2's low half, the stride its high half.
.macro RANGE_KERNEL name, address, modifiers:vararg
BEGIN \name
  s_mov_b32 s16, s6
  s_lshl_b32 s17, s13, 16
  s_or_b32 s17, s17, s7
  s_mov_b32 s18, s12
  s_mov_b32 s19, 0x20000
  v_mov_b32 v3, 8
  v_mov_b32 v2, v0
  buffer_load_dwordx2 v[12:13], \address, s[16:19], 0 \modifiers
FINISH \name
.endm
RANGE_KERNEL range_offen, v1, offen
RANGE_KERNEL range_idxen, v0, idxen
RANGE_KERNEL range_both, v[2:3], idxen offen

// From memory into LDS, 64 bytes behind M0, and from there back: lanes 8 and up.
.macro LDS_LOAD_KERNEL name, width, address, scale
BEGIN \name
  s_mov_b32 s16, s6
  s_mov_b32 s17, s7
  s_mov_b32 s18, s12
  s_mov_b32 s19, 0x20000
  s_movk_i32 m0, 0x40
  v_lshlrev_b32 v3, \scale, v0
  ds_write_b32 v3, v12 offset:64
  s_waitcnt lgkmcnt(0)
  s_movk_i32 exec_lo, 0xff00
  buffer_load_\width \address, s[16:19], 0 offen lds
  s_mov_b64 exec, -1
  s_waitcnt vmcnt(0)
  ds_read_b32 v12, v3 offset:64
FINISH \name
.endm
LDS_LOAD_KERNEL buffer_to_lds, dword, v1, 2
.ifdef HAS_CDNA4
LDS_LOAD_KERNEL buffer_to_lds_x4, dwordx4, v1, 4
.endif

// Four lanes change one place: lanes n to n + 3 that of lane n. Old values go to v[12:13].
.macro ATOMIC_KERNELS name, data, old
BEGIN global_atomic_\name
  v_and_b32 v3, 0x3fc, v1
  v_and_b32 v3, ~0x30, v3
  global_atomic_\name v3, \data, s[12:13]
END_KERNEL global_atomic_\name
BEGIN global_atomic_\name\()_rtn
  v_and_b32 v3, ~0x30, v1
  .ifdef HAS_CDNA3
    global_atomic_\name \old, v3, \data, s[12:13] sc0
  .else
    global_atomic_\name \old, v3, \data, s[12:13] glc
  .endif
FINISH global_atomic_\name\()_rtn
BEGIN buffer_atomic_\name
  DESCRIPTOR s12, s13
  s_movk_i32 s18, 0x300
  v_and_b32 v3, ~0x30, v1
  buffer_atomic_\name \data, v3, s[16:19], 0 offen
END_KERNEL buffer_atomic_\name
BEGIN buffer_atomic_\name\()_rtn
  DESCRIPTOR s12, s13
  s_movk_i32 s18, 0x300
  v_and_b32 v3, ~0x30, v1
  v_mov_b32 v12, v8
  v_mov_b32 v13, v9
  .ifdef HAS_CDNA3
    buffer_atomic_\name \old, v3, s[16:19], 0 offen sc0
  .else
    buffer_atomic_\name \old, v3, s[16:19], 0 offen glc
  .endif
FINISH buffer_atomic_\name\()_rtn
.endm
ATOMIC_KERNELS add, v8, v12
ATOMIC_KERNELS add_f32, v8, v12
ATOMIC_KERNELS add_f64, v[8:9], v[12:13]
ATOMIC_KERNELS pk_add_f16, v8, v12
.ifdef HAS_CDNA4
ATOMIC_KERNELS pk_add_bf16, v8, v12
.endif

// Constants of every width: 16 SGPRs with old values, then pointer 1's first words.
.macro SCALAR_LOAD_KERNEL name, destination
KERNEL s_load_\name
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  .irp n, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    s_mov_b32 s\n, 0x5a5a5a5a
  .endr
  s_movk_i32 s3, 4
  s_waitcnt lgkmcnt(0)
  s_load_\name \destination, s[6:7], s3
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v1, 0
  .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    v_mov_b32 v2, s[16 + \n]
    global_store_dword v1, v2, s[4:5] offset:4 * \n
  .endr
END_KERNEL s_load_\name
.endm
SCALAR_LOAD_KERNEL dword, s16
SCALAR_LOAD_KERNEL dwordx2, s[16:17]
SCALAR_LOAD_KERNEL dwordx4, s[16:19]
SCALAR_LOAD_KERNEL dwordx8, s[16:23]
SCALAR_LOAD_KERNEL dwordx16, s[16:31]

// Through a descriptor that swizzles, or one that adds the lane's number.
.macro UNUSUAL_BUFFER name, access, word1, word3, instruction:vararg
BEGIN \name\()_\access
  DESCRIPTOR s6, s7
  s_or_b32 s17, s17, \word1
  s_or_b32 s19, s19, \word3
  \instruction
END_KERNEL \name\()_\access, lds=4096
.endm
.macro UNUSUAL_BUFFERS access, instruction:vararg
  UNUSUAL_BUFFER swizzled, \access, 0x80000000, 0, \instruction
  UNUSUAL_BUFFER add_tid, \access, 0, 0x800000, \instruction
.endm
UNUSUAL_BUFFERS load, buffer_load_dword v12, v1, s[16:19], 0 offen
UNUSUAL_BUFFERS store, buffer_store_dword v12, v1, s[16:19], 0 offen
UNUSUAL_BUFFERS load_lds, buffer_load_dword v1, s[16:19], 0 offen lds
UNUSUAL_BUFFERS atomic, buffer_atomic_add v12, v1, s[16:19], 0 offen
