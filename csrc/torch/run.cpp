// Runs launches on a GPU's current stream, or on the emulated GPU with exactly the tensors' memory visible.
#include "run.hpp"

#include <mutex>

#include "../host/library.hpp"
#include "torch_runtime.hpp"

namespace flash_attn_rocm {
namespace {

// As hipSetDevice left it on this thread: the first of FLASH_ATTN_ROCM_EMULATE unless the program chose another.
int current_emulated_device()
{
    const HipRuntime& hip = Library::instance().hip();
    int device            = 0;
    check_hip(hip, hip.api.hipGetDevice(&device), "hipGetDevice");
    return device;
}

void run_emulated(const std::vector<Tensor>& used, const std::function<void(int, HipStream)>& launch)
{
    // One at a time: calls on other threads may share tensors, and memory can be registered only once.
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    const HipRuntime& hip = Library::instance().hip();
    std::vector<ByteRange> memory;
    for(const Tensor& tensor : used)
    {
        memory.push_back(byte_range(tensor));
    }
    const HostRegistration registration(hip, std::move(memory));
    launch(current_emulated_device(), nullptr);
    check_hip(hip, hip.api.hipStreamSynchronize(nullptr), "running the kernels of this call");
}

} // namespace

CurrentDevice::CurrentDevice(const Tensor& q)
{
    if(q.is_cuda())
    {
        guard_.emplace(q.get_device_index());
    }
}

int device_of(const Tensor& q) { return q.is_cuda() ? q.get_device_index() : current_emulated_device(); }

void run_where(const Tensor& q, const std::vector<Tensor>& used, const std::function<void(int, HipStream)>& launch)
{
    if(q.is_cuda())
    {
        launch(device_of(q), current_stream(q.get_device_index()));
        return;
    }
    run_emulated(used, launch);
}

} // namespace flash_attn_rocm
