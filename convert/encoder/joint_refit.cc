#include "convert/encoder/joint_refit.h"

// Eigen's NEON code fuses multiplications and additions, its SSE code does not, and the two sum in other
// orders: the last bit of a book's entry in a million was another. Its plain code, half as fast, gives the
// same bits everywhere.
#define EIGEN_DONT_VECTORIZE
#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <array>

namespace waste::convert {

namespace {

using Matrix = Eigen::MatrixXd;

// Eigen cuts its blocks by the cache sizes it finds, and with them the order of sums: pin the sizes, so that
// the books are the same bits on every CPU.
void pin_block_sizes() {
  Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20);
}

// The ridge, as a share of the mean count of an entry.
constexpr double kRidge = 1e-4;

struct Problem {
  Matrix normal;  // lower triangle
  Matrix right;   // one column a dimension
};

Problem accumulate(std::span<const float> x, std::size_t cols, std::span<const std::uint8_t> indices,
                   std::span<const double> gains, std::span<const float> importance, const Codebooks& books,
                   int first_dim, int dims) {
  const int unknowns = books.stages * books.entries;
  Problem problem{Matrix::Zero(unknowns, unknowns), Matrix::Zero(unknowns, dims)};
  const std::size_t vectors = cols / kVectorDim;
  std::array<int, kMaxStages> at{};
  for (std::size_t v = 0; v < x.size() / kVectorDim; v++) {
    const double gain = gains[v / vectors];
    const std::size_t column = v % vectors * kVectorDim + first_dim;
    const double weight = importance.empty() ? 1 : importance[column];
    for (int s = 0; s < books.stages; s++) at[s] = s * books.entries + indices[v * books.stages + s];
    for (int s = 0; s < books.stages; s++) {
      for (int t = 0; t <= s; t++) problem.normal(at[s], at[t]) += weight * gain * gain;
      for (int d = 0; d < dims; d++) {
        problem.right(at[s], d) += weight * gain * static_cast<double>(x[v * kVectorDim + first_dim + d]);
      }
    }
  }
  return problem;
}

void solve(Problem& problem, Codebooks& books, int first_dim) {
  const int unknowns = static_cast<int>(problem.normal.rows());
  const double ridge = kRidge * problem.normal.trace() / unknowns + 1e-12;
  problem.normal.diagonal().array() += ridge;
  for (int d = 0; d < problem.right.cols(); d++) {
    for (int i = 0; i < unknowns; i++) {
      problem.right(i, d) += ridge * static_cast<double>(books.values[i * kVectorDim + first_dim + d]);
    }
  }
  const Eigen::LLT<Eigen::Ref<Matrix>> factor(problem.normal);
  if (factor.info() != Eigen::Success) return;
  const Matrix solution = factor.solve(problem.right);
  for (int d = 0; d < solution.cols(); d++) {
    for (int i = 0; i < unknowns; i++) {
      books.values[i * kVectorDim + first_dim + d] = static_cast<float>(solution(i, d));
    }
  }
}

}  // namespace

void joint_refit(std::span<const float> x, std::size_t cols, std::span<const std::uint8_t> indices,
                 std::span<const double> gains, std::span<const float> importance, Codebooks& books) {
  pin_block_sizes();
  // Without importance all eight dimensions share one matrix.
  const int dims = importance.empty() ? kVectorDim : 1;
  for (int d = 0; d < kVectorDim; d += dims) {
    Problem problem = accumulate(x, cols, indices, gains, importance, books, d, dims);
    solve(problem, books, d);
  }
}

}  // namespace waste::convert
