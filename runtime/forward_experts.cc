// The mixture of experts: routing, tables of partial products, and the experts as their records arrive.
#include <algorithm>
#include <cstring>

#include "container/core/checked.h"
#include "container/core/perf.h"
#include "runtime/forward.h"
#include "runtime/router.h"

namespace waste::runtime {

void Forward::moe(std::uint32_t layer, std::uint32_t position, const Session::RouteSink& routes) {
  const MoeWeights& w = weights_.layer(layer).moe;
  const std::size_t width = round_up(model_.expert_width, 16);
  product(floats(s_.normed), hidden_stride_,
          {{&w.router, floats(s_.scores), round_up(model_.num_experts, 16)},
           {&w.latent_down, floats(s_.latent), width}});
  choose_experts(layer, position, routes);

  std::vector<ExpertCache::Wanted> wanted;
  for (const Routed& r : routed_) wanted.push_back({r.expert, static_cast<std::uint32_t>(r.pairs.size())});
  cache_->begin(layer, wanted);

  // What does not need the experts is computed while the first of them are on their way.
  const float* x = model_.latent_moe ? floats(s_.latent) : floats(s_.normed);
  const ExpertInput input = {x, model_.latent_moe ? width : hidden_stride_};
  if (tokens_ <= kTabledTokens) build_tables(w, input);
  float* shared = floats(s_.input);  // free since the norm
  if (model_.num_shared_experts != 0) mlp(w.shared, floats(s_.shared_gate), floats(s_.shared_up), shared);

  const double begin = now_seconds();
  const double waited = cache_->counters().wait_seconds;
  for (auto ready = cache_->next(); !ready.empty(); ready = cache_->next()) compute_experts(w, input, ready);
  const double wait = cache_->counters().wait_seconds - waited;
  const double busy = now_seconds() - begin - wait;
  stats_.expert_seconds += busy;
  stats_.wait_seconds += wait;
  stats_.dense_seconds -= busy + wait;  // the caller's timer runs on
  if (!keep_records_) cache_->clear();

  // In the order of the slots, whatever the order in which the experts came.
  const std::size_t top_k = model_.num_experts_per_token;
  float* mixed = model_.latent_moe ? floats(s_.mixed) : floats(s_.output);
  const std::size_t stride = model_.latent_moe ? width : hidden_stride_;
  pool_.run(tokens_, [&](std::size_t t, unsigned) {
    float* out = mixed + t * stride;
    std::memset(out, 0, model_.expert_width * sizeof(float));
    for (std::size_t pair = t * top_k; pair < (t + 1) * top_k; ++pair)
      k_.add_scaled(out, expert_weights_[pair], floats(s_.pair_out) + pair * width, model_.expert_width);
    if (w.latent_norm != nullptr)
      k_.rms_norm(out, w.latent_norm, static_cast<float>(model_.rms_norm_eps), model_.expert_width, out);
  });
  if (model_.latent_moe) product(mixed, width, {{&w.latent_up, floats(s_.output), hidden_stride_}});
  if (model_.num_shared_experts != 0) k_.add(floats(s_.output), shared, tokens_ * hidden_stride_);
}

void Forward::choose_experts(std::uint32_t layer, std::uint32_t position, const Session::RouteSink& routes) {
  const std::size_t top_k = model_.num_experts_per_token;
  const std::size_t stride = round_up(model_.num_experts, 16);
  const Vector bias = weights_.layer(layer).moe.router_bias;
  pool_.run(tokens_, [&](std::size_t t, unsigned) {
    route(k_, model_, floats(s_.scores) + t * stride, bias, {&experts_[t * top_k], top_k},
          {&expert_weights_[t * top_k], top_k});
  });
  constexpr std::uint32_t kNone = 0xFFFFFFFF;
  std::fill(routed_of_.begin(), routed_of_.end(), kNone);
  routed_.clear();
  for (std::uint32_t pair = 0; pair < tokens_ * top_k; ++pair) {
    const std::uint32_t expert = experts_[pair];
    ++counts_[cache_->item(layer, expert)];
    if (routed_of_[expert] == kNone) {
      routed_of_[expert] = static_cast<std::uint32_t>(routed_.size());
      routed_.push_back({expert, {}});
    }
    routed_[routed_of_[expert]].pairs.push_back(pair);
  }
  stats_.expert_products += tokens_ * top_k;
  if (!routes) return;
  for (std::size_t t = 0; t < tokens_; ++t)
    routes(position + static_cast<std::uint32_t>(t), layer, {&experts_[t * top_k], top_k});
}

ExpertMatrix Forward::expert_matrix(const std::uint8_t* record, MatrixKind kind) const {
  const ExpertLayout& l = container_.layout();
  const auto i = static_cast<std::size_t>(kind);
  ExpertMatrix m;
  m.indices = record + l.index_offset[i];
  m.scales = reinterpret_cast<const std::uint16_t*>(record + l.scale_offset) + l.first_scale[i];
  m.rows = l.rows[i];
  m.positions = l.cols[i] / kVecDim;
  m.stages = l.quant.stages;
  m.packed = l.quant.index_bits != 8;
  return m;
}

// Gate's and up's tables depend on the token alone: all its experts share them.
void Forward::build_tables(const MoeWeights& w, const ExpertInput& input) {
  const std::size_t positions = model_.expert_width / kVecDim;
  const ExpertQuant& quant = container_.manifest().quant;
  const std::size_t group_bytes = kTablePositions * quant.stages * kTableBytes;
  pool_.run(tokens_ * 2 * s_.table_groups, [&](std::size_t task, unsigned thread) {
    const std::size_t g = task % s_.table_groups;
    const std::size_t which = task / s_.table_groups;  // token * 2 + kind
    const std::size_t first = g * kTablePositions;
    floats(s_.table_scales)[task] = k_.build_table(
        input.x + which / 2 * input.stride + first * kVecDim, std::min(kTablePositions, positions - first),
        w.books[which % 2], quant.stages, quant.entries, reinterpret_cast<float*>(thread_scratch(thread)),
        scratch_.data() + s_.tables + which * s_.table_bytes + g * group_bytes);
  });
}

// Rows of 64 are shared out in fours, which one pass of the kernel takes together.
void Forward::compute_experts(const MoeWeights& w, const ExpertInput& input,
                              std::span<const ExpertCache::Ready> ready) {
  const auto share = [&](std::size_t matrices, std::size_t row_blocks, const auto& task) {
    const std::size_t quads = ceil_div(row_blocks, 4);
    const std::size_t parts =
        std::min<std::size_t>(quads, matrices >= 2 * pool_.size() ? 1 : ceil_div(2 * pool_.size(), matrices));
    pool_.run(matrices * parts, [&](std::size_t i, unsigned thread) {
      const std::size_t part = i % parts;
      const std::size_t begin = quads * part / parts * 4;
      const std::size_t end = std::min(quads * (part + 1) / parts * 4, row_blocks);
      task(i / parts, begin, end, thread);
    });
  };
  const std::size_t width = round_up(model_.moe_intermediate_size, 16);
  share(2 * ready.size(), ceil_div(model_.moe_intermediate_size, kIndexBlock),
        [&](std::size_t i, std::size_t begin, std::size_t end, unsigned thread) {
          gate_or_up(w, input, ready[i / 2], i % 2 == 0 ? MatrixKind::Gate : MatrixKind::Up, begin, end,
                     thread);
        });
  pool_.run(ready.size(), [&](std::size_t i, unsigned) {
    for (const std::uint32_t pair : pairs_of(ready[i]))
      activate(floats(s_.pair_gate) + pair * width, floats(s_.pair_up) + pair * width,
               model_.moe_intermediate_size);
  });
  share(ready.size(), ceil_div(model_.expert_width, kIndexBlock),
        [&](std::size_t i, std::size_t begin, std::size_t end, unsigned thread) {
          down(w, ready[i], begin, end, thread);
        });
  stats_.weight_bytes += ready.size() * container_.layout().payload_end;
}

// Table group by table group, so that a group's table (24 KB) and its indices serve all tokens from the
// caches. `table_of(pair, first, count)` is a pair's table for input positions [first, first + count).
template <typename TableOf>
void Forward::add_groups(const ExpertMatrix& m, std::size_t begin, std::size_t end,
                         std::span<const std::uint32_t> pairs, float* out, std::size_t out_stride,
                         unsigned thread, const TableOf& table_of) {
  const std::size_t rows = (end - begin) * kIndexBlock;
  auto* sums = reinterpret_cast<float*>(thread_scratch(thread) + s_.thread_sums);
  std::fill_n(sums, pairs.size() * rows, 0.0f);
  for (std::size_t first = 0; first < m.positions; first += kTablePositions) {
    const std::size_t count = std::min(kTablePositions, m.positions - first);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const Table table = table_of(pairs[i], first, count);
      k_.add_group(m, begin, end, first, count, table.entries, table.scale, sums + i * rows);
    }
  }
  for (std::size_t i = 0; i < pairs.size(); ++i)
    k_.finish_rows(m, begin, end, sums + i * rows, out + pairs[i] * out_stride + begin * kIndexBlock);
}

