#include "container/format/model_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "container/core/error.h"
#include "container/format/types.h"

namespace waste {

namespace {

// Far above any released model, far below what could overflow a product of three of them.
constexpr std::uint64_t kMaxLayers = 4096;
constexpr std::uint64_t kMaxDimension = 1u << 18;
constexpr std::uint64_t kMaxVocab = 1u << 24;
constexpr std::uint64_t kMaxHeads = 1u << 14;
constexpr std::uint64_t kMaxHeadDim = 4096;
constexpr std::uint64_t kMaxExperts = 65536;  // expert ids are u16 in records

std::optional<std::uint64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (value.is_number_integer() && value.get<std::int64_t>() >= 0) return value.get<std::uint64_t>();
  return std::nullopt;
}

// Reads fields and collects what is wrong with them instead of stopping at the first.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

  std::uint32_t count(const char* key, std::uint64_t low, std::uint64_t high) {
    const Json* value = find(key);
    return value == nullptr ? 0 : check_count(key, *value, low, high);
  }

  std::uint32_t count_or(const char* key, std::uint32_t fallback, std::uint64_t low, std::uint64_t high) {
    const Json* value = json_find(object_, key);
    return value == nullptr ? fallback : check_count(key, *value, low, high);
  }

  double number(const char* key) {
    const Json* value = find(key);
    return value == nullptr ? 0 : check_number(key, *value);
  }

  std::optional<double> number_if_any(const char* key) {
    const Json* value = json_find(object_, key);
    if (value == nullptr) return std::nullopt;
    return check_number(key, *value);
  }

  bool flag(const char* key) {
    const Json* value = json_find(object_, key);
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    wrong(key, *value, "true or false");
    return false;
  }

  std::string text(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    wrong(key, *value, "a string");
    return {};
  }

  const Json* find(const char* key) {
    const Json* value = json_find(object_, key);
    if (value == nullptr) problem(key, "missing");
    return value;
  }

  void problem(const std::string& key, const std::string& what) {
    problems_ += "; " + path_ + key + ": " + what;
  }

  void wrong(const std::string& key, const Json& value, const std::string& expected) {
    problem(key, fmt::format("expected {}, found {}", expected, printable(dump_json_line(value))));
  }

  const std::string& problems() const { return problems_; }

 private:
  std::uint32_t check_count(const char* key, const Json& value, std::uint64_t low, std::uint64_t high) {
    const auto n = whole_number(value);
    if (n && *n >= low && *n <= high) return static_cast<std::uint32_t>(*n);
    wrong(key, value, fmt::format("a whole number from {} to {}", low, high));
    return 0;
  }

  double check_number(const char* key, const Json& value) {
    if (value.is_number() && std::isfinite(value.get<double>())) return value.get<double>();
    wrong(key, value, "a finite number");
    return 0;
  }

  const Json& object_;
  std::string path_;
  std::string problems_;
};

// The first of several names for one key that the config has; the first name when it has none.
const char* present(const Json& config, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (json_find(config, name) != nullptr) return name;
  }
  return *names.begin();
}

constexpr std::initializer_list<const char*> kNumExperts = {"num_experts", "n_routed_experts"};
constexpr std::initializer_list<const char*> kTopK = {"num_experts_per_token", "num_experts_per_tok"};
constexpr std::initializer_list<const char*> kSharedExperts = {"num_shared_experts", "n_shared_experts"};
constexpr std::initializer_list<const char*> kRenormalize = {"moe_renormalize", "norm_topk_prob"};

// Every layer must stand in exactly one of the two lists, whose numbers are 1-based.
void read_attention_layers(FieldReader& in, ModelConfig& c) {
  std::vector<int> seen(c.num_layers, 0);
  c.kda_layer.assign(c.num_layers, false);
  bool sound = true;
  for (const char* key : {"kda_layers", "full_attn_layers"}) {
    const Json* list = in.find(key);
    if (list == nullptr || !list->is_array()) {
      if (list != nullptr) in.wrong(key, *list, "a list of 1-based layer numbers");
      sound = false;
      continue;
    }
    for (const Json& item : *list) {
      const auto layer = whole_number(item);
      if (!layer || *layer < 1 || *layer > c.num_layers) {
        in.wrong(key, item, fmt::format("layer numbers from 1 to {}", c.num_layers));
        sound = false;
        continue;
      }
      ++seen[*layer - 1];
      if (key[0] == 'k') c.kda_layer[*layer - 1] = true;
    }
  }
  for (std::uint32_t layer = 0; sound && layer < c.num_layers; ++layer) {
    if (seen[layer] == 1) continue;
    in.problem("kda_layers and full_attn_layers",
               fmt::format("layer {} is listed {} times instead of once", layer + 1, seen[layer]));
    sound = false;
  }
}

