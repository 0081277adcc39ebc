#include "convert/journal.h"

#include <nlohmann/json.hpp>

#include "container/core/error.h"

namespace waste::convert {

namespace {

constexpr std::uint64_t kMaxState = 64 << 20;
constexpr std::uint64_t kMaxBooks = 1 << 20;
constexpr std::string_view kHeaders = "reclaimed";

fs::path make_folder(const fs::path& out) {
  fs::path folder = Journal::folder(out);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorKind::Machine, "{}: {}", folder.string(), error.message());
  return folder;
}

Digest128 parse_digest(const Json& value, const std::string& where) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  Digest128 digest;
  if (text.size() != 2 * digest.bytes.size() || text.find_first_not_of("0123456789abcdef") != text.npos) {
    fail_data("{}: not a digest: {}", where, printable(dump_json_line(value)));
  }
  for (std::size_t i = 0; i < digest.bytes.size(); ++i) {
    digest.bytes[i] = static_cast<std::uint8_t>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return digest;
}

Json to_json(const UnitState& state) {
  Json out;
  out["complete"] = state.complete;
  out["items"] = state.items;
  out["bytes"] = state.bytes;
  if (state.books) out["books"] = state.books->hex();
  Json digests = Json::array();
  for (const Digest128& d : state.digests) digests.push_back(d.hex());
  Json errors = Json::array();
  for (const ErrorSums& e : state.errors) errors.push_back({e.error, e.energy});
  out["digests"] = std::move(digests);
  out["errors"] = std::move(errors);
  return out;
}

UnitState parse_state(const Json& json, const std::string& where) {
  UnitState state;
  state.complete = json_bool(json, "complete", where);
  state.items = json_u64(json, "items", where);
  state.bytes = json_u64(json, "bytes", where);
  if (const Json* books = json_find(json, "books")) state.books = parse_digest(*books, where);
  for (const Json& d : json_array(json, "digests", where)) state.digests.push_back(parse_digest(d, where));
  for (const Json& e : json_array(json, "errors", where)) {
    if (!e.is_array() || e.size() != 2 || !e[0].is_number() || !e[1].is_number())
      fail_data("{}: errors", where);
    state.errors.push_back({e[0].get<double>(), e[1].get<double>()});
  }
  return state;
}

}  // namespace

void refuse_other_run(const Json& earlier, const Json& run, std::string_view what) {
  const auto text = [](const Json* value) {
    if (value == nullptr) return std::string("absent");
    return printable(value->is_string() ? value->get<std::string>() : dump_json_line(*value));
  };
  std::string differences;
  for (const auto& [key, value] : run.items()) {
    const Json* before = json_find(earlier, key);
    if (before != nullptr && *before == value) continue;
    differences += fmt::format("; {} was {}, now {}", key, text(before), text(&value));
  }
  if (differences.empty()) return;
  fail(ErrorKind::Usage, "{} with other settings{}: choose another folder, or repeat them", what,
       differences);
}

Journal::Journal(const fs::path& out, const Json& run)
    : folder_(make_folder(out)), lock_(std::make_unique<DirectoryLock>(folder_, "lock")) {
  const fs::path path = folder_ / "run.json";
  if (fs::exists(path)) {
    refuse_other_run(parse_json(read_text_file(path, kMaxState), path.string()), run,
                     fmt::format("{}: this conversion was begun", out.string()));
    return;
  }
  write_file_atomic(path, dump_json(run));
  sync_directory(out);
}

UnitState Journal::load(const std::string& unit) const {
  const fs::path path = folder_ / (unit + ".json");
  if (!fs::exists(path)) return {};
  try {
    return parse_state(parse_json(read_text_file(path, kMaxState), path.string()), path.string());
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Data) throw;
    return {};  // a damaged state is no state: the unit is done again
  }
}

void Journal::save(const std::string& unit, const UnitState& state) const {
  write_file_atomic(folder_ / (unit + ".json"), dump_json_line(to_json(state)) + "\n");
}

void Journal::save_books(std::uint32_t layer, std::span<const std::uint8_t> books) const {
  write_file_atomic(folder_ / fmt::format("codebooks-{}.bin", layer), books);
}

std::optional<std::vector<std::uint8_t>> Journal::load_books(std::uint32_t layer,
                                                             const Digest128& digest) const {
  const fs::path path = folder_ / fmt::format("codebooks-{}.bin", layer);
  if (!fs::exists(path)) return std::nullopt;
  std::vector<std::uint8_t> books = read_file(path, kMaxBooks);
  if (xxh3_128(books) != digest) return std::nullopt;
  return books;
}

void Journal::record_reclaimed(const std::string& shard, std::span<const std::uint8_t> header) const {
  const fs::path headers = folder_ / kHeaders;
  fs::create_directories(headers);
  sync_directory(folder_);
  write_file_atomic(headers / (shard + ".header"), header);
}

void Journal::remove() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name != kHeaders && name != "lock") fs::remove(entry.path(), ignored);
  }
  if (!fs::exists(folder_ / kHeaders)) fs::remove_all(folder_, ignored);
}

Reclaimed Journal::reclaimed(const fs::path& out) {
  Reclaimed result;
  result.headers = folder(out) / kHeaders;
  if (!fs::is_directory(result.headers)) return result;
  for (const auto& entry : fs::directory_iterator(result.headers)) {
    if (entry.path().extension() == ".header") result.shards.insert(entry.path().stem().string());
  }
  return result;
}

}  // namespace waste::convert
