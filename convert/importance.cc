#include "convert/importance.h"

#include <cmath>

#include "container/core/bytes.h"
#include "convert/problems.h"
#include "convert/safetensors.h"

namespace waste::convert {

namespace {
constexpr std::uint64_t kMaxFile = std::uint64_t{1} << 30;
}

Importance Importance::load(const fs::path& path, const Plan& plan) {
  const std::vector<std::uint8_t> file = read_file(path, kMaxFile);
  const std::string where = path.string();
  const std::uint64_t length = header_length(file, file.size(), where);
  const Header header =
      parse_header({reinterpret_cast<const char*>(file.data()) + 8, length}, file.size(), where);
  std::map<std::string_view, const Tensor*> tensors;
  for (const Tensor& t : header.tensors) tensors[t.name] = &t;

  Importance importance;
  importance.digest_ = xxh3_128(file);
  Problems problems;
  for (const LayerItem& item : plan.layers) {
    for (const MatrixKind kind : {MatrixKind::Gate, MatrixKind::Up, MatrixKind::Down}) {
      const auto k = static_cast<std::size_t>(kind);
      const std::string name = fmt::format("layers.{}.{}", item.source->layer, matrix_name(kind));
      const auto found = tensors.find(name);
      if (found == tensors.end()) {
        problems.add(fmt::format("tensor {} is missing", name));
        continue;
      }
      const Tensor& t = *found->second;
      if (t.dtype != Dtype::F32 || t.shape != Shape{plan.layout.cols[k]}) {
        problems.add(fmt::format("tensor {}: expected F32 [{}], found {} {}", name, plan.layout.cols[k],
                                 dtype_name(t.dtype), t.shape.text()));
        continue;
      }
      std::vector<float>& columns = importance.layers_[item.source->layer][k];
      bool sound = true;
      for (std::uint32_t i = 0; i < plan.layout.cols[k]; ++i) {
        columns.push_back(load_f32(file.data() + t.offset + 4 * std::uint64_t{i}));
        sound = sound && std::isfinite(columns.back()) && columns.back() >= 0;
      }
      if (!sound) problems.add(fmt::format("tensor {}: a value is negative or not finite", name));
    }
  }
  problems.fail_if_any(where);
  return importance;
}

std::span<const float> Importance::columns(std::uint32_t layer, MatrixKind kind) const {
  const auto it = layers_.find(layer);
  return it == layers_.end() ? std::span<const float>() : it->second[static_cast<std::size_t>(kind)];
}

}  // namespace waste::convert
