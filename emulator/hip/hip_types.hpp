// The part of HIP's C interface that the emulator offers, in the layout of HIP 6.0 and later (hip/hip_runtime_api.h).
#pragma once
#include <cstddef>
#include <cstdint>

namespace emu::hip {

// hipError_t; names and numbers are HIP's.
enum Error : int {
  kSuccess = 0,
  kErrorInvalidValue = 1,
  kErrorOutOfMemory = 2,
  kErrorInvalidConfiguration = 9,
  kErrorInvalidDevicePointer = 17,
  kErrorInvalidMemcpyDirection = 21,
  kErrorNoDevice = 100,
  kErrorInvalidDevice = 101,
  kErrorInvalidImage = 200,
  kErrorNoBinaryForGpu = 209,
  kErrorFileNotFound = 301,
  kErrorInvalidHandle = 400,
  kErrorNotFound = 500,
  kErrorIllegalAddress = 700,
  kErrorHostMemoryAlreadyRegistered = 712,
  kErrorHostMemoryNotRegistered = 713,
  kErrorLaunchFailure = 719,
  kErrorNotSupported = 801,
  kErrorUnknown = 999,
};

enum MemcpyKind : int { kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3, kDefault = 4 };

// hipDeviceProp_t of hipGetDevicePropertiesR0600. Members that are not listed stay zero.
struct DeviceProperties {
  char name[256];
  char gap0[32];
  std::size_t total_global_mem;
  std::size_t shared_mem_per_block;
  int regs_per_block;
  int warp_size;
  std::size_t mem_pitch;
  int max_threads_per_block;
  int max_threads_dim[3];
  int max_grid_size[3];
  int clock_rate_khz;
  char gap1[8];
  int major;
  int minor;
  char gap2[20];
  int multi_processor_count;
  char gap3[8];
  int can_map_host_memory;
  char gap4[172];
  int concurrent_kernels;
  char gap5[24];
  int unified_addressing;
  char gap6[8];
  int l2_cache_size;
  char gap7[4];
  int max_threads_per_multi_processor;
  char gap8[12];
  std::size_t shared_mem_per_multiprocessor;
  char gap9[80];
  int host_register_supported;
  char gap10[428];
  char gcn_arch_name[256];
  char gap11[56];
};
static_assert(offsetof(DeviceProperties, total_global_mem) == 288);
static_assert(offsetof(DeviceProperties, warp_size) == 308);
static_assert(offsetof(DeviceProperties, max_threads_per_block) == 320);
static_assert(offsetof(DeviceProperties, clock_rate_khz) == 348);
static_assert(offsetof(DeviceProperties, major) == 360);
static_assert(offsetof(DeviceProperties, multi_processor_count) == 388);
static_assert(offsetof(DeviceProperties, can_map_host_memory) == 400);
static_assert(offsetof(DeviceProperties, concurrent_kernels) == 576);
static_assert(offsetof(DeviceProperties, unified_addressing) == 604);
static_assert(offsetof(DeviceProperties, l2_cache_size) == 616);
static_assert(offsetof(DeviceProperties, max_threads_per_multi_processor) == 624);
static_assert(offsetof(DeviceProperties, shared_mem_per_multiprocessor) == 640);
static_assert(offsetof(DeviceProperties, host_register_supported) == 728);
static_assert(offsetof(DeviceProperties, gcn_arch_name) == 1160);
static_assert(sizeof(DeviceProperties) == 1472);

// hipDeviceAttribute_t: the attributes that the emulator answers.
enum class Attribute : int {
  kCanMapHostMemory = 3,
  kConcurrentKernels = 8,
  kCooperativeLaunch = 10,
  kIntegrated = 16,
  kL2CacheSize = 19,
  kComputeCapabilityMajor = 23,
  kMaxBlockDimX = 26,
  kMaxBlockDimY = 27,
  kMaxBlockDimZ = 28,
  kMaxGridDimX = 29,
  kMaxGridDimY = 30,
  kMaxGridDimZ = 31,
  kMaxThreadsPerBlock = 56,
  kMaxThreadsPerMultiProcessor = 57,
  kComputeCapabilityMinor = 61,
  kMultiprocessorCount = 63,
  kMaxRegistersPerBlock = 71,
  kMaxSharedMemoryPerBlock = 74,
  kSharedMemPerMultiprocessor = 76,
  kUnifiedAddressing = 85,
  kWarpSize = 87,
  kHostRegisterSupported = 90,
};

// hipFunction_attribute: what the emulator answers.
enum class FunctionAttribute : int {
  kMaxThreadsPerBlock = 0,
  kSharedSizeBytes = 1,
  kConstSizeBytes = 2,
  kLocalSizeBytes = 3,
  kNumRegs = 4,
  kMaxDynamicSharedSizeBytes = 8,
};

struct PointerAttributes {
  int type;  // 0 unregistered, 1 host, 2 device
  int device;
  void* device_pointer;
  void* host_pointer;
  int is_managed;
  unsigned allocation_flags;
};
static_assert(sizeof(PointerAttributes) == 32);

}  // namespace emu::hip
