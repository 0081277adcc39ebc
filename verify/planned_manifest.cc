#include "verify/planned_manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "container/core/checked.h"
#include "container/format/trunk_recipe.h"

namespace waste::verify {

namespace {

constexpr std::uint64_t kTensorAlignment = 64;

using Shape = std::vector<std::uint64_t>;

class Inventory {
 public:
  Inventory(const ModelConfig& model, const Json& config) : m_(model), hidden_(model.hidden_size) {
    prefix_ = m_.tensor_prefix + "model.";
    add("embed_tokens.weight", {m_.vocab_size, hidden_});
    for (std::uint32_t layer = 0; layer < m_.num_layers; ++layer) add_layer(layer);
    prefix_ = m_.tensor_prefix + "model.";
    if (m_.attn_res_block != 0) {
      add("output_attn_res_norm.weight", {hidden_});
      add("output_attn_res_proj.weight", {1, hidden_});
    }
    add("norm.weight", {hidden_});
    prefix_ = m_.tensor_prefix;
    add("lm_head.weight", {m_.vocab_size, hidden_});
    prefix_.clear();
    if (const Json* vision = json_find(config, "vision_config")) add_vision(*vision);
  }

  std::vector<SourceTensor> take() { return std::move(tensors_); }

 private:
  void add(std::string_view name, Shape shape) {
    tensors_.push_back({prefix_ + std::string(name), std::move(shape)});
  }

  void add_layer(std::uint32_t layer) {
    const std::string at = fmt::format("{}model.layers.{}.", m_.tensor_prefix, layer);
    prefix_ = at;
    add("input_layernorm.weight", {hidden_});
    add("post_attention_layernorm.weight", {hidden_});
    if (m_.attn_res_block != 0) {
      for (const char* name : {"self_attention_res", "mlp_res"}) {
        add(fmt::format("{}_norm.weight", name), {hidden_});
        add(fmt::format("{}_proj.weight", name), {1, hidden_});
      }
    }
    prefix_ = at + "self_attn.";
    m_.kda_layer[layer] ? add_kda() : add_mla();
    if (m_.is_moe(layer)) {
      prefix_ = at + "block_sparse_moe.";
      add_moe(at);
    } else {
      prefix_ = at + "mlp.";
      add_mlp(m_.intermediate_size);
    }
  }

  void add_kda() {
    const std::uint64_t width = std::uint64_t{m_.kda_heads} * m_.kda_head_dim;
    for (const char* name : {"q", "k", "v"}) {
      add(fmt::format("{}_proj.weight", name), {width, hidden_});
      add(fmt::format("{}_conv1d.weight", name), {width, 1, m_.conv_kernel});
    }
    add("f_a_proj.weight", {m_.kda_head_dim, hidden_});
    add("f_b_proj.weight", {width, m_.kda_head_dim});
    add("b_proj.weight", {m_.kda_heads, hidden_});
    add("dt_bias", {width});
    add("o_norm.weight", {m_.kda_head_dim});
    add("o_proj.weight", {hidden_, width});
    if (m_.full_rank_gate) {
      add("g_proj.weight", {width, hidden_});
      add("A_log", {m_.kda_head_dim});
    } else {
      add("g_a_proj.weight", {m_.kda_head_dim, hidden_});
      add("g_b_proj.weight", {width, m_.kda_head_dim});
      add("A_log", {1, 1, m_.kda_heads, 1});
    }
  }

  void add_mla() {
    const std::uint64_t heads = m_.num_attention_heads;
    const std::uint64_t query = heads * (std::uint64_t{m_.qk_nope_head_dim} + m_.qk_rope_head_dim);
    const std::uint64_t value = heads * m_.v_head_dim;
    if (m_.q_lora_rank != 0) {
      add("q_a_proj.weight", {m_.q_lora_rank, hidden_});
      add("q_a_layernorm.weight", {m_.q_lora_rank});
      add("q_b_proj.weight", {query, m_.q_lora_rank});
    } else {
      add("q_proj.weight", {query, hidden_});
    }
    add("kv_a_proj_with_mqa.weight", {std::uint64_t{m_.kv_lora_rank} + m_.qk_rope_head_dim, hidden_});
    add("kv_a_layernorm.weight", {m_.kv_lora_rank});
    add("kv_b_proj.weight", {heads * m_.qk_nope_head_dim + value, m_.kv_lora_rank});
    add("o_proj.weight", {hidden_, value});
    if (m_.mla_output_gate) add("g_proj.weight", {value, hidden_});
  }

  void add_mlp(std::uint64_t inner) {
    add("gate_proj.weight", {inner, hidden_});
    add("up_proj.weight", {inner, hidden_});
    add("down_proj.weight", {hidden_, inner});
  }

  void add_moe(const std::string& at) {
    add("gate.weight", {m_.num_experts, hidden_});
    add("gate.e_score_correction_bias", {m_.num_experts});
    if (m_.latent_moe) {
      add("routed_expert_down_proj.weight", {m_.expert_width, hidden_});
      add("routed_expert_norm.weight", {m_.expert_width});
      add("routed_expert_up_proj.weight", {hidden_, m_.expert_width});
    }
    if (m_.num_shared_experts == 0) return;
    prefix_ = at + "block_sparse_moe.shared_experts.";
    add_mlp(std::uint64_t{m_.moe_intermediate_size} * m_.num_shared_experts);
  }

