// What the Hub says a repository holds.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "download/content_id.h"

namespace waste::download {

struct Entry {
  std::string path;  // passed path_objection
  std::uint64_t size = 0;
  ContentId id;

  bool operator==(const Entry&) const = default;
};

struct Revision {
  std::string commit;      // 40 lower-case hex digits
  std::string repository;  // its present name; empty when the answer does not say
};

/// The answer of /api/models/{repo}/revision/{rev}. Error(Data) opens with `where`.
Revision parse_revision(std::string_view text, std::string_view where);

/// One page of /api/models/{repo}/tree/{commit}?recursive=true: its files, each with a good path, a size and
/// a digest; a hostile or incomplete entry is Error(Data) naming it.
std::vector<Entry> parse_tree_page(std::string_view text, std::string_view where);

/// Throws Error(Data) when the whole listing cannot live in one folder.
void check_listing(const std::vector<Entry>& entries, std::string_view where);

/// The layers of "0-3" or "0,4-7". Error(Usage) naming --layers.
std::set<unsigned> parse_layers(std::string_view text);

/// Which shards of a safetensors index hold what.
struct ShardIndex {
  std::set<std::string, std::less<>> shards;  // every file that the index names
  std::set<std::string, std::less<>> wanted;  // those that hold a wanted layer or a tensor outside all layers
};

/// Reads a model.safetensors.index.json of any size in one pass, keeping only file names. A layer is the
/// number behind "model.layers." or "language_model.layers."; everything else is trunk. A wanted layer that
/// no tensor belongs to is Error(Usage); a malformed index is Error(Data).
ShardIndex parse_shard_index(std::string_view text, std::string_view where, const std::set<unsigned>& layers);

}  // namespace waste::download
