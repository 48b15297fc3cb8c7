// An AMD code object (ELF) loaded into host memory: image, kernel descriptors and metadata.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace emu {

struct Family;

// Registers that a kernel may use. VGPRs from accum_offset on are the accumulation registers under other names: a kernel may
// use them as one or as the other.
struct VgprCounts {
  std::uint32_t vector = 0, accumulation = 0, accum_offset = 256;
};

// An argument, by the metadata's value_kind: "by_value", ..., or "hidden_block_count_x", ... for the runtime to fill.
struct KernelArgument {
  std::string kind;
  std::uint32_t offset = 0, size = 0;
};

// Kernel descriptor (LLVM AMDGPU usage, "Kernel Descriptor") and the metadata that belongs to it.
struct KernelDescriptor {
  std::string name;
  std::uint64_t address = 0;  // of the descriptor, in the code object
  std::uint64_t entry = 0;    // of the first instruction, in the code object
  std::uint32_t lds_bytes = 0, scratch_bytes = 0, kernarg_bytes = 0;
  std::uint32_t explicit_kernarg_bytes = 0;  // what the caller must pass; hidden arguments follow
  std::uint32_t max_workgroup_size = 1024;
  std::uint32_t wave_size = 32;
  std::uint32_t vgprs = 256;         // allocated per lane, accumulation registers included
  std::uint32_t accum_offset = 256;  // where the accumulation registers begin, in families that have them
  std::uint32_t user_sgprs = 0;
  std::uint32_t workitem_id_mode = 0;   // 0: x, 1: x and y, 2: x, y and z packed in v0
  std::uint32_t mode = 0;               // MODE register at the start: rounding, denormals, dx10_clamp, IEEE
  std::uint32_t denormal_mode_f32 = 3;  // bit 0 keeps denormal inputs, bit 1 denormal results
  std::uint32_t preloaded_arguments = 0;  // dwords of arguments that the kernel expects in SGPRs
  bool dispatch_ptr = false, queue_ptr = false, kernarg_ptr = false, dispatch_id = false;
  bool private_segment_buffer = false, flat_scratch_init = false, private_segment_size = false;
  bool workgroup_id[3] = {}, workgroup_info = false, private_segment = false;
  std::vector<KernelArgument> hidden;
  std::vector<KernelArgument> arguments;  // what the caller passes, in the order of the kernel's parameters

  VgprCounts vgpr_counts(const Family& family) const;
};

class CodeObject {
 public:
  // Throws std::runtime_error saying what is wrong with the file.
  explicit CodeObject(std::span<const std::uint8_t> file);

  const std::string& gfx() const { return gfx_; }
  const std::string& sha256() const { return sha256_; }
  std::span<const std::uint8_t> file() const { return file_; }
  const std::map<std::string, KernelDescriptor>& kernels() const { return kernels_; }
  // Host address of a code-object address; the image is contiguous.
  const std::uint8_t* image() const { return image_.get(); }
  std::uint64_t image_bytes() const { return image_bytes_; }
  // Addresses that kernels may write: the segments of global variables.
  struct Range {
    std::uint64_t begin, end;
  };
  const std::vector<Range>& writable() const { return writable_; }
  // Where the last function ends; 0 where symbols do not say.
  std::uint64_t code_end() const { return code_end_; }
  // A variable or other data object, by name; null where there is none.
  const Range* find_object(const std::string& name) const;
  // Bytes of [address, address + size) in the image. Throws where they are outside.
  std::span<const std::uint8_t> at(std::uint64_t address, std::uint64_t size) const;

 private:
  struct AlignedDelete {
    void operator()(std::uint8_t* memory) const;
  };
  void load_segments();
  void read_metadata(std::span<const std::uint8_t> note);
  void read_descriptor(KernelDescriptor& kernel) const;

  std::vector<std::uint8_t> file_;
  std::string sha256_, gfx_;
  std::unique_ptr<std::uint8_t[], AlignedDelete> image_;
  std::uint64_t image_bytes_ = 0, code_end_ = 0;
  std::map<std::string, std::uint64_t> symbols_;
  std::map<std::string, KernelDescriptor> kernels_;
  std::map<std::string, Range> objects_;
  std::vector<Range> writable_;
};

}  // namespace emu
