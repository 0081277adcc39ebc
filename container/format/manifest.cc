#include "container/format/manifest.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "container/core/checked.h"
#include "container/core/error.h"
#include "container/core/file.h"

namespace waste {

namespace {

constexpr std::uint64_t kMaxTrunkTensors = 1u << 20;
constexpr std::uint64_t kMaxCodebooks = 1u << 24;

ExpertQuant parse_quant(const Json& root, std::string_view where) {
  const Json& q = json_object(root, "expert_quant", where);
  const std::string at = fmt::format("{}: expert_quant", where);
  const std::string name = json_string(q, "fmt", at);
  ExpertQuant quant;
  if (name == "VQ3R") {
    quant = ExpertQuant::vq3();
  } else if (name == "VQ2R") {
    quant = ExpertQuant::vq2();
  } else if (name == "VQ4P") {
    quant = ExpertQuant::vq4p();
  } else {
    fail_data("{}: fmt: \"{}\" is not a format this version reads", at, printable(name));
  }
  const auto must_be = [&](std::string_view key, std::uint64_t expected) {
    const std::uint64_t found = json_u64(q, key, at);
    if (found != expected) fail_data("{}: {}: {} has {}, found {}", at, key, name, expected, found);
  };
  must_be("stages", quant.stages);
  must_be("vec_dim", kVecDim);
  must_be("entries", quant.entries);
  must_be("index_block", kIndexBlock);
  if (json_find(q, "index_bits") != nullptr || quant.index_bits != 8) must_be("index_bits", quant.index_bits);
  return quant;
}

// Untrusted names become paths inside the container's folder and nowhere else.
void check_plain_name(const std::string& name, std::string_view where) {
  const bool plain = !name.empty() && name.size() <= 255 && name[0] != '.' &&
                     name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!plain) fail_data("{}: file: \"{}\" is not a plain file name", where, printable(name));
}

std::uint32_t parse_layer_number(const std::string& key, const ModelConfig& model, std::string_view where) {
  std::uint32_t layer = 0;
  const char* end = key.data() + key.size();
  const auto [rest, error] = std::from_chars(key.data(), end, layer);
  const bool canonical = error == std::errc() && rest == end && std::to_string(layer) == key;
  if (!canonical || layer >= model.num_layers || !model.is_moe(layer)) {
    fail_data("{}: layers: \"{}\" is not the number of an MoE layer of this model", where, printable(key));
  }
  return layer;
}

void parse_banks(const Json& root, Manifest& m, std::string_view where) {
  std::set<std::string> files;
  for (const auto& [key, entry] : json_object(root, "layers", where).items()) {
    const std::uint32_t layer = parse_layer_number(key, m.model, where);
    const std::string at = fmt::format("{}: layer {}", where, layer);
    Bank bank;
    bank.file = json_string(entry, "file", at);
    check_plain_name(bank.file, at);
    if (!files.insert(bank.file).second)
      fail_data("{}: file: {} belongs to another layer too", at, bank.file);
    const std::uint64_t experts = json_u64(entry, "experts", at);
    if (experts != m.model.num_experts) {
      fail_data("{}: experts: expected {}, found {}", at, m.model.num_experts, experts);
    }
    bank.experts = m.model.num_experts;
    bank.bytes = json_u64(entry, "bytes", at);
    const std::uint64_t expected = std::uint64_t{bank.experts} * m.layout.record_bytes;
    if (bank.bytes != expected) {
      fail_data("{}: bytes: {} records of {} are {}, found {}", at, bank.experts, m.layout.record_bytes,
                expected, bank.bytes);
    }
    const std::uint64_t base = json_u64(entry, "codebook_base", at);
    if (base > kMaxCodebooks) fail_data("{}: codebook_base: {} is too large", at, base);
    bank.codebook_base = static_cast<std::uint32_t>(base);
    m.banks.emplace(layer, std::move(bank));
  }
  std::string missing;
  for (std::uint32_t layer = 0; layer < m.model.num_layers; ++layer) {
    if (m.model.is_moe(layer) && !m.banks.contains(layer)) missing += fmt::format(" {}", layer);
  }
  if (!missing.empty()) fail_data("{}: layers: no bank for MoE layers{}", where, missing);
}

TensorFormat parse_trunk_format(std::uint64_t code, std::string_view where) {
  switch (code) {
    case 0:
      return TensorFormat::F32;
    case 1:
      return TensorFormat::F16;
    case 2:
      return TensorFormat::Q8G;
    case 3:
      return TensorFormat::Q4G;
    default:
      fail_data("{}: fmt: code {} is not a trunk format this version reads", where, code);
  }
}

TrunkTensor parse_tensor(const Json& entry, std::string_view where) {
  TrunkTensor t;
  t.name = json_string(entry, "name", where);
  const std::string at = fmt::format("{}: {}", where, printable(t.name));
  t.format = parse_trunk_format(json_u64(entry, "fmt", at), at);
  t.offset = json_u64(entry, "off", at);
  t.bytes = json_u64(entry, "bytes", at);
  const Json& shape = json_array(entry, "shape", at);
  if (shape.size() > 8) fail_data("{}: shape: {} dimensions", at, shape.size());
  std::uint64_t elements = 1;
  for (const Json& d : shape) {
    if (!d.is_number_unsigned() && !(d.is_number_integer() && d.get<std::int64_t>() >= 0)) {
      fail_data("{}: shape: {} is not a dimension", at, printable(dump_json_line(d)));
    }
    const auto n = d.get<std::uint64_t>();
    if (n == 0) fail_data("{}: shape: a dimension is zero", at);
    t.shape.push_back(n);
    elements = checked_mul(elements, n, at + ": shape");
  }
  const TrunkBytes need = trunk_bytes(t.format, t.rows(), t.cols(), at);
  const std::uint64_t end = checked_add(t.offset, t.bytes, at + ": off + bytes");
  if (!t.quantised()) {
    if (t.bytes != need.data) fail_data("{}: bytes: the shape needs {}, found {}", at, need.data, t.bytes);
    return t;
  }
  const std::uint64_t group = json_u64(entry, "group", at);
  if (group != kQuantGroup) fail_data("{}: group: expected {}, found {}", at, kQuantGroup, group);
  t.scale_offset = json_u64(entry, "scale_off", at);
  const std::uint64_t data_end = checked_add(t.offset, need.data, at);
  if (t.scale_offset < data_end || checked_add(t.scale_offset, need.scales, at) > end) {
    fail_data("{}: scale_off: {} scale bytes must lie in [{}, {}), found them at {}", at, need.scales,
              data_end, end, t.scale_offset);
  }
  return t;
}

void check_no_overlap(const std::vector<TrunkTensor>& trunk, std::string_view where) {
  std::vector<const TrunkTensor*> order;
  order.reserve(trunk.size());
  for (const TrunkTensor& t : trunk) order.push_back(&t);
  std::sort(order.begin(), order.end(),
            [](const TrunkTensor* a, const TrunkTensor* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TrunkTensor& a = *order[i - 1];
    const TrunkTensor& b = *order[i];
    if (a.offset + a.bytes > b.offset) {
      fail_data("{}: {} at [{}, {}) overlaps {} at {}", where, printable(a.name), a.offset,
                a.offset + a.bytes, printable(b.name), b.offset);
    }
  }
}

void parse_trunk(const Json& root, Manifest& m, std::string_view where) {
  const Json& list = json_array(root, "trunk", where);
  if (list.empty() || list.size() > kMaxTrunkTensors) fail_data("{}: trunk: {} tensors", where, list.size());
  m.trunk.reserve(list.size());
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < list.size(); ++i) {
    m.trunk.push_back(parse_tensor(list[i], fmt::format("{}: trunk[{}]", where, i)));
    if (!names.insert(m.trunk.back().name).second) {
      fail_data("{}: trunk[{}]: {} appears twice", where, i, printable(m.trunk.back().name));
    }
  }
  check_no_overlap(m.trunk, where);
}

bool known_key(std::string_view key) {
  constexpr std::string_view kKnown[] = {"format_version", "arch",   "tensor_prefix", "config",
                                         "expert_quant",   "layers", "trunk"};
  return std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown);
}

}  // namespace

