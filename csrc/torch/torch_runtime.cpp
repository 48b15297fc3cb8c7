// Finds in the running torch what no single stable symbol offers across its releases.
#include "torch_runtime.hpp"

#include <torch/csrc/stable/accelerator.h>

#include "../host/dynamic_library.hpp"
#include "../host/error.hpp"
#include "../host/library.hpp"
#include "../host/text.hpp"

namespace flash_attn_rocm {
namespace {

#ifdef _WIN32
constexpr const char* kTorchCpu    = "torch_cpu.dll";
constexpr const char* kTorchGpu[] = {"torch_hip.dll", "torch_cuda.dll"};
#else
constexpr const char* kTorchCpu    = "libtorch_cpu.so";
constexpr const char* kTorchGpu[] = {"libtorch_hip.so", "libtorch_cuda.so"};
#endif

using NativeHandleFn  = AOTITorchError (*)(StreamHandle, void**);
using CurrentStreamFn = AOTITorchError (*)(std::int32_t, void**);

// Both ways to the stream, looked up by name so that this library loads in releases that lack either.
struct StreamFunctions
{
    NativeHandleFn native_handle   = nullptr; // torch >= 2.13
    CurrentStreamFn current_stream = nullptr; // torch 2.11 and 2.12; lives in torch's GPU library
};

StreamFunctions find_stream_functions()
{
    StreamFunctions found;
    if(LibraryHandle cpu = find_loaded_library(kTorchCpu))
    {
        found.native_handle = reinterpret_cast<NativeHandleFn>(find_symbol(cpu, "torch_stream_native_handle"));
    }
    for(const char* name : kTorchGpu)
    {
        LibraryHandle gpu = find_loaded_library(name);
        if(gpu != nullptr && found.current_stream == nullptr)
        {
            found.current_stream =
                reinterpret_cast<CurrentStreamFn>(find_symbol(gpu, "aoti_torch_get_current_cuda_stream"));
        }
    }
    return found;
}

} // namespace

void announce_torch()
{
    const std::string torch = path_of_address(reinterpret_cast<const void*>(&aoti_torch_get_dim));
    if(!torch.empty())
    {
        Library::instance().set_torch_lib_dir(text_of(path_of(torch).parent_path()));
    }
}

std::string torch_error()
{
    using WhatFn            = const char* (*)();
    const LibraryHandle cpu = find_loaded_library(kTorchCpu);
    const auto what         = reinterpret_cast<WhatFn>(
        cpu != nullptr ? find_symbol(cpu, "torch_exception_get_what_without_backtrace") : nullptr); // torch >= 2.13
    return what != nullptr ? what() : "torch wrote the reason to stderr";
}

HipStream current_stream(std::int32_t device)
{
    static const StreamFunctions functions = find_stream_functions();
    void* native                           = nullptr;
    if(functions.current_stream != nullptr)
    {
        if(functions.current_stream(device, &native) == TORCH_SUCCESS)
        {
            return native;
        }
        fail("torch cannot give its current stream on device ", device);
    }
    if(functions.native_handle == nullptr)
    {
        fail("this torch gives no access to its current stream; torch >= 2.11 is needed");
    }
    StreamHandle stream = nullptr;
    if(aoti_torch_get_current_stream(device, &stream) != TORCH_SUCCESS)
    {
        fail("torch cannot give its current stream on device ", device);
    }
    const bool found = functions.native_handle(stream, &native) == TORCH_SUCCESS;
    aoti_torch_delete_stream(stream);
    if(!found)
    {
        fail("torch cannot give the native handle of its current stream on device ", device);
    }
    return native;
}

} // namespace flash_attn_rocm
