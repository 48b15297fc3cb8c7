// Reads kernels.json; every field is looked up by name and type, so that an error names what is wrong.
#include "manifest.hpp"

#include <fstream>
#include <optional>

#include <nlohmann/json.hpp>

#include "error.hpp"

namespace flash_attn_rocm {
namespace {

using Json = nlohmann::json;

constexpr int kSchema = 1;

constexpr const char* kArgNames[] = {
#define FA_ARG(name) #name,
#include "../device/kernel_args.def"
#undef FA_ARG
};

// One JSON object with the words for "where" in error messages.
struct Reader
{
    const Json& object;
    std::string where;

    const Json& at(const char* key) const
    {
        if(!object.is_object() || !object.contains(key))
        {
            fail(where, ": field '", key, "' is missing");
        }
        return object.at(key);
    }

    template <class T>
    T get(const char* key) const
    {
        const Json& value = at(key);
        try
        {
            return value.get<T>();
        }
        catch(const Json::exception& error)
        {
            fail(where, ": field '", key, "' has the wrong type: ", error.what());
        }
    }

    const Json& array(const char* key) const
    {
        const Json& value = at(key);
        if(!value.is_array())
        {
            fail(where, ": field '", key, "' is not an array");
        }
        return value;
    }
};

std::optional<Arg> find_arg(const std::string& name)
{
    for(std::size_t i = 0; i < kArgCount; ++i)
    {
        if(name == kArgNames[i])
        {
            return static_cast<Arg>(i);
        }
    }
    return std::nullopt;
}

Padding parse_padding(const Reader& reader)
{
    const auto text = reader.get<std::string>("padding");
    if(text == "none")
    {
        return Padding::none;
    }
    if(text == "seqlen")
    {
        return Padding::seqlen;
    }
    if(text == "full")
    {
        return Padding::full;
    }
    fail(reader.where, ": padding is '", text, "'; allowed: none, seqlen, full");
}

void parse_args(const Reader& reader, KernelInfo& kernel)
{
    const Json& args = reader.at("args");
    if(!args.is_object())
    {
        fail(reader.where, ": field 'args' is not an object");
    }
    for(const auto& [name, slot] : args.items())
    {
        const std::optional<Arg> arg = find_arg(name);
        if(!arg)
        {
            fail(reader.where, ": argument '", name,
                 "' is unknown to this library. Update it: conda update flash-attn-rocm");
        }
        if(!slot.is_array() || slot.size() != 2 || !slot[0].is_number_unsigned() || !slot[1].is_number_unsigned())
        {
            fail(reader.where, ": argument '", name, "' is ", slot.dump(), "; expected [offset, size]");
        }
        const ArgSlot parsed = {slot[0].get<std::uint32_t>(), slot[1].get<std::uint32_t>()};
        if(parsed.size == 0 || parsed.offset + std::uint64_t{parsed.size} > kernel.kargs_bytes)
        {
            fail(reader.where, ": argument '", name, "' ", slot.dump(), " lies outside kargs_bytes ",
                 kernel.kargs_bytes);
        }
        kernel.args[static_cast<std::size_t>(*arg)] = parsed;
    }
}

KernelInfo parse_kernel(const Reader& reader, std::size_t code_objects)
{
    KernelInfo kernel;
    kernel.op          = reader.get<std::string>("op");
    kernel.code_object = reader.get<std::size_t>("code_object");
    if(kernel.code_object >= code_objects)
    {
        fail(reader.where, ": code_object is ", kernel.code_object, ", but there are ", code_objects);
    }
    kernel.dtype         = reader.get<std::string>("dtype");
    kernel.hdim_q        = reader.get<std::int64_t>("hdim_q");
    kernel.hdim_v        = reader.get<std::int64_t>("hdim_v");
    kernel.mode          = reader.get<std::string>("mode");
    kernel.mask          = reader.get<bool>("mask");
    kernel.bias          = reader.get<std::string>("bias");
    kernel.softcap       = reader.get<bool>("softcap");
    kernel.dropout       = reader.get<bool>("dropout");
    kernel.padding       = parse_padding(reader);
    kernel.tile_m        = reader.get<std::int64_t>("tile_m");
    kernel.tile_n        = reader.get<std::int64_t>("tile_n");
    kernel.block_threads = reader.get<std::uint32_t>("block_threads");
    kernel.kargs_bytes   = reader.get<std::uint32_t>("kargs_bytes");
    if(kernel.tile_m <= 0 || kernel.tile_n <= 0 || kernel.hdim_q <= 0 || kernel.hdim_v <= 0 ||
       kernel.block_threads == 0)
    {
        fail(reader.where, ": tile_m, tile_n, hdim_q, hdim_v and block_threads must be positive");
    }
    parse_args(reader, kernel);
    return kernel;
}

void check_schema(const Reader& reader, const std::filesystem::path& path)
{
    const int schema = reader.get<int>("schema");
    if(schema == kSchema)
    {
        return;
    }
    const std::string gfx = path.parent_path().filename().string();
    const std::string where = concat(path.string(), ": schema ", schema, " is ");
    if(schema > kSchema)
    {
        fail(where, "newer than this library reads (", kSchema,
             "). Update the library: conda update flash-attn-rocm");
    }
    fail(where, "older than this library reads (", kSchema,
         "). Update the kernels: conda update flash-attn-rocm-kernels-", gfx);
}

} // namespace

const char* arg_name(Arg arg) { return kArgNames[static_cast<std::size_t>(arg)]; }

std::string reinstall_command(const std::string& gfx)
{
    return "conda install --force-reinstall flash-attn-rocm-kernels-" + gfx;
}

Manifest load_manifest(const std::filesystem::path& path)
{
    std::ifstream file(path, std::ios::binary);
    if(!file)
    {
        fail(path.string(), ": cannot be opened");
    }
    Json document;
    try
    {
        document = Json::parse(file);
    }
    catch(const Json::exception& error)
    {
        fail(path.string(), ": not valid JSON (", error.what(), "). Reinstall: ",
             reinstall_command(path.parent_path().filename().string()));
    }
    const Reader reader{document, path.string()};
    check_schema(reader, path);
    Manifest manifest;
    manifest.path      = path;
    manifest.gfx       = reader.get<std::string>("gfx");
    manifest.profile   = reader.get<std::string>("profile");
    manifest.wave_size = reader.get<int>("wave_size");
    for(const Json& entry : reader.array("code_objects"))
    {
        const Reader row{entry, concat(path.string(), ": code_objects[", manifest.code_objects.size(), "]")};
        manifest.code_objects.push_back(
            {row.get<std::string>("file"), row.get<std::string>("sha256"), row.get<std::uint64_t>("bytes")});
    }
    for(const Json& entry : reader.array("kernels"))
    {
        Reader row{entry, concat(path.string(), ": kernels[", manifest.kernels.size(), "]")};
        const auto name = row.get<std::string>("name");
        row.where       = concat(path.string(), ": kernel ", name);
        manifest.kernels.push_back(parse_kernel(row, manifest.code_objects.size()));
        manifest.kernels.back().name = name;
    }
    return manifest;
}

} // namespace flash_attn_rocm
