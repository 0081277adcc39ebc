#include "download/listing.h"

#include <simdjson.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "container/core/error.h"
#include "container/core/json.h"
#include "container/core/text.h"
#include "download/headers.h"
#include "download/paths.h"

namespace waste::download {

namespace {

constexpr unsigned kMostLayers = 4096;
// Bounds the block map of a file to 32 MiB; the largest shards published are some 50 GB.
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 44;

std::string lower_hex(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c + ('a' - 'A'));
  }
  return text;
}

Entry parse_file(const Json& item, std::string_view where) {
  Entry entry;
  entry.path = json_string(item, "path", where);
  if (const auto objection = path_objection(entry.path)) {
    fail_data("{}: refusing the file name \"{}\": {}", where, printable(entry.path), *objection);
  }
  const std::string place = fmt::format("{}: \"{}\"", where, printable(entry.path));
  entry.size = json_u64(item, "size", place);
  if (entry.size > kLargestFile) fail_data("{}: impossible size {}", place, entry.size);
  const Json* lfs = json_find(item, "lfs");
  const std::string digest =
      lower_hex(lfs != nullptr ? json_string(*lfs, "oid", place + ": lfs") : json_string(item, "oid", place));
  if (lfs != nullptr && json_u64(*lfs, "size", place + ": lfs") != entry.size) {
    fail_data("{}: size {} in the listing, {} in its LFS record", place, entry.size,
              json_u64(*lfs, "size", place));
  }
  entry.id = {lfs != nullptr ? ContentId::Kind::Sha256 : ContentId::Kind::GitSha1, digest};
  if (!is_hex(digest, lfs != nullptr ? 64 : 40)) {
    fail_data("{}: \"{}\" is not a {}", place, printable(digest), entry.id.kind_name());
  }
  return entry;
}

// The layer a tensor belongs to, or nullopt for the trunk.
std::optional<unsigned> layer_of(std::string_view tensor) {
  constexpr std::string_view kMarker = ".layers.";
  const std::size_t at = tensor.find(kMarker);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = tensor.substr(0, at);
  const std::string_view parent = before.substr(before.rfind('.') + 1);
  if (parent != "model" && parent != "language_model") return std::nullopt;
  const std::string_view rest = tensor.substr(at + kMarker.size());
  unsigned layer = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  if (error != std::errc() || (end != rest.data() + rest.size() && *end != '.')) return std::nullopt;
  return layer;
}

}  // namespace

Revision parse_revision(std::string_view text, std::string_view where) {
  const Json answer = parse_json(text, where);
  Revision revision;
  revision.commit = lower_hex(json_string(answer, "sha", where));
  if (!is_hex(revision.commit, 40)) {
    fail_data("{}: sha: \"{}\" is not a commit", where, printable(revision.commit));
  }
  if (json_find(answer, "id") != nullptr) revision.repository = json_string(answer, "id", where);
  if (!revision.repository.empty() && !is_repository_name(revision.repository)) {
    fail_data("{}: id: \"{}\" is not a repository name", where, printable(revision.repository));
  }
  return revision;
}

std::vector<Entry> parse_tree_page(std::string_view text, std::string_view where) {
  const Json page = parse_json(text, where);
  if (!page.is_array()) fail_data("{}: expected a list of files, found {}", where, page.type_name());
  std::vector<Entry> entries;
  for (const Json& item : page) {
    if (json_string(item, "type", where) == "file") entries.push_back(parse_file(item, where));
  }
  return entries;
}

void check_listing(const std::vector<Entry>& entries, std::string_view where) {
  std::vector<std::string> paths;
  for (const Entry& entry : entries) paths.push_back(entry.path);
  if (const auto objection = collision(std::move(paths))) fail_data("{}: {}", where, *objection);
}

std::set<unsigned> parse_layers(std::string_view text) {
  std::set<unsigned> layers;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t dash = item.find('-');
    const std::uint64_t first = parse_integer(item.substr(0, dash), "--layers", 0, kMostLayers);
    const std::uint64_t last = dash == std::string_view::npos
                                   ? first
                                   : parse_integer(item.substr(dash + 1), "--layers", first, kMostLayers);
    for (std::uint64_t i = first; i <= last; ++i) layers.insert(static_cast<unsigned>(i));
    if (comma == std::string_view::npos) return layers;
    text.remove_prefix(comma + 1);
  }
}

ShardIndex parse_shard_index(std::string_view text, std::string_view where,
                             const std::set<unsigned>& layers) {
  ShardIndex index;
  std::set<unsigned> seen;
  try {
    // Not parse_json: the index of a 1.5 TB model has some 400,000 tensors, and a tree of them would not fit
    // into the memory this program promises to stay within.
    simdjson::ondemand::parser parser;
    const simdjson::padded_string padded(text);
    simdjson::ondemand::document document = parser.iterate(padded);
    simdjson::ondemand::object weight_map = document.find_field_unordered("weight_map").get_object();
    for (auto field : weight_map) {
      const std::string_view tensor = field.unescaped_key();
      const std::optional<unsigned> layer = layer_of(tensor);
      if (layer) seen.insert(*layer);
      const bool wanted = !layer || layers.count(*layer) != 0;
      const std::string_view shard = field.value().get_string();
      if (index.shards.find(shard) == index.shards.end()) index.shards.emplace(shard);
      if (wanted && index.wanted.find(shard) == index.wanted.end()) index.wanted.emplace(shard);
    }
  } catch (const simdjson::simdjson_error& e) {
    fail_data("{}: not a safetensors index: {}", where, e.what());
  }
  for (const unsigned layer : layers) {
    if (seen.count(layer) != 0) continue;
    if (seen.empty()) fail(ErrorKind::Usage, "--layers: {} names no layers", where);
    fail(ErrorKind::Usage, "--layers: there is no layer {}; {} names layers {} to {}", layer, where,
         *seen.begin(), *seen.rbegin());
  }
  return index;
}

}  // namespace waste::download
