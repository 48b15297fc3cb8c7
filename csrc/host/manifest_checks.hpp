// Whether a row of kernels.json describes a kernel that can be launched: its arguments, tile and workgroup.
#pragma once

#include "json_reader.hpp"
#include "manifest.hpp"

namespace flash_attn_rocm {

// Throws Error, through `reader`, where the row contradicts itself or lacks what a launch needs.
void check_kernel(const JsonReader& reader, const KernelInfo& kernel, int wave_size);

// True for the plain name of a file beside kernels.json: no directories, drive, "." or "..".
bool plain_file_name(const std::string& name);

} // namespace flash_attn_rocm
