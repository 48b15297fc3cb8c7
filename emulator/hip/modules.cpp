// Loading code objects and launching their kernels.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "decode/disassembler.hpp"
#include "decode/listing.hpp"
#include "hip/runtime.hpp"
#include "machine/family.hpp"
#include "platform/elf.hpp"
#include "platform/platform.hpp"

namespace emu::hip {
namespace {

constexpr std::uint64_t kDefaultInstructionLimit = 2'000'000'000;  // per wave: about two minutes
constexpr std::uint64_t kLargestFile = std::uint64_t(1) << 30;

// hipModuleLoadData gets no size, so a truncated image cannot be told from its pointer: it is copied with care.
template <class T>
std::vector<T> copy_table(const void* image, std::uint64_t offset, unsigned count) {
  std::vector<T> table(count);
  if (offset > kLargestFile || !platform::copy_checked(table.data(), static_cast<const char*>(image) + offset, count * sizeof(T)))
    throw std::runtime_error("code object is truncated: its header tables cannot be read");
  return table;
}

// The file that an ELF image at `image` is: its size follows from its headers.
std::vector<std::uint8_t> copy_image(const void* image) {
  const auto header = copy_table<Elf64_Ehdr>(image, 0, 1)[0];
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    throw std::runtime_error("not a code object: no 64-bit ELF header");
  std::uint64_t size = sizeof header;
  const auto extend = [&size](std::uint64_t offset, std::uint64_t bytes) {
    if (offset > kLargestFile || bytes > kLargestFile)
      throw std::runtime_error("code object has a part of impossible size");
    size = std::max(size, offset + bytes);
  };
  extend(header.e_phoff, std::uint64_t(header.e_phnum) * sizeof(Elf64_Phdr));
  extend(header.e_shoff, std::uint64_t(header.e_shnum) * sizeof(Elf64_Shdr));
  for (const Elf64_Phdr& segment : copy_table<Elf64_Phdr>(image, header.e_phoff, header.e_phnum))
    extend(segment.p_offset, segment.p_filesz);
  for (const Elf64_Shdr& section : copy_table<Elf64_Shdr>(image, header.e_shoff, header.e_shnum))
    if (section.sh_type != SHT_NOBITS) extend(section.sh_offset, section.sh_size);
  return copy_table<std::uint8_t>(image, 0, static_cast<unsigned>(size));
}

std::uint64_t instruction_limit() {
  const std::string setting = platform::environment("FLASH_ATTN_ROCM_EMULATOR_INSTRUCTION_LIMIT");
  const std::uint64_t value = std::strtoull(setting.c_str(), nullptr, 10);
  return value == 0 ? kDefaultInstructionLimit : value;
}

// A kernel's name as a JSON string's contents.
std::string json_text(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    text += c < ' ' || c > '~' ? '?' : c;
  }
  return text;
}

}  // namespace

std::filesystem::path library_directory() {
  std::error_code error;
  const void* const here = reinterpret_cast<const void*>(&library_directory);
  const std::filesystem::path path = std::filesystem::canonical(platform::library_of(here), error);
  return error ? "." : path.parent_path();
}

// Names out of a damaged file may hold any bytes; callers get printable text.
void Runtime::set_fault(const std::string& text) {
  fault_ = text;
  for (char& c : fault_)
    if ((c < ' ' && c != '\n') || c > '~') c = '?';
}

Error Runtime::load_module(Module** module, const void* image, int device) {
  if (module == nullptr || image == nullptr) return kErrorInvalidValue;
  *module = nullptr;
  const Device& target = emulated_devices().devices[static_cast<std::size_t>(device)];
  try {
    auto loaded = std::make_unique<Module>();
    loaded->device = device;
    loaded->object = std::make_unique<CodeObject>(copy_image(image));
    const CodeObject& object = *loaded->object;
    if (object.gfx() != target.gfx) {
      set_fault("code object is for " + object.gfx() + ", device " + std::to_string(device) + " is " + target.gfx);
      return kErrorNoBinaryForGpu;
    }
    loaded->symbols = disassemble({object.file(), object.sha256(), object.code_end(),
                                   std::string(find_family(target.family)->target_features), library_directory()});
    *module = loaded.get();
    modules_[loaded.get()] = std::move(loaded);
    return kSuccess;
  } catch (const std::bad_alloc&) {
    return kErrorOutOfMemory;
  } catch (const std::exception& error) {
    set_fault(error.what());
    return kErrorInvalidImage;
  }
}

Error Runtime::unload_module(Module* module) {
  const auto found = modules_.find(module);
  if (found == modules_.end()) return kErrorInvalidHandle;
  for (const auto& [name, function] : module->functions) functions_.erase(function.get());
  modules_.erase(found);
  return kSuccess;
}

Error Runtime::find_function(Function** function, Module* module, const char* name) {
  if (function == nullptr || name == nullptr) return kErrorInvalidValue;
  *function = nullptr;
  if (modules_.count(module) == 0) return kErrorInvalidHandle;
  if (const auto known = module->functions.find(name); known != module->functions.end()) {
    *function = known->second.get();
    return kSuccess;
  }
  const auto kernel = module->object->kernels().find(name);
  if (kernel == module->object->kernels().end()) {
    set_fault("code object has no kernel " + std::string(name));
    return kErrorNotFound;
  }
  try {
    const Device& device = emulated_devices().devices[static_cast<std::size_t>(module->device)];
    const std::optional<CodeSymbol> symbol = code_from(module->symbols, kernel->second.entry);
    if (!symbol) throw LoweringError("kernel " + std::string(name) + " has no code in the disassembly");
    if (kernel->second.wave_size != static_cast<unsigned>(device.wave_size))
      throw LoweringError("kernel " + std::string(name) + " is for waves of " +
                          std::to_string(kernel->second.wave_size) + ", not emulated on " + device.gfx);
    auto made = std::make_unique<Function>();
    made->module = module;
    made->kernel = &kernel->second;
    made->program = lower_kernel(*module->object, kernel->second, *symbol, *find_family(device.family), checks().waits);
    *function = made.get();
    functions_[made.get()] = module;
    module->functions[name] = std::move(made);
    return kSuccess;
  } catch (const std::exception& error) {
    set_fault(error.what());
    return kErrorInvalidImage;
  }
}

