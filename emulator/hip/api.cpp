// The exported functions for devices, modules and memory, and functions of our own that tests and the host library look
// up. Those for streams and events are in api_streams.cpp.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "hip/calls.hpp"
#include "platform/platform.hpp"

namespace emu::hip {
namespace {

struct ErrorText {
  Error error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrorTexts[] = {
    {kSuccess, "hipSuccess", "no error"},
    {kErrorInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {kErrorOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {kErrorInvalidConfiguration, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {kErrorInvalidDevicePointer, "hipErrorInvalidDevicePointer", "invalid device pointer"},
    {kErrorInvalidMemcpyDirection, "hipErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {kErrorNoDevice, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {kErrorInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {kErrorInvalidImage, "hipErrorInvalidImage", "device kernel image is invalid"},
    {kErrorNoBinaryForGpu, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {kErrorFileNotFound, "hipErrorFileNotFound", "file not found"},
    {kErrorInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {kErrorNotFound, "hipErrorNotFound", "named symbol not found"},
    {kErrorIllegalAddress, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {kErrorHostMemoryAlreadyRegistered, "hipErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {kErrorHostMemoryNotRegistered, "hipErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {kErrorLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
    {kErrorNotSupported, "hipErrorNotSupported", "operation not supported"},
    {kErrorUnknown, "hipErrorUnknown", "unknown error"},
};

const ErrorText& text_of(int error) {
  for (const ErrorText& entry : kErrorTexts)
    if (entry.error == error) return entry;
  return text_of(kErrorUnknown);
}

// The explicit arguments from `extra` (HIP_LAUNCH_PARAM_BUFFER_POINTER 1, _SIZE 2, _END 3).
bool read_extra(void** extra, std::vector<u8>& arguments) {
  const void* buffer = nullptr;
  std::size_t size = 0;
  for (int i = 0; i < 8; i += 2) {
    const auto key = reinterpret_cast<std::uintptr_t>(extra[i]);
    if (key == 3) {
      if (size != 0 && buffer == nullptr) return false;
      const auto* bytes = static_cast<const u8*>(buffer);
      arguments.assign(bytes, bytes + size);
      return true;
    }
    if (key == 1)
      buffer = extra[i + 1];
    else if (key == 2)
      size = *static_cast<const std::size_t*>(extra[i + 1]);
    else
      return false;
  }
  return false;
}

}  // namespace

thread_local int current_device = 0;
thread_local Error last_error = kSuccess;

Error remember(Error error) {
  if (error != kSuccess) last_error = error;
  return error;
}

Error need_device(int device) {
  const DeviceList& list = emulated_devices();
  if (list.devices.empty()) {
    Runtime::get().set_fault(list.error);
    return kErrorNoDevice;
  }
  return device >= 0 && static_cast<std::size_t>(device) < list.devices.size() ? kSuccess : kErrorInvalidDevice;
}

Runtime& Runtime::get() {
  static Runtime* const runtime = new Runtime;  // never destroyed: callers may outlive static destruction
  return *runtime;
}

}  // namespace emu::hip

using namespace emu::hip;
EXPORT Error hipInit(unsigned flags) {
  if (flags != 0) return remember(kErrorInvalidValue);
  return guarded([](Runtime&) { return kSuccess; });
}
EXPORT Error hipRuntimeGetVersion(int* version) {
  if (version == nullptr) return remember(kErrorInvalidValue);
  *version = 60443484;  // the HIP release whose structure layouts these are
  return kSuccess;
}
EXPORT Error hipDriverGetVersion(int* version) { return hipRuntimeGetVersion(version); }
EXPORT Error hipGetDeviceCount(int* count) {
  if (count == nullptr) return remember(kErrorInvalidValue);
  *count = static_cast<int>(emulated_devices().devices.size());
  return *count == 0 ? remember(need_device(0)) : kSuccess;
}
EXPORT Error hipGetDevice(int* device) {
  if (device == nullptr) return remember(kErrorInvalidValue);
  *device = current_device;
  return remember(need_device(current_device));
}
EXPORT Error hipSetDevice(int device) {
  const Error error = need_device(device);
  if (error == kSuccess) current_device = device;
  return remember(error);
}
EXPORT Error hipGetDevicePropertiesR0600(DeviceProperties* properties, int device) {
  if (properties == nullptr) return remember(kErrorInvalidValue);
  if (const Error error = need_device(device)) return remember(error);
  *properties = properties_of(emulated_devices().devices[static_cast<std::size_t>(device)]);
  return kSuccess;
}
EXPORT Error hipDeviceGetAttribute(int* value, int attribute, int device) {
  if (value == nullptr) return remember(kErrorInvalidValue);
  if (const Error error = need_device(device)) return remember(error);
  return attribute_of(emulated_devices().devices[static_cast<std::size_t>(device)], attribute, *value)
             ? kSuccess
             : remember(kErrorNotSupported);
}
EXPORT const char* hipGetErrorName(Error error) { return text_of(error).name; }
EXPORT const char* hipGetErrorString(Error error) { return text_of(error).text; }
EXPORT Error hipGetLastError() {
  const Error error = last_error;
  last_error = kSuccess;
  return error;
}

EXPORT Error hipPeekAtLastError() { return last_error; }

EXPORT Error hipDeviceGet(int* device, int ordinal) {
  if (device == nullptr) return remember(kErrorInvalidValue);
  *device = ordinal;
  return remember(need_device(ordinal));
}
EXPORT Error hipDeviceGetName(char* name, int length, int device) {
  if (name == nullptr || length <= 0) return remember(kErrorInvalidValue);
  if (const Error error = need_device(device)) return remember(error);
  const DeviceProperties properties = properties_of(emulated_devices().devices[static_cast<std::size_t>(device)]);
  std::snprintf(name, static_cast<std::size_t>(length), "%s", properties.name);
  return kSuccess;
}
EXPORT Error hipDeviceTotalMem(std::size_t* bytes, int device) {
  if (bytes == nullptr) return remember(kErrorInvalidValue);
  if (const Error error = need_device(device)) return remember(error);
  *bytes = properties_of(emulated_devices().devices[static_cast<std::size_t>(device)]).total_global_mem;
  return kSuccess;
}
EXPORT Error hipMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  return guarded([&](Runtime& runtime) {
    if (free_bytes == nullptr || total_bytes == nullptr) return kErrorInvalidValue;
    *total_bytes = properties_of(emulated_devices().devices[static_cast<std::size_t>(current_device)]).total_global_mem;
    *free_bytes = *total_bytes - std::min(*total_bytes, runtime.allocated_on(current_device));
    return kSuccess;
  });
}

EXPORT Error hipModuleLoad(Module** module, const char* path) {
  return guarded([&](Runtime& runtime) {
    if (module == nullptr || path == nullptr) return kErrorInvalidValue;
    std::ifstream file(emu::platform::path_of(path), std::ios::binary);
    const std::string image{std::istreambuf_iterator<char>(file), {}};
    if (!file.is_open()) {
      runtime.set_fault(std::string("hipModuleLoad: ") + path + " cannot be read");
      return kErrorFileNotFound;
    }
    return image.empty() ? kErrorInvalidImage : runtime.load_module(module, image.data(), current_device);
  });
}
EXPORT Error hipModuleGetGlobal(void** address, std::size_t* bytes, Module* module, const char* name) {
  return guarded([&](Runtime& runtime) { return runtime.find_global(address, bytes, module, name); });
}
EXPORT Error hipFuncGetAttribute(int* value, int attribute, const Function* function) {
  return guarded([&](Runtime& runtime) { return runtime.function_attribute(value, attribute, function); });
}
EXPORT Error hipModuleLoadData(Module** module, const void* image) {
  return guarded([&](Runtime& runtime) { return runtime.load_module(module, image, current_device); });
}
EXPORT Error hipModuleUnload(Module* module) {
  return guarded([&](Runtime& runtime) { return runtime.unload_module(module); });
}
EXPORT Error hipModuleGetFunction(Function** function, Module* module, const char* name) {
  return guarded([&](Runtime& runtime) { return runtime.find_function(function, module, name); });
}
EXPORT Error hipModuleLaunchKernel(const Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                   const Stream* stream, void** parameters, void** extra) {
  return guarded([&](Runtime& runtime) {
    if (!runtime.is_stream(stream)) return kErrorInvalidHandle;
    if (parameters != nullptr && extra != nullptr) return kErrorInvalidValue;
    emu::LaunchRequest request;
    request.grid[0] = grid_x, request.grid[1] = grid_y, request.grid[2] = grid_z;
    request.block[0] = block_x, request.block[1] = block_y, request.block[2] = block_z;
    request.dynamic_lds_bytes = shared_bytes;
    if (extra != nullptr && !read_extra(extra, request.arguments)) return kErrorInvalidValue;
    if (parameters != nullptr) {
      if (const Error error = runtime.gather_arguments(function, parameters, request.arguments)) return error;
    }
    return runtime.run(function, stream == nullptr ? current_device : stream->device, std::move(request));
  });
}

EXPORT Error hipMalloc(void** pointer, std::size_t bytes) {
  return guarded([&](Runtime& runtime) { return runtime.allocate(pointer, bytes, current_device); });
}
EXPORT Error hipFree(void* pointer) {
  return guarded([&](Runtime& runtime) { return runtime.release(pointer); });
}
EXPORT Error hipMemcpy(void* target, const void* source, std::size_t bytes, int kind) {
  return guarded([&](Runtime& runtime) { return runtime.copy(target, source, bytes, kind); });
}
EXPORT Error hipMemcpyAsync(void* target, const void* source, std::size_t bytes, int kind, const Stream* stream) {
  return guarded([&](Runtime& runtime) {
    return runtime.is_stream(stream) ? runtime.copy(target, source, bytes, kind) : kErrorInvalidHandle;
  });
}
EXPORT Error hipMemset(void* target, int value, std::size_t bytes) {
  return guarded([&](Runtime& runtime) { return runtime.fill(target, value, bytes); });
}
EXPORT Error hipMemsetAsync(void* target, int value, std::size_t bytes, const Stream* stream) {
  return guarded([&](Runtime& runtime) {
    return runtime.is_stream(stream) ? runtime.fill(target, value, bytes) : kErrorInvalidHandle;
  });
}
EXPORT Error hipHostRegister(void* pointer, std::size_t bytes, unsigned) {
  return guarded([&](Runtime& runtime) { return runtime.register_host(pointer, bytes); });
}
EXPORT Error hipHostUnregister(void* pointer) {
  return guarded([&](Runtime& runtime) { return runtime.unregister_host(pointer); });
}
EXPORT Error hipPointerGetAttributes(PointerAttributes* attributes, const void* pointer) {
  return guarded([&](Runtime& runtime) {
    if (attributes == nullptr || pointer == nullptr) return kErrorInvalidValue;
    *attributes = runtime.attributes_of(pointer);
    return kSuccess;
  });
}

EXPORT Error hipDeviceSynchronize() {
  return guarded([](Runtime&) { return kSuccess; });
}

// What went wrong last, in words: for a kernel its name, pc, instruction, lane, address and the nearest allocation.
EXPORT const char* flash_attn_rocm_emulator_last_fault() {
  static thread_local std::string text;
  const std::lock_guard lock(Runtime::get().mutex);
  text = Runtime::get().fault();
  return text.c_str();
}
// Wave instructions executed since the library was loaded.
EXPORT unsigned long long flash_attn_rocm_emulator_executed() {
  const std::lock_guard lock(Runtime::get().mutex);
  return Runtime::get().executed();
}
// Executed wave instructions by kernel and class, as JSON.
EXPORT const char* flash_attn_rocm_emulator_profile() {
  static thread_local std::string text;
  const std::lock_guard lock(Runtime::get().mutex);
  text = Runtime::get().profile();
  return text.c_str();
}
// Chooses the optional checks in place of the environment: names as in FLASH_ATTN_ROCM_EMULATOR_CHECKS, or null for the
// environment's. The wait check takes effect for functions looked up later.
EXPORT Error flash_attn_rocm_emulator_set_checks(const char* names, unsigned long long seed) {
  const std::lock_guard lock(Runtime::get().mutex);
  return remember(Runtime::get().set_checks(names, seed));
}
