#include "convert/model_map.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "container/codec/source_formats.h"
#include "convert/problems.h"

namespace waste::convert {

namespace {

// The sizes that shapes are made of.
enum class Dim : std::uint8_t {
  None,
  One,
  Three,
  Vocab,
  Hidden,
  DenseInner,
  Conv,
  KdaHeads,
  KdaHead,
  KdaWidth,
  QueryRank,
  QueryWidth,
  KvRank,
  KvRankRope,
  KvWidth,
  ValueWidth,
  Experts,
  ExpertInner,
  ExpertWidth,
  SharedInner,
  VisionWidth,
  VisionQkv,
  VisionQkv3,
  VisionInner,
  Patch,
  PosHeight,
  PosWidth,
  VisionMerged,
  Count
};

// When a rule applies, beside being in the table. Per layer: the kind of attention and of feed-forward.
enum class When : std::uint8_t {
  Always,
  Kda,
  KdaFullGate,
  KdaLowRankGate,
  Mla,
  MlaLowRankQuery,
  MlaFullQuery,
  MlaGate,
  DenseFfn,
  Moe,
  SharedExperts,
  LatentMoe,
  LatentNorm,
  Residuals
};

// "{layer}" and "{block}" stand for every layer of the model and every block of the vision tower.
struct Rule {
  std::string_view name;
  std::array<Dim, 4> shape;
  When when = When::Always;
};

struct ExpertRule {
  MatrixKind kind;
  std::string_view name;
  Dim rows, cols;
};

using enum Dim;

constexpr Rule kKimiText[] = {
    {"model.embed_tokens.weight", {Vocab, Hidden}},
    {"model.norm.weight", {Hidden}},
    {"lm_head.weight", {Vocab, Hidden}},
    {"model.output_attn_res_norm.weight", {Hidden}, When::Residuals},
    {"model.output_attn_res_proj.weight", {One, Hidden}, When::Residuals},
    {"model.layers.{layer}.input_layernorm.weight", {Hidden}},
    {"model.layers.{layer}.post_attention_layernorm.weight", {Hidden}},
    {"model.layers.{layer}.self_attention_res_norm.weight", {Hidden}, When::Residuals},
    {"model.layers.{layer}.self_attention_res_proj.weight", {One, Hidden}, When::Residuals},
    {"model.layers.{layer}.mlp_res_norm.weight", {Hidden}, When::Residuals},
    {"model.layers.{layer}.mlp_res_proj.weight", {One, Hidden}, When::Residuals},

    {"model.layers.{layer}.self_attn.q_proj.weight", {KdaWidth, Hidden}, When::Kda},
    {"model.layers.{layer}.self_attn.k_proj.weight", {KdaWidth, Hidden}, When::Kda},
    {"model.layers.{layer}.self_attn.v_proj.weight", {KdaWidth, Hidden}, When::Kda},
    {"model.layers.{layer}.self_attn.q_conv1d.weight", {KdaWidth, One, Conv}, When::Kda},
    {"model.layers.{layer}.self_attn.k_conv1d.weight", {KdaWidth, One, Conv}, When::Kda},
    {"model.layers.{layer}.self_attn.v_conv1d.weight", {KdaWidth, One, Conv}, When::Kda},
    {"model.layers.{layer}.self_attn.f_a_proj.weight", {KdaHead, Hidden}, When::Kda},
    {"model.layers.{layer}.self_attn.f_b_proj.weight", {KdaWidth, KdaHead}, When::Kda},
    {"model.layers.{layer}.self_attn.dt_bias", {KdaWidth}, When::Kda},
    {"model.layers.{layer}.self_attn.b_proj.weight", {KdaHeads, Hidden}, When::Kda},
    {"model.layers.{layer}.self_attn.o_norm.weight", {KdaHead}, When::Kda},
    {"model.layers.{layer}.self_attn.o_proj.weight", {Hidden, KdaWidth}, When::Kda},
    {"model.layers.{layer}.self_attn.g_proj.weight", {KdaWidth, Hidden}, When::KdaFullGate},
    {"model.layers.{layer}.self_attn.A_log",
     {KdaHead},
     When::KdaFullGate},  // one a head, zeros up to head_dim
    {"model.layers.{layer}.self_attn.g_a_proj.weight", {KdaHead, Hidden}, When::KdaLowRankGate},
    {"model.layers.{layer}.self_attn.g_b_proj.weight", {KdaWidth, KdaHead}, When::KdaLowRankGate},
    {"model.layers.{layer}.self_attn.A_log", {One, One, KdaHeads, One}, When::KdaLowRankGate},

    {"model.layers.{layer}.self_attn.q_a_proj.weight", {QueryRank, Hidden}, When::MlaLowRankQuery},
    {"model.layers.{layer}.self_attn.q_a_layernorm.weight", {QueryRank}, When::MlaLowRankQuery},
    {"model.layers.{layer}.self_attn.q_b_proj.weight", {QueryWidth, QueryRank}, When::MlaLowRankQuery},
    {"model.layers.{layer}.self_attn.q_proj.weight", {QueryWidth, Hidden}, When::MlaFullQuery},
    {"model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight", {KvRankRope, Hidden}, When::Mla},
    {"model.layers.{layer}.self_attn.kv_a_layernorm.weight", {KvRank}, When::Mla},
    {"model.layers.{layer}.self_attn.kv_b_proj.weight", {KvWidth, KvRank}, When::Mla},
    {"model.layers.{layer}.self_attn.o_proj.weight", {Hidden, ValueWidth}, When::Mla},
    {"model.layers.{layer}.self_attn.g_proj.weight", {ValueWidth, Hidden}, When::MlaGate},

    {"model.layers.{layer}.mlp.gate_proj.weight", {DenseInner, Hidden}, When::DenseFfn},
    {"model.layers.{layer}.mlp.up_proj.weight", {DenseInner, Hidden}, When::DenseFfn},
    {"model.layers.{layer}.mlp.down_proj.weight", {Hidden, DenseInner}, When::DenseFfn},
    {"model.layers.{layer}.block_sparse_moe.gate.weight", {Experts, Hidden}, When::Moe},
    {"model.layers.{layer}.block_sparse_moe.gate.e_score_correction_bias", {Experts}, When::Moe},
    {"model.layers.{layer}.block_sparse_moe.shared_experts.gate_proj.weight",
     {SharedInner, Hidden},
     When::SharedExperts},
    {"model.layers.{layer}.block_sparse_moe.shared_experts.up_proj.weight",
     {SharedInner, Hidden},
     When::SharedExperts},
    {"model.layers.{layer}.block_sparse_moe.shared_experts.down_proj.weight",
     {Hidden, SharedInner},
     When::SharedExperts},
    {"model.layers.{layer}.block_sparse_moe.routed_expert_down_proj.weight",
     {ExpertWidth, Hidden},
     When::LatentMoe},
    {"model.layers.{layer}.block_sparse_moe.routed_expert_up_proj.weight",
     {Hidden, ExpertWidth},
     When::LatentMoe},
    {"model.layers.{layer}.block_sparse_moe.routed_expert_norm.weight", {ExpertWidth}, When::LatentNorm},
};

constexpr Rule kKimiVision[] = {
    {"vision_tower.patch_embed.proj.weight", {VisionWidth, Three, Patch, Patch}},
    {"vision_tower.patch_embed.pos_emb.weight", {PosHeight, PosWidth, VisionWidth}},
    {"vision_tower.encoder.final_layernorm.weight", {VisionWidth}},
    {"vision_tower.encoder.blocks.{block}.norm0.weight", {VisionWidth}},
    {"vision_tower.encoder.blocks.{block}.norm1.weight", {VisionWidth}},
    {"vision_tower.encoder.blocks.{block}.wqkv.weight", {VisionQkv3, VisionWidth}},
    {"vision_tower.encoder.blocks.{block}.wo.weight", {VisionWidth, VisionQkv}},
    {"vision_tower.encoder.blocks.{block}.mlp.fc0.weight", {VisionInner, VisionWidth}},
    {"vision_tower.encoder.blocks.{block}.mlp.fc1.weight", {VisionWidth, VisionInner}},
    {"mm_projector.proj.0.weight", {VisionMerged, VisionMerged}},
    {"mm_projector.proj.2.weight", {Hidden, VisionMerged}},
    {"mm_projector.post_norm.weight", {Hidden}},
};

// Below "model.layers.{layer}.".
constexpr ExpertRule kKimiExperts[] = {
    {MatrixKind::Gate, "block_sparse_moe.experts.{expert}.w1.weight", ExpertInner, ExpertWidth},
    {MatrixKind::Up, "block_sparse_moe.experts.{expert}.w3.weight", ExpertInner, ExpertWidth},
    {MatrixKind::Down, "block_sparse_moe.experts.{expert}.w2.weight", ExpertWidth, ExpertInner},
};

struct Family {
  std::string_view arch;
  std::span<const Rule> text;    // under the model's tensor prefix
  std::span<const Rule> vision;  // without prefix, when the config has a vision_config
  std::span<const ExpertRule> experts;
};

constexpr Family kFamilies[] = {
    {"kimi-k3", kKimiText, kKimiVision, kKimiExperts},
    {"kimi-linear", kKimiText, {}, kKimiExperts},
};

const Family& family_of(const ModelConfig& model) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.arch == model.arch) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.arch);
  }
  fail_data("config.json: architecture \"{}\" is not supported; supported: {}", printable(model.arch), known);
}