const Checks& Runtime::checks() {
  if (!checks_) checks_ = checks_from_environment();
  return *checks_;
}

Error Runtime::set_checks(const char* names, std::uint64_t seed) {
  try {
    if (names == nullptr)
      checks_.reset();
    else
      checks_ = parse_checks(names, seed);
    return kSuccess;
  } catch (const std::exception& error) {
    set_fault(error.what());
    return kErrorInvalidValue;
  }
}

// {"kernels": [{"gfx": ..., "name": ..., "launches": n, "executed": {"matrix": n, ...}}]}
std::string Runtime::profile() const {
  std::string text = "{\"kernels\": [";
  for (const auto& [key, profile] : profiles_) {
    text += text.back() == '[' ? "" : ", ";
    text += "{\"gfx\": \"" + key.first + "\", \"name\": \"" + json_text(key.second) +
            "\", \"launches\": " + std::to_string(profile.launches) + ", \"executed\": {";
    for (std::size_t i = 0; i < kClasses; ++i)
      text += std::string(i == 0 ? "\"" : ", \"") + std::string(kClassNames[i]) +
              "\": " + std::to_string(profile.executed[i]);
    text += "}}";
  }
  return text + "]}";
}

Error Runtime::find_global(void** address, std::size_t* bytes, Module* module, const char* name) const {
  if (name == nullptr || (address == nullptr && bytes == nullptr)) return kErrorInvalidValue;
  if (modules_.count(module) == 0) return kErrorInvalidHandle;
  const CodeObject& object = *module->object;
  const CodeObject::Range* range = object.find_object(name);
  if (range == nullptr) return kErrorNotFound;
  if (address != nullptr) *address = const_cast<std::uint8_t*>(object.image()) + range->begin;
  if (bytes != nullptr) *bytes = range->end - range->begin;
  return kSuccess;
}

Error Runtime::function_attribute(int* value, int attribute, const Function* function) const {
  if (value == nullptr) return kErrorInvalidValue;
  if (functions_.count(function) == 0) return kErrorInvalidHandle;
  const KernelDescriptor& kernel = *function->kernel;
  const Device& device = emulated_devices().devices[static_cast<std::size_t>(function->module->device)];
  switch (static_cast<FunctionAttribute>(attribute)) {
    case FunctionAttribute::kMaxThreadsPerBlock:
      *value = static_cast<int>(kernel.max_workgroup_size);
      return kSuccess;
    case FunctionAttribute::kSharedSizeBytes:
      *value = static_cast<int>(kernel.lds_bytes);
      return kSuccess;
    case FunctionAttribute::kConstSizeBytes:
      *value = 0;
      return kSuccess;
    case FunctionAttribute::kLocalSizeBytes:
      *value = static_cast<int>(kernel.scratch_bytes);
      return kSuccess;
    case FunctionAttribute::kNumRegs:
      *value = static_cast<int>(kernel.vgprs);
      return kSuccess;
    case FunctionAttribute::kMaxDynamicSharedSizeBytes:
      *value = static_cast<int>(device.lds_bytes - kernel.lds_bytes);
      return kSuccess;
  }
  return kErrorInvalidValue;
}

Error Runtime::gather_arguments(const Function* function, void** parameters, std::vector<u8>& block) const {
  if (functions_.count(function) == 0) return kErrorInvalidHandle;
  block.assign(function->kernel->explicit_kernarg_bytes, 0);
  const std::vector<KernelArgument>& arguments = function->kernel->arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (parameters[i] == nullptr) return kErrorInvalidValue;
    std::memcpy(block.data() + arguments[i].offset, parameters[i], arguments[i].size);
  }
  return kSuccess;
}

Error Runtime::run(const Function* function, int stream_device, LaunchRequest request) {
  if (functions_.count(function) == 0 || function->module->device != stream_device) return kErrorInvalidHandle;
  request.object = function->module->object.get();
  request.kernel = function->kernel;
  request.program = function->program;
  request.memory = ranges_of(function->module->device);
  const Device& device = emulated_devices().devices[static_cast<std::size_t>(function->module->device)];
  request.family = find_family(device.family);
  request.lds_limit_bytes = device.lds_bytes;
  request.instruction_limit = instruction_limit();
  try {
    request.checks = checks();
    if (const auto reason = check_request(request)) {
      set_fault(*reason);
      return request.arguments.size() < request.kernel->explicit_kernarg_bytes ? kErrorInvalidValue
                                                                               : kErrorInvalidConfiguration;
    }
    const LaunchResult result = launch(request);
    executed_ += result.executed;
    if (!result.faulted) {
      KernelProfile& profile = profiles_[{request.object->gfx(), request.program->kernel}];
      ++profile.launches;
      for (std::size_t i = 0; i < kClasses; ++i) profile.executed[i] += result.profile[i];
      return kSuccess;
    }
    set_fault(result.fault);
    return result.bad_address ? kErrorIllegalAddress : kErrorLaunchFailure;
  } catch (const std::bad_alloc&) {
    return kErrorOutOfMemory;
  } catch (const std::exception& error) {
    set_fault(error.what());
    return kErrorLaunchFailure;
  }
}

}  // namespace emu::hip
