#include "convert/checkpoint.h"

#include <simdjson.h>
#include <tbb/parallel_for.h>

#include <array>
#include <bit>
#include <functional>
#include <optional>

#include "container/core/bytes.h"
#include "convert/problems.h"

namespace waste::convert {

namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kLoneName = "model.safetensors";
constexpr std::size_t kSavedPrefix = 24;  // of a reclaimed shard's header: its size, its sample's digest
constexpr std::uint64_t kMaxIndex = std::uint64_t{1} << 30;

// The weight map of an index. It is 57 MB for Kimi K3, so it stays in simdjson's own form.
class Index {
 public:
  explicit Index(const fs::path& path) : where_(path.string()) {
    const File file = File::open_read(path);
    const std::uint64_t size = file.size();
    if (size > kMaxIndex) fail_data("{}: {} bytes, more than an index can have", where_, size);
    simdjson::padded_string text(size);
    file.read_exact(0, {reinterpret_cast<std::uint8_t*>(text.data()), size});
    try {
      bool seen = false;
      for (const auto& [key, value] : simdjson::dom::object(parser_.parse(text))) {
        if (key != "weight_map") continue;
        if (std::exchange(seen, true)) fail_data("{}: weight_map appears twice", where_);
        weight_map_ = value.get_object();
      }
      if (!seen) fail_data("{}: weight_map is missing", where_);
    } catch (const simdjson::simdjson_error& e) {
      fail_data("{}: not a checkpoint index: {}", where_, e.what());
    }
  }

  /// Calls visit(tensor, shard) for every entry.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [tensor, shard] : weight_map_) {
      if (!shard.is_string()) fail_data("{}: tensor \"{}\": expected a file name", where_, printable(tensor));
      visit(tensor, std::string_view(shard));
    }
  }

  std::set<std::string, std::less<>> shard_names() const {
    std::set<std::string, std::less<>> names;
    for_each([&](std::string_view tensor, std::string_view shard) {
      if (names.contains(shard)) return;
      if (!plain_file_name(shard)) {
        fail_data("{}: tensor \"{}\" lies in \"{}\", which is not a file name", where_, printable(tensor),
                  printable(shard));
      }
      names.emplace(shard);
    });
    if (names.empty()) fail_data("{}: weight_map is empty", where_);
    return names;
  }

 private:
  static bool plain_file_name(std::string_view name) {
    return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
           name.find('\0') == name.npos;
  }

  std::string where_;
  simdjson::dom::parser parser_;
  simdjson::dom::object weight_map_;
};

std::string read_text(const File& file, std::uint64_t offset, std::uint64_t size) {
  std::string text(size, '\0');
  file.read_exact(offset, {reinterpret_cast<std::uint8_t*>(text.data()), size});
  return text;
}

// Two models of one shape have the same headers; reading all of their data to tell them apart would take
// hours.
Digest128 sample(const File& file, std::uint64_t data, std::uint64_t size) {
  constexpr std::uint64_t kPages = 4;
  constexpr std::uint64_t kPageBytes = 4096;
  Xxh3Stream stream;
  std::array<std::uint8_t, kPageBytes> page{};
  for (std::uint64_t i = 0; i < kPages; ++i) {
    const std::uint64_t at = data + (size - data) / kPages * i;
    const std::uint64_t n = std::min(kPageBytes, size - at);
    file.read_exact(at, std::span(page).first(n));
    stream.update(std::span(page).first(n));
  }
  return stream.digest();
}

