#include "runtime/weights.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "container/codec/source_formats.h"
#include "container/core/checked.h"
#include "container/core/checksum.h"
#include "container/core/error.h"
#include "container/footprint/footprint.h"

namespace waste::runtime {

namespace {

// The kernels work on 16 floats at a time and have no tails.
void check_supported(const ModelConfig& m, const std::string& where) {
  const auto multiple = [&](const char* name, std::uint64_t value) {
    if (value % 16 != 0) fail_data("{}: {} is {}: this runtime needs a multiple of 16", where, name, value);
  };
  multiple("hidden_size", m.hidden_size);
  multiple("intermediate_size", m.intermediate_size);
  multiple("moe_intermediate_size", m.moe_intermediate_size);
  multiple("the experts' width", m.expert_width);
  multiple("kda head_dim", m.kda_head_dim);
  multiple("q_lora_rank", m.q_lora_rank);
  multiple("kv_lora_rank", m.kv_lora_rank);
  multiple("qk_nope_head_dim", m.qk_nope_head_dim);
  multiple("qk_rope_head_dim", m.qk_rope_head_dim);
  multiple("v_head_dim", m.v_head_dim);
  if (m.gate_lower_bound && *m.gate_lower_bound >= 0)
    fail_data("{}: gate_lower_bound is {}: it must be negative", where, *m.gate_lower_bound);
}

}  // namespace

// Copies tensors into the allocation as they are asked for, by name.
class Weights::Loader {
 public:
  Loader(const Container& container, AlignedBuffer& memory, Xxh3Stream* digest)
      : c_(container), m_(container.model()), memory_(memory), digest_(digest) {
    for (const TrunkTensor& t : c_.manifest().trunk) index_.emplace(t.name, &t);
  }

  const TrunkTensor& find(const std::string& name, std::uint64_t rows, std::uint64_t cols) const {
    const auto it = index_.find(m_.tensor_prefix + name);
    if (it == index_.end()) fail_data("{}: no tensor {}{}", where(), m_.tensor_prefix, name);
    const TrunkTensor& t = *it->second;
    if (t.rows() != rows || t.cols() != cols) {
      fail_data("{}: {}: expected [{}, {}], found [{}, {}]", where(), t.name, rows, cols, t.rows(), t.cols());
    }
    return t;
  }

  WeightMatrix matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    const TrunkTensor& t = find(name, rows, cols);
    WeightMatrix w;
    w.rows = rows;
    w.cols = cols;
    if (!t.quantised()) {
      w.data = reinterpret_cast<const std::uint8_t*>(floats(t));
      return w;
    }
    w.kind = t.format == TensorFormat::Q4G ? WeightKind::Q4G : WeightKind::Q8G;
    w.groups = ceil_div(cols, kQuantGroup);
    const TrunkBytes bytes = trunk_bytes(t.format, rows, cols, t.name);
    w.data = read(t.offset, bytes.data);
    w.scales = reinterpret_cast<const std::uint16_t*>(read(t.scale_offset, bytes.scales));
    return w;
  }

  /// A float tensor of `count` elements in any shape.
  float* vector(const std::string& name, std::uint64_t count, bool at_least = false) {
    const auto it = index_.find(m_.tensor_prefix + name);
    if (it == index_.end()) fail_data("{}: no tensor {}{}", where(), m_.tensor_prefix, name);
    const TrunkTensor& t = *it->second;
    if (at_least ? t.elements() < count : t.elements() != count)
      fail_data("{}: {}: expected {} elements, found {}", where(), t.name, count, t.elements());
    if (t.quantised()) fail_data("{}: {}: expected floats, found {}", where(), t.name, format_name(t.format));
    return floats(t);
  }

  /// [channels][1][taps] turned to [taps][channels].
  const float* taps(const std::string& name, std::uint64_t channels) {
    float* w = vector(name, channels * m_.conv_kernel);
    const std::vector<float> source(w, w + channels * m_.conv_kernel);
    for (std::uint64_t c = 0; c < channels; ++c)
      for (std::uint64_t i = 0; i < m_.conv_kernel; ++i) w[i * channels + c] = source[c * m_.conv_kernel + i];
    return w;
  }

  /// The query of an attention residual: norm weight times projection.
  const float* residual(const std::string& name) {
    float* norm = vector(name + "_norm.weight", m_.hidden_size);
    const float* projection = vector(name + "_proj.weight", m_.hidden_size);
    for (std::uint32_t i = 0; i < m_.hidden_size; ++i) norm[i] *= projection[i];
    return norm;
  }

 private:
  std::string where() const { return (c_.directory() / kTrunkFile).string(); }