void read_linear_attention(FieldReader& in, ModelConfig& c) {
  c.kda_heads = in.count("num_heads", 1, kMaxHeads);
  c.kda_head_dim = in.count("head_dim", 1, kMaxHeadDim);
  c.conv_kernel = in.count("short_conv_kernel_size", 1, 64);
  c.gate_lower_bound = in.number_if_any("gate_lower_bound");
  c.full_rank_gate = in.flag("use_full_rank_gate");
  if (c.num_layers != 0) read_attention_layers(in, c);
}

void read_mla(FieldReader& in, ModelConfig& c) {
  c.num_attention_heads = in.count("num_attention_heads", 1, kMaxHeads);
  c.q_lora_rank = in.count_or("q_lora_rank", 0, 0, kMaxDimension);
  c.kv_lora_rank = in.count("kv_lora_rank", 1, kMaxDimension);
  c.qk_nope_head_dim = in.count("qk_nope_head_dim", 1, kMaxHeadDim);
  c.qk_rope_head_dim = in.count("qk_rope_head_dim", 0, kMaxHeadDim);
  c.v_head_dim = in.count("v_head_dim", 1, kMaxHeadDim);
  c.mla_output_gate = in.flag("mla_use_output_gate");
}

void check_expert_groups(FieldReader& in, const ModelConfig& c) {
  if (c.expert_groups <= 1 || c.num_experts == 0) return;
  const std::uint32_t size = c.num_experts / c.expert_groups;
  if (c.num_experts % c.expert_groups != 0 || size < 2) {
    in.problem("num_expert_group", fmt::format("{} experts do not form {} groups of two or more",
                                               c.num_experts, c.expert_groups));
  } else if (c.topk_groups > c.expert_groups ||
             std::uint64_t{c.topk_groups} * size < c.num_experts_per_token) {
    in.problem("topk_group", fmt::format("{} groups of {} experts cannot give {}", c.topk_groups, size,
                                         c.num_experts_per_token));
  }
}

void read_moe(const Json& config, FieldReader& in, ModelConfig& c) {
  c.num_experts = in.count(present(config, kNumExperts), 1, kMaxExperts);
  c.num_experts_per_token =
      in.count(present(config, kTopK), 1, c.num_experts != 0 ? c.num_experts : kMaxExperts);
  c.num_shared_experts = in.count_or(present(config, kSharedExperts), 0, 0, 64);
  c.moe_intermediate_size = in.count("moe_intermediate_size", kVecDim, kMaxDimension);
  c.first_k_dense_replace = in.count("first_k_dense_replace", 0, kMaxLayers);
  c.moe_layer_freq = in.count_or("moe_layer_freq", 1, 1, kMaxLayers);
  c.latent_moe = json_find(config, "routed_expert_hidden_size") != nullptr;
  c.expert_width =
      c.latent_moe ? in.count("routed_expert_hidden_size", kVecDim, kMaxDimension) : c.hidden_size;
  c.latent_norm = in.flag("latent_moe_use_norm") && c.latent_moe;
  c.renormalize = in.flag(present(config, kRenormalize));
  c.routed_scaling_factor = in.number("routed_scaling_factor");
  c.expert_groups = in.count_or("num_expert_group", 1, 1, kMaxExperts);
  c.topk_groups = in.count_or("topk_group", 1, 1, kMaxExperts);
  if (c.moe_intermediate_size % kVecDim != 0) in.problem("moe_intermediate_size", "not a multiple of 8");
  if (c.expert_width % kVecDim != 0) in.problem("width of the routed experts", "not a multiple of 8");
  check_expert_groups(in, c);
  const std::string router = in.text("moe_router_activation_func");
  if (router == "softmax") {
    c.router_activation = RouterActivation::Softmax;
  } else if (router != "sigmoid" && !router.empty()) {
    in.problem("moe_router_activation_func", "\"" + printable(router) + "\" is not supported");
  }
}

