// The state of the library in this process; everything is found at its first use.
#include "library.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "error.hpp"
#include "text.hpp"

namespace flash_attn_rocm {
namespace {

// "gfx1200, gfx942", or "no GPU".
std::string installed_gpus(const std::vector<std::filesystem::path>& directories)
{
    std::set<std::string> names;
    for(const std::filesystem::path& directory : directories)
    {
        std::error_code error;
        for(std::filesystem::directory_iterator entry(directory, error), end; entry != end; entry.increment(error))
        {
            std::error_code unknown;
            if(std::filesystem::exists(entry->path() / "kernels.json", unknown))
            {
                names.insert(text_of(entry->path().filename()));
            }
        }
    }
    std::string text;
    for(const std::string& name : names)
    {
        text += concat(text.empty() ? "" : ", ", name);
    }
    return text.empty() ? "no GPU" : text;
}

// ROCm then reports that GPU in place of the machine's own.
std::string override_note()
{
    const std::string value = environment("HSA_OVERRIDE_GFX_VERSION");
    if(value.empty())
    {
        return "";
    }
    return concat("HSA_OVERRIDE_GFX_VERSION=", value, " makes every GPU pose as another: unset it, and install the "
                  "kernels of the card itself, which `flash-attn-rocm info` names. ");
}

} // namespace

Library& Library::instance()
{
    // Never destroyed: kernels may still be running, and other libraries still unloading, when the process exits.
    static auto* library = new Library;
    return *library;
}

void Library::use_hip_library(const std::string& path)
{
    const std::lock_guard lock(mutex_);
    if(hip_ && search_.explicit_path != path)
    {
        fail("the HIP runtime ", hip_->path, " is in use already; ", path, " can only be chosen before the first call");
    }
    search_.explicit_path = path;
}

void Library::set_torch_lib_dir(const std::string& directory)
{
    const std::lock_guard lock(mutex_);
    search_.torch_lib_dir = directory;
}

void Library::add_kernel_path(const std::filesystem::path& directory)
{
    const std::lock_guard lock(mutex_);
    if(std::find(kernel_paths_.begin(), kernel_paths_.end(), directory) == kernel_paths_.end())
    {
        kernel_paths_.push_back(directory);
        manifests_.clear();
    }
}

void Library::set_kernel_paths(std::vector<std::filesystem::path> directories)
{
    const std::lock_guard lock(mutex_);
    kernel_paths_ = std::move(directories);
    manifests_.clear();
}

std::vector<std::filesystem::path> Library::kernel_paths()
{
    const std::lock_guard lock(mutex_);
    return kernel_paths_;
}

const HipRuntime& Library::hip()
{
    const std::lock_guard lock(mutex_);
    if(!hip_)
    {
        hip_ = std::make_unique<HipRuntime>(load_hip_runtime(search_));
    }
    return *hip_;
}

GroupingSwitches Library::grouping_switches()
{
    const std::lock_guard lock(mutex_);
    if(!grouping_)
    {
        grouping_ = read_grouping_switches();
    }
    return *grouping_;
}

void Library::read_environment()
{
    const GroupingSwitches switches = read_grouping_switches();
    const std::lock_guard lock(mutex_);
    grouping_ = switches;
}

const Manifest& Library::manifest(const std::string& gfx)
{
    const std::lock_guard lock(mutex_);
    const Manifest*& entry = manifests_[gfx];
    if(entry == nullptr)
    {
        entry = &find_manifest(gfx);
    }
    return *entry;
}

const Manifest& Library::find_manifest(const std::string& gfx)
{
    std::string searched;
    for(const std::filesystem::path& directory : kernel_paths_)
    {
        const std::filesystem::path path = directory / gfx / "kernels.json";
        std::error_code error;
        if(!std::filesystem::exists(path, error))
        {
            searched += concat(searched.empty() ? "" : ", ", text_of(path));
            continue;
        }
        if(const auto found = loaded_.find(path); found != loaded_.end())
        {
            return *found->second;
        }
        auto loaded = std::make_unique<Manifest>(load_manifest(path));
        if(loaded->gfx != gfx)
        {
            fail(text_of(path), ": holds kernels for ", loaded->gfx, ", expected ", gfx, ". Reinstall: ",
                 reinstall_command(gfx));
        }
        return *loaded_.emplace(path, std::move(loaded)).first->second;
    }
    fail("no kernels for GPU ", gfx, " are installed (searched: ", searched.empty() ? "nowhere" : searched,
         "; installed: kernels for ", installed_gpus(kernel_paths_), "). ", override_note(), "If this version has kernels for it, they are in the package flash-attn-rocm-kernels-", gfx,
         ", which `GPU_ARCHS=", gfx, " ./pixiw run build --profile full` makes. Or set FLASH_ATTN_ROCM_BACKEND=sdpa to run on torch's own attention.");
}

} // namespace flash_attn_rocm
