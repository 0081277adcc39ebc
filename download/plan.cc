#include "download/plan.h"

#include <sys/stat.h>

#include <algorithm>

#include "container/core/text.h"
#include "download/paths.h"
#include "download/shared_cache.h"

namespace waste::download {

namespace {

constexpr std::string_view kIndexSuffix = "safetensors.index.json";
// What the file system needs beside the files themselves, and what a machine needs to stay usable.
constexpr std::uint64_t kDiskReserve = 64 << 20;

bool matches_any(const std::vector<std::string>& patterns, const std::string& path) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const auto& p) { return matches_pattern(p, path); });
}

void drop_other_layers(std::vector<Entry>& chosen, const std::vector<Entry>& entries,
                       const std::set<unsigned>& layers,
                       const std::function<std::string(const Entry&)>& read) {
  bool found = false;
  for (const Entry& entry : entries) {
    if (!entry.path.ends_with(kIndexSuffix)) continue;
    found = true;
    const ShardIndex index = parse_shard_index(read(entry), printable(entry.path), layers);
    const std::string folder = entry.path.substr(0, entry.path.rfind('/') + 1);
    std::erase_if(chosen, [&](const Entry& e) {
      if (!e.path.starts_with(folder)) return false;
      const std::string name = e.path.substr(folder.size());
      return index.shards.count(name) != 0 && index.wanted.count(name) == 0;
    });
  }
  if (!found)
    fail(ErrorKind::Usage, "--layers: the repository has no {}, so what holds which layer is unknown",
         kIndexSuffix);
}

// Bytes of the disk that a partial file has already.
std::uint64_t allocated(const fs::path& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return 0;
  return static_cast<std::uint64_t>(st.st_blocks) * 512;
}

PlannedFile plan_file(const Entry& entry, const DownloadOptions& options, const LocalFolder& folder,
                      const fs::path& hub_cache, const std::string& repository, const std::string& commit) {
  PlannedFile planned{entry, PlannedFile::Source::Network, {}, 0, 0};
  if (folder.is_accepted(entry)) {
    planned.source = PlannedFile::Source::Present;
    return planned;
  }
  std::error_code error;
  const fs::path path = folder.file(entry.path);
  if (fs::is_regular_file(path, error) && fs::file_size(path, error) == entry.size && !error) {
    planned.source = PlannedFile::Source::Unproven;
    return planned;
  }
  if (options.from_cache) {
    if (const auto cached = find_in_cache(hub_cache, repository, commit, entry)) {
      planned.source = PlannedFile::Source::Cache;
      planned.cached = *cached;
      planned.needed_disk = import_is_free(*cached, folder, entry) ? 0 : entry.size;
      return planned;
    }
  }
  planned.needed_disk = entry.size - std::min(entry.size, allocated(partial_path(path)));
  planned.present = folder.arrived(entry);
  return planned;
}

}  // namespace

std::vector<Entry> choose(const std::vector<Entry>& entries, const DownloadOptions& options,
                          const std::function<std::string(const Entry&)>& read) {
  for (const std::string& pattern : options.include) {
    const bool used = std::any_of(entries.begin(), entries.end(),
                                  [&](const Entry& e) { return matches_pattern(pattern, e.path); });
    if (!used)
      fail(ErrorKind::Usage, "--include: \"{}\" matches none of the {} files", printable(pattern),
           entries.size());
  }
  std::vector<Entry> chosen;
  for (const Entry& entry : entries) {
    const bool included = options.include.empty() || matches_any(options.include, entry.path);
    if (included && !matches_any(options.exclude, entry.path)) chosen.push_back(entry);
  }
  if (options.layers) drop_other_layers(chosen, entries, *options.layers, read);
  if (chosen.empty()) {
    fail(ErrorKind::Usage, "{}",
         entries.empty() ? "the repository is empty" : "--include and --exclude leave no file to download");
  }
  return chosen;
}

std::vector<PlannedFile> plan_files(const std::vector<Entry>& entries, const DownloadOptions& options,
                                    const LocalFolder& folder, const fs::path& hub_cache,
                                    const std::string& repository, const std::string& commit) {
  std::vector<PlannedFile> files;
  for (const Entry& entry : entries)
    files.push_back(plan_file(entry, options, folder, hub_cache, repository, commit));
  return files;
}

Plan summarise(const std::vector<PlannedFile>& files, const LocalFolder& folder,
               const std::string& repository, const std::string& commit) {
  Plan plan;
  plan.repository = repository;
  plan.commit = commit;
  plan.folder = folder.root().string();
  plan.free_disk = free_space(folder.root());
  for (const PlannedFile& file : files) {
    ++plan.files;
    plan.bytes += file.entry.size;
    plan.needed_disk += file.needed_disk;
    plan.present_bytes += file.present;
    if (file.source == PlannedFile::Source::Network) continue;
    plan.present_bytes += file.entry.size;
    if (file.source != PlannedFile::Source::Cache) ++plan.present_files;
  }
  return plan;
}

void check_disk(const Plan& plan) {
  if (plan.needed_disk == 0 || plan.needed_disk + kDiskReserve <= plan.free_disk) return;
  const auto bytes = [](std::uint64_t n) { return format_bytes(static_cast<double>(n)); };
  fail(ErrorKind::Machine,
       "{}: not enough disk: {} are still to come (and {} must stay free), {} are free; make room, choose "
       "another "
       "folder, or fetch less with --include, --exclude or --layers",
       plan.folder, bytes(plan.needed_disk), bytes(kDiskReserve), bytes(plan.free_disk));
}

}  // namespace waste::download
