#include "convert/reclaim.h"

#include <sys/stat.h>
#include <unistd.h>

#include "container/core/text.h"

namespace waste::convert {

namespace {

// Whether the path still leads to the file that was opened and has its size.
bool unchanged(const Shard& shard, const fs::path& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(shard.file.fd(), &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino &&
         static_cast<std::uint64_t>(named.st_size) == shard.size;
}

}  // namespace

void check_reclaim_is_safe(const Checkpoint& checkpoint, const Options& options) {
  if (options.reclaim == Reclaim::Off) return;
  const auto refuse = [](const std::string& why) { fail(ErrorKind::Usage, "--reclaim: refused: {}", why); };
  if (!options.whole())
    refuse("with --layers or --probe the container stays unfinished and still needs its source");
  std::error_code ignored;
  const fs::path source = fs::weakly_canonical(options.source, ignored);
  const fs::path out = fs::weakly_canonical(options.out, ignored);
  if (source == out) refuse("source and output are the same folder");
  for (const Shard& shard : checkpoint.shards()) {
    if (shard.reclaimed) continue;
    const fs::path path = checkpoint.directory() / shard.name;
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0) fail_errno(errno, path.string());
    if (S_ISLNK(st.st_mode))
      refuse(path.string() + " is a symbolic link: the data belongs to another folder");
    if (st.st_nlink != 1)
      refuse(path.string() + " has other names (hard links): deleting it would free nothing");
  }
  if (::access(checkpoint.directory().c_str(), W_OK) != 0)
    refuse(checkpoint.directory().string() + " is read-only");
}

std::vector<std::string> Reclaimer::reclaim(const std::vector<std::uint32_t>& shards) {
  std::vector<std::string> lines;
  if (options_.reclaim == Reclaim::Off) return lines;
  for (const std::uint32_t index : shards) {
    const Shard& shard = checkpoint_.shards()[index];
    if (shard.reclaimed) continue;
    const std::string size = format_bytes(static_cast<double>(shard.size));
    if (options_.reclaim == Reclaim::Dry) {
      lines.push_back(fmt::format("reclaim: would delete {} ({})", shard.name, size));
      continue;
    }
    const fs::path path = checkpoint_.directory() / shard.name;
    if (!unchanged(shard, path)) {
      lines.push_back(fmt::format("reclaim: {} is no longer the file that was read: kept", shard.name));
      continue;
    }
    journal_.record_reclaimed(shard.name, checkpoint_.saved_header(index));
    if (::unlink(path.c_str()) != 0) fail_errno(errno, path.string() + ": deleting");
    sync_directory(checkpoint_.directory());
    lines.push_back(fmt::format("reclaim: deleted {} ({})", shard.name, size));
  }
  return lines;
}

}  // namespace waste::convert
