// Runs launches on a GPU's current stream, or on the emulated GPU with exactly the memory of the call visible.
#include "call_device.hpp"

#include <mutex>

#include "torch_runtime.hpp"

namespace flash_attn_rocm {
namespace {

// As hipSetDevice left it on this thread: the first of FLASH_ATTN_ROCM_EMULATE unless the program chose another.
int current_emulated_device()
{
    const HipRuntime& hip = Library::instance().hip();
    STD_TORCH_CHECK(hip.emulated(),
                    "tensors are on the CPU and no emulated GPU is in use. Move them to an AMD GPU, or set "
                    "FLASH_ATTN_ROCM_EMULATE=<gfx> before the first call");
    int device = 0;
    check_hip(hip, hip.api.hipGetDevice(&device), "hipGetDevice");
    return device;
}

} // namespace

CallDevice::CallDevice(const Tensor& q)
{
    if(q.is_cuda())
    {
        index_ = q.get_device_index();
        guard_.emplace(index_);
    }
    else
    {
        index_ = current_emulated_device();
    }
}

void CallDevice::use(const Tensor& tensor)
{
    if(emulated())
    {
        memory_.push_back(byte_range(tensor));
    }
}

void CallDevice::use(const std::optional<Tensor>& tensor)
{
    if(tensor)
    {
        use(*tensor);
    }
}

void CallDevice::use(const void* data, std::int64_t bytes)
{
    if(emulated())
    {
        const auto begin = reinterpret_cast<std::uintptr_t>(data);
        memory_.push_back({begin, begin + static_cast<std::uintptr_t>(bytes)});
    }
}

void CallDevice::run(const std::function<void(const Queue&)>& launch) const
{
    if(emulated())
    {
        run_emulated(launch);
        return;
    }
    launch({Library::instance(), index_, current_stream(index_)});
}

void CallDevice::run_emulated(const std::function<void(const Queue&)>& launch) const
{
    // One at a time: calls on other threads may share tensors, and memory can be registered only once.
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    Library& library      = Library::instance();
    const HipRuntime& hip = library.hip();
    const HostRegistration registration(hip, memory_);
    launch({library, index_, nullptr});
    check_hip(hip, hip.api.hipStreamSynchronize(nullptr), "running the kernels of this call");
}

} // namespace flash_attn_rocm
