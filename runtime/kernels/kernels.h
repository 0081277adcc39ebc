// Everything the forward pass computes with, behind one table of functions per instruction set. All tables
// give the same bits.
//
// Matrix products with quantised weights are integer arithmetic, which has no order: activations become
// 16-bit fixed point with one scale per group of 128, held as two int8 planes (value = 256 high + low) for
// the CPU's int8 dot products. A group's 32-bit sums are exact in 16 lanes (lane l takes bytes 4l..4l+3 of
// each 64), each lane is scaled and added to 16 float partial sums in group order, and the row ends with a
// fixed tree. The error against float32 activations is about 1e-5 of a row's norm.
//
// Experts are never expanded. For each 8-vector position of the input and each stage the 256 partial products
// with the codebook's entries are tabulated as 16-bit integers, one scale per group of 16 positions; a weight
// row's product is then a sum of looked-up values, exact within a group, the groups added in order.
//
// Sizes: every vector length is a multiple of 16 floats, padded where the model's is not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace waste::runtime {

inline constexpr std::size_t kGroup = 128;          // activations and weights per quantisation group
inline constexpr std::size_t kTablePositions = 16;  // 8-vectors per table group
inline constexpr std::size_t kTableBytes = 512;     // one position and stage: 256 16-bit values
inline constexpr std::size_t kLatentBlock = 16;     // cached positions per softmax update

/// How the bytes of a weight group lie against its activations.
enum class WeightKind { Q4G, Q8G, F32 };

/// 128 activations. For Q4G the even elements come first, then the odd ones (a weight byte holds one of
/// each).
struct alignas(64) ActivationGroup {
  std::int8_t high[kGroup];
  std::int8_t low[kGroup];
  std::int32_t bias[16];  // takes the weights' unsigned offset (8 or 128) back out of each lane's sum
};

/// The activations of `tokens` tokens, quantised: groups[t * count + g], scales[t * count + g].
struct Activations {
  const ActivationGroup* groups = nullptr;
  const float* scales = nullptr;
  std::size_t count = 0;  // groups a token
  std::size_t tokens = 0;
};

/// A weight matrix as it lies in memory: `rows` of `groups` quantisation groups each.
struct WeightMatrix {
  WeightKind kind = WeightKind::F32;
  const std::uint8_t* data = nullptr;     // Q4G: 64 bytes a group, Q8G: 128, F32: floats
  const std::uint16_t* scales = nullptr;  // f16, rows x groups; none for F32
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t groups = 0;

  /// Rows [first, first + count) as a matrix of their own.
  WeightMatrix slice(std::size_t first, std::size_t count) const {
    WeightMatrix m = *this;
    m.rows = count;
    m.data += first * (kind == WeightKind::Q4G   ? groups * 64
                       : kind == WeightKind::Q8G ? groups * 128
                                                 : cols * 4);
    if (scales != nullptr) m.scales += first * groups;
    return m;
  }
  /// Codes and scales.
  std::size_t row_bytes() const {
    return kind == WeightKind::Q4G ? groups * 66 : kind == WeightKind::Q8G ? groups * 130 : cols * 4;
  }
};

/// One matrix of an expert record: indices [row_blocks][positions][64][bytes per position], f16 row scales.
struct ExpertMatrix {
  const std::uint8_t* indices = nullptr;
  const std::uint16_t* scales = nullptr;  // may be at odd addresses of a record: 2-aligned
  std::size_t rows = 0;
  std::size_t positions = 0;  // columns / 8
  std::size_t stages = 0;
  bool packed = false;  // four 6-bit indices in 3 bytes, else one byte a stage

  std::size_t row_blocks() const { return (rows + 63) / 64; }
  std::size_t position_bytes() const { return 64 * (packed ? 3 : stages); }
};

struct Kernels {
  const char* name;

  // --- quantised products
  // ---------------------------------------------------------------------------------------
  /// x[n] into ceil(n / 128) groups; missing elements are zero.
  void (*quantize)(const float* x, std::size_t n, WeightKind kind, ActivationGroup* groups, float* scales);
  /// y[t * y_stride + r] = w[r] . x[t] for rows [begin, end).
  void (*product_q4g)(const WeightMatrix& w, std::size_t begin, std::size_t end, const Activations& x,
                      float* y, std::size_t y_stride);
  void (*product_q8g)(const WeightMatrix& w, std::size_t begin, std::size_t end, const Activations& x,
                      float* y, std::size_t y_stride);
  void (*product_f32)(const WeightMatrix& w, std::size_t begin, std::size_t end, const float* x,
                      std::size_t x_stride, std::size_t tokens, float* y, std::size_t y_stride);
  /// y[t * y_stride + c] = sum over rows r in [begin, end), in order, of x[t * x_stride + r - begin] *
  /// w[r][c].
  void (*transposed)(const WeightMatrix& w, std::size_t begin, std::size_t end, const float* x,
                     std::size_t x_stride, std::size_t tokens, float* y, std::size_t y_stride);

