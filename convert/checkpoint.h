// A sharded checkpoint: every tensor of every shard, by name, and its bytes on demand.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/core/checksum.h"
#include "container/core/file.h"
#include "convert/safetensors.h"

namespace waste::convert {

struct Shard {
  std::string name;
  std::uint64_t size = 0;
  Digest128 header_digest;  // of the header text
  Digest128 sample_digest;  // of a few pages of its data
  bool reclaimed = false;   // its bytes are gone; its header was kept
  File file;                // closed when reclaimed
};

/// Shards whose bytes an earlier run has deleted: their headers lie in `headers` as NAME.header files.
struct Reclaimed {
  fs::path headers;
  std::set<std::string> shards;
};

/// Reading is thread-safe; tensors live as long as the checkpoint.
class Checkpoint {
 public:
  /// Reads model.safetensors.index.json (or takes a lone model.safetensors) and the header of every shard it
  /// names. Throws one Error(Data) that lists everything wrong: missing, incomplete or malformed shards,
  /// names that occur twice, index entries whose tensor is not in the shard they name. 497,220 tensors in 96
  /// shards take about 0.5 s on two cores and 200 MB.
  static Checkpoint open(const fs::path& directory, const Reclaimed& reclaimed = {});

  const fs::path& directory() const { return directory_; }
  const std::vector<Shard>& shards() const { return shards_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// nullptr when there is no such tensor.
  const Tensor* find(std::string_view name) const;
  /// Sum of the shards' sizes.
  std::uint64_t bytes() const;
  /// Of names, sizes, headers and a few pages of every shard: another model of the same shape differs, too.
  Digest128 identity() const { return identity_; }

  /// Reads out.size() bytes from `begin` (counted from the tensor's first byte) and lets the kernel drop them
  /// from the page cache: a checkpoint is read once and is larger than memory.
  void read(const Tensor& tensor, std::uint64_t begin, std::span<std::uint8_t> out) const;

  /// Has the kernel read the whole tensor into the page cache meanwhile.
  void prefetch(const Tensor& tensor) const;

  /// The header of a shard as `Reclaimed` wants it back: u64 file size, the sample's digest, the header text.
  std::vector<std::uint8_t> saved_header(std::uint32_t shard) const;

 private:
  void build_table(class Problems& problems);

  fs::path directory_;
  std::vector<Shard> shards_;  // by name
  std::vector<std::unique_ptr<std::pmr::monotonic_buffer_resource>> names_;
  std::vector<Tensor> tensors_;
  std::vector<std::uint32_t> table_;  // open addressing: index into tensors_ plus one, 0 is empty
  Digest128 identity_;
};

}  // namespace waste::convert
