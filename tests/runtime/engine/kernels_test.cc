// Every kernel of every instruction set this CPU has, against double precision and bit for bit against the
// baseline.
#include "runtime/kernels/kernels.h"

#include <doctest/doctest.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "container/core/half.h"
#include "container/core/simd.h"

using namespace waste;
using namespace waste::runtime;

namespace {

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> sets = {&baseline_kernels()};
#if defined(__x86_64__)
  const SimdLevel best = simd_levels().back();
  if (best >= SimdLevel::Avx2) sets.push_back(&avx2_kernels());
  if (best == SimdLevel::Avx512 && __builtin_cpu_supports("avx512vnni") &&
      __builtin_cpu_supports("avx512vbmi"))
    sets.push_back(&avx512_kernels());
#elif defined(__aarch64__)
  sets.push_back(&neon_kernels());
  if ((::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) sets.push_back(&dotprod_kernels());
#endif
  return sets;
}

std::mt19937 random_bits(1);

std::vector<float> random_floats(std::size_t n, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(n);
  for (float& f : x) f = normal(random_bits);
  return x;
}

std::vector<std::uint8_t> random_bytes(std::size_t n) {
  std::vector<std::uint8_t> x(n);
  for (auto& b : x) b = static_cast<std::uint8_t>(random_bits());
  return x;
}

std::vector<std::uint16_t> random_halves(std::size_t n) {
  std::uniform_real_distribution<float> uniform(1e-6f, 0.02f);  // subnormal halves among them
  std::vector<std::uint16_t> x(n);
  for (auto& h : x) h = float_to_half(uniform(random_bits));
  return x;
}

double relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Quantised {
  std::vector<std::uint8_t> data;
  std::vector<std::uint16_t> scales;
  WeightMatrix matrix;

  Quantised(WeightKind kind, std::size_t rows, std::size_t cols) {
    const std::size_t groups = (cols + kGroup - 1) / kGroup;
    data = random_bytes(rows * groups * (kind == WeightKind::Q4G ? 64 : 128));
    scales = random_halves(rows * groups);
    matrix = {kind, data.data(), scales.data(), rows, cols, groups};
  }
  double at(std::size_t r, std::size_t c) const {
    const std::size_t i = r * matrix.groups * kGroup + c;
    const int q = matrix.kind == WeightKind::Q4G ? (data[i / 2] >> (i % 2 * 4) & 15) - 8
                                                 : static_cast<std::int8_t>(data[i]);
    return static_cast<double>(q) * half_to_float(scales[r * matrix.groups + c / kGroup]);
  }
};

std::vector<float> run_product(const Kernels& k, const WeightMatrix& w, const std::vector<float>& x,
                               std::size_t tokens) {
  std::vector<ActivationGroup> groups(tokens * w.groups);
  std::vector<float> scales(tokens * w.groups);
  for (std::size_t t = 0; t < tokens; ++t)
    k.quantize(x.data() + t * w.cols, w.cols, w.kind, &groups[t * w.groups], &scales[t * w.groups]);
  std::vector<float> y(tokens * w.rows);
  const Activations in = {groups.data(), scales.data(), w.groups, tokens};
  (w.kind == WeightKind::Q4G ? k.product_q4g : k.product_q8g)(w, 0, w.rows, in, y.data(), w.rows);
  return y;
}

}  // namespace

TEST_CASE("quantised products are accurate, the same on every path and for every batch") {
  for (const WeightKind kind : {WeightKind::Q4G, WeightKind::Q8G}) {
    for (const std::size_t cols : {128u, 208u, 2304u}) {
      const std::size_t rows = 23;
      const std::size_t tokens = 7;
      const Quantised w(kind, rows, cols);
      auto x = random_floats(tokens * cols);
      x[5] = 40;  // an outlier costs its own group some precision and no other
      std::vector<double> want(tokens * rows);
      for (std::size_t t = 0; t < tokens; ++t)
        for (std::size_t r = 0; r < rows; ++r)
          for (std::size_t c = 0; c < cols; ++c) want[t * rows + r] += w.at(r, c) * x[t * cols + c];
      const auto base = run_product(baseline_kernels(), w.matrix, x, tokens);
      CHECK(relative_error({base.begin() + rows, base.end()}, {want.begin() + rows, want.end()}) < 3e-5);
      CHECK(relative_error(base, want) < 3e-4);
      for (const Kernels* k : all_kernels()) {
        CAPTURE(k->name);
        CHECK(same_bits(run_product(*k, w.matrix, x, tokens), base));
        for (std::size_t t = 0; t < tokens; ++t) {
          const std::vector<float> one(x.begin() + t * cols, x.begin() + (t + 1) * cols);
          CHECK(same_bits(run_product(*k, w.matrix, one, 1),
                          {base.begin() + t * rows, base.begin() + (t + 1) * rows}));
        }
      }
    }
  }
}

