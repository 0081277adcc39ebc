#include "convert/layer_stage.h"

#include <tbb/parallel_for.h>
#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "container/codec/rvq.h"
#include "container/core/bytes.h"
#include "container/core/half.h"
#include "container/core/memory.h"
#include "container/format/codebooks.h"
#include "convert/extent_writer.h"
#include "convert/source_rows.h"

namespace waste::convert {

namespace {

// Rows that are decoded and encoded in one go: few enough to stay in the second-level cache.
constexpr std::uint32_t kCachedRows = 8;

ExpertRecipe expert_recipe(const Recipe& recipe) {
  return {static_cast<int>(recipe.experts.stages), static_cast<int>(recipe.experts.entries), recipe.quality};
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

std::uint64_t seed_of(std::uint32_t layer, MatrixKind kind) {
  return mix(std::uint64_t{layer} * kMatrixKinds + static_cast<std::uint64_t>(kind));
}

struct RowChoice {
  std::uint32_t expert, row;
};

// All rows when they are few, expert after expert taking turns; else seeded ones, spread over all experts.
std::vector<RowChoice> choose_rows(std::uint32_t experts, std::uint32_t rows, std::uint64_t wanted,
                                   std::uint64_t seed) {
  std::vector<RowChoice> choice;
  if (wanted >= std::uint64_t{experts} * rows) {
    for (std::uint32_t row = 0; row < rows; ++row) {
      for (std::uint32_t expert = 0; expert < experts; ++expert) choice.push_back({expert, row});
    }
    return choice;
  }
  for (std::uint64_t i = 0; i < wanted; ++i) {
    const std::uint64_t expert = wanted < experts ? i * experts / wanted : i % experts;
    choice.push_back({static_cast<std::uint32_t>(expert), static_cast<std::uint32_t>(mix(seed + i) % rows)});
  }
  return choice;
}

std::vector<float> sample_rows(const Checkpoint& checkpoint, const LayerSource& source, MatrixKind kind,
                               std::span<const RowChoice> choice, std::uint64_t cols) {
  std::vector<float> samples(choice.size() * cols);
  constexpr std::size_t kGrain = 16;
  tbb::parallel_for(tbb::blocked_range<std::size_t>(0, choice.size(), kGrain), [&](const auto& range) {
    std::vector<std::uint8_t> weight, scale;
    for (std::size_t i = range.begin(); i != range.end(); ++i) {
      const MatrixSource& matrix = source.experts[choice[i].expert][static_cast<std::size_t>(kind)];
      const RowBytes bytes = row_bytes(matrix, cols);
      weight.resize(bytes.weight);
      scale.resize(bytes.scale);
      checkpoint.read(*matrix.weight, choice[i].row * bytes.weight, weight);
      if (matrix.scale != nullptr) checkpoint.read(*matrix.scale, choice[i].row * bytes.scale, scale);
      decode_rows(matrix, choice[i].row, 1, cols, weight, scale, std::span(samples).subspan(i * cols, cols));
    }
  });
  return samples;
}

// The stored bytes of an expert's three matrices, its record in the making, and room to work.
struct Slot {
  std::uint32_t expert = 0;
  std::array<std::vector<std::uint8_t>, kMatrixKinds> weight, scale;
  AlignedBuffer record;
  std::vector<float> rows;
  std::vector<std::uint8_t> plain;
  std::vector<std::uint16_t> scales;
  EncodeScratch scratch;
  std::array<ErrorSums, kMatrixKinds> errors;
};

class LayerEncoder {
 public:
  LayerEncoder(const Checkpoint& checkpoint, const Plan& plan, const LayerItem& item, const LayerBooks& books,
               const Importance& importance, StageTimes& times)
      : checkpoint_(checkpoint),
        layout_(plan.layout),
        item_(item),
        weighted_(!importance.columns(item.source->layer, MatrixKind::Gate).empty()),
        times_(times) {
    for (const MatrixKind kind : {MatrixKind::Gate, MatrixKind::Up, MatrixKind::Down}) {
      encoders_.emplace_back(books.books(kind), expert_recipe(plan.recipe),
                             importance.columns(item.source->layer, kind));
    }
  }

  void read(std::uint32_t expert, Slot& slot) const {
    slot.expert = expert;
    for (std::size_t k = 0; k < kMatrixKinds; ++k) {
      const MatrixSource& matrix = item_.source->experts[expert][k];
      slot.weight[k].resize(matrix.weight->bytes);
      checkpoint_.read(*matrix.weight, 0, slot.weight[k]);
      if (matrix.scale == nullptr) continue;
      slot.scale[k].resize(matrix.scale->bytes);
      checkpoint_.read(*matrix.scale, 0, slot.scale[k]);
    }
    if (expert + 1 == item_.bank.experts) return;
    for (const MatrixSource& matrix : item_.source->experts[expert + 1]) {
      checkpoint_.prefetch(*matrix.weight);
      if (matrix.scale != nullptr) checkpoint_.prefetch(*matrix.scale);
    }
  }

  void encode(Slot& slot) const {
    if (slot.record.size() == 0) slot.record = AlignedBuffer(layout_.record_bytes);
    const std::span<std::uint8_t> record = slot.record.span().first(layout_.record_bytes);
    for (std::size_t k = 0; k < kMatrixKinds; ++k) encode_matrix(k, slot, record);
    std::fill(record.begin() + layout_.payload_end, record.end(), std::uint8_t{0});
    write_record_header(record, layout_, {item_.source->layer, slot.expert, item_.bank.codebook_base});
  }

 private:
  // In blocks of the 64 rows whose indices lie together, so that a matrix is never held as floats; with
  // importance whole, because the encoder then makes tables for every call.
  void encode_matrix(std::size_t k, Slot& slot, std::span<std::uint8_t> record) const {
    const std::uint32_t cols = layout_.cols[k];
    const std::size_t vectors = cols / kVecDim;
    const std::size_t packed = vectors * kIndexBlock * layout_.quant.bytes_per_vector();
    const std::uint32_t block = weighted_ ? layout_.rows[k] : std::min(kIndexBlock, layout_.rows[k]);
    slot.plain.resize(block * vectors * layout_.quant.stages);
    slot.scales.resize(block);
    slot.errors[k] = {};
    for (std::uint32_t first = 0; first < layout_.rows[k]; first += block) {
      const std::uint32_t rows = std::min(block, layout_.rows[k] - first);
      encode_rows(k, first, rows, slot);
      const PerfTimer timer(times_.encode);
      const std::size_t index_blocks = (rows + kIndexBlock - 1) / kIndexBlock;
      pack_indices(
          layout_.quant, rows, cols, slot.plain,
          record.subspan(layout_.index_offset[k] + first / kIndexBlock * packed, index_blocks * packed));
      for (std::uint32_t r = 0; r < rows; ++r) {
        if (!half_is_finite(slot.scales[r])) {
          fail_data("tensor \"{}\": row {}: its scale is too large for a half",
                    printable(item_.source->experts[slot.expert][k].weight->name), first + r);
        }
        store_u16(record.data() + layout_.scale_offset + 2 * std::size_t{layout_.first_scale[k] + first + r},
                  slot.scales[r]);
      }
    }
  }

  // Rows [first, first + rows) of the matrix into the slot's plain indices and scales.
  void encode_rows(std::size_t k, std::uint32_t first, std::uint32_t rows, Slot& slot) const {
    const MatrixSource& matrix = item_.source->experts[slot.expert][k];
    const std::uint32_t cols = layout_.cols[k];
    const std::size_t row_indices = cols / kVecDim * layout_.quant.stages;
    const RowBytes bytes = row_bytes(matrix, cols);
    const std::uint32_t step = weighted_ ? rows : kCachedRows;
    slot.rows.resize(std::size_t{step} * cols);
    for (std::uint32_t r = 0; r < rows; r += step) {
      const std::uint32_t n = std::min(step, rows - r);
      const std::span values = std::span(slot.rows).first(std::size_t{n} * cols);
      {
        const PerfTimer timer(times_.decode);
        decode_rows(matrix, first + r, n, cols, part(slot.weight[k], first + r, n, bytes.weight),
                    part(slot.scale[k], first + r, n, bytes.scale), values);
      }
      const PerfTimer timer(times_.encode);
      encoders_[k].encode(values, n, cols, std::span(slot.plain).subspan(r * row_indices, n * row_indices),
                          std::span(slot.scales).subspan(r, n), slot.errors[k], slot.scratch);
    }
  }

  static std::span<const std::uint8_t> part(const std::vector<std::uint8_t>& bytes, std::uint64_t first,
                                            std::uint64_t rows, std::uint64_t row_bytes) {
    return std::span(bytes).subspan(first * row_bytes, rows * row_bytes);
  }

  const Checkpoint& checkpoint_;
  const ExpertLayout& layout_;
  const LayerItem& item_;
  const bool weighted_;
  StageTimes& times_;
  std::vector<MatrixEncoder> encoders_;
};

}  // namespace

LayerBooks LayerBooks::train(const Checkpoint& checkpoint, const Plan& plan, const LayerItem& item,
                             const Importance& importance, StageTimes& times) {
  const ExpertQuant& quant = plan.recipe.experts;
  const std::uint64_t size = codebook_bytes(quant);
  std::vector<std::uint8_t> file(quant.books_per_layer() * size);
  for (const MatrixKind kind : {MatrixKind::Gate, MatrixKind::Up, MatrixKind::Down}) {
    const auto k = static_cast<std::size_t>(kind);
    const std::uint64_t cols = plan.layout.cols[k];
    const std::uint64_t seed = seed_of(item.source->layer, kind);
    const std::uint64_t wanted = (plan.recipe.codebook_sample * kVecDim + cols - 1) / cols;
    const auto choice = choose_rows(plan.model.num_experts, plan.layout.rows[k], wanted, seed);
    std::vector<float> samples;
    {
      const PerfTimer timer(times.read);
      samples = sample_rows(checkpoint, *item.source, kind, choice, cols);
    }
    const PerfTimer timer(times.train);
    // Isolated: while it waits for its own helpers, this thread must not pick up experts of the layer being
    // encoded, whose time would then count twice and delay the books.
    const Codebooks books = tbb::this_task_arena::isolate([&] {
      return train_codebooks(samples, cols, expert_recipe(plan.recipe), seed,
                             importance.columns(item.source->layer, kind));
    });
    for (std::uint32_t stage = 0; stage < quant.stages; ++stage) {
      const std::uint32_t position = static_cast<std::uint32_t>(k) * quant.stages + stage;
      std::vector<std::uint16_t> halves;
      for (const float v : books.book(static_cast<int>(stage))) halves.push_back(float_to_half(v));
      write_codebook(std::span(file).subspan(position * size, size), item.bank.codebook_base + position,
                     quant, halves);
    }
  }
  return {plan, std::move(file)};
}

LayerBooks::LayerBooks(const Plan& plan, std::vector<std::uint8_t> file) : file_(std::move(file)) {
  const ExpertQuant& quant = plan.recipe.experts;
  const std::uint8_t* at = file_.data();
  for (Codebooks& books : books_) {
    books.stages = static_cast<int>(quant.stages);
    books.entries = static_cast<int>(quant.entries);
    for (std::uint32_t stage = 0; stage < quant.stages; ++stage) {
      at += kCodebookHeaderBytes;
      for (std::uint32_t i = 0; i < quant.entries * kVecDim; ++i, at += 2) {
        books.values.push_back(half_to_float(load_u16(at)));
      }
    }
  }
}

void convert_layer(const Checkpoint& checkpoint, const Plan& plan, const LayerItem& item,
                   const LayerBooks& books, const Importance& importance, const fs::path& out,
                   const Journal& journal, std::size_t in_flight, UnitState& state, Meter& meter) {
  const std::uint32_t layer = item.source->layer;
  const LayerEncoder encoder(checkpoint, plan, item, books, importance, meter.times());
  ExtentWriter writer(out / item.bank.file, item.bank.bytes, plan.layout.record_bytes, state.bytes,
                      state.digests);
  if (writer.position() != state.bytes || state.items != writer.digests().size()) state = {};
  if (state.items == 0) {
    journal.save_books(layer, books.file());
    state.books = xxh3_128(books.file());
    journal.save_layer(layer, state);
  }
  ErrorSums total;
  for (const ErrorSums& e : state.errors) total.add(e);
  std::vector<Slot> slots(in_flight);
  auto next = static_cast<std::uint32_t>(state.items);

  const auto read_next = [&](tbb::flow_control& flow) -> Slot* {
    if (next == item.bank.experts || cli::interrupted()) {
      flow.stop();
      return nullptr;
    }
    const PerfTimer timer(meter.times().read);
    Slot& slot = slots[next % in_flight];  // tokens leave in order, so the oldest slot is free
    encoder.read(next++, slot);
    return &slot;
  };
  const auto encode = [&](Slot* slot) {
    encoder.encode(*slot);
    return slot;
  };
  const auto write = [&](Slot* slot) {
    const PerfTimer timer(meter.times().write);
    writer.append(slot->record.span().first(plan.layout.record_bytes));
    ++state.items;
    for (const ErrorSums& e : slot->errors) {
      state.errors.push_back(e);
      total.add(e);
    }
    meter.add(plan.model.expert_parameters(), fmt::format("layer {} expert {}", layer, slot->expert), total);
  };
  tbb::parallel_pipeline(in_flight,
                         tbb::make_filter<void, Slot*>(tbb::filter_mode::serial_in_order, read_next) &
                             tbb::make_filter<Slot*, Slot*>(tbb::filter_mode::parallel, encode) &
                             tbb::make_filter<Slot*, void>(tbb::filter_mode::serial_in_order, write));
  state.bytes = writer.position();
  if (state.items == item.bank.experts) {
    const PerfTimer timer(meter.times().write);
    state.digests = writer.finish().digests;
    state.complete = true;
    journal.save_layer(layer, state);
    return;
  }
  writer.checkpoint();
  state.digests = writer.digests();
  journal.save_layer(layer, state);
  fail(ErrorKind::Interrupted, "interrupted in layer {} after expert {} of {}; saved, run again to continue",
       layer, state.items, item.bank.experts);
}

SealedFile sealed_bank(const Plan& plan, const LayerItem& item, const UnitState& state) {
  return {item.bank.file, item.bank.bytes, plan.layout.record_bytes, state.digests};
}

std::uint64_t expert_slot_bytes(const Plan& plan, bool weighted) {
  std::uint64_t stored = 0;
  std::uint64_t work = 0;
  if (plan.layers.empty()) return 0;
  for (std::size_t k = 0; k < kMatrixKinds; ++k) {
    const MatrixSource& matrix = plan.layers[0].source->experts[0][k];
    stored += matrix.weight->bytes + (matrix.scale != nullptr ? matrix.scale->bytes : 0);
    // A block of rows as floats, again in the encoder's order, and its indices twice.
    const std::uint64_t rows = weighted ? plan.layout.rows[k] : kIndexBlock;
    const std::uint64_t block = rows * plan.layout.cols[k];
    work = std::max(work, block * 8 + 2 * block / kVecDim * plan.layout.quant.stages);
  }
  return stored + plan.layout.record_bytes + work;
}

std::uint64_t training_bytes(const Plan& plan) {
  // The samples, and the trainer's scaled copy, residuals and indices.
  return plan.recipe.codebook_sample * kVecDim * 4 * 4;
}

}  // namespace waste::convert