std::uint64_t TrunkTensor::rows() const {
  std::uint64_t n = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
  return n;
}

TrunkBytes trunk_bytes(TensorFormat format, std::uint64_t rows, std::uint64_t cols, std::string_view what) {
  if (format == TensorFormat::F32) return {checked_mul(checked_mul(rows, cols, what), 4, what), 0};
  if (format == TensorFormat::F16) return {checked_mul(checked_mul(rows, cols, what), 2, what), 0};
  const std::uint64_t groups = checked_mul(rows, ceil_div(cols, kQuantGroup), what);
  const std::uint64_t codes = checked_mul(groups, kQuantGroup, what);
  return {format == TensorFormat::Q4G ? codes / 2 : codes, groups * 2};
}

const TrunkTensor* Manifest::find(std::string_view name) const {
  const auto it =
      std::find_if(trunk.begin(), trunk.end(), [&](const TrunkTensor& t) { return t.name == name; });
  return it == trunk.end() ? nullptr : &*it;
}

const TrunkTensor& Manifest::tensor(std::string_view name) const {
  const TrunkTensor* t = find(name);
  if (t == nullptr) fail_data("{}: trunk: tensor {} is missing", kManifestFile, name);
  return *t;
}

std::uint64_t Manifest::trunk_end() const {
  std::uint64_t end = 0;
  for (const TrunkTensor& t : trunk) end = std::max(end, t.offset + t.bytes);
  return end;
}

