// One MoE layer: codebooks trained on sampled rows of its experts, then every expert encoded into its bank.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "container/format/seal.h"
#include "convert/checkpoint.h"
#include "convert/encoder/matrix_encoder.h"
#include "convert/importance.h"
#include "convert/journal.h"
#include "convert/meter.h"
#include "convert/plan.h"

namespace waste::convert {

/// The codebooks of one layer, gate's stages, then up's, then down's.
class LayerBooks {
 public:
  /// Samples rows (seeded by layer and kind), trains, and lays the books out as codebooks.bin has them. Runs
  /// inside the caller's TBB arena; the result depends on the source and the recipe alone.
  static LayerBooks train(const Checkpoint& checkpoint, const Plan& plan, const LayerItem& item,
                          const Importance& importance, StageTimes& times);
  /// From what train() laid out.
  LayerBooks(const Plan& plan, std::vector<std::uint8_t> file);

  const std::vector<std::uint8_t>& file() const { return file_; }
  const Codebooks& books(MatrixKind kind) const { return books_[static_cast<std::size_t>(kind)]; }

 private:
  std::vector<std::uint8_t> file_;
  std::array<Codebooks, kMatrixKinds> books_;
};

/// Encodes the experts that `state` says are missing, `in_flight` at a time, and keeps it and the journal up
/// to date. Error(Interrupted) once an interrupt has been asked for and the experts in flight are durable.
void convert_layer(const Checkpoint& checkpoint, const Plan& plan, const LayerItem& item,
                   const LayerBooks& books, const Importance& importance, const fs::path& out,
                   const Journal& journal, std::size_t in_flight, UnitState& state, Meter& meter);

/// The finished bank as the seal wants it.
SealedFile sealed_bank(const Plan& plan, const LayerItem& item, const UnitState& state);

/// Bytes one expert in flight takes: its weights as stored, its record, and the rows at work, which are whole
/// matrices when columns are weighted.
std::uint64_t expert_slot_bytes(const Plan& plan, bool weighted);

/// Bytes that training the next layer takes meanwhile.
std::uint64_t training_bytes(const Plan& plan);

}  // namespace waste::convert
