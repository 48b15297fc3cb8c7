// Reads kernels.json; every field is looked up by name and type, so that an error names what is wrong.
#include "manifest.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "error.hpp"
#include "json_reader.hpp"
#include "manifest_checks.hpp"
#include "text.hpp"

namespace flash_attn_rocm {
namespace {

using Json = nlohmann::json;

constexpr int kSchema = 1;

constexpr const char* kArgNames[] = {
#define FA_ARG(name) #name,
#include "../device/kernel_args.def"
#include "../device/bwd_args.def"
#undef FA_ARG
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

// A field that says which requests a kernel serves: with a word unknown here it would pass for another kind of kernel.
std::string one_of(const JsonReader& reader, const char* key, const char* first, const char* second)
{
    auto text = reader.get<std::string>(key);
    if(text != first && text != second)
    {
        reader.reject(key, " is '", text, "'; allowed: ", first, ", ", second);
    }
    return text;
}

Padding parse_padding(const JsonReader& reader)
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
    reader.reject("padding is '", text, "'; allowed: none, seqlen, full");
}

void parse_args(const JsonReader& reader, KernelInfo& kernel)
{
    const Json& args = reader.at("args");
    if(!args.is_object())
    {
        reader.reject("field 'args' is ", JsonReader::excerpt(args), "; expected an object");
    }
    for(const auto& [name, slot] : args.items())
    {
        const std::optional<Arg> arg = find_arg(name);
        if(!arg)
        {
            fail(reader.where, ": argument '", name,
                 "' is unknown to this library. Update it: conda update flash-attn-rocm");
        }
        if(!slot.is_array() || slot.size() != 2 || !JsonReader::holds<std::uint32_t>(slot[0]) ||
           !JsonReader::holds<std::uint32_t>(slot[1]))
        {
            reader.reject("argument '", name, "' is ", JsonReader::excerpt(slot), "; expected [offset, size]");
        }
        const ArgSlot parsed = {slot[0].get<std::uint32_t>(), slot[1].get<std::uint32_t>()};
        if(parsed.size == 0 || parsed.offset + std::uint64_t{parsed.size} > kernel.kargs_bytes)
        {
            reader.reject("argument '", name, "' ", slot.dump(), " lies outside kargs_bytes ", kernel.kargs_bytes);
        }
        kernel.args[static_cast<std::size_t>(*arg)] = parsed;
        kernel.present.push_back(*arg);
    }
    std::sort(kernel.present.begin(), kernel.present.end());
}

KernelInfo parse_kernel(const JsonReader& reader, const Manifest& manifest)
{
    const std::size_t code_objects = manifest.code_objects.size();
    KernelInfo kernel;
    kernel.op          = reader.get<std::string>("op");
    kernel.code_object = reader.get<std::size_t>("code_object");
    if(kernel.code_object >= code_objects)
    {
        reader.reject("code_object is ", kernel.code_object, ", but there are ", code_objects);
    }
    kernel.dtype         = reader.get<std::string>("dtype");
    kernel.hdim_q        = reader.get<std::int64_t>("hdim_q");
    kernel.hdim_v        = reader.get<std::int64_t>("hdim_v");
    kernel.mode          = one_of(reader, "mode", "batch", "group");
    kernel.mask          = reader.get<bool>("mask");
    kernel.bias          = one_of(reader, "bias", "none", "alibi");
    kernel.softcap       = reader.get<bool>("softcap");
    kernel.dropout       = reader.get<bool>("dropout");
    kernel.padding       = parse_padding(reader);
    kernel.page          = reader.get<std::int64_t>("page");
    kernel.deterministic = reader.get<bool>("deterministic");
    kernel.tile_m        = reader.get<std::int64_t>("tile_m");
    kernel.tile_n        = reader.get<std::int64_t>("tile_n");
    kernel.block_threads = reader.get<std::uint32_t>("block_threads");
    kernel.kargs_bytes   = reader.get<std::uint32_t>("kargs_bytes");
    parse_args(reader, kernel);
    check_kernel(reader, kernel, manifest.wave_size);
    return kernel;
}

void check_schema(const JsonReader& reader, const std::filesystem::path& path)
{
    const int schema = reader.get<int>("schema");
    if(schema == kSchema)
    {
        return;
    }
    const std::string gfx = text_of(path.parent_path().filename());
    const std::string where = concat(text_of(path), ": schema ", schema, " is ");
    if(schema > kSchema)
    {
        fail(where, "newer than this library reads (", kSchema,
             "). Update the library: conda update flash-attn-rocm");
    }
    fail(where, "older than this library reads (", kSchema,
         "). Update the kernels: conda update flash-attn-rocm-kernels-", gfx);
}

Json parse_file(const std::filesystem::path& path, const std::string& remedy)
{
    std::error_code error;
    if(!std::filesystem::is_regular_file(path, error))
    {
        fail(text_of(path), ": not a regular file. ", remedy);
    }
    std::ifstream file(path, std::ios::binary);
    if(!file)
    {
        fail(text_of(path), ": cannot be opened. ", remedy);
    }
    try
    {
        return Json::parse(file);
    }
    catch(const Json::exception& failure)
    {
        fail(text_of(path), ": not valid JSON (", failure.what(), "). ", remedy);
    }
}

} // namespace

FeatureCode feature_code(const Features& features)
{
    // In the order of how often they are asked for; kernels of unknown ops are never chosen.
    constexpr std::string_view ops[] = {"fmha_fwd", "fmha_fwd_splitkv", "split_combine", "kv_prepare",
                                        "fmha_bwd", "bwd_dot",          "bwd_sum_keys",  "bwd_sum_heads"};
    const auto op = static_cast<FeatureCode>(std::find(std::begin(ops), std::end(ops), features.op) - std::begin(ops));
    const auto bit = [](bool value, int position) { return static_cast<FeatureCode>(value) << position; };
    return bit(features.group, 0) | bit(features.alibi, 1) | bit(features.softcap, 2) | bit(features.dropout, 3) |
           bit(features.dtype == "fp16", 4) | bit(features.dtype == "bf16", 5) | op << 6;
}

const std::vector<std::size_t>& Manifest::with_features(FeatureCode code) const
{
    static const std::vector<std::size_t> none;
    const auto found = by_features.find(code);
    return found == by_features.end() ? none : found->second;
}

const char* arg_name(Arg arg) { return kArgNames[static_cast<std::size_t>(arg)]; }

std::string reinstall_command(const std::string& gfx)
{
    return "conda install --force-reinstall flash-attn-rocm-kernels-" + gfx;
}

Manifest load_manifest(const std::filesystem::path& path)
{
    const std::string remedy = "Reinstall: " + reinstall_command(text_of(path.parent_path().filename()));
    const Json document      = parse_file(path, remedy);
    const JsonReader reader{document, text_of(path), remedy};
    check_schema(reader, path);
    Manifest manifest;
    manifest.path      = path;
    manifest.gfx       = reader.get<std::string>("gfx");
    manifest.profile   = reader.get<std::string>("profile");
    manifest.wave_size = reader.get<int>("wave_size");
    if(manifest.wave_size != 32 && manifest.wave_size != 64)
    {
        reader.reject("wave_size is ", manifest.wave_size, "; allowed: 32, 64");
    }
    for(const Json& entry : reader.array("code_objects"))
    {
        const std::size_t index = manifest.code_objects.size();
        const JsonReader row{entry, concat(text_of(path), ": code_objects[", index, "]"), remedy};
        manifest.code_objects.push_back(
            {row.get<std::string>("file"), row.get<std::string>("sha256"), row.get<std::uint64_t>("bytes")});
        if(!plain_file_name(manifest.code_objects.back().file))
        {
            row.reject("file is ", JsonReader::excerpt(entry["file"]), "; expected the name of a file in this directory");
        }
    }
    std::set<std::string> names;
    for(const Json& entry : reader.array("kernels"))
    {
        JsonReader row{entry, concat(text_of(path), ": kernels[", manifest.kernels.size(), "]"), remedy};
        const auto name = row.get<std::string>("name");
        row.where       = concat(text_of(path), ": kernel ", name);
        manifest.kernels.push_back(parse_kernel(row, manifest));
        KernelInfo& kernel = manifest.kernels.back();
        kernel.name        = name;
        const FeatureCode features = feature_code({kernel.op, kernel.dtype, kernel.mode == "group",
                                                   kernel.bias == "alibi", kernel.softcap, kernel.dropout});
        manifest.by_features[features].push_back(manifest.kernels.size() - 1);
        if(!names.insert(name).second)
        {
            row.reject("there are several of this name");
        }
    }
    return manifest;
}

} // namespace flash_attn_rocm