class Dims {
 public:
  explicit Dims(const ModelConfig& m) {
    set(One, 1), set(Three, 3), set(Vocab, m.vocab_size), set(Hidden, m.hidden_size);
    set(DenseInner, m.intermediate_size), set(Conv, m.conv_kernel);
    set(KdaHeads, m.kda_heads), set(KdaHead, m.kda_head_dim),
        set(KdaWidth, product(m.kda_heads, m.kda_head_dim));
    set(QueryRank, m.q_lora_rank), set(KvRank, m.kv_lora_rank),
        set(KvRankRope, m.kv_lora_rank + m.qk_rope_head_dim);
    set(QueryWidth, product(m.num_attention_heads, m.qk_nope_head_dim + m.qk_rope_head_dim));
    set(KvWidth, product(m.num_attention_heads, m.qk_nope_head_dim + m.v_head_dim));
    set(ValueWidth, product(m.num_attention_heads, m.v_head_dim));
    set(Experts, m.num_experts), set(ExpertInner, m.moe_intermediate_size), set(ExpertWidth, m.expert_width);
    set(SharedInner, product(m.num_shared_experts, m.moe_intermediate_size));
  }

  void add_vision(const Json& vision) {
    constexpr std::string_view kWhere = "config.json: vision_config";
    const auto read = [&](std::string_view key) {
      const std::uint64_t n = json_u64(vision, key, kWhere);
      if (n == 0 || n > kMaxVisionDim) fail_data("{}: {}: {} is out of range", kWhere, key, n);
      return n;
    };
    set(VisionWidth, read("vt_hidden_size")), set(VisionQkv, read("qkv_hidden_size"));
    set(VisionQkv3, 3 * value(VisionQkv)), set(VisionInner, read("vt_intermediate_size"));
    set(Patch, read("patch_size")), set(PosHeight, read("init_pos_emb_height"));
    set(PosWidth, read("init_pos_emb_width"));
    vision_blocks_ = read("vt_num_hidden_layers");
    const Json& merge = json_array(vision, "merge_kernel_size", kWhere);
    std::uint64_t merged = merge.size() == 2 ? 1 : 0;
    for (const Json& side : merge) {
      const bool sound = side.is_number_integer() && side > 0 && side <= kMaxMerge;
      merged *= sound ? side.get<std::uint64_t>() : 0;
    }
    if (merged == 0) {
      fail_data("{}: merge_kernel_size: expected two small numbers, found {}", kWhere,
                printable(dump_json_line(merge)));
    }
    set(VisionMerged, value(VisionWidth) * merged);
  }

