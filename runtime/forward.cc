#include "runtime/forward.h"

#include <algorithm>
#include <cstring>

#include "container/core/checked.h"
#include "container/core/perf.h"

namespace waste::runtime {

namespace {

/// Adds the time until its end to a counter of seconds.
class StageTimer {
 public:
  explicit StageTimer(double& seconds) : seconds_(seconds), begin_(now_seconds()) {}
  ~StageTimer() { seconds_ += now_seconds() - begin_; }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  double& seconds_;
  double begin_;
};

// The planner's constants are the kernels'.
static_assert(kQuantGroup == kGroup && kActivationGroupBytes == sizeof(ActivationGroup));
static_assert(kTableGroup == kTablePositions && kTableEntryBytes == kTableBytes &&
              kLatentRows == kLatentBlock);

// Weight bytes that one task of a product streams: small enough to share work out evenly, large enough that
// taking a task costs nothing beside it.
constexpr std::size_t kTaskBytes = 128 << 10;
// Tokens that they serve at a time, whose activations stay in the second-level cache.
constexpr std::size_t kTaskTokens = 64;

}  // namespace

Forward::Forward(const Container& container, const Weights& weights, const FootprintOptions& options,
                 ThreadPool& pool, ExpertCache* cache, bool keep_records)
    : container_(container),
      model_(container.model()),
      weights_(weights),
      k_(kernels()),
      pool_(pool),
      cache_(cache),
      keep_records_(keep_records),
      s_(scratch_layout(container.manifest(), options)),
      scratch_(s_.total),
      hidden_stride_(round_up(model_.hidden_size, 16)),
      chunk_(options.chunk) {
  experts_.resize(chunk_ * model_.num_experts_per_token);
  expert_weights_.resize(experts_.size());
  routed_of_.resize(model_.num_experts);
  counts_.resize(container.manifest().banks.size() * model_.num_experts);
}

void Forward::run(SessionState& state, std::span<const std::int32_t> ids, const LogitsOf& every,
                  const Session::RouteSink& routes) {
  const StageTimer whole(stats_.seconds);
  tokens_ = ids.size();
  stored_blocks_ = 0;
  float* hidden = floats(s_.hidden);
  const std::size_t bytes = tokens_ * hidden_stride_ * sizeof(float);
  const bool residuals = model_.attn_res_block != 0;
  embed(ids);
  for (std::uint32_t i = 0; i < model_.num_layers; ++i) {
    const LayerWeights& w = weights_.layer(i);
    const float* output = floats(s_.output);
    bool replace = false;
    {
      const StageTimer timer(stats_.dense_seconds);
      if (residuals && stored_blocks_ > 0) {
        attention_residual(w.attention_residual);
      } else {
        std::memcpy(floats(s_.input), hidden, bytes);
      }
      if (residuals && i % model_.attn_res_block == 0) {
        // The running sum is put aside and begins anew with this layer's attention.
        std::memcpy(floats(s_.blocks) + stored_blocks_++ * chunk_ * hidden_stride_, hidden, bytes);
        replace = true;
      }
      norm(w.input_norm, floats(s_.input));
    }
    {
      const StageTimer timer(stats_.attention_seconds);
      w.kda_layer ? kda(state, i) : mla(state, i);
    }
    const StageTimer timer(stats_.dense_seconds);
    if (replace) {
      std::memcpy(hidden, output, bytes);
    } else {
      k_.add(hidden, output, tokens_ * hidden_stride_);
    }
    if (residuals) {
      attention_residual(w.mlp_residual);
      norm(w.post_norm, floats(s_.input));
    } else {
      norm(w.post_norm, hidden);
    }
    if (w.moe_layer) {
      moe(i, state.position, routes);
    } else {
      mlp(w.mlp, floats(s_.mlp_gate), floats(s_.mlp_up), floats(s_.output));
    }
    k_.add(hidden, output, tokens_ * hidden_stride_);
  }
  const StageTimer timer(stats_.head_seconds);
  head(every);
  state.position += static_cast<std::uint32_t>(tokens_);
  stats_.tokens += tokens_;
}

void Forward::embed(std::span<const std::int32_t> ids) {
  const TrunkTensor& t = weights_.embeddings();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    container_.read_trunk_rows(t, static_cast<std::uint64_t>(ids[i]), 1,
                               {floats(s_.hidden) + i * hidden_stride_, model_.hidden_size});
    stats_.bytes_read += t.bytes / t.rows();
  }
}

void Forward::product(const float* x, std::size_t x_stride, std::initializer_list<Output> outputs) {
  std::vector<Output> same;
  for (const WeightKind kind : {WeightKind::Q4G, WeightKind::Q8G, WeightKind::F32}) {
    same.clear();
    for (const Output& o : outputs)
      if (o.matrix->rows != 0 && o.matrix->kind == kind) same.push_back(o);
    if (!same.empty()) product_of_kind(kind, x, x_stride, same);
  }
}

