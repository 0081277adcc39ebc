// waste-verify check: is every byte of a container what it was when it was written?
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "container/core/file.h"
#include "container/core/json.h"
#include "container/core/perf.h"
#include "container/core/text.h"
#include "verify/check.h"
#include "verify/check_state.h"
#include "verify/commands.h"
#include "verify/report.h"

namespace waste::verify {

namespace {

constexpr std::uint64_t kMaxStateBytes = std::uint64_t{256} << 20;
constexpr double kSaveSeconds = 30;

double gb_per_s(const CheckResult& r) {
  return r.seconds > 0 ? static_cast<double>(r.read_bytes) / r.seconds * 1e-9 : 0;
}

Json to_json(const ContainerMap& map, const CheckResult& result) {
  Json out;
  out["container"] = map.directory.string();
  out["finished"] = result.finished;
  out["sound"] = result.finished && result.findings.empty();
  out["sealed"] = map.seal.has_value();
  out["files"] = map.files.size();
  out["extents"] = map.extents.size();
  out["records"] = result.records;
  out["bytes"] = result.bytes;
  out["read_bytes"] = result.read_bytes;
  out["uncovered_bytes"] = result.uncovered_bytes;
  out["seconds"] = result.seconds;
  out["gb_per_s"] = gb_per_s(result);
  out["page_cache_bypassed"] = result.direct;
  out["unsealed_files"] = map.unsealed;
  out["findings"] = Json::array();
  for (const Finding& f : result.findings) out["findings"].push_back(finding_json(map, f));
  return out;
}

void print_verdict(const ContainerMap& map, const CheckResult& result) {
  for (const Finding& f : result.findings) fmt::print("{}\n", finding_text(map, f));
  const std::string name = map.directory.string();
  if (!result.finished) {
    fmt::print("{}: interrupted; {} found so far; --resume goes on from here\n", name,
               result.findings.size());
  } else if (!result.findings.empty()) {
    std::size_t damaged = 0;
    for (const bool d : result.damaged) damaged += d ? 1 : 0;
    fmt::print("{}: NOT SOUND: {} of {} extents are damaged or missing\n", name, damaged, map.extents.size());
    fmt::print("from another copy: waste-verify repair {} --from OTHER\n", name);
  } else {
    fmt::print("{}: sound: {} in {} files, {} expert records\n", name,
               format_bytes(static_cast<double>(result.bytes)), map.files.size(), result.records);
  }
  if (result.uncovered_bytes > 0) {
    fmt::print("{} ({} bytes) are covered by no checksum{}\n",
               format_bytes(static_cast<double>(result.uncovered_bytes)), result.uncovered_bytes,
               map.seal                   ? ""
               : map.seal_problem.empty() ? ": the container is not sealed; see waste-verify seal"
                                          : ": the seal is damaged");
  }
  for (const std::string& file : map.unsealed) fmt::print("{}: not under the seal\n", file);
  fmt::print("read {} in {} at {:.2f} GB/s{}\n", format_bytes(static_cast<double>(result.read_bytes)),
             format_duration(result.seconds), gb_per_s(result),
             result.direct ? "" : " through the page cache: this file system refuses O_DIRECT");
}

class StateFile {
 public:
  StateFile(fs::path path, const ContainerMap& map, ByteProgress& progress)
      : path_(std::move(path)), map_(map), identity_(container_identity(map)), progress_(progress) {}

  CheckState load() const {
    if (!fs::exists(path_))
      fail(ErrorKind::Usage, "--resume: there is no {}: nothing was interrupted", path_.string());
    const std::string text = read_text_file(path_, kMaxStateBytes);
    auto state = parse_check_state(text, identity_, map_.extents.size(), path_.string());
    if (!state) fail_data("{}: the container has changed since; check it from the start", path_.string());
    return *state;
  }

  void save(const CheckState& state) {
    saved_at_ = now_seconds();
    try {
      write_file_atomic(path_, write_check_state(state, identity_));
    } catch (const Error& e) {
      if (!failed_)
        progress_.line().print(fmt::format("the state cannot be saved: {}; see --state", e.what()));
      failed_ = true;
    }
  }

  bool due() const { return now_seconds() - saved_at_ >= kSaveSeconds; }
  bool failed() const { return failed_; }
  void remove() const {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }

 private:
  fs::path path_;
  const ContainerMap& map_;
  Digest128 identity_;
  ByteProgress& progress_;
  double saved_at_ = now_seconds();
  bool failed_ = false;
};

int run(const cli::po::variables_map& vm) {
  const bool json = vm.count("json") != 0;
  const fs::path directory = vm["DIR"].as<std::string>();
  const ContainerMap map = ContainerMap::read(directory);
  ByteProgress progress("checked", vm.count("quiet") != 0);
  StateFile file(
      vm.count("state") != 0 ? fs::path(vm["state"].as<std::string>()) : directory / kCheckStateFile, map,
      progress);
  const CheckState from = vm.count("resume") != 0 ? file.load() : CheckState{};
  cli::catch_interrupts();
  CheckState last = from;
  const CheckCalls calls{.stop = [] { return cli::interrupted(); },
                         .progress =
                             [&](std::uint64_t done, std::uint64_t total, const auto& state) {
                               progress.show(done, total);
                               if (cli::interrupted()) last = state();
                               if (file.due()) file.save(state());
                             }};
  const CheckResult result = check_container(map, from, calls);
  progress.line().clear();
  if (result.finished) {
    file.remove();
  } else {
    file.save(last);
  }
  if (json) {
    fmt::print("{}", dump_json(to_json(map, result)));
  } else {
    print_verdict(map, result);
  }
  if (!result.finished) {
    return static_cast<int>(file.failed() ? ErrorKind::Machine : ErrorKind::Interrupted);
  }
  return result.findings.empty() ? 0 : static_cast<int>(ErrorKind::Data);
}

}  // namespace

cli::Command check_command() {
  cli::Command command{
      .name = "check",
      .usage = "DIR [options]",
      .summary = "read a container once and name every damaged byte's place",
      .help =
          R"(Every extent is compared with the seal; expert records also with their own header and crc32. Reads go past the
page cache, in parallel, in under 200 MB of memory. Exit 1 if anything is wrong, 5 if interrupted: --resume goes on
from there.

  waste-verify check kimi-k3.waste
  waste-verify check kimi-k3.waste --json > report.json
)",
      .positionals = {{"DIR"}},
      .options = {},
      .run = run};
  command.options.add_options()                                                                            //
      ("resume", "go on where an interrupted check stopped")                                               //
      ("state", cli::po::value<std::string>(), "keep the state in this file instead of DIR/.check-state")  //
      ("json", "machine-readable output (verify/SCHEMA.md)")                                               //
      ("quiet,q", "no progress");
  return command;
}

}  // namespace waste::verify
