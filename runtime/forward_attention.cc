// Kimi delta attention and multi-head latent attention.
#include <algorithm>
#include <cstring>

#include "container/core/checked.h"
#include "container/core/half.h"
#include "runtime/forward.h"

namespace waste::runtime {

void Forward::kda(SessionState& state, std::uint32_t layer) {
  const KdaWeights& w = weights_.layer(layer).kda;
  const std::size_t wide = s_.attention_width;
  const std::size_t narrow = s_.narrow_width;
  const bool low_rank_gate = w.g_a.rows != 0;
  const WeightMatrix none;
  product(floats(s_.normed), hidden_stride_,
          {{&w.q, floats(s_.wide[0]), wide},
           {&w.k, floats(s_.wide[1]), wide},
           {&w.v, floats(s_.wide[2]), wide},
           {low_rank_gate ? &none : &w.g_b, floats(s_.wide[4]), wide},
           {&w.f_a, floats(s_.narrow), narrow},
           {&w.g_a, floats(s_.narrow2), narrow},
           {&w.b, floats(s_.beta), round_up(model_.kda_heads, 16)}});
  product(floats(s_.narrow), narrow, {{&w.f_b, floats(s_.wide[3]), wide}});
  if (low_rank_gate) product(floats(s_.narrow2), narrow, {{&w.g_b, floats(s_.wide[4]), wide}});
  pool_.run(model_.kda_heads, [&](std::size_t head, unsigned) { kda_head(state, layer, head); });
  product(floats(s_.wide[2]), wide, {{&w.o, floats(s_.output), hidden_stride_}});
}

// Everything between the projections of one head, all tokens of the chunk in turn; the result replaces v.
void Forward::kda_head(SessionState& state, std::uint32_t layer, std::size_t head) {
  const KdaWeights& w = weights_.layer(layer).kda;
  const std::size_t dim = model_.kda_head_dim;
  const std::size_t channels = model_.kda_heads * dim;
  const std::size_t taps = model_.conv_kernel;
  const std::size_t stride = s_.attention_width;
  const std::size_t first = head * dim;

  const Vector tap_weights[3] = {w.q_taps, w.k_taps, w.v_taps};
  std::vector<float> tail((taps - 1) * dim);
  std::vector<const float*> inputs(taps);
  std::vector<float> head_taps(taps * dim);
  for (std::size_t m = 0; m < 3; ++m) {
    float* x = floats(s_.wide[m]) + first;
    float* old = state.tails(layer) + m * (taps - 1) * channels + first;
    // Row j of "what went before token t": the chunk's own rows, or the tail of the chunk before.
    const auto before = [&](std::size_t t, std::size_t j) -> const float* {
      const std::size_t at = t + j;  // in a row of (taps - 1) old rows and then the chunk
      return at < taps - 1 ? old + at * channels : x + (at - (taps - 1)) * stride;
    };
    for (std::size_t j = 0; j + 1 < taps; ++j)
      std::memcpy(&tail[j * dim], before(tokens_, j), dim * sizeof(float));
    for (std::size_t i = 0; i < taps; ++i)
      std::memcpy(&head_taps[i * dim], tap_weights[m] + i * channels + first, dim * sizeof(float));
    // In place from the end: a row is an input of later rows only.
    for (std::size_t t = tokens_; t-- > 0;) {
      for (std::size_t j = 0; j < taps; ++j) inputs[j] = before(t, j);
      k_.convolve(inputs.data(), head_taps.data(), taps, dim, x + t * stride);
      k_.silu(x + t * stride, dim);
    }
    for (std::size_t j = 0; j + 1 < taps; ++j)
      std::memcpy(old + j * channels, &tail[j * dim], dim * sizeof(float));
  }

  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
  const auto lower = static_cast<float>(model_.gate_lower_bound.value_or(0));
  const auto eps = static_cast<float>(model_.rms_norm_eps);
  float* recurrent = state.recurrent(layer) + head * dim * dim;
  for (std::size_t t = 0; t < tokens_; ++t) {
    const std::size_t at = t * stride + first;
    float* q = floats(s_.wide[0]) + at;
    float* k = floats(s_.wide[1]) + at;
    float* v = floats(s_.wide[2]) + at;
    float* decay = floats(s_.wide[3]) + at;
    k_.l2_norm(q, scale, dim);
    k_.l2_norm(k, 1.0f, dim);
    k_.add(decay, w.dt_bias + first, dim);
    k_.kda_decay(decay, w.a[head], lower, dim);
    float beta[16] = {floats(s_.beta)[t * round_up(model_.kda_heads, 16) + head]};
    k_.sigmoid(beta, 16);
    k_.kda_step(recurrent, q, k, v, decay, beta[0], dim, v);
    k_.rms_norm(v, w.o_norm, eps, dim, v);
    k_.multiply_sigmoid(v, floats(s_.wide[4]) + at, dim);
  }
}

// The low-rank norms of MLA use their own epsilon in the released code.
constexpr float kLatentEps = 1e-6f;

void Forward::mla(SessionState& state, std::uint32_t layer) {
  const MlaWeights& w = weights_.layer(layer).mla;
  const std::size_t wide = s_.attention_width;
  const std::size_t narrow = s_.narrow_width;
  const std::size_t lora = model_.kv_lora_rank;
  const std::size_t width = state.latent_width();
  const bool low_rank_query = w.q_a.rows != 0;
  const WeightMatrix none;
  product(floats(s_.normed), hidden_stride_,
          {{&w.q_a, floats(s_.narrow), narrow},
           {low_rank_query ? &none : &w.q_b, floats(s_.wide[0]), wide},
           {&w.kv_a, floats(s_.narrow2), narrow},
           {&w.gate, floats(s_.wide[4]), wide}});
  pool_.run(tokens_, [&](std::size_t t, unsigned) {
    if (low_rank_query) {
      float* q = floats(s_.narrow) + t * narrow;
      k_.rms_norm(q, w.q_a_norm, kLatentEps, model_.q_lora_rank, q);
    }
    float* latent = floats(s_.narrow2) + t * narrow;
    k_.rms_norm(latent, w.kv_a_norm, kLatentEps, lora, latent);
    std::uint8_t* row = state.latents(layer, state.position + static_cast<std::uint32_t>(t));
    if (state.kv() == KvType::F32) {
      std::memcpy(row, latent, width * sizeof(float));
    } else {
      auto* halves = reinterpret_cast<std::uint16_t*>(row);
      for (std::size_t i = 0; i < width; ++i) halves[i] = float_to_half(latent[i]);
    }
  });
  if (low_rank_query) product(floats(s_.narrow), narrow, {{&w.q_b, floats(s_.wide[0]), wide}});
  const std::size_t heads = model_.num_attention_heads;
  stats_.weight_bytes += w.kv_b.rows * w.kv_b.row_bytes();
  pool_.run(ceil_div(heads, kAttentionHeads), [&](std::size_t task, unsigned thread) {
    mla_heads(state, layer, task * kAttentionHeads, thread);
  });
  product(floats(s_.wide[1]), wide, {{&w.o, floats(s_.output), hidden_stride_}});
}

// Attention in latent space: each head's part of kv_b is absorbed into its query and its output, so that the
// cache is read as it is. Softmax runs over blocks of 16 positions counted from the session's start, whatever
// the chunks.
void Forward::mla_heads(SessionState& state, std::uint32_t layer, std::size_t first, unsigned thread) {
  const MlaWeights& w = weights_.layer(layer).mla;
  const std::size_t lora = model_.kv_lora_rank;
  const std::size_t width = state.latent_width();
  const std::size_t nope = model_.qk_nope_head_dim;
  const std::size_t values = model_.v_head_dim;
  const std::size_t heads = std::min<std::size_t>(kAttentionHeads, model_.num_attention_heads - first);
  const std::size_t stride = s_.attention_width;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(nope + model_.qk_rope_head_dim));

