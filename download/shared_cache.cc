#include "download/shared_cache.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "download/hash_stream.h"

namespace waste::download {

namespace {

// Small files are the ones people edit (configuration, chat templates), and an edit would go through a hard
// link into the cache. Shards are only ever replaced; a second copy of them may not fit.
constexpr std::uint64_t kSmallestLinked = 64 << 20;

bool reflink(const File& source, const fs::path& target) {
  const File clone = File::create(target);
  if (::ioctl(clone.fd(), FICLONE, source.fd()) == 0) {
    clone.sync();
    return true;
  }
  return false;
}

void copy(const File& source, const fs::path& target, std::uint64_t size,
          const std::function<bool(std::uint64_t)>& stop) {
  constexpr std::uint64_t kStep = 16 << 20;
  const File out = File::create(target);
  if (size != 0) out.reserve(size);
  std::vector<std::uint8_t> buffer;
  for (std::uint64_t at = 0; at < size;) {
    auto from = static_cast<off_t>(at);
    auto to = from;
    const auto step = static_cast<std::size_t>(std::min(kStep, size - at));
    ssize_t n = buffer.empty() ? ::copy_file_range(source.fd(), &from, out.fd(), &to, step, 0) : 0;
    if (n <= 0) {
      // Not between these file systems; read and write do it, and say why if they cannot either.
      buffer.resize(1 << 20);
      const auto piece = std::span(buffer).first(std::min(step, buffer.size()));
      source.read_exact(at, piece);
      out.write_exact(at, piece);
      n = static_cast<ssize_t>(piece.size());
    }
    at += static_cast<std::uint64_t>(n);
    if (stop(0)) fail(ErrorKind::Interrupted, "interrupted");
  }
  out.sync();
}

}  // namespace

std::optional<fs::path> find_in_cache(const fs::path& hub_cache, const std::string& repository,
                                      const std::string& commit, const Entry& entry) {
  std::string name = "models--" + repository;
  if (const std::size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  const fs::path folder = hub_cache / name;
  for (const fs::path& candidate :
       {folder / "blobs" / entry.id.hex, folder / "snapshots" / commit / entry.path}) {
    std::error_code error;
    if (!fs::is_regular_file(candidate, error)) continue;
    const fs::path real = fs::canonical(candidate, error);
    if (!error && fs::file_size(real, error) == entry.size && !error) return real;
  }
  return std::nullopt;
}

bool import_is_free(const fs::path& source, const LocalFolder& folder, const Entry& entry) {
  return entry.size >= kSmallestLinked && same_file_system(source, folder.root());
}

bool import_file(const fs::path& source, const LocalFolder& folder, const Entry& entry,
                 const std::string& commit, const std::function<bool(std::uint64_t)>& stop) {
  folder.prepare_for(entry.path);
  const fs::path target = partial_path(folder.file(entry.path));
  std::error_code ignored;
  fs::remove(target, ignored);
  try {
    const File in = File::open_read(source);
    if (!reflink(in, target)) {
      fs::remove(target, ignored);
      std::error_code no_link;
      if (entry.size >= kSmallestLinked) fs::create_hard_link(source, target, no_link);
      if (entry.size < kSmallestLinked || no_link) copy(in, target, entry.size, stop);
    }
    const File made = File::open_read(target);
    if (made.size() == entry.size && hash_file(made, entry.size, entry.id.kind, stop) == entry.id) {
      folder.publish(entry, commit);
      return true;
    }
  } catch (...) {
    fs::remove(target, ignored);
    throw;
  }
  fs::remove(target, ignored);
  return false;
}

}  // namespace waste::download
