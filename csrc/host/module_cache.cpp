// Loads code objects lazily, once per device, after checking that each is the file its manifest describes.
#include "module_cache.hpp"

#include <fstream>

#include "error.hpp"
#include "sha256.hpp"
#include "text.hpp"

namespace flash_attn_rocm {

std::vector<char> read_code_object(const Manifest& manifest, const CodeObject& object)
{
    const std::filesystem::path path = manifest.path.parent_path() / object.file;
    const std::string remedy         = "Reinstall the kernels: " + reinstall_command(manifest.gfx);
    // Pipes and devices could be read forever; what has another size need not be read at all.
    std::error_code error;
    if(std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    {
        fail("code object ", text_of(path), " is not a regular file. ", remedy);
    }
    std::ifstream file(path, std::ios::binary);
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if(!file || error)
    {
        fail("code object ", text_of(path), " cannot be opened. ", remedy);
    }
    if(size != object.bytes)
    {
        fail("code object ", text_of(path), " is damaged: it has ", size, " bytes, but kernels.json says ",
             object.bytes, ". ", remedy);
    }
    std::vector<char> bytes(size);
    file.read(bytes.data(), static_cast<std::streamsize>(size));
    const std::string hash = sha256_hex(bytes.data(), static_cast<std::size_t>(file.gcount()));
    if(hash != object.sha256)
    {
        fail("code object ", text_of(path), " is damaged: it has sha256 ", hash, ", but kernels.json says ",
             object.sha256, ". ", remedy);
    }
    return bytes;
}

ModuleCache::Module&
ModuleCache::module(const HipRuntime& hip, int device, const Manifest& manifest, const CodeObject& object)
{
    const std::string path = text_of(manifest.path.parent_path() / object.file);
    const auto key         = std::make_pair(device, path);
    if(const auto found = modules_.find(key); found != modules_.end())
    {
        return found->second;
    }
    Module loaded;
    loaded.image = read_code_object(manifest, object);
    check_hip(hip,
              hip.api.hipModuleLoadData(&loaded.handle, loaded.image.data()),
              concat("loading code object ", path, " on device ", device, " (hipModuleLoadData)"));
    return modules_.emplace(key, std::move(loaded)).first->second;
}

ModuleCache::Function&
ModuleCache::function(const HipRuntime& hip, int device, const Manifest& manifest, const KernelInfo& kernel)
{
    const std::lock_guard lock(mutex_);
    const auto key = std::make_pair(device, &kernel);
    if(const auto found = functions_.find(key); found != functions_.end())
    {
        return found->second;
    }
    Module& owner      = module(hip, device, manifest, manifest.code_objects[kernel.code_object]);
    HipFunction handle = nullptr;
    check_hip(hip,
              hip.api.hipModuleGetFunction(&handle, owner.handle, kernel.name.c_str()),
              concat("finding kernel ", kernel.name, " in ", manifest.code_objects[kernel.code_object].file));
    Function& function = functions_[key];
    function.handle    = handle;
    return function;
}

std::map<std::string, std::uint64_t> ModuleCache::launch_counts()
{
    const std::lock_guard lock(mutex_);
    std::map<std::string, std::uint64_t> counts;
    for(const auto& [key, function] : functions_)
    {
        if(const std::uint64_t launches = function.launches; launches > 0)
        {
            counts[key.second->name] += launches;
        }
    }
    return counts;
}

} // namespace flash_attn_rocm