  std::uint64_t value(Dim dim) const { return values_[static_cast<std::size_t>(dim)]; }
  std::uint64_t vision_blocks() const { return vision_blocks_; }

  Shape shape(std::span<const Dim> dims) const {
    Shape shape;
    for (const Dim dim : dims) {
      if (dim != None) shape.dims[shape.rank++] = value(dim);
    }
    return shape;
  }

 private:
  static constexpr std::uint64_t kMaxVisionDim = 1 << 16;
  static constexpr std::uint64_t kMaxMerge = 64;
  static std::uint64_t product(std::uint64_t a, std::uint64_t b) { return a * b; }
  void set(Dim dim, std::uint64_t n) { values_[static_cast<std::size_t>(dim)] = n; }

  std::array<std::uint64_t, static_cast<std::size_t>(Count)> values_{};
  std::uint64_t vision_blocks_ = 0;
};

bool applies(When when, const ModelConfig& m, std::optional<std::uint32_t> layer) {
  const bool kda = layer && m.kda_layer[*layer];
  const bool mla = layer && !m.kda_layer[*layer];
  const bool moe = layer && m.is_moe(*layer);
  switch (when) {
    case When::Always:
      return true;
    case When::Kda:
      return kda;
    case When::KdaFullGate:
      return kda && m.full_rank_gate;
    case When::KdaLowRankGate:
      return kda && !m.full_rank_gate;
    case When::Mla:
      return mla;
    case When::MlaLowRankQuery:
      return mla && m.q_lora_rank != 0;
    case When::MlaFullQuery:
      return mla && m.q_lora_rank == 0;
    case When::MlaGate:
      return mla && m.mla_output_gate;
    case When::DenseFfn:
      return layer && !moe;
    case When::Moe:
      return moe;
    case When::SharedExperts:
      return moe && m.num_shared_experts != 0;
    case When::LatentMoe:
      return moe && m.latent_moe;
    case When::LatentNorm:
      return moe && m.latent_norm;
    case When::Residuals:
      return m.attn_res_block != 0;
  }
  return false;
}

