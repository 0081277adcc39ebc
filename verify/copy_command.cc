// waste-verify copy: a container to another disk, proved on the way and where it lands.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "container/core/json.h"
#include "container/core/text.h"
#include "verify/commands.h"
#include "verify/copy.h"
#include "verify/report.h"

namespace waste::verify {

namespace {

int run(const cli::po::variables_map& vm) {
  const auto source = vm["SRC"].as<std::string>();
  const auto destination = vm["DST"].as<std::string>();
  const bool quiet = vm.count("quiet") != 0;
  cli::catch_interrupts();
  ByteProgress copying("copied", quiet);
  ByteProgress verifying("read back", quiet);
  const CopyCalls calls{.stop = [] { return cli::interrupted(); },
                        .copying = [&](auto done, auto total) { copying.show(done, total); },
                        .verifying = [&](auto done, auto total) { verifying.show(done, total); },
                        .reflink = vm.count("no-reflink") == 0};
  const CopyResult r = copy_container(source, destination, calls);
  copying.line().clear();
  verifying.line().clear();
  if (vm.count("json") != 0) {
    Json out;
    out["source"] = source;
    out["destination"] = destination;
    out["finished"] = r.finished;
    out["reflinked"] = r.reflinked;
    out["bytes"] = r.bytes;
    out["resumed_bytes"] = r.resumed_bytes;
    out["problems"] = r.problems;
    fmt::print("{}", dump_json(out));
  } else {
    for (const std::string& problem : r.problems) fmt::print("{}\n", problem);
    if (r.finished) {
      fmt::print("{}: {} copied{}, every extent checked there\n", destination,
                 format_bytes(static_cast<double>(r.bytes)), r.reflinked ? " by sharing blocks" : "");
    } else if (!r.problems.empty()) {
      fmt::print("{}: damaged extents: {}; repair it and run this again to go on\n", source,
                 r.problems.size());
    } else {
      fmt::print("{}: interrupted; run this again to go on\n", destination);
    }
  }
  if (r.finished) return 0;
  return static_cast<int>(r.problems.empty() ? ErrorKind::Interrupted : ErrorKind::Data);
}

}  // namespace

cli::Command copy_command() {
  cli::Command command{
      .name = "copy",
      .usage = "SRC DST [options]",
      .summary = "copy a container, checking every extent on the way and where it lands",
      .help =
          R"(The source is read once. Blocks are shared where the file system can (reflink), else written past the page
cache and read back; holes stay holes and take no room. Interrupted or killed, it goes on when run again; the manifest
is written last, so an unfinished copy is never mistaken for a container. Refused for want of room, it leaves nothing.

  waste-verify copy kimi-k3.waste /mnt/usb/kimi-k3.waste
)",
      .positionals = {{"SRC"}, {"DST"}},
      .options = {},
      .run = run};
  command.options.add_options()                                                    //
      ("no-reflink", "write the bytes even where the file system can share them")  //
      ("json", "machine-readable output (verify/SCHEMA.md)")                       //
      ("quiet,q", "no progress");
  return command;
}

}  // namespace waste::verify