  auto* queries = reinterpret_cast<float*>(thread_scratch(thread));  // [head][token][width]
  float* sums = queries + kAttentionHeads * chunk_ * width;          // [head][token][lora]
  float* maxima = sums + kAttentionHeads * chunk_ * lora;            // [head][token]
  float* totals = maxima + kAttentionHeads * chunk_;
  float* rows = totals + kAttentionHeads * chunk_;  // [kLatentBlock][width]
  auto* quantised = reinterpret_cast<ActivationGroup*>(thread_scratch(thread) + s_.thread_latent_groups);
  auto* quant_scales = reinterpret_cast<float*>(thread_scratch(thread) + s_.thread_latent_scales);

  for (std::size_t h = 0; h < heads; ++h) {
    const float* q = floats(s_.wide[0]) + (first + h) * (nope + model_.qk_rope_head_dim);
    float* out = queries + h * tokens_ * width;
    const std::size_t row = (first + h) * (nope + values);
    k_.transposed(w.kv_b, row, row + nope, q, stride, tokens_, out, width);
    for (std::size_t t = 0; t < tokens_; ++t)
      std::memcpy(out + t * width + lora, q + t * stride + nope, model_.qk_rope_head_dim * sizeof(float));
  }
  std::fill_n(sums, heads * tokens_ * lora, 0.0f);
  std::fill_n(maxima, heads * tokens_, -1e30f);
  std::fill_n(totals, heads * tokens_, 0.0f);