TEST_CASE("extreme activations and weights do not overflow") {
  for (const WeightKind kind : {WeightKind::Q4G, WeightKind::Q8G}) {
    Quantised w(kind, 8, 256);
    for (const int fill : {0x00, 0x7F, 0x80, 0xFF}) {
      std::fill(w.data.begin(), w.data.end(), static_cast<std::uint8_t>(fill));
      for (const float value : {3e38f, -3e38f, 1e-35f, 0.0f}) {
        const std::vector<float> x(256, value / 1e4f);
        const auto base = run_product(baseline_kernels(), w.matrix, x, 1);
        double want = 0;
        for (std::size_t c = 0; c < 256; ++c) want += w.at(0, c) * x[c];
        CHECK(std::abs(base[0] - want) <= 1e-4 * std::abs(want) + 1e-30);
        for (const Kernels* k : all_kernels()) CHECK(same_bits(run_product(*k, w.matrix, x, 1), base));
      }
    }
  }
}

TEST_CASE("float and transposed products") {
  const std::size_t rows = 11;
  const std::size_t tokens = 5;
  for (const std::size_t cols : {16u, 96u, 144u, 512u}) {
    const auto weights = random_floats(rows * cols);
    const WeightMatrix f32 = {
        WeightKind::F32, reinterpret_cast<const std::uint8_t*>(weights.data()), nullptr, rows, cols, 0};
    const auto x = random_floats(tokens * cols);
    std::vector<double> want(tokens * rows);
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < cols; ++c)
          want[t * rows + r] += double{weights[r * cols + c]} * x[t * cols + c];
    std::vector<float> base(tokens * rows);
    baseline_kernels().product_f32(f32, 0, rows, x.data(), cols, tokens, base.data(), rows);
    CHECK(relative_error(base, want) < 1e-6);

    const auto left = random_floats(tokens * rows);
    const Quantised q4(WeightKind::Q4G, rows, cols);
    const Quantised q8(WeightKind::Q8G, rows, cols);
    for (const Kernels* k : all_kernels()) {
      CAPTURE(k->name);
      std::vector<float> y(tokens * rows);
      k->product_f32(f32, 0, rows, x.data(), cols, tokens, y.data(), rows);
      CHECK(same_bits(y, base));
      for (const WeightMatrix* m : {&f32, &q4.matrix, &q8.matrix}) {
        std::vector<float> all(tokens * cols);
        k->transposed(*m, 2, 9, left.data(), rows, tokens, all.data(), cols);
        std::vector<float> expected(tokens * cols);
        baseline_kernels().transposed(*m, 2, 9, left.data(), rows, tokens, expected.data(), cols);
        CHECK(same_bits(all, expected));
        std::vector<double> exact(tokens * cols);
        for (std::size_t t = 0; t < tokens; ++t)
          for (std::size_t r = 2; r < 9; ++r)
            for (std::size_t c = 0; c < cols; ++c) {
              const double v = m == &f32         ? weights[r * cols + c]
                               : m == &q4.matrix ? q4.at(r, c)
                                                 : q8.at(r, c);
              exact[t * cols + c] += v * left[t * rows + r - 2];
            }
        CHECK(relative_error(all, exact) < 1e-6);
      }
    }
  }
}

