// How torch calls an op: with its arguments on a stack. An error of the op reaches torch as an exception that torch's
// own compiler understands.
#pragma once

#include <cstdint>

#include <torch/csrc/stable/library.h>

namespace flash_attn_rocm {

using BoxedOp = void (*)(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);

} // namespace flash_attn_rocm

#ifdef __MINGW32__

#include <exception>
#include <string>

namespace flash_attn_rocm {

// Throws torch's own exception with this text, from inside torch; does not return.
[[noreturn]] void throw_in_torch(const char* text);

// What the ops of this thread failed with last.
inline std::string& op_error()
{
    static thread_local std::string text;
    return text;
}

template <auto boxed>
bool run_boxed(StableIValue* stack, std::uint64_t arguments, std::uint64_t results)
{
    try
    {
        boxed(stack, arguments, results);
        return true;
    }
    catch(const std::exception& error)
    {
        op_error() = error.what();
        return false;
    }
}

// torch for Windows is compiled by MSVC, whose code does not catch exceptions of MinGW's: one would end the process. So
// none leaves an op. This frame owns nothing, since torch's exception passes it without running destructors.
template <auto boxed>
void boxed_for_torch(StableIValue* stack, std::uint64_t arguments, std::uint64_t results)
{
    if(!run_boxed<boxed>(stack, arguments, results))
    {
        throw_in_torch(op_error().c_str());
    }
}

} // namespace flash_attn_rocm

#define FA_BOX(function) (&flash_attn_rocm::boxed_for_torch<TORCH_BOX(function)>)

#else

#define FA_BOX(function) TORCH_BOX(function)

#endif
