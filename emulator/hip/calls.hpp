// What the exported functions share: the thread's device and last error, and the lock around every call.
#pragma once
#include "hip/runtime.hpp"

#ifdef _WIN32
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" [[gnu::visibility("default")]]
#endif

namespace emu::hip {

extern thread_local int current_device;
extern thread_local Error last_error;

// Keeps an error for hipGetLastError, and returns it.
Error remember(Error error);
// kSuccess where the device exists.
Error need_device(int device);

// Runs `body` under the lock, with the current device present, and keeps its error for hipGetLastError.
template <class Body>
Error guarded(Body body) {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  if (const Error error = need_device(current_device)) return remember(error);
  return remember(body(runtime));
}

}  // namespace emu::hip