  std::uint8_t* reserve(std::uint64_t bytes) {
    const std::uint64_t size = round_up(bytes, 64);
    if (size > memory_.size() - used_) fail(ErrorKind::Data, "{}: a tensor is used twice", where());
    std::uint8_t* at = memory_.data() + used_;
    used_ += size;
    return at;
  }

  std::uint8_t* read(std::uint64_t offset, std::uint64_t bytes) {
    std::uint8_t* at = reserve(bytes);
    c_.trunk_file().read_exact(offset, {at, bytes});
    if (digest_ != nullptr) digest_->update({at, bytes});
    return at;
  }

  float* floats(const TrunkTensor& t) {
    float* out = nullptr;
    if (t.format == TensorFormat::F32) {
      out = reinterpret_cast<float*>(read(t.offset, t.elements() * 4));
    } else {
      out = reinterpret_cast<float*>(reserve(t.elements() * 4));
      c_.read_trunk_rows(t, 0, t.rows(), {out, t.elements()});
      if (digest_ != nullptr) digest_->update({reinterpret_cast<const std::uint8_t*>(out), t.elements() * 4});
    }
    for (std::uint64_t i = 0; i < t.elements(); ++i)
      if (!(out[i] - out[i] == 0.0f)) fail_data("{}: {}: element {} is not finite", where(), t.name, i);
    return out;
  }

  const Container& c_;
  const ModelConfig& m_;
  AlignedBuffer& memory_;
  Xxh3Stream* digest_;
  std::uint64_t used_ = 0;
  std::unordered_map<std::string, const TrunkTensor*> index_;
};

namespace {

// Without a seal the trunk is digested as it is loaded; the rest of what determines the output follows here.
std::string unsealed_fingerprint(const Container& c, Xxh3Stream& digest) {
  digest.update(read_file(c.directory() / kManifestFile, kMaxManifestBytes));
  digest.update(read_file(c.directory() / kCodebooksFile, std::uint64_t{1} << 30));
  std::vector<std::uint8_t> header(kRecordHeaderBytes);  // holds the payload's crc32
  for (const auto& [layer, bank] : c.manifest().banks) {
    c.bank_file(layer).read_exact(0, header);
    digest.update(header);
  }
  return digest.digest().hex();
}

}  // namespace