std::uint32_t Manifest::codebooks_needed() const {
  std::uint32_t n = 0;
  for (const auto& [layer, bank] : banks) n = std::max(n, bank.codebook_base + quant.books_per_layer());
  return n;
}

Manifest parse_manifest(std::string_view text, std::string_view where) {
  const Json root = parse_json(text, where);
  const std::uint64_t version = json_u64(root, "format_version", where);
  if (version != 0) fail_data("{}: format_version: this program reads 0, found {}", where, version);
  Manifest m;
  m.config = json_object(root, "config", where);
  m.model = parse_model_config(m.config, fmt::format("{}: config", where));
  m.model.arch = json_string(root, "arch", where);
  m.model.tensor_prefix = json_string(root, "tensor_prefix", where);
  m.quant = parse_quant(root, where);
  m.layout = expert_layout(m.model, m.quant);
  parse_banks(root, m, where);
  parse_trunk(root, m, where);
  for (const auto& [key, value] : root.items()) {
    if (!known_key(key)) m.extra[key] = value;
  }
  return m;
}

std::string write_manifest(const Manifest& m) {
  Json root;
  root["format_version"] = 0;
  root["arch"] = m.model.arch;
  root["tensor_prefix"] = m.model.tensor_prefix;
  root["config"] = m.config;
  root["expert_quant"] = {{"fmt", format_name(m.quant.format)},
                          {"stages", m.quant.stages},
                          {"vec_dim", kVecDim},
                          {"entries", m.quant.entries},
                          {"index_block", kIndexBlock},
                          {"index_bits", m.quant.index_bits},
                          {"bits_per_weight", m.quant.bits_per_weight()}};
  Json& layers = root["layers"] = Json::object();
  for (const auto& [layer, bank] : m.banks) {
    layers[std::to_string(layer)] = {{"file", bank.file},
                                     {"experts", bank.experts},
                                     {"bytes", bank.bytes},
                                     {"codebook_base", bank.codebook_base}};
  }
  Json& trunk = root["trunk"] = Json::array();
  for (const TrunkTensor& t : m.trunk) {
    Json entry = {
        {"name", t.name}, {"fmt", static_cast<int>(t.format)}, {"off", t.offset}, {"shape", t.shape}};
    if (t.quantised()) {
      entry["group"] = kQuantGroup;
      entry["scale_off"] = t.scale_offset;
    }
    entry["bytes"] = t.bytes;
    trunk.push_back(std::move(entry));
  }
  for (const auto& [key, value] : m.extra.items()) root[key] = value;
  return dump_json(root);
}

std::string bank_file_name(std::uint32_t layer) {
  return fmt::format("experts-L{}.bin", layer);
}

}  // namespace waste
