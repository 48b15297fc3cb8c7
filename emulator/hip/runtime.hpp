// State behind the HIP functions: memory, modules, and the text of the last fault. One lock guards it all; a kernel
// runs to its end inside the call that launches it, so streams are in order by construction.
#pragma once
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "decode/instruction.hpp"
#include "hip/device_memory.hpp"
#include "hip/devices.hpp"
#include "machine/launch.hpp"

namespace emu::hip {

struct Module;

struct Function {
  Module* module = nullptr;
  const KernelDescriptor* kernel = nullptr;
  std::shared_ptr<const Program> program;
};

struct Module {
  int device = 0;
  std::unique_ptr<CodeObject> object;
  std::vector<CodeSymbol> symbols;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

// Wave instructions that a kernel executed, by class.
struct KernelProfile {
  std::uint64_t launches = 0;
  std::array<std::uint64_t, kClasses> executed{};
};

struct Stream {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
};

struct Event {
  int device = 0;
  bool timed = true, recorded = false;
  double at_ms = 0;
};

struct Allocation {
  int device = 0;
  std::size_t bytes = 0;
  DeviceMemory memory;
};

class Runtime {
 public:
  static Runtime& get();
  std::recursive_mutex mutex;

  // Memory (memory.cpp).
  Error allocate(void** pointer, std::size_t bytes, int device);
  Error release(void* pointer);
  Error register_host(void* pointer, std::size_t bytes);
  Error unregister_host(void* pointer);
  Error copy(void* target, const void* source, std::size_t bytes, int kind);
  Error fill(void* target, int value, std::size_t bytes);
  PointerAttributes attributes_of(const void* pointer) const;
  std::size_t allocated_on(int device) const;
  // What a kernel on a device may touch.
  std::vector<MemoryRange> ranges_of(int device) const;

  // Modules and kernels (modules.cpp).
  Error load_module(Module** module, const void* image, int device);
  Error unload_module(Module* module);
  Error find_function(Function** function, Module* module, const char* name);
  Error find_global(void** address, std::size_t* bytes, Module* module, const char* name) const;
  Error function_attribute(int* value, int attribute, const Function* function) const;
  // The argument block from pointers to the single arguments.
  Error gather_arguments(const Function* function, void** parameters, std::vector<u8>& block) const;
  // `device` is the one of the stream: a kernel runs where its module was loaded.
  Error run(const Function* function, int device, LaunchRequest request);

  // The optional checks: the environment's, read at the first use, until set_checks gives others (null: the
  // environment's again).
  const Checks& checks();
  Error set_checks(const char* names, std::uint64_t seed);
  // JSON of the profiles of all launches that did not fault.
  std::string profile() const;

  bool is_stream(const Stream* stream) const { return stream == nullptr || streams.count(stream) != 0; }
  std::map<const Stream*, std::unique_ptr<Stream>> streams;
  std::map<const Event*, std::unique_ptr<Event>> events;

  void set_fault(const std::string& text);
  const std::string& fault() const { return fault_; }
  std::uint64_t executed() const { return executed_; }  // wave instructions of all launches

 private:
  bool inside_allocation(const void* pointer, std::size_t bytes) const;

  std::map<std::uintptr_t, Allocation> allocations_;
  std::map<std::uintptr_t, std::size_t> registered_;
  std::map<const Module*, std::unique_ptr<Module>> modules_;
  std::map<const Function*, Module*> functions_;
  std::map<std::pair<std::string, std::string>, KernelProfile> profiles_;  // by gfx and kernel
  std::optional<Checks> checks_;
  std::string fault_;
  std::uint64_t executed_ = 0;
};

// Directory of this library, which holds decoded/.
std::filesystem::path library_directory();

}  // namespace emu::hip
