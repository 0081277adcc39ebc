#include "download/download.h"

#include <sys/stat.h>

#include <algorithm>

#include "cli/cli.h"
#include "container/core/text.h"
#include "download/hub.h"
#include "download/paths.h"
#include "download/plan.h"
#include "download/shared_cache.h"
#include "download/verify_files.h"

namespace waste::download {

namespace {

constexpr std::uint64_t kLargestIndex = 64 << 20;

using From = PlannedFile::Source;

std::string bytes(std::uint64_t n) {
  return format_bytes(static_cast<double>(n));
}

std::uint64_t total_size(const std::vector<Entry>& entries) {
  std::uint64_t total = 0;
  for (const Entry& entry : entries) total += entry.size;
  return total;
}

Http::Options http_options(const DownloadOptions& options, const Settings& settings) {
  return {settings.endpoint, settings.token, options.stall_timeout, options.limit_rate,
          options.fetch.files * options.fetch.connections};
}

// Files of earlier, narrower downloads of the same commit stay on record.
void remember(const LocalFolder& folder, const Revision& revision, const std::string& name,
              const std::vector<Entry>& chosen) {
  Record record{revision.repository, name, revision.commit, chosen};
  if (const auto before = folder.read_record(); before && before->commit == revision.commit) {
    for (const Entry& entry : before->files) {
      const bool known =
          std::any_of(chosen.begin(), chosen.end(), [&](const Entry& e) { return e.path == entry.path; });
      if (!known) record.files.push_back(entry);
    }
  }
  std::sort(record.files.begin(), record.files.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  folder.write_record(record);
}

// Files that nobody vouches for become present, or are put back for the network.
void prove_unproven(std::vector<PlannedFile>& files, const LocalFolder& folder, const std::string& commit,
                    Report& report) {
  std::vector<PlannedFile*> unproven;
  std::vector<Entry> entries;
  for (PlannedFile& file : files) {
    if (file.source != From::Unproven) continue;
    unproven.push_back(&file);
    entries.push_back(file.entry);
  }
  if (entries.empty()) return;
  const auto verdicts = verify_files(folder, entries, report);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (verdicts[i].state == FileVerdict::State::Good) {
      folder.prepare_for(entries[i].path);
      unproven[i]->source = From::Present;
    } else {
      report.file(entries[i].path, "differs", entries[i].size, verdicts[i].detail + "; fetching it");
      unproven[i]->source = From::Network;
    }
  }
  for (const PlannedFile* file : unproven) {
    if (file->source == From::Present) folder.write_metadata(file->entry, commit);
  }
}

// Files accepted for another commit are accepted for this one by the digest; `hf` wants its commit named,
// too.
void accept_present(const std::vector<PlannedFile>& files, const LocalFolder& folder,
                    const std::string& commit, Report& report) {
  for (const PlannedFile& file : files) {
    if (file.source != From::Present) continue;
    if (folder.read_metadata(file.entry.path).value_or(Metadata{}).commit != commit) {
      folder.prepare_for(file.entry.path);
      folder.write_metadata(file.entry, commit);
    }
    report.file(file.entry.path, "present", file.entry.size);
  }
}

void import_cached(std::vector<PlannedFile>& files, const LocalFolder& folder, const std::string& commit,
                   Report& report) {
  std::uint64_t total = 0;
  for (const PlannedFile& file : files) total += file.source == From::Cache ? file.entry.size : 0;
  if (total == 0) return;
  report.begin("importing", 0, total);
  std::uint64_t done = 0;
  for (PlannedFile& file : files) {
    if (file.source != From::Cache) continue;
    const bool good = import_file(file.cached, folder, file.entry, commit, [&](std::uint64_t hashed) {
      report.progress(done + hashed, {{file.entry.path, hashed, file.entry.size}});
      return cli::interrupted();
    });
    done += file.entry.size;
    file.source = good ? From::Present : From::Network;
    if (good) {
      report.file(file.entry.path, "imported", file.entry.size);
    } else {
      report.file(file.entry.path, "damaged", file.entry.size, "in the shared cache; fetching it instead");
    }
  }
}

[[noreturn]] void fail_integrity(const std::vector<std::string>& failures) {
  std::string message = failures.front();
  if (failures.size() > 1) message += fmt::format(" (and {} more files)", failures.size() - 1);
  fail(ErrorKind::Data,
       "{}; the server's copy or the way to it is bad: try another network, or --endpoint, later", message);
}

void fetch_missing(Http& http, const Settings& settings, const DownloadOptions& options,
                   const LocalFolder& folder, const Source& source, const std::vector<Entry>& all,
                   const std::vector<Entry>& missing, Report& report) {
  const std::uint64_t total = total_size(all);
  const std::uint64_t complete = total - total_size(missing);
  std::uint64_t partly_present = 0;
  for (const Entry& entry : missing) partly_present += folder.arrived(entry);
  report.begin("fetching", complete + partly_present, total);
  const auto failures = fetch_files(http, settings, options.fetch, folder, source, missing, complete, report);
  if (!failures.empty()) fail_integrity(failures);
}

// What the folder says it holds, from our record or from the metadata of `hf`.
Record folder_record(const LocalFolder& folder) {
  if (!fs::is_directory(folder.root())) fail_data("{}: no such folder", folder.root().string());
  if (auto record = folder.read_record()) return *record;
  Record record = folder.record_from_metadata();
  if (record.files.empty()) {
    fail_data(
        "{} was not downloaded by waste-download or hf: nothing says what its files must be; name the "
        "repository instead: waste-download REPO --to {}",
        folder.root().string(), folder.root().string());
  }
  return record;
}

// Reports each verdict; returns the entries that are not good.
std::vector<Entry> report_verdicts(const std::vector<Entry>& entries,
                                   const std::vector<FileVerdict>& verdicts, Report& report) {
  std::vector<Entry> bad;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const bool good = verdicts[i].state == FileVerdict::State::Good;
    const bool missing = verdicts[i].state == FileVerdict::State::Missing;
    report.file(entries[i].path,
                good      ? "present"
                : missing ? "missing"
                          : "damaged",
                entries[i].size, verdicts[i].detail);
    if (!good) bad.push_back(entries[i]);
  }
  return bad;
}

void verify_offline(const DownloadOptions& options, Report& report) {
  const LocalFolder folder(options.folder);
  Record record = folder_record(folder);
  if (!record.repository.empty() && record.repository != options.repository) {
    fail(ErrorKind::Network, "HF_HUB_OFFLINE is set, and {} holds {}, not {}", folder.root().string(),
         record.repository, printable(options.repository));
  }
  const std::vector<Entry> entries = choose(record.files, options, [&](const Entry& entry) {
    return read_text_file(folder.file(entry.path), kLargestIndex);
  });
  const auto bad = report_verdicts(entries, verify_files(folder, entries, report), report);
  if (!bad.empty()) {
    fail_data("{}: {} of {} files are missing or damaged, and HF_HUB_OFFLINE forbids to fetch them",
              folder.root().string(), bad.size(), entries.size());
  }
  report.finish(fmt::format("{}: {} files, {}: all there and verified (offline)", folder.root().string(),
                            entries.size(), bytes(total_size(entries))),
                total_size(entries));
}

// Takes the final name away from a file that is not what it should be. Its good blocks stay, if its journal
// knows them; a hard link into a cache must not be repaired in place.
void demote(const LocalFolder& folder, const Entry& entry) {
  folder.prepare_for(entry.path);
  folder.forget_metadata(entry.path);
  const fs::path path = folder.file(entry.path);
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return;
  std::error_code error;
  if (st.st_nlink == 1) {
    fs::rename(path, partial_path(path), error);
  } else {
    fs::remove(path, error);
  }
  if (error) fail_errno(error.value(), path.string());
}

}  // namespace

