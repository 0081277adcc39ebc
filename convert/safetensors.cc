#include "convert/safetensors.h"

#include <simdjson.h>

#include <algorithm>

#include "container/core/bytes.h"
#include "container/core/checked.h"

namespace waste::convert {

namespace {

namespace dom = simdjson::dom;

// The limit that the format's own library sets: a longer header is a damaged length field.
constexpr std::uint64_t kMaxHeader = 100'000'000;

struct DtypeEntry {
  Dtype dtype;
  std::uint64_t bytes;
  std::string_view name;
};

constexpr DtypeEntry kDtypes[] = {
    {Dtype::Bool, 1, "BOOL"},      {Dtype::U8, 1, "U8"},          {Dtype::I8, 1, "I8"},
    {Dtype::F8E4M3, 1, "F8_E4M3"}, {Dtype::F8E5M2, 1, "F8_E5M2"}, {Dtype::U16, 2, "U16"},
    {Dtype::I16, 2, "I16"},        {Dtype::F16, 2, "F16"},        {Dtype::BF16, 2, "BF16"},
    {Dtype::U32, 4, "U32"},        {Dtype::I32, 4, "I32"},        {Dtype::F32, 4, "F32"},
    {Dtype::U64, 8, "U64"},        {Dtype::I64, 8, "I64"},        {Dtype::F64, 8, "F64"},
};

const DtypeEntry& entry_of(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)];
}

std::string_view copy_name(std::string_view name, std::pmr::memory_resource& arena) {
  char* copy = static_cast<char*>(arena.allocate(std::max<std::size_t>(name.size(), 1), 1));
  std::copy(name.begin(), name.end(), copy);
  return {copy, name.size()};
}

Dtype parse_dtype(std::string_view text, const std::string& at) {
  for (const DtypeEntry& e : kDtypes) {
    if (e.name == text) return e.dtype;
  }
  fail_data("{}: unknown dtype \"{}\"", at, printable(text));
}

Shape parse_shape(const dom::array& values, const std::string& at) {
  Shape shape;
  for (const dom::element value : values) {
    if (shape.rank == Shape::kMaxRank) fail_data("{}: more than {} dimensions", at, Shape::kMaxRank);
    shape.dims[shape.rank++] = value.get_uint64();
  }
  return shape;
}

// `data` is where the tensors' bytes start in the file, `data_size` how many there are.
Tensor parse_tensor(std::string_view name, const dom::object& fields, std::uint64_t data,
                    std::uint64_t data_size, const std::string& at) {
  Tensor tensor;
  tensor.name = name;
  std::uint64_t span[2] = {0, 0};
  int dtype_seen = 0, shape_seen = 0, span_seen = 0;
  for (const auto& [key, value] : fields) {
    if (key == "dtype") {
      tensor.dtype = parse_dtype(value.get_string(), at);
      ++dtype_seen;
    } else if (key == "shape") {
      tensor.shape = parse_shape(value.get_array(), at);
      ++shape_seen;
    } else if (key == "data_offsets") {
      std::size_t n = 0;
      for (const dom::element offset : dom::array(value)) {
        if (n == 2) fail_data("{}: data_offsets holds more than two numbers", at);
        span[n++] = offset.get_uint64();
      }
      if (n != 2) fail_data("{}: data_offsets holds {} numbers, expected 2", at, n);
      ++span_seen;
    } else {
      fail_data("{}: unknown key \"{}\"", at, printable(key));
    }
  }
  if (dtype_seen != 1 || shape_seen != 1 || span_seen != 1) {
    fail_data("{}: dtype, shape and data_offsets must each stand there once", at);
  }
  std::uint64_t bytes = entry_of(tensor.dtype).bytes;
  for (const std::uint64_t d : tensor.shape.span()) bytes = checked_mul(bytes, d, at + ": size of the shape");
  if (span[0] > span[1]) fail_data("{}: data_offsets [{}, {}] run backwards", at, span[0], span[1]);
  if (span[1] > data_size) {
    fail_data("{}: its data ends at {}, the file holds {} bytes of data: incomplete or damaged", at, span[1],
              data_size);
  }
  if (span[1] - span[0] != bytes) {
    fail_data("{}: data_offsets span {} bytes, {} {} needs {}", at, span[1] - span[0],
              dtype_name(tensor.dtype), tensor.shape.text(), bytes);
  }
  tensor.offset = data + span[0];
  tensor.bytes = bytes;
  return tensor;
}

}  // namespace

std::string_view dtype_name(Dtype dtype) {
  return entry_of(dtype).name;
}
std::uint64_t dtype_bytes(Dtype dtype) {
  return entry_of(dtype).bytes;
}

Shape::Shape(std::initializer_list<std::uint64_t> values) : rank(static_cast<std::uint8_t>(values.size())) {
  std::copy(values.begin(), values.end(), dims.begin());
}

std::uint64_t Shape::volume() const {
  std::uint64_t n = 1;
  for (const std::uint64_t d : span()) n *= d;
  return n;
}

std::string Shape::text() const {
  std::string out = "[";
  for (std::size_t i = 0; i < rank; ++i) out += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return out + "]";
}

std::uint64_t header_length(std::span<const std::uint8_t> prefix, std::uint64_t file_size,
                            std::string_view where) {
  if (file_size < 8 || prefix.size() < 8) {
    fail_data("{}: {} bytes, too short for a safetensors file: incomplete or damaged", where, file_size);
  }
  const std::uint64_t length = load_u64(prefix.data());
  if (length > file_size - 8) {
    fail_data("{}: the header is said to be {} bytes, the file has {} after it: incomplete or damaged", where,
              length, file_size - 8);
  }
  if (length > kMaxHeader) fail_data("{}: a header of {} bytes, more than {}", where, length, kMaxHeader);
  return length;
}

Header parse_header(std::string_view text, std::uint64_t file_size, std::string_view where) {
  Header header;
  header.names = std::make_unique<std::pmr::monotonic_buffer_resource>(text.size() / 2 + 64);
  const std::uint64_t data = 8 + text.size();
  if (file_size < data) fail_data("{}: {} bytes, the header alone needs {}", where, file_size, data);
  try {
    dom::parser parser;
    const simdjson::padded_string padded(text);
    for (const auto& [key, value] : dom::object(parser.parse(padded))) {
      if (key == "__metadata__") continue;
      const std::string_view name = copy_name(key, *header.names);
      const std::string at = fmt::format("{}: tensor \"{}\"", where, printable(name));
      header.tensors.push_back(parse_tensor(name, value.get_object(), data, file_size - data, at));
    }
  } catch (const simdjson::simdjson_error& e) {
    fail_data("{}: the header is not a safetensors header: {}", where, e.what());
  }

  const auto before = [](const Tensor& a, const Tensor& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  };
  std::sort(header.tensors.begin(), header.tensors.end(), before);
  std::uint64_t end = data;
  for (const Tensor& t : header.tensors) {
    if (t.offset != end) {
      fail_data("{}: tensor \"{}\" starts at byte {}, the tensor before it ends at {}: {}", where,
                printable(t.name), t.offset, end, t.offset < end ? "they overlap" : "a gap");
    }
    end += t.bytes;
  }
  if (end != file_size) fail_data("{}: {} bytes, its tensors end at {}", where, file_size, end);
  return header;
}

}  // namespace waste::convert