TEST_CASE("expert products from tables") {
  struct Shape {
    std::size_t rows, cols, stages, entries;
    bool packed;
  };
  for (const Shape& s :
       {Shape{320, 264, 3, 256, false}, Shape{64, 128, 2, 256, false}, Shape{100, 136, 4, 256, false},
        Shape{300, 200, 4, 64, true}, Shape{65, 8, 1, 256, false}}) {
    CAPTURE(s.stages);
    CAPTURE(s.packed);
    const std::size_t positions = s.cols / 8;
    ExpertMatrix m;
    m.rows = s.rows;
    m.positions = positions;
    m.stages = s.stages;
    m.packed = s.packed;
    const auto indices = random_bytes(m.row_blocks() * positions * m.position_bytes());
    const auto scales = random_halves(s.rows);
    m.indices = indices.data();
    m.scales = scales.data();
    const auto book = random_floats(s.stages * 8 * s.entries);
    const auto x = random_floats(s.cols);

    std::vector<double> want(s.rows);
    for (std::size_t r = 0; r < s.rows; ++r) {
      for (std::size_t v = 0; v < positions; ++v) {
        const std::uint8_t* at = &indices[((r / 64) * positions + v) * m.position_bytes()];
        for (std::size_t stage = 0; stage < s.stages; ++stage) {
          std::size_t e = 0;
          if (s.packed) {
            const std::uint8_t* b = at + (r % 64) * 3;
            const std::uint32_t word =
                b[0] | static_cast<std::uint32_t>(b[1]) << 8 | static_cast<std::uint32_t>(b[2]) << 16;
            e = word >> (6 * stage) & 63;
          } else {
            e = at[(r % 64) * s.stages + stage];
          }
          for (std::size_t i = 0; i < 8; ++i)
            want[r] += double{x[8 * v + i]} * book[(stage * 8 + i) * s.entries + e];
        }
      }
      want[r] *= half_to_float(scales[r]);
    }

    std::vector<float> base;
    for (const Kernels* k : all_kernels()) {
      CAPTURE(k->name);
      std::vector<float> sums(64 * m.row_blocks());
      std::vector<float> work(kTablePositions * s.stages * s.entries);
      std::vector<std::uint8_t> table(kTablePositions * s.stages * kTableBytes);
      for (std::size_t first = 0; first < positions; first += kTablePositions) {
        const std::size_t count = std::min(kTablePositions, positions - first);
        const float scale =
            k->build_table(&x[8 * first], count, book.data(), s.stages, s.entries, work.data(), table.data());
        k->add_group(m, 0, 1, first, count, table.data(), scale, sums.data());
        k->add_group(m, 1, m.row_blocks(), first, count, table.data(), scale, sums.data() + 64);
      }
      std::vector<float> y(s.rows);
      k->finish_rows(m, 0, m.row_blocks(), sums.data(), y.data());
      CHECK(relative_error(y, want) < 1e-4);
      if (base.empty()) base = y;
      CHECK(same_bits(y, base));
    }
  }
}

TEST_CASE("functions of one variable") {
  std::vector<float> x;
  for (float v = -90; v < 90; v += 0.0137f) x.push_back(v);
  for (float v : {0.0f, -0.0f, 1e-8f, -1e-8f, 0.625f, -0.625f, 1e-20f}) x.push_back(v);
  while (x.size() % 16 != 0) x.push_back(0.5f);
  const std::size_t n = x.size();
  const auto check = [&](auto apply, auto exact, double tolerance) {
    auto base = x;
    apply(baseline_kernels(), base);
    for (std::size_t i = 0; i < n; ++i) {
      const double want = exact(static_cast<double>(x[i]));
      CAPTURE(x[i]);
      REQUIRE(std::abs(base[i] - want) <= tolerance * std::max(std::abs(want), 1e-30));
    }
    for (const Kernels* k : all_kernels()) {
      auto y = x;
      apply(*k, y);
      CHECK(same_bits(y, base));
    }
  };
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  check([&](const Kernels& k, auto& y) { k.exp(y.data(), n); },
        [](double v) { return std::exp(std::min(std::max(v, -87.0), 88.0)); }, 4e-7);
  check([&](const Kernels& k, auto& y) { k.sigmoid(y.data(), n); },
        [&](double v) { return sigmoid(std::max(v, -88.0)); }, 1e-6);
  check([&](const Kernels& k, auto& y) { k.silu(y.data(), n); },
        [&](double v) { return v * sigmoid(std::max(v, -88.0)); }, 1e-6);
  const std::vector<float> ones(n, 1.0f);
  check([&](const Kernels& k, auto& y) { k.situ_up(y.data(), ones.data(), 4, 25, n); },
        [&](double v) { return 4 * std::tanh(v / 4) * sigmoid(std::max(v, -88.0)) * 25 * std::tanh(0.04); },
        2e-6);
  const auto softplus = [](double v) { return std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))); };
  check([&](const Kernels& k, auto& y) { k.kda_decay(y.data(), 0.37f, 0, n); },
        [&](double v) { return std::exp(-0.37f * softplus(v)); }, 5e-6);
  check([&](const Kernels& k, auto& y) { k.kda_decay(y.data(), 0.37f, -5, n); },
        [&](double v) { return std::exp(-5 * sigmoid(0.37f * v)); }, 2e-6);
}

