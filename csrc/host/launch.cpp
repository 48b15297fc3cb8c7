// Runs a forward request: chooses the kernel, fills its arguments and launches it, in parts if the batch is large.
#include "launch.hpp"

#include <algorithm>
#include <limits>

#include "checks.hpp"
#include "dispatch.hpp"
#include "error.hpp"
#include "kernel_args.hpp"

namespace flash_attn_rocm {
namespace {

constexpr std::int64_t kMaxBatches = 65'535; // grid z of one launch
constexpr std::int64_t kInt32Max   = std::numeric_limits<std::int32_t>::max();

const void* advance(const void* pointer, std::int64_t elements, std::int64_t element_bytes)
{
    return static_cast<const char*>(pointer) + elements * element_bytes;
}

// Batch strides are 32-bit in the kernels; where one does not fit, every batch entry is launched from its own address.
std::int64_t batches_per_launch(const FwdRequest& request)
{
    const std::int64_t largest = std::max({request.q.batch_stride,
                                           request.k.batch_stride,
                                           request.v.batch_stride,
                                           request.out.batch_stride,
                                           request.heads_q * request.seqlen_q});
    return largest > kInt32Max ? 1 : std::min(request.batch, kMaxBatches);
}

void launch_once(const HipRuntime& hip,
                 HipFunction function,
                 HipStream stream,
                 const KernelInfo& kernel,
                 Grid grid,
                 std::vector<std::byte>& arguments)
{
    std::size_t bytes = arguments.size();
    void* extra[]     = {
        kLaunchParamBufferPointer, arguments.data(), kLaunchParamBufferSize, &bytes, kLaunchParamEnd};
    const HipError status = hip.api.hipModuleLaunchKernel(
        function, grid.x, grid.y, grid.z, kernel.block_threads, 1, 1, 0, stream, nullptr, extra);
    if(status != kHipSuccess)
    {
        check_hip(hip,
                  status,
                  concat("launching ", kernel.name, " with grid (", grid.x, ", ", grid.y, ", ", grid.z, ")"));
    }
}

} // namespace

FwdKernel select_fwd_kernel(Library& library, int device, const FwdRequest& request)
{
    const DeviceFacts& facts = library.devices().facts(library.hip(), device);
    const Manifest& manifest = library.manifest(facts.gfx);
    if(manifest.wave_size != facts.wave_size)
    {
        fail(manifest.path.string(), ": its kernels are for waves of ", manifest.wave_size, ", but device ", device,
             " (", facts.gfx, ") has waves of ", facts.wave_size, ". Reinstall: ", reinstall_command(facts.gfx));
    }
    const FwdChoice choice = choose_fwd_kernel(manifest, request);
    if(choice.kernel == nullptr)
    {
        fail(kNoKernel, choice.reason);
    }
    return {manifest, *choice.kernel};
}

void launch_fwd(Library& library, int device, HipStream stream, const FwdKernel& chosen, const FwdRequest& request)
{
    const HipRuntime& hip    = library.hip();
    const KernelInfo& kernel = chosen.kernel;
    HipFunction function     = library.modules().function(hip, device, chosen.manifest, kernel);
    ArgValues values         = fwd_arg_values(request);

    const std::int64_t step = batches_per_launch(request);
    if(step == 1)
    {
        for(const Arg arg : {Arg::batch_stride_q, Arg::batch_stride_k, Arg::batch_stride_v, Arg::batch_stride_o,
                             Arg::batch_stride_lse})
        {
            values.set(arg, std::int64_t{0});
        }
    }
    for(std::int64_t first = 0; first < request.batch; first += step)
    {
        const auto shifted = [first](const TensorView& view) {
            return advance(view.data, first * view.batch_stride, kElementBytes);
        };
        values.set(Arg::q_ptr, shifted(request.q));
        values.set(Arg::k_ptr, shifted(request.k));
        values.set(Arg::v_ptr, shifted(request.v));
        values.set(Arg::o_ptr, shifted(request.out));
        values.set(Arg::lse_ptr,
                   advance(request.lse, first * request.heads_q * request.seqlen_q, std::int64_t{sizeof(float)}));
        std::vector<std::byte> arguments = pack_args(kernel, values);
        const Grid grid = fwd_grid(kernel, request, std::min(step, request.batch - first));
        launch_once(hip, function, stream, kernel, grid, arguments);
        library.modules().count_launch(kernel);
    }
}

} // namespace flash_attn_rocm