Forward::Table Forward::build_table(const float* x, std::size_t count, const float* book, unsigned thread) {
  const ExpertQuant& quant = container_.manifest().quant;
  std::uint8_t* entries = thread_scratch(thread) + s_.thread_table;
  auto* work = reinterpret_cast<float*>(thread_scratch(thread));
  return {entries, k_.build_table(x, count, book, quant.stages, quant.entries, work, entries)};
}

void Forward::gate_or_up(const MoeWeights& w, const ExpertInput& input, const ExpertCache::Ready& r,
                         MatrixKind kind, std::size_t begin, std::size_t end, unsigned thread) {
  const ExpertMatrix m = expert_matrix(r.record, kind);
  const std::size_t group_bytes = kTablePositions * m.stages * kTableBytes;
  add_groups(m, begin, end, pairs_of(r), floats(kind == MatrixKind::Gate ? s_.pair_gate : s_.pair_up),
             round_up(model_.moe_intermediate_size, 16), thread,
             [&](std::uint32_t pair, std::size_t first, std::size_t count) -> Table {
               const std::size_t token = pair / model_.num_experts_per_token;
               const auto which = static_cast<std::size_t>(kind);
               if (tokens_ > kTabledTokens)
                 return build_table(input.x + token * input.stride + first * kVecDim, count, w.books[which],
                                    thread);
               const std::size_t kept = token * 2 + which;
               const std::size_t group = first / kTablePositions;
               return {scratch_.data() + s_.tables + kept * s_.table_bytes + group * group_bytes,
                       floats(s_.table_scales)[kept * s_.table_groups + group]};
             });
}

// Down's tables depend on the pair: each group's is built where it is used, and lives in the first-level
// cache.
void Forward::down(const MoeWeights& w, const ExpertCache::Ready& r, std::size_t begin, std::size_t end,
                   unsigned thread) {
  const std::size_t width = round_up(model_.moe_intermediate_size, 16);
  add_groups(expert_matrix(r.record, MatrixKind::Down), begin, end, pairs_of(r), floats(s_.pair_out),
             round_up(model_.expert_width, 16), thread,
             [&](std::uint32_t pair, std::size_t first, std::size_t count) {
               return build_table(floats(s_.pair_gate) + pair * width + first * kVecDim, count, w.books[2],
                                  thread);
             });
}

}  // namespace waste::runtime