Weights::Weights(const Container& c, std::uint64_t bytes) : memory_(bytes) {
  const ModelConfig& m = c.model();
  check_supported(m, (c.directory() / kManifestFile).string());
  Xxh3Stream digest;
  Loader load(c, memory_, c.seal() ? nullptr : &digest);
  const std::uint64_t hidden = m.hidden_size;
  embeddings_ = &load.find("model.embed_tokens.weight", m.vocab_size, hidden);

  const auto mlp = [&](const std::string& p, std::uint64_t width) {
    return MlpWeights{load.matrix(p + "gate_proj.weight", width, hidden),
                      load.matrix(p + "up_proj.weight", width, hidden),
                      load.matrix(p + "down_proj.weight", hidden, width)};
  };
  const std::uint32_t stages = c.manifest().quant.stages;
  const std::uint32_t entries = c.manifest().quant.entries;
  const std::size_t kind_floats = std::size_t{stages} * kVecDim * entries;
  books_.reserve(c.manifest().banks.size() * kMatrixKinds * kind_floats);

  layers_.resize(m.num_layers);
  for (std::uint32_t i = 0; i < m.num_layers; ++i) {
    LayerWeights& w = layers_[i];
    const std::string p = "model.layers." + std::to_string(i) + ".";
    const std::string a = p + "self_attn.";
    w.kda_layer = m.kda_layer[i];
    w.moe_layer = c.manifest().banks.contains(i);
    w.input_norm = load.vector(p + "input_layernorm.weight", hidden);
    w.post_norm = load.vector(p + "post_attention_layernorm.weight", hidden);
    if (m.attn_res_block != 0) {
      w.attention_residual = load.residual(p + "self_attention_res");
      w.mlp_residual = load.residual(p + "mlp_res");
    }
    if (w.kda_layer) {
      const std::uint64_t channels = std::uint64_t{m.kda_heads} * m.kda_head_dim;
      KdaWeights& k = w.kda;
      k.q = load.matrix(a + "q_proj.weight", channels, hidden);
      k.k = load.matrix(a + "k_proj.weight", channels, hidden);
      k.v = load.matrix(a + "v_proj.weight", channels, hidden);
      k.o = load.matrix(a + "o_proj.weight", hidden, channels);
      k.f_a = load.matrix(a + "f_a_proj.weight", m.kda_head_dim, hidden);
      k.f_b = load.matrix(a + "f_b_proj.weight", channels, m.kda_head_dim);
      if (m.full_rank_gate) {
        k.g_b = load.matrix(a + "g_proj.weight", channels, hidden);
      } else {
        k.g_a = load.matrix(a + "g_a_proj.weight", m.kda_head_dim, hidden);
        k.g_b = load.matrix(a + "g_b_proj.weight", channels, m.kda_head_dim);
      }
      k.b = load.matrix(a + "b_proj.weight", m.kda_heads, hidden);
      k.q_taps = load.taps(a + "q_conv1d.weight", channels);
      k.k_taps = load.taps(a + "k_conv1d.weight", channels);
      k.v_taps = load.taps(a + "v_conv1d.weight", channels);
      k.dt_bias = load.vector(a + "dt_bias", channels);
      k.o_norm = load.vector(a + "o_norm.weight", m.kda_head_dim);
      // One value a head; Kimi K3 pads the tensor to head_dim.
      const float* a_log = load.vector(a + "A_log", m.kda_heads, true);
      k.a.assign(round_up(m.kda_heads, 16), 0.0f);
      std::copy_n(a_log, m.kda_heads, k.a.begin());
      kernels().exp(k.a.data(), k.a.size());
    } else {
      MlaWeights& l = w.mla;
      const std::uint64_t heads = m.num_attention_heads;
      const std::uint64_t query = heads * (std::uint64_t{m.qk_nope_head_dim} + m.qk_rope_head_dim);
      if (m.q_lora_rank != 0) {
        l.q_a = load.matrix(a + "q_a_proj.weight", m.q_lora_rank, hidden);
        l.q_a_norm = load.vector(a + "q_a_layernorm.weight", m.q_lora_rank);
        l.q_b = load.matrix(a + "q_b_proj.weight", query, m.q_lora_rank);
      } else {
        l.q_b = load.matrix(a + "q_proj.weight", query, hidden);
      }
      l.kv_a = load.matrix(a + "kv_a_proj_with_mqa.weight",
                           std::uint64_t{m.kv_lora_rank} + m.qk_rope_head_dim, hidden);
      l.kv_a_norm = load.vector(a + "kv_a_layernorm.weight", m.kv_lora_rank);
      l.kv_b = load.matrix(a + "kv_b_proj.weight", heads * (std::uint64_t{m.qk_nope_head_dim} + m.v_head_dim),
                           m.kv_lora_rank);
      l.o = load.matrix(a + "o_proj.weight", hidden, heads * m.v_head_dim);
      if (m.mla_output_gate) l.gate = load.matrix(a + "g_proj.weight", heads * m.v_head_dim, hidden);
    }
    if (!w.moe_layer) {
      w.mlp = mlp(p + "mlp.", m.intermediate_size);
      continue;
    }
    const std::string e = p + "block_sparse_moe.";
    w.moe.router = load.matrix(e + "gate.weight", m.num_experts, hidden);
    w.moe.router_bias = load.vector(e + "gate.e_score_correction_bias", m.num_experts);
    if (m.latent_moe) {
      w.moe.latent_down = load.matrix(e + "routed_expert_down_proj.weight", m.expert_width, hidden);
      w.moe.latent_up = load.matrix(e + "routed_expert_up_proj.weight", hidden, m.expert_width);
      if (m.latent_norm) w.moe.latent_norm = load.vector(e + "routed_expert_norm.weight", m.expert_width);
    }
    if (m.num_shared_experts != 0)
      w.moe.shared =
          mlp(e + "shared_experts.", std::uint64_t{m.num_shared_experts} * m.moe_intermediate_size);
    for (std::uint32_t kind = 0; kind < kMatrixKinds; ++kind) {
      const auto source = c.codebooks().books(c.bank(i).codebook_base, static_cast<MatrixKind>(kind));
      const std::size_t at = books_.size();
      books_.resize(at + kind_floats);
      float* out = books_.data() + at;
      w.moe.books[kind] = out;
      for (std::size_t s = 0; s < stages; ++s)
        for (std::size_t entry = 0; entry < entries; ++entry)
          for (std::size_t j = 0; j < kVecDim; ++j)
            out[(s * kVecDim + j) * entries + entry] = source[(s * entries + entry) * kVecDim + j];
    }
  }
  final_norm_ = load.vector("model.norm.weight", hidden);
  if (m.attn_res_block != 0) output_residual_ = load.residual("model.output_attn_res");
  head_ = load.matrix("lm_head.weight", m.vocab_size, hidden);
  fingerprint_ = c.seal() ? c.seal()->weights_fingerprint().hex() : unsealed_fingerprint(c, digest);
}

}  // namespace waste::runtime
