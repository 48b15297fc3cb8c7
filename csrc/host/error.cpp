// Makes any bytes fit for a message.
#include "error.hpp"

#include <cstdint>

namespace flash_attn_rocm {
namespace {

// Bytes of the UTF-8 character that starts at `at`; 0 where none does (RFC 3629: shortest form, no surrogates).
std::size_t character_length(const std::string& text, std::size_t at)
{
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : std::uint32_t{0};
    };
    const std::uint32_t first = byte(at);
    const std::size_t length  = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    std::uint32_t code        = length <= 1 ? first : first & (0x7fU >> length);
    for(std::size_t i = 1; i < length; ++i)
    {
        if((byte(at + i) & 0xc0) != 0x80)
        {
            return 0;
        }
        code = code << 6 | (byte(at + i) & 0x3f);
    }
    constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool surrogate               = code >= 0xd800 && code < 0xe000;
    return first > 0xf4 || code < smallest[length] || code > 0x10ffff || surrogate ? 0 : length;
}

} // namespace

std::string printable(const std::string& text)
{
    constexpr char digits[] = "0123456789abcdef";
    std::string result;
    for(std::size_t at = 0; at < text.size();)
    {
        const auto byte          = static_cast<unsigned char>(text[at]);
        const bool control       = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
        const std::size_t length = control ? 0 : character_length(text, at);
        if(length == 0)
        {
            result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
            ++at;
            continue;
        }
        result.append(text, at, length);
        at += length;
    }
    return result;
}

} // namespace flash_attn_rocm
