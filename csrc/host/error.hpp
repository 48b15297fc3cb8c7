// The exception of the host library, and the joining of a message from its parts.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace flash_attn_rocm {

class Error : public std::runtime_error
{
public:
    using std::runtime_error::runtime_error;
};

// Marks the errors of requests that no installed kernel covers; the Python package turns them into
// KernelUnavailableError (src/flash_attn_rocm/backends/ck.py).
inline constexpr const char* kNoKernel = "no installed kernel: ";

template <class... Parts>
std::string concat(const Parts&... parts)
{
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
}

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts)
{
    throw Error(concat(parts...));
}

} // namespace flash_attn_rocm
