// manifest.json: the commit record of a container. A container without it is unfinished.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "container/core/json.h"
#include "container/format/expert_record.h"
#include "container/format/model_config.h"
#include "container/format/types.h"

namespace waste {

inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{256} << 20;

/// One bank file: the routed experts of one MoE layer, records in order of expert id.
struct Bank {
  std::string file;
  std::uint32_t experts = 0;
  std::uint64_t bytes = 0;
  std::uint32_t codebook_base = 0;  // position in codebooks.bin of gate's first stage
};

/// One tensor of trunk.bin.
struct TrunkTensor {
  std::string name;
  TensorFormat format = TensorFormat::F32;
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;         // from `offset`, scales included
  std::uint64_t scale_offset = 0;  // quantised formats only; from the start of trunk.bin

  bool quantised() const { return format == TensorFormat::Q4G || format == TensorFormat::Q8G; }
  std::uint64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  std::uint64_t rows() const;
  std::uint64_t elements() const { return rows() * cols(); }
};

/// Bytes of a tensor's codes (or floats) and of its scales. Error(Data) on overflow; `what` opens the
/// message.
struct TrunkBytes {
  std::uint64_t data = 0;
  std::uint64_t scales = 0;
};
TrunkBytes trunk_bytes(TensorFormat format, std::uint64_t rows, std::uint64_t cols, std::string_view what);

struct Manifest {
  ModelConfig model;  // parsed from `config`
  Json config;        // as stored
  ExpertQuant quant;
  ExpertLayout layout;                  // follows from model and quant
  std::map<std::uint32_t, Bank> banks;  // by 0-based layer
  std::vector<TrunkTensor> trunk;
  Json extra = Json::object();  // keys this library does not know, kept in order

  /// The tensor of that name, or nullptr.
  const TrunkTensor* find(std::string_view name) const;
  /// The same; a missing one is Error(Data).
  const TrunkTensor& tensor(std::string_view name) const;
  /// Smallest size trunk.bin must have.
  std::uint64_t trunk_end() const;
  /// Codebooks that codebooks.bin must hold.
  std::uint32_t codebooks_needed() const;
};

/// Parses and checks everything that can be checked without the other files: version, config, recipe, one
/// bank for each MoE layer and no other, bank sizes, plain file names, tensor formats, shapes, extents that
/// do not overlap. Error(Data) opened by `where`.
Manifest parse_manifest(std::string_view text, std::string_view where);

/// The document for `manifest`; parse_manifest of it gives the same back.
std::string write_manifest(const Manifest& manifest);

/// "experts-L12.bin".
std::string bank_file_name(std::uint32_t layer);

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kTrunkFile = "trunk.bin";
inline constexpr std::string_view kCodebooksFile = "codebooks.bin";
inline constexpr std::string_view kSealFile = "seal.waste";
inline constexpr std::string_view kUsageFile = "usage.waste";
inline constexpr std::string_view kTokenizerFile = "tokenizer.model";
inline constexpr std::string_view kSpecialsFile = "specials.json";
inline constexpr std::string_view kChatFile = "chat.json";
inline constexpr std::string_view kVisionFile = "vision.json";
inline constexpr std::string_view kQualityFile = "quality.json";

}  // namespace waste
