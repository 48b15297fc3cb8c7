// Typed access to the fields of a JSON object: what is missing or of another type is an error with place and remedy.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "error.hpp"

namespace flash_attn_rocm {

struct JsonReader
{
    const nlohmann::json& object;
    std::string where;  // opens every error
    std::string remedy; // closes every error

    template <class... Parts>
    [[noreturn]] void reject(const Parts&... parts) const
    {
        fail(where, ": ", parts..., ". ", remedy);
    }

    const nlohmann::json& at(const char* key) const
    {
        if(!object.is_object() || !object.contains(key))
        {
            reject("field '", key, "' is missing");
        }
        return object.at(key);
    }

    const nlohmann::json& array(const char* key) const
    {
        const nlohmann::json& value = at(key);
        if(!value.is_array())
        {
            reject("field '", key, "' is ", excerpt(value), "; expected an array");
        }
        return value;
    }

    // Nothing is converted: 64.0 and true are no integers, and an integer that T cannot hold is an error.
    template <class T>
    T get(const char* key) const
    {
        const nlohmann::json& value = at(key);
        if constexpr(std::is_same_v<T, bool>)
        {
            if(!value.is_boolean())
            {
                reject("field '", key, "' is ", excerpt(value), "; expected true or false");
            }
            return value.get<bool>();
        }
        else if constexpr(std::is_integral_v<T>)
        {
            using Limits = std::numeric_limits<T>;
            if(!holds<T>(value))
            {
                reject("field '", key, "' is ", excerpt(value), "; expected an integer from ", Limits::min(), " to ",
                       Limits::max());
            }
            return value.get<T>();
        }
        else
        {
            static_assert(std::is_same_v<T, std::string>);
            if(!value.is_string())
            {
                reject("field '", key, "' is ", excerpt(value), "; expected a string");
            }
            return value.get<std::string>();
        }
    }

    template <class T>
    static bool holds(const nlohmann::json& value)
    {
        using Limits = std::numeric_limits<T>;
        if(value.is_number_unsigned())
        {
            return value.get<std::uint64_t>() <= static_cast<std::uint64_t>(Limits::max());
        }
        return value.is_number_integer() && std::is_signed_v<T> &&
               value.get<std::int64_t>() >= static_cast<std::int64_t>(Limits::min());
    }

    // A value as text, cut where it is long.
    static std::string excerpt(const nlohmann::json& value)
    {
        constexpr std::size_t kLongest = 80;
        const std::string text = value.dump(-1, ' ', true);
        return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
    }
};

} // namespace flash_attn_rocm
