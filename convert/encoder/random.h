// Random numbers that are the same everywhere: the standard library's distributions are not.
#pragma once

#include <cstdint>

namespace waste::convert {

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
  /// In [0, bound), bound at most 2^32; the bias of 2^-32 does not matter here.
  std::uint64_t below(std::uint64_t bound) { return (next() >> 32) * bound >> 32; }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace waste::convert
