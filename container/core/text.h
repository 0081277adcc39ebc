// Numbers for people, and the sizes and durations people write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace waste {

/// "982.1 GB", "1.56 TB", "17 KB": powers of 1000, three or four significant digits.
std::string format_bytes(double bytes);
/// "3.7 M", "90.2 M", "1.05 G": powers of 1000.
std::string format_count(double count);
/// "45 s", "12 min 5 s", "3 h 20 min", "2 d 4 h".
std::string format_duration(double seconds);

/// "4096", "512M", "4G", "1.5T" in powers of 1000; "512MiB", "4GiB" in powers of 1024; an optional trailing
/// "B". Anything else, zero-length, negative or above 2^63 is Error(Usage) naming `option`.
std::uint64_t parse_size(std::string_view text, std::string_view option);

/// A decimal integer in [low, high]; anything else is Error(Usage) naming `option`.
std::uint64_t parse_integer(std::string_view text, std::string_view option, std::uint64_t low,
                            std::uint64_t high);

}  // namespace waste