  void add_vision(const Json& v) {
    const auto get = [&](std::string_view key) { return json_u64(v, key, "vision_config"); };
    const std::uint64_t width = get("vt_hidden_size");
    const std::uint64_t qkv = get("qkv_hidden_size");
    const std::uint64_t inner = get("vt_intermediate_size");
    const std::uint64_t patch = get("patch_size");
    std::uint64_t merged = width;
    for (const Json& n : json_array(v, "merge_kernel_size", "vision_config")) {
      if (!n.is_number_integer() || n.get<std::int64_t>() < 1)
        fail_data("vision_config: merge_kernel_size: not a size");
      merged = checked_mul(merged, n.get<std::uint64_t>(), "vision_config: merge_kernel_size");
    }
    prefix_ = "vision_tower.";
    add("patch_embed.proj.weight", {width, 3, patch, patch});
    add("patch_embed.pos_emb.weight", {get("init_pos_emb_height"), get("init_pos_emb_width"), width});
    add("encoder.final_layernorm.weight", {width});
    const std::uint64_t blocks = get("vt_num_hidden_layers");
    if (blocks > 1000) fail_data("vision_config: vt_num_hidden_layers: {}", blocks);
    for (std::uint64_t block = 0; block < blocks; ++block) {
      prefix_ = fmt::format("vision_tower.encoder.blocks.{}.", block);
      add("norm0.weight", {width});
      add("norm1.weight", {width});
      add("wqkv.weight", {checked_mul(3, qkv, "vision_config: qkv_hidden_size"), width});
      add("wo.weight", {width, qkv});
      add("mlp.fc0.weight", {inner, width});
      add("mlp.fc1.weight", {width, inner});
    }
    prefix_ = "mm_projector.";
    add("proj.0.weight", {merged, merged});
    add("proj.2.weight", {hidden_, merged});
    add("post_norm.weight", {hidden_});
  }

  const ModelConfig& m_;
  std::uint64_t hidden_;
  std::string prefix_;
  std::vector<SourceTensor> tensors_;
};

std::uint64_t volume(const Shape& shape, const std::string& name) {
  std::uint64_t n = 1;
  for (const std::uint64_t d : shape) n = checked_mul(n, d, name);
  return n;
}

TrunkTensor stored(const SourceTensor& source, const Recipe& recipe) {
  TrunkTensor t;
  t.name = source.name;
  t.shape = source.shape;
  const std::uint64_t elements = volume(source.shape, source.name);
  t.format = trunk_format(source.name, source.shape.size(), elements, recipe.trunk);
  if (!t.quantised()) {
    t.bytes = checked_mul(elements, 4, source.name);
    return t;
  }
  // A 4-D kernel becomes [out, rest], a 3-D stack [rows, last].
  const std::uint64_t cols = source.shape.size() == 4 ? elements / source.shape[0] : source.shape.back();
  t.shape = {elements / cols, cols};
  const TrunkBytes bytes = trunk_bytes(t.format, t.rows(), t.cols(), t.name);
  t.scale_offset = bytes.data;  // relative until the tensor has its place
  t.bytes = checked_add(bytes.data, bytes.scales, t.name);
  return t;
}

// A vision tower is described beside the text model's config, or kept by a manifest under _outer.
const Json& outer_config(const Json& config) {
  const Json* outer = json_find(config, "_outer");
  return outer != nullptr ? *outer : config;
}

}  // namespace

std::vector<SourceTensor> trunk_inventory(const ModelConfig& model, const Json& config) {
  return Inventory(model, outer_config(config)).take();
}

std::uint64_t checkpoint_bytes(const ModelConfig& model, const Json& config) {
  std::uint64_t bytes = 0;
  for (const SourceTensor& t : trunk_inventory(model, config)) {
    const bool f32 =
        t.name.ends_with("A_log") || t.name.ends_with("dt_bias") || t.name.ends_with("score_correction_bias");
    bytes = checked_add(bytes, checked_mul(volume(t.shape, t.name), f32 ? 4 : 2, t.name), "checkpoint");
  }
  const std::uint64_t expert = model.expert_parameters();
  // MXFP4: 4 bits a weight and one byte of scale for 32 of them.
  const bool packed = json_find(outer_config(config), "quantization_config") != nullptr;
  const std::uint64_t each = packed ? expert / 2 + expert / 32 : checked_mul(expert, 2, "experts");
  const std::uint64_t count = std::uint64_t{model.num_experts} * model.moe_layers();
  return checked_add(bytes, checked_mul(each, count, "experts"), "checkpoint");
}

Manifest planned_manifest(const Json& config, const Recipe& recipe, std::string_view where) {
  Manifest m;
  m.model = parse_model_config(config, where);
  m.config = config;
  m.quant = recipe.experts;
  if (m.model.moe_layers() > 0) m.layout = expert_layout(m.model, m.quant);
  std::uint32_t base = 0;
  for (std::uint32_t layer = 0; layer < m.model.num_layers; ++layer) {
    if (!m.model.is_moe(layer)) continue;
    const std::uint64_t bytes = std::uint64_t{m.model.num_experts} * m.layout.record_bytes;
    m.banks.emplace(layer, Bank{bank_file_name(layer), m.model.num_experts, bytes, base});
    base += m.quant.books_per_layer();
  }
  std::uint64_t at = 0;
  for (const SourceTensor& source : trunk_inventory(m.model, config)) {
    TrunkTensor t = stored(source, recipe);
    t.offset = at;
    if (t.quantised()) t.scale_offset = checked_add(t.scale_offset, at, t.name);
    at = checked_add(at, checked_add(t.bytes, kTensorAlignment, t.name), "trunk") / kTensorAlignment *
         kTensorAlignment;
    m.trunk.push_back(std::move(t));
  }
  return m;
}

}  // namespace waste::verify
