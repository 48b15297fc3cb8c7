// The exception of the host library, and messages: joined from their parts, and printable whatever they quote.
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

// The text with every byte that is not part of valid UTF-8, and every control character but line breaks and tabs,
// written as \xNN: messages quote file names and damaged files, and become Python strings and JSON.
std::string printable(const std::string& text);

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts)
{
    throw Error(printable(concat(parts...)));
}

} // namespace flash_attn_rocm
