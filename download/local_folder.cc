#include "download/local_folder.h"

#include <sys/stat.h>

#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

#include "container/core/json.h"
#include "download/headers.h"
#include "download/journal.h"
#include "download/paths.h"

namespace waste::download {

namespace {

constexpr std::uint64_t kLargestMetadata = 4096;
constexpr std::uint64_t kLargestRecord = 64 << 20;
constexpr std::string_view kMetadataSuffix = ".metadata";

std::string with_suffix(const std::string& path, std::string_view suffix) {
  return path + std::string(suffix);
}

fs::path hf_folder(const fs::path& root) {
  return root / ".cache" / "huggingface";
}
fs::path own_folder(const fs::path& root) {
  return root / ".cache" / "waste-download";
}
fs::path record_path(const fs::path& root) {
  return own_folder(root) / "record.json";
}

void create_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail_errno(error.value(), path.string() + ": creating the folder (choose another with --to)");
}

double modification_time(const struct stat& st) {
  return static_cast<double>(st.st_mtim.tv_sec) + static_cast<double>(st.st_mtim.tv_nsec) * 1e-9;
}

Entry entry_from_json(const Json& item, std::string_view where) {
  Entry entry;
  entry.path = json_string(item, "path", where);
  if (const auto objection = path_objection(entry.path)) {
    fail_data("{}: refusing the file name \"{}\": {}", where, printable(entry.path), *objection);
  }
  entry.size = json_u64(item, "size", where);
  const bool sha256 = json_find(item, "sha256") != nullptr;
  entry.id = {sha256 ? ContentId::Kind::Sha256 : ContentId::Kind::GitSha1,
              json_string(item, sha256 ? "sha256" : "git_sha1", where)};
  if (!is_hex(entry.id.hex, sha256 ? 64 : 40)) {
    fail_data("{}: {}: \"{}\" is not a {}", where, printable(entry.path), printable(entry.id.hex),
              entry.id.kind_name());
  }
  return entry;
}

}  // namespace

std::optional<Metadata> parse_metadata(std::string_view text) {
  const auto next_line = [&text] {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  };
  Metadata metadata;
  metadata.commit = next_line();
  const auto id = parse_etag(next_line());
  const std::string_view time = next_line();
  const auto [rest, error] = std::from_chars(time.data(), time.data() + time.size(), metadata.time);
  if (!is_hex(metadata.commit, 40) || !id || error != std::errc() || rest != time.data() + time.size()) {
    return std::nullopt;
  }
  metadata.id = *id;
  return metadata;
}

fs::path LocalFolder::journal(const std::string& path) const {
  return own_folder(root_) / "journal" / with_suffix(path, ".journal");
}

fs::path LocalFolder::metadata(const std::string& path) const {
  return hf_folder(root_) / "download" / with_suffix(path, kMetadataSuffix);
}

void LocalFolder::prepare() const {
  for (const fs::path& folder : {hf_folder(root_), own_folder(root_)}) {
    create_folders(folder);
    const fs::path ignore = folder / ".gitignore";
    std::error_code ignored;
    if (!fs::exists(ignore, ignored)) write_file_atomic(ignore, std::string_view("*"));
  }
}

void LocalFolder::prepare_for(const std::string& path) const {
  for (const fs::path& p : {file(path), journal(path), metadata(path)}) create_folders(p.parent_path());
}

bool LocalFolder::is_accepted(const Entry& entry) const {
  struct stat st {};
  if (::stat(file(entry.path).c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return false;
  if (static_cast<std::uint64_t>(st.st_size) != entry.size) return false;
  const auto metadata = read_metadata(entry.path);
  return metadata && metadata->id == entry.id && modification_time(st) <= metadata->time + 1;
}

std::uint64_t LocalFolder::arrived(const Entry& entry) const {
  std::error_code ignored;
  if (!fs::is_regular_file(partial_path(file(entry.path)), ignored)) return 0;
  return Journal::recorded_bytes(journal(entry.path), entry.size, entry.id);
}

std::optional<Metadata> LocalFolder::read_metadata(const std::string& path) const {
  std::error_code ignored;
  const fs::path name = metadata(path);
  if (!fs::is_regular_file(name, ignored) || fs::file_size(name, ignored) > kLargestMetadata)
    return std::nullopt;
  return parse_metadata(read_text_file(name, kLargestMetadata));
}

void LocalFolder::write_metadata(const Entry& entry, const std::string& commit) const {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  write_file_atomic(metadata(entry.path),
                    std::string_view(fmt::format("{}\n{}\n{:.6f}\n", commit, entry.id.hex, now)));
}

void LocalFolder::forget_metadata(const std::string& path) const {
  std::error_code ignored;
  fs::remove(metadata(path), ignored);
}

void LocalFolder::publish(const Entry& entry, const std::string& commit) const {
  waste::publish(file(entry.path));
  write_metadata(entry, commit);
}

std::optional<Record> LocalFolder::read_record() const {
  const fs::path path = record_path(root_);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  const std::string where = path.string();
  const Json json = parse_json(read_text_file(path, kLargestRecord), where);
  Record record{json_string(json, "repository", where),
                json_string(json, "revision", where),
                json_string(json, "commit", where),
                {}};
  if (!is_repository_name(record.repository) || !is_hex(record.commit, 40)) {
    fail_data("{}: \"{}\" at \"{}\" is no repository at a commit", where, printable(record.repository),
              printable(record.commit));
  }
  for (const Json& item : json_array(json, "files", where))
    record.files.push_back(entry_from_json(item, where));
  check_listing(record.files, where);
  return record;
}

void LocalFolder::write_record(const Record& record) const {
  Json json;
  json["repository"] = record.repository;
  json["revision"] = record.revision;
  json["commit"] = record.commit;
  Json files = Json::array();
  for (const Entry& entry : record.files) {
    Json item;
    item["path"] = entry.path;
    item["size"] = entry.size;
    item[entry.id.kind == ContentId::Kind::Sha256 ? "sha256" : "git_sha1"] = entry.id.hex;
    files.push_back(std::move(item));
  }
  json["files"] = std::move(files);
  write_file_atomic(record_path(root_), std::string_view(dump_json(json)));
}

Record LocalFolder::record_from_metadata() const {
  Record record;
  const fs::path folder = hf_folder(root_) / "download";
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = fs::relative(it->path(), folder).generic_string();
    if (!it->is_regular_file() || !name.ends_with(kMetadataSuffix)) continue;
    const std::string path = name.substr(0, name.size() - kMetadataSuffix.size());
    const auto metadata = read_metadata(path);
    if (!metadata || path_objection(path)) continue;
    std::error_code missing;
    const auto size = fs::file_size(file(path), missing);
    // The metadata holds no size; that of a file which is not there does not matter, for it is missing
    // anyway.
    record.files.push_back({path, missing ? 0 : size, metadata->id});
    record.commit = metadata->commit;
  }
  return record;
}

}  // namespace waste::download