Header load_shard(const fs::path& directory, const Reclaimed& reclaimed, Shard& shard) {
  std::string text;
  // A shard that was recorded but not yet deleted when the run before this one died is still of use.
  if (reclaimed.shards.contains(shard.name) && !fs::exists(directory / shard.name)) {
    shard.reclaimed = true;
    const fs::path path = reclaimed.headers / (shard.name + ".header");
    const File saved = File::open_read(path);
    if (saved.size() < kSavedPrefix) fail_data("{}: {} bytes, too short", path.string(), saved.size());
    std::uint8_t prefix[kSavedPrefix];
    saved.read_exact(0, prefix);
    shard.size = load_u64(prefix);
    std::copy(prefix + 8, prefix + kSavedPrefix, shard.sample_digest.bytes.begin());
    text = read_text(saved, kSavedPrefix, saved.size() - kSavedPrefix);
  } else {
    shard.file = File::open_read(directory / shard.name);
    shard.size = shard.file.size();
    std::uint8_t prefix[8];
    const std::size_t got = shard.file.read_some(0, prefix);
    text = read_text(shard.file, 8, header_length({prefix, got}, shard.size, shard.name));
  }
  shard.header_digest = xxh3_128({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  Header header = parse_header(text, shard.size, shard.name);
  if (!shard.reclaimed) shard.sample_digest = sample(shard.file, 8 + text.size(), shard.size);
  return header;
}

std::size_t hash(std::string_view name) {
  return std::hash<std::string_view>{}(name);
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& directory, const Reclaimed& reclaimed) {
  if (!fs::is_directory(directory)) fail_data("{}: not a directory", directory.string());
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  Problems problems;

  const fs::path index_path = directory / kIndexName;
  const bool indexed = fs::exists(index_path) || !fs::exists(directory / kLoneName);
  std::optional<Index> index;
  std::set<std::string, std::less<>> names{std::string(kLoneName)};
  if (indexed) names = index.emplace(index_path).shard_names();
  for (const std::string& name : names) checkpoint.shards_.emplace_back().name = name;

  const std::size_t count = checkpoint.shards_.size();
  std::vector<Header> headers(count);
  std::vector<std::string> errors(count);
  tbb::parallel_for(std::size_t{0}, count, [&](std::size_t i) {
    try {
      headers[i] = load_shard(directory, reclaimed, checkpoint.shards_[i]);
    } catch (const Error& e) {
      errors[i] = e.what();
    }
  });
  std::size_t total = 0;
  for (const Header& header : headers) total += header.tensors.size();
  checkpoint.tensors_.reserve(total);
  for (std::size_t i = 0; i < count; ++i) {
    if (!errors[i].empty()) problems.add(errors[i]);
    for (Tensor& tensor : headers[i].tensors) {
      tensor.shard = static_cast<std::uint32_t>(i);
      checkpoint.tensors_.push_back(tensor);
    }
    checkpoint.names_.push_back(std::move(headers[i].names));
  }
  checkpoint.build_table(problems);

  if (indexed) {
    index->for_each([&](std::string_view name, std::string_view shard) {
      const Tensor* tensor = checkpoint.find(name);
      if (tensor != nullptr && checkpoint.shards_[tensor->shard].name == shard) return;
      const auto i = static_cast<std::size_t>(std::distance(names.begin(), names.find(shard)));
      if (!errors[i].empty()) return;  // the shard itself has been reported
      problems.add(fmt::format("{}: tensor \"{}\" should be in {}, {}", kIndexName, printable(name), shard,
                               tensor == nullptr ? "which does not have it"
                                                 : "but lies in " + checkpoint.shards_[tensor->shard].name));
    });
  }
  problems.fail_if_any(directory.string());

  Xxh3Stream stream;
  for (const Shard& shard : checkpoint.shards_) {
    std::uint8_t sizes[16];
    store_u64(sizes, shard.name.size());
    store_u64(sizes + 8, shard.size);
    stream.update(sizes);
    stream.update({reinterpret_cast<const std::uint8_t*>(shard.name.data()), shard.name.size()});
    stream.update(shard.header_digest.bytes);
    stream.update(shard.sample_digest.bytes);
  }
  checkpoint.identity_ = stream.digest();
  return checkpoint;
}

void Checkpoint::build_table(Problems& problems) {
  table_.assign(std::bit_ceil(tensors_.size() * 2 + 1), 0);
  for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
    std::size_t slot = hash(tensors_[i].name) & (table_.size() - 1);
    while (table_[slot] != 0 && tensors_[table_[slot] - 1].name != tensors_[i].name) {
      slot = (slot + 1) & (table_.size() - 1);
    }
    if (table_[slot] != 0) {
      const Tensor& first = tensors_[table_[slot] - 1];
      problems.add(fmt::format("tensor \"{}\" appears twice, in {} and in {}", printable(first.name),
                               shards_[first.shard].name, shards_[tensors_[i].shard].name));
    } else {
      table_[slot] = i + 1;
    }
  }
}

const Tensor* Checkpoint::find(std::string_view name) const {
  std::size_t slot = hash(name) & (table_.size() - 1);
  while (table_[slot] != 0) {
    const Tensor& tensor = tensors_[table_[slot] - 1];
    if (tensor.name == name) return &tensor;
    slot = (slot + 1) & (table_.size() - 1);
  }
  return nullptr;
}

std::uint64_t Checkpoint::bytes() const {
  std::uint64_t total = 0;
  for (const Shard& shard : shards_) total += shard.size;
  return total;
}

void Checkpoint::read(const Tensor& tensor, std::uint64_t begin, std::span<std::uint8_t> out) const {
  const Shard& shard = shards_[tensor.shard];
  if (shard.reclaimed) {
    fail_data("{}: tensor \"{}\" is needed, but an earlier run has deleted this shard", shard.name,
              printable(tensor.name));
  }
  if (begin > tensor.bytes || out.size() > tensor.bytes - begin) {
    fail_data("{}: tensor \"{}\": bytes [{}, {}) asked of {}", shard.name, printable(tensor.name), begin,
              begin + out.size(), tensor.bytes);
  }
  shard.file.read_exact(tensor.offset + begin, out);
  shard.file.drop_cache(tensor.offset + begin, out.size());
}

void Checkpoint::prefetch(const Tensor& tensor) const {
  const Shard& shard = shards_[tensor.shard];
  if (!shard.reclaimed) shard.file.prefetch(tensor.offset, tensor.bytes);
}

std::vector<std::uint8_t> Checkpoint::saved_header(std::uint32_t index) const {
  const Shard& shard = shards_[index];
  std::uint8_t prefix[8];
  shard.file.read_exact(0, prefix);
  const std::uint64_t length = header_length(prefix, shard.size, shard.name);
  std::vector<std::uint8_t> out(kSavedPrefix + length);
  store_u64(out.data(), shard.size);
  std::copy(shard.sample_digest.bytes.begin(), shard.sample_digest.bytes.end(), out.begin() + 8);
  shard.file.read_exact(8, std::span(out).subspan(kSavedPrefix));
  return out;
}

}  // namespace waste::convert
