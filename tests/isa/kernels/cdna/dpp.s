// DPP controls of wave64: each lane's 16 bytes of pointer 1 go in, 16 bytes to pointer 0 come out. v12: lanes without a
// source keep the old value; v13: they read 0; v14: a sum with the second source, in some rows and banks; v15: v12 where
// lanes 0 to 7 are inactive.
.include "kernel.inc"

.macro CONTROL name, control:vararg
KERNEL dpp_\name
  READ_INPUT
  s_nop 4
  v_mov_b32_dpp v12, v8 \control row_mask:0xf bank_mask:0xf
  v_mov_b32_dpp v13, v8 \control row_mask:0xf bank_mask:0xf bound_ctrl:0
  v_add_u32_dpp v14, v8, v9 \control row_mask:0xa bank_mask:0x6 bound_ctrl:0
  s_movk_i32 exec_lo, 0xff00
  s_nop 4
  v_mov_b32_dpp v15, v8 \control row_mask:0xf bank_mask:0xf
  s_mov_b64 exec, -1
  global_store_dwordx4 v1, v[12:15], s[4:5]
END_KERNEL dpp_\name
.endm
CONTROL quad_perm, quad_perm:[3,0,2,1]
CONTROL row_shl, row_shl:3
CONTROL row_shr, row_shr:5
CONTROL row_ror, row_ror:6
CONTROL wave_shl, wave_shl:1
CONTROL wave_rol, wave_rol:1
CONTROL wave_shr, wave_shr:1
CONTROL wave_ror, wave_ror:1
CONTROL row_mirror, row_mirror
CONTROL row_half_mirror, row_half_mirror
CONTROL row_bcast15, row_bcast:15
CONTROL row_bcast31, row_bcast:31
CONTROL row_newbcast, row_newbcast:9