void download(const DownloadOptions& options, const Settings& settings, Report& report) {
  if (settings.offline) return verify_offline(options, report);

  const LocalFolder folder(options.folder);
  std::optional<DirectoryLock> lock;
  if (!options.dry_run) {
    folder.prepare();
    lock.emplace(folder.root(), LocalFolder::kLockName);
  }

  Http http(http_options(options, settings));
  Hub hub(http, settings, options.fetch.limits, report);
  const Revision revision = hub.resolve(options.repository, options.revision);
  if (revision.repository != options.repository) {
    report.note(fmt::format("{} is now {}", options.repository, revision.repository));
  }
  // From here on the commit is fixed: whatever happens to the branch, one state of the repository is fetched.
  const std::vector<Entry> entries = hub.list(revision.repository, revision.commit);
  const std::vector<Entry> chosen = choose(entries, options, [&](const Entry& entry) {
    return hub.fetch_text(revision.repository, revision.commit, entry, kLargestIndex);
  });

  std::vector<PlannedFile> files =
      plan_files(chosen, options, folder, settings.hub_cache, revision.repository, revision.commit);
  const Plan plan = summarise(files, folder, revision.repository, revision.commit);
  report.plan(plan, options.dry_run);
  check_disk(plan);
  if (options.dry_run) return;
  remember(folder, revision, options.revision, chosen);

  prove_unproven(files, folder, revision.commit, report);
  import_cached(files, folder, revision.commit, report);
  accept_present(files, folder, revision.commit, report);

  std::vector<Entry> missing;
  for (const PlannedFile& file : files) {
    if (file.source == From::Network) missing.push_back(file.entry);
  }
  fetch_missing(http, settings, options, folder, {revision.repository, revision.commit}, chosen, missing,
                report);
  report.finish(fmt::format("{}: {} files, {}: all there and verified", folder.root().string(), chosen.size(),
                            bytes(plan.bytes)),
                plan.bytes);
}

void check(const DownloadOptions& options, const Settings& settings, bool fix, Report& report) {
  const LocalFolder folder(options.folder);
  const Record record = folder_record(folder);
  std::optional<DirectoryLock> lock;
  if (fix) lock.emplace(folder.root(), LocalFolder::kLockName);

  const auto bad = report_verdicts(record.files, verify_files(folder, record.files, report), report);
  const std::string where = folder.root().string();
  if (!bad.empty() && !fix) {
    fail_data("{}: {} of {} files are missing or damaged; waste-download check --fix {} fetches them again",
              where, bad.size(), record.files.size(), where);
  }
  if (!bad.empty()) {
    if (settings.offline) {
      fail(ErrorKind::Network,
           "{}: {} files are missing or damaged, and HF_HUB_OFFLINE forbids to fetch them", where,
           bad.size());
    }
    if (record.repository.empty()) {
      fail(ErrorKind::Usage,
           "{} does not say which repository it came from; run: waste-download REPO --revision {} --to {}",
           where, record.commit, where);
    }
    for (const Entry& entry : bad) demote(folder, entry);
    Http http(http_options(options, settings));
    fetch_missing(http, settings, options, folder, {record.repository, record.commit}, record.files, bad,
                  report);
  }
  const std::uint64_t total = total_size(record.files);
  report.finish(fmt::format("{}: {} files, {}: all good{}", where, record.files.size(), bytes(total),
                            bad.empty() ? "" : fmt::format(" after {} were fetched again", bad.size())),
                total);
}

}  // namespace waste::download