  const std::size_t end = state.position + tokens_;
  for (std::size_t block = 0; block < end; block += kLatentBlock) {
    const std::size_t there = std::min(kLatentBlock, end - block);
    const std::uint8_t* cached = state.latents(layer, static_cast<std::uint32_t>(block));
    if (state.kv() == KvType::F32) {
      std::memcpy(rows, cached, there * width * sizeof(float));
    } else {
      k_.widen(reinterpret_cast<const std::uint16_t*>(cached), there * width, rows);
    }
    const std::size_t from = block > state.position ? block - state.position : 0;
    for (std::size_t h = 0; h < heads; ++h) {
      for (std::size_t t = from; t < tokens_; ++t) {
        const std::size_t count = std::min(kLatentBlock, state.position + t + 1 - block);
        const std::size_t at = h * tokens_ + t;
        k_.attend(queries + at * width, rows, count, width, lora, scale, maxima + at, totals + at,
                  sums + at * lora);
      }
    }
  }

  for (std::size_t h = 0; h < heads; ++h) {
    const WeightMatrix out = w.kv_b.slice((first + h) * (nope + values) + nope, values);
    float* y = floats(s_.wide[1]) + (first + h) * values;
    float* sum = sums + h * tokens_ * lora;
    for (std::size_t t = 0; t < tokens_; ++t) {
      const float inverse = 1.0f / totals[h * tokens_ + t];
      for (std::size_t i = 0; i < lora; ++i) sum[t * lora + i] *= inverse;
    }
    if (out.kind == WeightKind::F32) {
      k_.product_f32(out, 0, values, sum, lora, tokens_, y, stride);
    } else {
      for (std::size_t t = 0; t < tokens_; ++t)
        k_.quantize(sum + t * lora, lora, out.kind, quantised + t * out.groups,
                    quant_scales + t * out.groups);
      const Activations in = {quantised, quant_scales, out.groups, tokens_};
      (out.kind == WeightKind::Q4G ? k_.product_q4g : k_.product_q8g)(out, 0, values, in, y, stride);
    }
    if (w.gate.rows == 0) continue;
    for (std::size_t t = 0; t < tokens_; ++t)
      k_.multiply_sigmoid(y + t * stride, floats(s_.wide[4]) + t * stride + (first + h) * values, values);
  }
}

}  // namespace waste::runtime
