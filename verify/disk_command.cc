// waste-verify disk: how fast this disk gives expert records.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "container/core/json.h"
#include "container/core/text.h"
#include "container/format/manifest.h"
#include "verify/commands.h"
#include "verify/disk.h"
#include "verify/machine.h"

namespace waste::verify {

namespace {

constexpr unsigned kDepths[] = {1, 2, 4, 8, 16, 32};
// Kimi K3 at 3 bits a weight.
constexpr const char* kDefaultRecord = "12406784";

struct Subject {
  DiskTarget target;
  std::uint64_t bytes_a_token = 0;  // 0 when no model says
  std::string source;
  std::string file_system;
};

Subject open_subject(const cli::po::variables_map& vm) {
  const fs::path directory = vm["DIR"].as<std::string>();
  if (!fs::is_directory(directory)) fail_data("{}: not a directory", directory.string());
  const fs::path manifest_path = directory / kManifestFile;
  if (fs::exists(manifest_path) && vm.count("scratch") == 0) {
    if (!vm["record-bytes"].defaulted()) {
      fail(ErrorKind::Usage, "--record-bytes: a container has its own; use it with --scratch");
    }
    const Manifest m =
        parse_manifest(read_text_file(manifest_path, kMaxManifestBytes), manifest_path.string());
    const std::uint64_t token =
        std::uint64_t{m.model.num_experts_per_token} * m.banks.size() * m.layout.record_bytes;
    return {DiskTarget::of_container(directory, m), token, "the container's expert records",
            file_system_of(directory)};
  }
  const std::uint64_t record = parse_size(vm["record-bytes"].as<std::string>(), "--record-bytes");
  if (record == 0 || record > std::uint64_t{1} << 30) {
    fail(ErrorKind::Usage, "--record-bytes: {} is not between 1 and 2^30", record);
  }
  const std::uint64_t bytes = vm.count("scratch") != 0
                                  ? parse_size(vm["scratch"].as<std::string>(), "--scratch")
                                  : std::min<std::uint64_t>(4'000'000'000, free_space(directory) / 4);
  return {DiskTarget::scratch(directory, bytes, record), 0,
          fmt::format("a scratch file of {}", format_bytes(static_cast<double>(bytes))),
          file_system_of(directory)};
}

std::string label(const Subject& subject) {
  if (subject.target.sparse()) return "the files are mostly holes: these are not the disk's speeds";
  if (subject.file_system == "tmpfs" || subject.file_system == "ramfs") return "the folder lies in memory";
  if (!subject.target.direct()) return "this file system refuses O_DIRECT: figures may be the page cache's";
  return {};
}

void print_rows(const Subject& subject, const DiskBench& bench, const std::vector<DiskRow>& rows) {
  fmt::print("{}, {} bytes a read, by {}{}\n\n", subject.source, subject.target.record_bytes(),
             bench.engine(), subject.target.direct() ? " past the page cache" : "");
  fmt::print("{:<12} {:>6} {:>8} {:>9} {:>9} {:>9}{}\n", "order", "depth", "GB/s", "mean ms", "p99 ms",
             "cores", subject.bytes_a_token != 0 ? "  tokens/s, nothing cached (estimate)" : "");
  for (const DiskRow& row : rows) {
    fmt::print("{:<12} {:>6} {:>8.2f} {:>9.2f} {:>9.2f} {:>9.2f}", row.random ? "random" : "sequential",
               row.depth, row.gb_per_s, row.mean_ms, row.p99_ms, row.cpu);
    if (subject.bytes_a_token != 0)
      fmt::print("  {:.2f}", row.gb_per_s * 1e9 / static_cast<double>(subject.bytes_a_token));
    fmt::print("\n");
  }
  fmt::print("\nwhat limits random reads: {}\n", disk_limit(rows));
  if (const std::string text = label(subject); !text.empty()) fmt::print("NOTE: {}\n", text);
}

Json to_json(const Subject& subject, const DiskBench& bench, const std::vector<DiskRow>& rows,
             const std::string& dir) {
  Json out;
  out["directory"] = dir;
  out["file_system"] = subject.file_system;
  out["source"] = subject.source;
  out["engine"] = bench.engine();
  out["record_bytes"] = subject.target.record_bytes();
  out["page_cache_bypassed"] = subject.target.direct();
  out["sparse"] = subject.target.sparse();
  out["bytes_a_token"] = subject.bytes_a_token != 0 ? Json(subject.bytes_a_token) : Json(nullptr);
  out["rows"] = Json::array();
  for (const DiskRow& row : rows) {
    out["rows"].push_back({{"order", row.random ? "random" : "sequential"},
                           {"depth", row.depth},
                           {"reads", row.reads},
                           {"gb_per_s", row.gb_per_s},
                           {"mean_ms", row.mean_ms},
                           {"p99_ms", row.p99_ms},
                           {"cpu_cores", row.cpu}});
    if (subject.bytes_a_token != 0) {
      out["rows"].back()["uncached_tokens_per_s"] =
          row.gb_per_s * 1e9 / static_cast<double>(subject.bytes_a_token);
    }
  }
  out["limit"] = disk_limit(rows);
  out["note"] = label(subject);
  return out;
}

int run(const cli::po::variables_map& vm) {
  const double seconds = vm["seconds"].as<double>();
  if (!(seconds > 0 && seconds <= 3600))
    fail(ErrorKind::Usage, "--seconds: {} is not between 0 and 3600", seconds);
  cli::catch_interrupts();
  const Subject subject = open_subject(vm);
  DiskBench bench(subject.target);
  cli::ProgressLine progress(vm.count("quiet") != 0);
  std::vector<DiskRow> rows;
  for (const bool random : {false, true}) {
    for (const unsigned depth : kDepths) {
      if (cli::interrupted()) fail(ErrorKind::Interrupted, "interrupted");
      progress.show(static_cast<double>(rows.size()) / 12, [&] {
        return fmt::format("reading {} at depth {}", random ? "at random" : "in order", depth);
      });
      rows.push_back(bench.run(random, depth, seconds, [] { return cli::interrupted(); }));
    }
  }
  progress.clear();
  if (vm.count("json") != 0) {
    fmt::print("{}", dump_json(to_json(subject, bench, rows, vm["DIR"].as<std::string>())));
  } else {
    print_rows(subject, bench, rows);
  }
  return 0;
}

}  // namespace

cli::Command disk_command() {
  cli::Command command{
      .name = "disk",
      .usage = "DIR [options]",
      .summary = "measure the disk: whole records, in order and at random, 1 to 32 in flight",
      .help =
          R"(DIR is a container, whose own expert records are read, or any other folder: a scratch file is written there
past the page cache, without a name, and is gone afterwards. Whether O_DIRECT works is proved by a transfer.
The figures are those of this machine's kernel: below a virtual disk, the host may still cache.

  waste-verify disk kimi-k3.waste
  waste-verify disk /mnt/nvme --scratch 16G --json
)",
      .positionals = {{"DIR"}},
      .options = {},
      .run = run};
  command.options.add_options()  //
      ("scratch", cli::po::value<std::string>(),
       "size of the scratch file (4G, at most a quarter of what is free)")                                 //
      ("record-bytes", cli::po::value<std::string>()->default_value(kDefaultRecord), "bytes of one read")  //
      ("seconds", cli::po::value<double>()->default_value(1), "how long to measure each row")              //
      ("json", "machine-readable output (verify/SCHEMA.md)")                                               //
      ("quiet,q", "no progress");
  return command;
}

}  // namespace waste::verify
