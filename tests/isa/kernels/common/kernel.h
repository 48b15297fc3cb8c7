// What the kernels of this directory share: ids, barriers, and helpers without any library. OpenCL C 1.2, so that private
// and LDS pointers keep their address spaces without optimization too.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

#define THREADS 64
#define KERNEL __kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("unroll")

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long u64;
typedef long s64;

INLINE u32 local_id(void) { return __builtin_amdgcn_workitem_id_x(); }
INLINE u32 group_id(void) { return __builtin_amdgcn_workgroup_id_x(); }
INLINE u32 global_id(void) { return group_id() * THREADS + local_id(); }

INLINE void barrier_of_group(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

INLINE float float_of(u32 bits) {
  union { u32 bits; float value; } both = {bits};
  return both.value;
}
INLINE u32 bits_of(float value) {
  union { float value; u32 bits; } both = {value};
  return both.bits;
}
