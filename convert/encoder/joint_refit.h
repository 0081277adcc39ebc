// The joint least-squares solve for all entries of all books.
#pragma once

#include <cstdint>
#include <span>

#include "convert/encoder/codebooks.h"

namespace waste::convert {

/// Given which entries were chosen, moves all of them at once to where sum over rows of
/// importance * |x - gain * (sum of entries)|^2 is least. `x` [rows][cols], `indices` [rows][cols /
/// 8][stages], `gains` [rows], `importance` [cols] or empty. A small ridge towards the present values keeps
/// what the samples do not determine.
void joint_refit(std::span<const float> x, std::size_t cols, std::span<const std::uint8_t> indices,
                 std::span<const double> gains, std::span<const float> importance, Codebooks& books);

}  // namespace waste::convert
