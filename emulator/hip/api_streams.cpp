// The exported functions for streams and events. Work is done inside the call that asks for it, so whatever was put into
// a stream is complete: waits return at once, queries succeed, and an event's time is that of its record.
#include <algorithm>
#include <chrono>

#include "hip/calls.hpp"

using namespace emu::hip;

namespace {

constexpr unsigned kStreamNonBlocking = 1;
constexpr int kGreatestPriority = -1, kLeastPriority = 1;  // as on AMD GPUs: smaller is more urgent
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kEventFlags = 1 | kEventDisableTiming | 4;  // blocking sync, interprocess

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

EXPORT Error hipStreamCreateWithPriority(Stream** stream, unsigned flags, int priority) {
  return guarded([&](Runtime& runtime) {
    if (stream == nullptr || (flags & ~kStreamNonBlocking) != 0) return kErrorInvalidValue;
    auto made = std::make_unique<Stream>(
        Stream{current_device, flags, std::clamp(priority, kGreatestPriority, kLeastPriority)});
    *stream = made.get();
    runtime.streams[made.get()] = std::move(made);
    return kSuccess;
  });
}
EXPORT Error hipStreamCreateWithFlags(Stream** stream, unsigned flags) {
  return hipStreamCreateWithPriority(stream, flags, 0);
}
EXPORT Error hipStreamCreate(Stream** stream) { return hipStreamCreateWithPriority(stream, 0, 0); }
EXPORT Error hipStreamDestroy(Stream* stream) {
  return guarded([&](Runtime& runtime) { return runtime.streams.erase(stream) == 1 ? kSuccess : kErrorInvalidHandle; });
}
EXPORT Error hipStreamSynchronize(const Stream* stream) {
  return guarded([&](Runtime& runtime) { return runtime.is_stream(stream) ? kSuccess : kErrorInvalidHandle; });
}
EXPORT Error hipStreamQuery(const Stream* stream) { return hipStreamSynchronize(stream); }
EXPORT Error hipStreamGetFlags(const Stream* stream, unsigned* flags) {
  return guarded([&](Runtime& runtime) {
    if (flags == nullptr) return kErrorInvalidValue;
    if (!runtime.is_stream(stream)) return kErrorInvalidHandle;
    *flags = stream == nullptr ? 0 : stream->flags;
    return kSuccess;
  });
}
EXPORT Error hipStreamGetPriority(const Stream* stream, int* priority) {
  return guarded([&](Runtime& runtime) {
    if (priority == nullptr) return kErrorInvalidValue;
    if (!runtime.is_stream(stream)) return kErrorInvalidHandle;
    *priority = stream == nullptr ? 0 : stream->priority;
    return kSuccess;
  });
}
EXPORT Error hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return guarded([&](Runtime&) {
    if (least != nullptr) *least = kLeastPriority;
    if (greatest != nullptr) *greatest = kGreatestPriority;
    return kSuccess;
  });
}
EXPORT Error hipStreamWaitEvent(const Stream* stream, Event* event, unsigned flags) {
  return guarded([&](Runtime& runtime) {
    if (flags != 0) return kErrorInvalidValue;
    return runtime.is_stream(stream) && runtime.events.count(event) != 0 ? kSuccess : kErrorInvalidHandle;
  });
}

EXPORT Error hipEventCreateWithFlags(Event** event, unsigned flags) {
  return guarded([&](Runtime& runtime) {
    if (event == nullptr || (flags & ~kEventFlags) != 0) return kErrorInvalidValue;
    auto made = std::make_unique<Event>(Event{current_device, (flags & kEventDisableTiming) == 0, false, 0});
    *event = made.get();
    runtime.events[made.get()] = std::move(made);
    return kSuccess;
  });
}
EXPORT Error hipEventCreate(Event** event) { return hipEventCreateWithFlags(event, 0); }
EXPORT Error hipEventDestroy(Event* event) {
  return guarded([&](Runtime& runtime) { return runtime.events.erase(event) == 1 ? kSuccess : kErrorInvalidHandle; });
}
EXPORT Error hipEventRecord(Event* event, const Stream* stream) {
  return guarded([&](Runtime& runtime) {
    if (runtime.events.count(event) == 0 || !runtime.is_stream(stream)) return kErrorInvalidHandle;
    const int device = stream == nullptr ? current_device : stream->device;
    if (event->device != device) return kErrorInvalidHandle;
    event->recorded = true;
    event->at_ms = now_ms();
    return kSuccess;
  });
}
EXPORT Error hipEventSynchronize(Event* event) {
  return guarded([&](Runtime& runtime) { return runtime.events.count(event) != 0 ? kSuccess : kErrorInvalidHandle; });
}
EXPORT Error hipEventQuery(Event* event) { return hipEventSynchronize(event); }
EXPORT Error hipEventElapsedTime(float* milliseconds, Event* start, Event* stop) {
  return guarded([&](Runtime& runtime) {
    if (milliseconds == nullptr) return kErrorInvalidValue;
    for (const Event* event : {start, stop})
      if (runtime.events.count(event) == 0 || !event->timed || !event->recorded) return kErrorInvalidHandle;
    *milliseconds = static_cast<float>(stop->at_ms - start->at_ms);
    return kSuccess;
  });
}
