// What an encoding of the experts is made of: the shape of its codebooks and how hard it looks for good
// codes.
#pragma once

#include <cstddef>
#include <string_view>

namespace waste::convert {

/// Weights are coded eight neighbours of a row at a time.
inline constexpr int kVectorDim = 8;
inline constexpr int kMaxStages = 4;

/// The same bytes at rising cost. All start from k-means and end with a least-squares scale a row; the
/// figures are 3 x 256 on MXFP4'd Gaussian weights (20.1% with the recipe in use elsewhere) and one Zen 5
/// core with AVX-512.
///
///          refit rounds   search                          error    weights/s
///  Fast         10        greedy                          18.7%      121 M
///  Normal       20        beam of about 8                 16.1%       15 M
///  Best         30        beam of about 32, then again    15.7%      2.8 M
///                         at the refitted scale
///
/// Two books are searched twice as wide, which is still faster than three (27 M). At Normal and Best
/// they get up to 7.5 times as many rounds from less than 180,000 vectors of training, under noise that
/// fades.
enum class Quality { Fast, Normal, Best };

std::string_view quality_name(Quality quality);
/// "fast", "normal" or "best"; anything else is Error(Usage).
Quality parse_quality(std::string_view name);

/// vq3 is 3 x 256 (3 bits a weight), vq2 2 x 256, vq4p 4 x 64 (3 bits in packed indices).
struct ExpertRecipe {
  int stages = 3;
  int entries = 256;
  Quality quality = Quality::Normal;
};

/// Vectors of eight weights that training wants at this quality; more are left unused, fewer are all used.
std::size_t training_vectors(Quality quality);

/// Sums over what was encoded, accumulated in one fixed order so that the report of a conversion is
/// reproducible to the bit.
struct ErrorSums {
  double error = 0;   // sum of (w - decoded)^2
  double energy = 0;  // sum of w^2

  void add(const ErrorSums& other) {
    error += other.error;
    energy += other.energy;
  }
  /// ||w - decoded|| / ||w||; 0 for nothing but zeros.
  double relative() const;
};

}  // namespace waste::convert
