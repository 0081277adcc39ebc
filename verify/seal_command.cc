// waste-verify seal: writes the digests that a container made by another tool lacks.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "container/core/file.h"
#include "container/core/json.h"
#include "container/core/text.h"
#include "verify/check.h"
#include "verify/commands.h"
#include "verify/report.h"

namespace waste::verify {

namespace {

Seal seal_of(const ContainerMap& map, const CheckResult& result) {
  Seal seal;
  for (const MapFile& file : map.files) {
    const std::uint64_t size = fs::file_size(map.directory / file.name);
    seal.files.push_back({.name = file.name, .size = size, .extent_bytes = file.extent_bytes, .digests = {}});
  }
  for (std::size_t e = 0; e < map.extents.size(); ++e) {
    seal.files[map.extents[e].file].digests.push_back(result.digests[e]);
  }
  return seal;
}

int run(const cli::po::variables_map& vm) {
  const fs::path directory = vm["DIR"].as<std::string>();
  const fs::path path = directory / kSealFile;
  if (fs::exists(path)) {
    fail(ErrorKind::Usage, "{} exists: check the container with it, or delete it to seal what is there now",
         path.string());
  }
  const ContainerMap map = ContainerMap::read(directory);
  ByteProgress progress("sealed", vm.count("quiet") != 0);
  cli::catch_interrupts();
  const CheckCalls calls{.stop = [] { return cli::interrupted(); },
                         .progress = [&](auto done, auto total, const auto&) { progress.show(done, total); }};
  const CheckResult result = check_container(map, {}, calls);
  progress.line().clear();
  if (!result.finished)
    fail(ErrorKind::Interrupted, "{}: interrupted; nothing was written", directory.string());
  for (const Finding& f : result.findings) fmt::print(stderr, "{}\n", finding_text(map, f));
  if (!result.findings.empty()) {
    fail_data("{}: not sealed: {} things are wrong with it", directory.string(), result.findings.size());
  }
  const std::vector<std::uint8_t> bytes = write_seal(seal_of(map, result));
  write_file_atomic(path, bytes);
  const Seal seal = parse_seal(bytes, path.string());
  if (vm.count("json") != 0) {
    Json out;
    out["container"] = directory.string();
    out["seal"] = path.string();
    out["files"] = seal.files.size();
    out["extents"] = map.extents.size();
    out["bytes"] = result.bytes;
    out["seconds"] = result.seconds;
    out["weights_fingerprint"] = seal.weights_fingerprint().hex();
    fmt::print("{}", dump_json(out));
  } else {
    fmt::print("{}: sealed: {} in {} files, {} extents; weights {}\n", directory.string(),
               format_bytes(static_cast<double>(result.bytes)), seal.files.size(), map.extents.size(),
               seal.weights_fingerprint().hex());
  }
  return 0;
}

}  // namespace

cli::Command seal_command() {
  cli::Command command{
      .name = "seal",
      .usage = "DIR [options]",
      .summary = "write the digests that let check find any damaged byte",
      .help =
          R"(Reads the whole container as check does, refuses to seal what is not sound as far as its own checksums go, and
writes seal.waste, which other readers ignore.

  waste-verify seal kimi-k3.waste
)",
      .positionals = {{"DIR"}},
      .options = {},
      .run = run};
  command.options.add_options()                               //
      ("json", "machine-readable output (verify/SCHEMA.md)")  //
      ("quiet,q", "no progress");
  return command;
}

}  // namespace waste::verify
