// The first two bytes choose the size of the file's data, the rest is the header text.
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "container/core/bytes.h"
#include "convert/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace waste::convert;
  if (size < 2) return 0;
  const std::uint64_t data_size = waste::load_u16(data);
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  try {
    const Header header = parse_header(text, 8 + text.size() + data_size, "fuzz");
    std::uint64_t end = 8 + text.size();
    for (const Tensor& t : header.tensors) {
      if (t.offset != end || t.bytes != t.shape.volume() * dtype_bytes(t.dtype))
        throw std::logic_error("bad span");
      end += t.bytes;
    }
    if (end != 8 + text.size() + data_size) throw std::logic_error("bad end");
  } catch (const waste::Error&) {
  }
  return 0;
}
