// Overflow-safe arithmetic for sizes that come from files. An overflow is an error about the data, never a
// wrapped number: callers pass what they were computing, so the message can say it.
#pragma once

#include <cstdint>
#include <string_view>

#include "container/core/error.h"

namespace waste {

inline std::uint64_t checked_add(std::uint64_t a, std::uint64_t b, std::string_view what) {
  std::uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) fail_data("{}: {} + {} overflows", what, a, b);
  return r;
}

inline std::uint64_t checked_mul(std::uint64_t a, std::uint64_t b, std::string_view what) {
  std::uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) fail_data("{}: {} x {} overflows", what, a, b);
  return r;
}

constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return a / b + (a % b != 0);
}

/// `a` rounded up to a multiple of `unit`. Callers bound `a` first.
constexpr std::uint64_t round_up(std::uint64_t a, std::uint64_t unit) {
  return ceil_div(a, unit) * unit;
}

}  // namespace waste
