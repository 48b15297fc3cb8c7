// Converts between UTF-8 and what the operating system uses.
#include "text.hpp"

#ifdef _WIN32
#include <windows.h>
#else
#include <cstdlib>
#endif

namespace flash_attn_rocm {

std::filesystem::path path_of(const std::string& text) { return std::u8string(text.begin(), text.end()); }

std::string text_of(const std::filesystem::path& path)
{
    const std::u8string text = path.u8string();
    return {text.begin(), text.end()};
}

std::string environment(const char* name)
{
#ifdef _WIN32
    const std::wstring wide_name = path_of(name).wstring();
    std::wstring value(GetEnvironmentVariableW(wide_name.c_str(), nullptr, 0), L'\0');
    if(value.empty())
    {
        return {};
    }
    value.resize(GetEnvironmentVariableW(wide_name.c_str(), value.data(), static_cast<DWORD>(value.size())));
    return text_of(std::filesystem::path(value));
#else
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
#endif
}

} // namespace flash_attn_rocm