bool is_float(Dtype dtype) {
  return dtype == Dtype::BF16 || dtype == Dtype::F16 || dtype == Dtype::F32;
}

// Looks tensors up and remembers what was wrong and what was used.
class Finder {
 public:
  explicit Finder(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), used_(checkpoint.tensors().size(), false) {}

  /// `group` is what the message calls it: the same for all experts of a layer.
  const Tensor* find(std::string_view name, const Shape& shape, bool bytes, std::string_view group) {
    const Tensor* tensor = checkpoint_.find(name);
    if (tensor == nullptr) {
      report(fmt::format("tensor {} is missing", group));
      return nullptr;
    }
    used_[static_cast<std::size_t>(tensor - checkpoint_.tensors().data())] = true;
    if (tensor->shape != shape) {
      report(
          fmt::format("tensor {}: expected shape {}, found {}", group, shape.text(), tensor->shape.text()));
    }
    if (bytes ? tensor->dtype != Dtype::U8 : !is_float(tensor->dtype)) {
      report(fmt::format("tensor {}: expected dtype {}, found {}", group, bytes ? "U8" : "BF16, F16 or F32",
                         dtype_name(tensor->dtype)));
    }
    return tensor;
  }

  std::vector<const Tensor*> unused() const {
    std::vector<const Tensor*> list;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      if (!used_[i]) list.push_back(&checkpoint_.tensors()[i]);
    }
    std::sort(list.begin(), list.end(), [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
    return list;
  }

  void fail_if_any() const {
    Problems problems;
    for (const auto& [text, count] : problems_) {
      problems.add(count == 1 ? text : fmt::format("{} ({} times)", text, count));
    }
    problems.fail_if_any(checkpoint_.directory().string());
  }

 private:
  void report(std::string text) { ++problems_[std::move(text)]; }

  const Checkpoint& checkpoint_;
  std::vector<bool> used_;
  std::map<std::string, std::size_t> problems_;
};

std::string expand(std::string_view name, std::string_view placeholder, std::string_view value) {
  std::string out(name);
  if (const auto at = out.find(placeholder); at != out.npos) out.replace(at, placeholder.size(), value);
  return out;
}

bool mxfp4_experts(const Json& config) {
  const Json* quantisation = json_find(config, "quantization_config");
  if (quantisation == nullptr) return false;
  constexpr std::string_view kWhere = "config.json: quantization_config";
  const std::string format = json_string(*quantisation, "format", kWhere);
  if (format != "mxfp4-pack-quantized")
    fail_data("{}: format \"{}\" is not supported", kWhere, printable(format));
  for (const auto& [name, group] : json_object(*quantisation, "config_groups", kWhere).items()) {
    const Json& weights = json_object(group, "weights", kWhere);
    if (json_u64(weights, "num_bits", kWhere) != 4 ||
        json_u64(weights, "group_size", kWhere) != kMxfp4Block) {
      fail_data("{}: {}: expected 4 bits in groups of {}", kWhere, printable(name), kMxfp4Block);
    }
  }
  return true;
}

LayerSource find_experts(Finder& finder, const Family& family, const ModelConfig& model, const Dims& dims,
                         std::uint32_t layer, bool mxfp4) {
  LayerSource source;
  source.layer = layer;
  source.experts.resize(model.num_experts);
  const std::string prefix = fmt::format("{}model.layers.{}.", model.tensor_prefix, layer);
  std::string name;
  for (const ExpertRule& rule : family.experts) {
    const auto cut = rule.name.find("{expert}");
    const std::string head = prefix + std::string(rule.name.substr(0, cut));
    const std::string_view tail = rule.name.substr(cut + std::string_view("{expert}").size());
    const std::string group = fmt::format("{}*{}", head, tail);
    const std::uint64_t rows = dims.value(rule.rows);
    const std::uint64_t cols = dims.value(rule.cols);
    for (std::uint32_t expert = 0; expert < model.num_experts; ++expert) {
      MatrixSource& matrix = source.experts[expert][static_cast<std::size_t>(rule.kind)];
      name = fmt::format("{}{}{}", head, expert, tail);
      if (!mxfp4) {
        matrix.weight = finder.find(name, Shape{rows, cols}, false, group);
        continue;
      }
      matrix.weight = finder.find(name + "_packed", Shape{rows, cols / 2}, true, group + "_packed");
      matrix.scale = finder.find(name + "_scale", Shape{rows, cols / kMxfp4Block}, true, group + "_scale");
    }
  }
  return source;
}

}  // namespace