void read_activation(FieldReader& in, ModelConfig& c) {
  const std::string name = in.text("hidden_act");
  if (name == "situ") {
    c.activation = Activation::Situ;
    const double beta = in.number_if_any("activation_situ_beta").value_or(1);
    c.situ_beta = beta == 0 ? 1 : beta;  // the released code reads 0 as unset
    c.situ_linear_beta = in.number_if_any("activation_situ_linear_beta");
    if (c.situ_linear_beta == 0.0) in.problem("activation_situ_linear_beta", "0 divides by zero");
  } else if (name != "silu" && !name.empty()) {
    in.problem("hidden_act", "\"" + printable(name) + "\" is not supported");
  }
}

std::string arch_name(const Json& config) {
  const Json* outer = json_find(config, "_outer");
  const Json* list = json_find(outer != nullptr ? *outer : config, "architectures");
  std::string name;
  if (list != nullptr && list->is_array() && !list->empty() && (*list)[0].is_string()) {
    name = (*list)[0].get<std::string>();
  }
  if (name == "KimiK3ForConditionalGeneration") return "kimi-k3";
  if (name == "KimiLinearForCausalLM") return "kimi-linear";
  return name;
}

}  // namespace

std::uint32_t ModelConfig::moe_layers() const {
  std::uint32_t n = 0;
  for (std::uint32_t layer = 0; layer < num_layers; ++layer) n += is_moe(layer) ? 1 : 0;
  return n;
}

std::uint32_t ModelConfig::kda_layers() const {
  return static_cast<std::uint32_t>(std::count(kda_layer.begin(), kda_layer.end(), true));
}

ModelConfig parse_model_config(const Json& config, std::string_view where) {
  if (!config.is_object()) fail_data("{}: expected an object, found {}", where, config.type_name());
  const Json* text = json_find(config, "text_config");
  const Json& model = text != nullptr ? *text : config;
  if (!model.is_object())
    fail_data("{}: text_config: expected an object, found {}", where, model.type_name());

  ModelConfig c;
  c.arch = arch_name(config);
  c.tensor_prefix = text != nullptr || json_find(config, "_outer") != nullptr ? "language_model." : "";
  FieldReader in(model, "");
  c.vocab_size = in.count("vocab_size", 1, kMaxVocab);
  c.hidden_size = in.count("hidden_size", kVecDim, kMaxDimension);
  c.num_layers = in.count("num_hidden_layers", 1, kMaxLayers);
  c.intermediate_size = in.count("intermediate_size", 1, kMaxDimension);
  c.rms_norm_eps = in.number("rms_norm_eps");
  if (const Json* eps = json_find(model, "rms_norm_eps");
      eps != nullptr && !(c.rms_norm_eps > 0 && c.rms_norm_eps < 1)) {
    in.wrong("rms_norm_eps", *eps, "a number between 0 and 1");
  }
  c.attn_res_block = in.count_or("attn_res_block_size", 0, 0, kMaxLayers);
  if (in.flag("tie_word_embeddings")) in.problem("tie_word_embeddings", "tied embeddings are not supported");
  read_activation(in, c);
  std::string linear_problems;
  if (const Json* linear = in.find("linear_attn_config")) {
    FieldReader lin(*linear, "linear_attn_config.");
    read_linear_attention(lin, c);
    linear_problems = lin.problems();
  }
  read_mla(in, c);
  read_moe(model, in, c);
  const std::string problems = in.problems() + linear_problems;
  if (!problems.empty()) fail_data("{}: this model config cannot be used: {}", where, problems.substr(2));
  return c;
}

Json manifest_config(const Json& checkpoint_config) {
  const Json* text = json_find(checkpoint_config, "text_config");
  Json config = text != nullptr ? *text : checkpoint_config;
  for (const auto& names : {kNumExperts, kTopK, kSharedExperts, kRenormalize}) {
    const char* canonical = *names.begin();
    if (const char* found = present(config, names); found != canonical) {
      Json value = config[found];  // a copy: inserting may move what a reference would point at
      config[canonical] = std::move(value);
    }
  }
  if (config.contains("moe_renormalize") && config["moe_renormalize"] != true)
    config.erase("moe_renormalize");
  if (text != nullptr) {
    Json outer = checkpoint_config;
    outer.erase("text_config");
    config["_outer"] = std::move(outer);
  }
  return config;
}

}  // namespace waste