void Forward::product_of_kind(WeightKind kind, const float* x, std::size_t x_stride,
                              std::span<const Output> outputs) {
  const std::size_t cols = outputs[0].matrix->cols;
  const std::size_t groups = ceil_div(cols, kGroup);
  auto* quantised = reinterpret_cast<ActivationGroup*>(scratch_.data() + s_.quantised);
  float* scales = floats(s_.quant_scales);
  if (kind != WeightKind::F32) {
    pool_.run(tokens_, [&](std::size_t t, unsigned) {
      k_.quantize(x + t * x_stride, cols, kind, quantised + t * groups, scales + t * groups);
    });
  }
  const std::size_t task_rows =
      std::max<std::size_t>(16, kTaskBytes / outputs[0].matrix->row_bytes() / 16 * 16);
  std::size_t tasks = 0;
  for (const Output& o : outputs) {
    tasks += ceil_div(o.matrix->rows, task_rows);
    stats_.weight_bytes += o.matrix->rows * o.matrix->row_bytes();
  }
  pool_.run(tasks, [&](std::size_t task, unsigned) {
    std::size_t i = 0;
    for (; task >= ceil_div(outputs[i].matrix->rows, task_rows); ++i)
      task -= ceil_div(outputs[i].matrix->rows, task_rows);
    const Output& o = outputs[i];
    const std::size_t begin = task * task_rows;
    const std::size_t end = std::min(begin + task_rows, o.matrix->rows);
    for (std::size_t t = 0; t < tokens_; t += kTaskTokens) {
      const std::size_t count = std::min(kTaskTokens, tokens_ - t);
      float* y = o.y + t * o.stride;
      if (kind == WeightKind::F32) {
        k_.product_f32(*o.matrix, begin, end, x + t * x_stride, x_stride, count, y, o.stride);
      } else {
        (kind == WeightKind::Q4G ? k_.product_q4g : k_.product_q8g)(
            *o.matrix, begin, end, {quantised + t * groups, scales + t * groups, groups, count}, y, o.stride);
      }
    }
  });
}

void Forward::norm(Vector weight, const float* x) {
  const auto eps = static_cast<float>(model_.rms_norm_eps);
  pool_.run(tokens_, [&](std::size_t t, unsigned) {
    k_.rms_norm(x + t * hidden_stride_, weight, eps, model_.hidden_size,
                floats(s_.normed) + t * hidden_stride_);
  });
}

// Softmax attention over the stored block sums and the running sum, with one learned query.
void Forward::attention_residual(Vector query) {
  const auto eps = static_cast<float>(model_.rms_norm_eps);
  const std::size_t n = model_.hidden_size;
  const std::size_t sources = stored_blocks_ + 1;
  pool_.run(tokens_, [&](std::size_t t, unsigned) {
    const auto source = [&](std::size_t i) {
      const float* base =
          i < stored_blocks_ ? floats(s_.blocks) + i * chunk_ * hidden_stride_ : floats(s_.hidden);
      return base + t * hidden_stride_;
    };
    std::vector<float> weight(round_up(sources, 16), -1e30f);
    float most = -1e30f;
    for (std::size_t i = 0; i < sources; ++i) {
      const float* v = source(i);
      weight[i] = k_.dot(v, query, n) / __builtin_sqrtf(k_.mean_square(v, n) + eps);
      most = std::max(most, weight[i]);
    }
    for (float& w : weight) w -= most;
    k_.exp(weight.data(), weight.size());
    float total = 0;
    for (std::size_t i = 0; i < sources; ++i) total += weight[i];
    float* out = floats(s_.input) + t * hidden_stride_;
    std::memset(out, 0, n * sizeof(float));
    for (std::size_t i = 0; i < sources; ++i) k_.add_scaled(out, weight[i] / total, source(i), n);
  });
}

void Forward::activate(float* gate, const float* up, std::size_t n) const {
  if (model_.activation == Activation::Silu) return k_.silu_up(gate, up, n);
  k_.situ_up(gate, up, static_cast<float>(model_.situ_beta),
             static_cast<float>(model_.situ_linear_beta.value_or(0)), n);
}

void Forward::mlp(const MlpWeights& w, float* gate, float* up, float* out) {
  const std::size_t width = round_up(w.gate.rows, 16);
  product(floats(s_.normed), hidden_stride_, {{&w.gate, gate, width}, {&w.up, up, width}});
  const std::size_t pieces = ceil_div(width, 1024);
  pool_.run(tokens_ * pieces, [&](std::size_t task, unsigned) {
    const std::size_t begin = task / pieces * width + task % pieces * 1024;
    activate(gate + begin, up + begin, std::min<std::size_t>(1024, width - task % pieces * 1024));
  });
  product(gate, width, {{&w.down, out, hidden_stride_}});
}

void Forward::head(const LogitsOf& every) {
  const std::size_t all = tokens_;
  const std::size_t stride = round_up(model_.vocab_size, 16);
  if (model_.attn_res_block != 0) attention_residual(weights_.output_residual());
  norm(weights_.final_norm(), model_.attn_res_block != 0 ? floats(s_.input) : floats(s_.hidden));
  const std::size_t first = every ? 0 : all - 1;
  for (std::size_t t = first; t < all; t += kHeadTokens) {
    tokens_ = std::min<std::size_t>(kHeadTokens, all - t);
    float* out = floats(s_.logits);
    product(floats(s_.normed) + t * hidden_stride_, hidden_stride_, {{&weights_.head(), out, stride}});
    for (std::size_t i = 0; i < tokens_; ++i) {
      const std::span<const float> logits(out + i * stride, model_.vocab_size);
      if (every) every(static_cast<std::uint32_t>(t + i), logits);
      if (t + i + 1 == all) std::copy(logits.begin(), logits.end(), last_logits().begin());
    }
  }
  tokens_ = all;
}

}  // namespace waste::runtime
