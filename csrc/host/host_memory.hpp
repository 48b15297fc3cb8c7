// Makes host memory visible to the emulated GPU for the time of a launch: exactly the bytes of the tensors, no more,
// so that a kernel that reads or writes outside of them faults.
#pragma once

#include <cstdint>
#include <vector>

#include "hip_loader.hpp"

namespace flash_attn_rocm {

struct ByteRange
{
    std::uintptr_t begin;
    std::uintptr_t end;
};

// Sorted, disjoint, without empty ranges; ranges that overlap or touch are joined.
std::vector<ByteRange> merge_ranges(std::vector<ByteRange> ranges);

class HostRegistration
{
public:
    HostRegistration(const HipRuntime& hip, std::vector<ByteRange> ranges);
    ~HostRegistration();
    HostRegistration(const HostRegistration&)            = delete;
    HostRegistration& operator=(const HostRegistration&) = delete;

private:
    void release();

    const HipRuntime& hip_;
    std::vector<void*> registered_;
};

} // namespace flash_attn_rocm