TEST_CASE("norms, sums and the convolution agree") {
  const std::size_t n = 272;
  const auto x = random_floats(n);
  const auto w = random_floats(4 * n);
  for (const Kernels* k : all_kernels()) {
    CAPTURE(k->name);
    std::vector<float> got(n), want(n);
    k->rms_norm(x.data(), w.data(), 1e-5f, n, got.data());
    baseline_kernels().rms_norm(x.data(), w.data(), 1e-5f, n, want.data());
    CHECK(same_bits(got, want));
    double square = 0;
    for (const float f : x) square += double{f} * f;
    CHECK(std::abs(got[3] - x[3] / std::sqrt(square / n + 1e-5) * w[3]) < 1e-5);
    CHECK(std::abs(k->mean_square(x.data(), n) - square / n) < 1e-5);
    got = x;
    k->l2_norm(got.data(), 0.5f, n);
    CHECK(std::abs(got[7] - 0.5 * x[7] / std::sqrt(square + 1e-6)) < 1e-6);
    const float* in[4] = {&w[0], &w[n], &w[2 * n], &w[3 * n]};
    k->convolve(in, w.data(), 4, n, got.data());
    baseline_kernels().convolve(in, w.data(), 4, n, want.data());
    CHECK(same_bits(got, want));
    CHECK(std::abs(got[9] - (w[9] * w[9] + w[n + 9] * w[n + 9] + w[2 * n + 9] * w[2 * n + 9] +
                             w[3 * n + 9] * w[3 * n + 9])) < 1e-4);
  }
}

TEST_CASE("the delta rule and latent attention against double precision") {
  for (const std::size_t dim : {32u, 128u, 144u}) {
    const auto state = random_floats(dim * dim);
    const auto q = random_floats(dim), k = random_floats(dim, 0.1f), v = random_floats(dim);
    auto decay = random_floats(dim);
    for (float& d : decay) d = std::exp(-std::abs(d));
    std::vector<double> want(dim);
    for (std::size_t c = 0; c < dim; ++c) {
      double read = 0;
      for (std::size_t i = 0; i < dim; ++i) read += double{k[i]} * decay[i] * state[i * dim + c];
      for (std::size_t i = 0; i < dim; ++i)
        want[c] += q[i] * (double{decay[i]} * state[i * dim + c] + k[i] * 0.7 * (v[c] - read));
    }
    std::vector<float> base, base_state;
    for (const Kernels* set : all_kernels()) {
      auto s = state;
      std::vector<float> out(dim);
      set->kda_step(s.data(), q.data(), k.data(), v.data(), decay.data(), 0.7f, dim, out.data());
      CHECK(relative_error(out, want) < 1e-5);
      if (base.empty()) base = out, base_state = s;
      CHECK(same_bits(out, base));
      CHECK(same_bits(s, base_state));
    }
  }
  const std::size_t width = 80, values = 64, positions = 37;
  const auto query = random_floats(width);
  const auto rows = random_floats(positions * width);
  std::vector<double> want(values);
  double total = 0;
  for (std::size_t j = 0; j < positions; ++j) {
    double s = 0;
    for (std::size_t i = 0; i < width; ++i) s += double{query[i]} * rows[j * width + i];
    const double p = std::exp(s * 0.3);
    total += p;
    for (std::size_t i = 0; i < values; ++i) want[i] += p * rows[j * width + i];
  }
  for (double& w : want) w /= total;
  std::vector<float> base;
  for (const Kernels* set : all_kernels()) {
    float most = -1e30f, sum_p = 0;
    std::vector<float> sum(values);
    for (std::size_t j = 0; j < positions; j += kLatentBlock)
      set->attend(query.data(), &rows[j * width], std::min(kLatentBlock, positions - j), width, values, 0.3f,
                  &most, &sum_p, sum.data());
    for (float& f : sum) f /= sum_p;
    CHECK(relative_error(sum, want) < 1e-5);
    if (base.empty()) base = sum;
    CHECK(same_bits(sum, base));
  }
}
