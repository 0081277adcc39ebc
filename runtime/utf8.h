// Where UTF-8 sequences begin and end. Overlong forms, surrogates and code points above U+10FFFF are invalid,
// as in Unicode's table 3-7.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace waste::runtime {

/// The length, 1 to 4, of the sequence that `text` starts with; 0 when it starts with none: it is empty,
/// invalid, or ends too soon.
std::size_t utf8_length(std::string_view text);

/// Whether bytes appended to `text` could make it one valid sequence: it is a proper, non-empty prefix of
/// one.
bool utf8_incomplete(std::string_view text);

/// The length of the longest prefix of `text` that is valid UTF-8.
std::size_t utf8_valid_prefix(std::string_view text);

/// `text` with every byte that belongs to no valid sequence replaced by U+FFFD, for output that must be UTF-8
/// (JSON).
std::string utf8_replace_invalid(std::string_view text);

}  // namespace waste::runtime