ModelMap map_model(const Checkpoint& checkpoint, const ModelConfig& model, const Json& config) {
  const Family& family = family_of(model);
  const bool mxfp4 = mxfp4_experts(config);
  if (mxfp4 && (model.expert_width % kMxfp4Block != 0 || model.moe_intermediate_size % kMxfp4Block != 0)) {
    fail_data("config.json: MXFP4 experts of {} x {}: sizes must be multiples of {}",
              model.moe_intermediate_size, model.expert_width, kMxfp4Block);
  }
  Dims dims(model);
  Finder finder(checkpoint);
  ModelMap map;
  const auto trunk = [&](const std::string& name, const Rule& rule) {
    if (const Tensor* t = finder.find(name, dims.shape(rule.shape), false, name)) map.trunk.push_back(t);
  };

  for (const Rule& rule : family.text) {
    const std::string name = model.tensor_prefix + std::string(rule.name);
    if (name.find("{layer}") == name.npos) {
      if (applies(rule.when, model, std::nullopt)) trunk(name, rule);
      continue;
    }
    for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
      if (applies(rule.when, model, layer)) trunk(expand(name, "{layer}", std::to_string(layer)), rule);
    }
  }
  if (const Json* vision = json_find(config, "vision_config"); vision != nullptr && !family.vision.empty()) {
    dims.add_vision(*vision);
    for (const Rule& rule : family.vision) {
      const bool repeated = rule.name.find("{block}") != rule.name.npos;
      for (std::uint64_t block = 0; block < (repeated ? dims.vision_blocks() : 1); ++block) {
        trunk(expand(rule.name, "{block}", std::to_string(block)), rule);
      }
    }
  }
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
    if (model.is_moe(layer))
      map.moe_layers.push_back(find_experts(finder, family, model, dims, layer, mxfp4));
  }
  finder.fail_if_any();
  std::sort(map.trunk.begin(), map.trunk.end(),
            [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
  map.unused = finder.unused();
  return map;
}

}  // namespace waste::convert
