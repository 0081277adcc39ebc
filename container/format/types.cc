#include "container/format/types.h"

namespace waste {

std::string_view format_name(TensorFormat format) {
  switch (format) {
    case TensorFormat::F32:
      return "F32";
    case TensorFormat::F16:
      return "F16";
    case TensorFormat::Q8G:
      return "Q8G";
    case TensorFormat::Q4G:
      return "Q4G";
    case TensorFormat::VQ3R:
      return "VQ3R";
    case TensorFormat::VQ2R:
      return "VQ2R";
    case TensorFormat::VQ4P:
      return "VQ4P";
  }
  return "unknown";
}

std::string_view matrix_name(MatrixKind kind) {
  switch (kind) {
    case MatrixKind::Gate:
      return "w1";
    case MatrixKind::Up:
      return "w3";
    case MatrixKind::Down:
      return "w2";
  }
  return "unknown";
}

}  // namespace waste