  // --- experts
  // --------------------------------------------------------------------------------------------------
  /// The partial products of up to 16 positions: x[8 * positions] with `book` [stages][8][entries]
  /// (transposed, so that entries lie together). `table` gets positions * stages * 512 bytes, in this kernel
  /// set's own layout; returns their scale. `work` holds positions * stages * entries floats.
  float (*build_table)(const float* x, std::size_t positions, const float* book, std::size_t stages,
                       std::size_t entries, float* work, std::uint8_t* table);
  /// Adds one table group (positions [first, first + count)) to sums[64 * (block - begin)] for row blocks
  /// [begin, end). The order of rows within a block of sums is this kernel set's own.
  void (*add_group)(const ExpertMatrix& m, std::size_t begin, std::size_t end, std::size_t first,
                    std::size_t count, const std::uint8_t* table, float scale, float* sums);
  /// y[r] = sums of row r * scale of row r, for the rows of blocks [begin, end); y starts at row 64 * begin.
  void (*finish_rows)(const ExpertMatrix& m, std::size_t begin, std::size_t end, const float* sums, float* y);

  // --- element by element, n a multiple of 16
  // -------------------------------------------------------------------
  void (*rms_norm)(const float* x, const float* weight, float eps, std::size_t n, float* y);
  /// y = x / sqrt(sum(x^2) + 1e-6) * scale
  void (*l2_norm)(float* x, float scale, std::size_t n);
  /// sum(x^2) / n, and the dot product, both in 16 lanes and a fixed tree.
  float (*mean_square)(const float* x, std::size_t n);
  float (*dot)(const float* x, const float* y, std::size_t n);
  void (*add)(float* y, const float* x, std::size_t n);                  // y += x
  void (*add_scaled)(float* y, float a, const float* x, std::size_t n);  // y = fma(a, x, y)
  void (*exp)(float* x, std::size_t n);
  void (*sigmoid)(float* x, std::size_t n);
  void (*silu)(float* x, std::size_t n);
  void (*multiply_sigmoid)(float* y, const float* gate, std::size_t n);  // y *= sigmoid(gate)
  void (*silu_up)(float* gate, const float* up, std::size_t n);          // gate = silu(gate) * up
  /// gate = b tanh(gate / b) sigmoid(gate) * (lb > 0 ? lb tanh(up / lb) : up)
  void (*situ_up)(float* gate, const float* up, float b, float lb, std::size_t n);
  /// z = exp(-a softplus(z)), or with lower < 0 exp(lower * sigmoid(a z)): the decay of one KDA head.
  void (*kda_decay)(float* z, float a, float lower, std::size_t n);
  /// y[c] = sum over taps i of x[i * stride + c] * taps[i * n + c]: a causal convolution, one channel a lane.
  void (*convolve)(const float* const* x, const float* taps, std::size_t count, std::size_t n, float* y);

  // --- attention
  // ------------------------------------------------------------------------------------------------
  /// One token of the delta rule on state[dim][dim] (key, value): decays, corrects, adds, and reads out[dim].
  void (*kda_step)(float* state, const float* q, const float* k, const float* v, const float* decay,
                   float beta, std::size_t dim, float* out);
  /// One softmax update of a query against `count` (at most 16) cached rows [width] of which the first
  /// `values` floats are also what is summed: online maximum, total and sum[values].
  void (*attend)(const float* query, const float* rows, std::size_t count, std::size_t width,
                 std::size_t values, float scale, float* maximum, float* total, float* sum);
  /// f16 to float, exact.
  void (*widen)(const std::uint16_t* x, std::size_t n, float* y);
};

/// The table for the level in force (core/simd.h). The AVX-512 table also needs VNNI and VBMI; a CPU without
/// them gets the AVX2 one. NEON's int8 dot products are used where the CPU has them.
const Kernels& kernels();

const Kernels& baseline_kernels();
const Kernels& avx2_kernels();     // x86-64 only
const Kernels& avx512_kernels();   // x86-64 only
const Kernels& neon_kernels();     // 64-bit ARM only
const Kernels& dotprod_kernels();  // 64-bit ARM only

}  // namespace waste::runtime
