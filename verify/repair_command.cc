// waste-verify repair: put back what is damaged or missing, from another copy.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "container/core/json.h"
#include "container/core/text.h"
#include "verify/commands.h"
#include "verify/repair.h"
#include "verify/report.h"

namespace waste::verify {

namespace {

Json to_json(const std::string& directory, const RepairResult& r) {
  Json out;
  out["container"] = directory;
  out["finished"] = !r.interrupted;
  out["sound"] = !r.interrupted && r.failures.empty();
  out["damaged_extents"] = r.damaged;
  out["restored_extents"] = r.restored;
  out["restored_bytes"] = r.restored_bytes;
  out["cut_files"] = r.cut_files;
  out["seal_restored"] = r.seal_restored;
  out["failures"] = Json::array();
  for (const auto& f : r.failures) out["failures"].push_back({{"place", f.place}, {"reason", f.reason}});
  return out;
}

void print_changes(const std::string& directory, const RepairResult& r) {
  fmt::print("{}: {} of {} damaged extents restored, {}", directory, r.restored, r.damaged,
             format_bytes(static_cast<double>(r.restored_bytes)));
  if (r.cut_files > 0) fmt::print("; {} files cut to their size", r.cut_files);
  if (r.seal_restored) fmt::print("; the seal restored");
  fmt::print("\n");
}

void print_result(const std::string& directory, const RepairResult& r) {
  for (const auto& f : r.failures) fmt::print("{}: not restored: {}\n", f.place, f.reason);
  const bool changed = r.damaged != 0 || r.cut_files != 0 || r.seal_restored;
  if (!changed && !r.interrupted) fmt::print("{}: nothing to repair\n", directory);
  if (changed) print_changes(directory, r);
  if (r.interrupted) fmt::print("{}: interrupted; run this again to go on\n", directory);
}

int run(const cli::po::variables_map& vm) {
  const auto directory = vm["DIR"].as<std::string>();
  if (vm.count("from") == 0)
    fail(ErrorKind::Usage, "--from is missing: the folder or address of another copy");
  const auto source = open_source(vm["from"].as<std::string>());
  const bool quiet = vm.count("quiet") != 0;
  cli::catch_interrupts();
  ByteProgress checking("checked", quiet);
  ByteProgress restoring("restored", quiet);
  const RepairCalls calls{.stop = [] { return cli::interrupted(); },
                          .checking = [&](auto done, auto total) { checking.show(done, total); },
                          .restoring = [&](auto done, auto total) { restoring.show(done, total); }};
  const RepairResult result = repair_container(directory, *source, calls);
  restoring.line().clear();
  if (vm.count("json") != 0) {
    fmt::print("{}", dump_json(to_json(directory, result)));
  } else {
    print_result(directory, result);
  }
  if (result.interrupted) return static_cast<int>(ErrorKind::Interrupted);
  return result.failures.empty() ? 0 : static_cast<int>(ErrorKind::Data);
}

}  // namespace

cli::Command repair_command() {
  cli::Command command{
      .name = "repair",
      .usage = "DIR --from OTHER [options]",
      .summary = "restore damaged and missing extents from another copy",
      .help =
          R"(OTHER is a folder, or an http(s) address below which the container's files lie; a server is asked for the
damaged ranges alone. Every extent is compared with the seal before it is written and after; sound ones are not
touched. It may be killed and run again. Without a seal on either side nothing can be proved, and nothing is done.

  waste-verify repair kimi-k3.waste --from /mnt/backup/kimi-k3.waste
  waste-verify repair kimi-k3.waste --from https://example.org/kimi-k3.waste
)",
      .positionals = {{"DIR"}},
      .options = {},
      .run = run};
  command.options.add_options()                                                     //
      ("from", cli::po::value<std::string>(), "folder or address of another copy")  //
      ("json", "machine-readable output (verify/SCHEMA.md)")                        //
      ("quiet,q", "no progress");
  return command;
}

}  // namespace waste::verify
