// waste-verify doctor: one page about this machine, and what would make it better at running models from
// disk.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "container/core/json.h"
#include "container/core/text.h"
#include "verify/commands.h"
#include "verify/disk.h"
#include "verify/machine.h"
#include "verify/plan.h"
#include "verify/stream_speed.h"

namespace waste::verify {

namespace {

constexpr std::uint64_t kProbeRecord = 12'406'784;  // Kimi K3's
constexpr std::uint64_t kProbeBytes = 1'000'000'000;
constexpr unsigned kProbeDepth = 8;
constexpr double kProbeSeconds = 1;

struct ModelRow {
  std::string name;
  std::string problem;  // why it cannot be judged; else empty
  std::string arch;
  bool sealed = false;
  std::uint64_t floor = 0;
  std::uint64_t budget = 0;  // what it would run with here; 0 when it does not fit
  double tokens_per_s = 0;
};

struct Page {
  MachineFacts machine;
  DiskFacts disk;
  std::string directory;
  double disk_gb_per_s = 0;
  double weight_gb_per_s = 0;
  std::vector<ModelRow> models;
  std::vector<std::string> advice;
};

// The records of the first model that has enough of them.
std::optional<DiskTarget> records_of(const std::vector<fs::path>& models) {
  for (const fs::path& model : models) {
    try {
      const fs::path manifest = model / kManifestFile;
      const Manifest m = parse_manifest(read_text_file(manifest, kMaxManifestBytes), manifest.string());
      DiskTarget target = DiskTarget::of_container(model, m);
      if (!target.sparse() && target.slots().size() * m.layout.record_bytes >= kProbeBytes) return target;
    } catch (const Error&) {  // the page says what is wrong with it
    }
  }
  return std::nullopt;
}

// A model's own records where there are any: the folder may be read-only, or full.
double measure_disk(const fs::path& directory, const std::vector<fs::path>& models, std::uint64_t free) {
  const std::uint64_t bytes = std::min(kProbeBytes, free / 4);
  std::optional<DiskTarget> target = records_of(models);
  if (!target) target = DiskTarget::scratch(directory, bytes, std::min(kProbeRecord, bytes));
  return DiskBench(*target).run(true, kProbeDepth, kProbeSeconds, [] { return cli::interrupted(); }).gb_per_s;
}

ModelRow judge_model(const fs::path& path, const Page& page) {
  ModelRow row;
  row.name = path.filename().string();
  try {
    const Manifest m =
        parse_manifest(read_text_file(path / kManifestFile, kMaxManifestBytes), std::string(kManifestFile));
    row.arch = m.model.arch;
    row.sealed = fs::exists(path / kSealFile);
    const FootprintOptions options{.threads = page.machine.cpus};
    const Footprint f = footprint(m, options);
    row.floor = f.floor();
    if (default_budget() < row.floor) return row;
    row.budget = std::min(default_budget(), budgets(m, options, {}).back());
    Speeds speeds;
    speeds.disk_gb_per_s = page.disk_gb_per_s;
    speeds.weight_gb_per_s = page.weight_gb_per_s;
    row.tokens_per_s =
        budget_row(m, options, model_facts(m), HitCurve::measured(), speeds, row.budget).tokens_per_s;
  } catch (const Error& e) {
    row.problem = e.what();
  }
  return row;
}

std::vector<std::string> advice(const Page& page) {
  std::vector<std::string> out;
  const MachineFacts& m = page.machine;
  if (m.simd == "scalar")
    out.push_back("this CPU has no vector path that is supported: expect a tenth of the speed");
  if (m.memory.cgroup_limit != 0) {
    out.push_back(fmt::format("a cgroup limits memory to {} of {}: raise it if the machine is yours",
                              format_bytes(static_cast<double>(m.memory.cgroup_limit)),
                              format_bytes(static_cast<double>(m.memory.physical))));
  }
  if (m.cpus < m.cpus_online) {
    out.push_back(fmt::format("only {} of {} CPUs may be used (affinity or cgroup)", m.cpus, m.cpus_online));
  }
  if (m.huge_pages == "never") {
    out.push_back(
        "transparent huge pages are off: set /sys/kernel/mm/transparent_hugepage/enabled to madvise");
  }
  if (m.numa_nodes > 1) {
    out.push_back(fmt::format("{} NUMA nodes: run under numactl --interleave=all", m.numa_nodes));
  }
  if (!page.disk.direct) {
    out.push_back(page.disk.file_system +
                  " refuses O_DIRECT: reads go through the page cache; use ext4 or xfs");
  }
  // Virtual disks call themselves spinning too: the speed decides.
  if (page.disk_gb_per_s < 1) {
    out.push_back(fmt::format("the disk gives {:.2f} GB/s{}: a local NVMe drive gives 3 to 14",
                              page.disk_gb_per_s, page.disk.rotational ? " (a spinning one)" : ""));
  }
  for (const ModelRow& row : page.models) {
    if (!row.problem.empty()) continue;
    if (row.budget == 0) {
      out.push_back(fmt::format("{} needs {} of memory, {} can be used", row.name,
                                format_bytes(static_cast<double>(row.floor)),
                                format_bytes(static_cast<double>(default_budget()))));
    }
    if (!row.sealed)
      out.push_back(fmt::format("{} is not sealed: waste-verify seal finds later damage", row.name));
  }
  if (out.empty()) out.push_back("nothing");
  return out;
}

Page make_page(const fs::path& directory) {
  Page page;
  page.directory = directory.string();
  page.machine = machine_facts();
  page.disk = disk_facts(directory);
  std::vector<fs::path> models;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (fs::exists(entry.path() / kManifestFile)) models.push_back(entry.path());
  }
  std::sort(models.begin(), models.end());
  page.disk_gb_per_s = measure_disk(directory, models, page.disk.free);
  page.weight_gb_per_s = stream_gb_per_s(page.machine.cpus, 0.3);
  for (const fs::path& model : models) page.models.push_back(judge_model(model, page));
  page.advice = advice(page);
  return page;
}

std::string size(std::uint64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

void print_page(const Page& page) {
  const auto line = [](std::string_view name, const std::string& value) {
    fmt::print("{:<10} {}\n", name, value);
  };
  const MachineFacts& m = page.machine;
  line("CPU", fmt::format("{}; {} kernels", m.cpu.empty() ? "unknown" : m.cpu, m.simd));
  line("cores", fmt::format("{} of {} usable, {} NUMA node{}", m.cpus, m.cpus_online, m.numa_nodes,
                            m.numa_nodes == 1 ? "" : "s"));
  line("memory",
       fmt::format("{}{}, {} available now, {} for models; swap {}; huge pages {}", size(m.memory.physical),
                   m.memory.cgroup_limit != 0 ? ", limited to " + size(m.memory.cgroup_limit) : "",
                   size(m.memory.available), size(default_budget()), size(m.swap),
                   m.huge_pages.empty() ? "unknown" : m.huge_pages));
  line("streams", fmt::format("{:.1f} GB/s of weights from memory (measured)", page.weight_gb_per_s));
  line("disk",
       fmt::format("{} on {} at {}: {} free, O_DIRECT {}", page.directory, page.disk.file_system,
                   page.disk.mount_point, size(page.disk.free), page.disk.direct ? "works" : "refused"));
  line("reads", fmt::format("{:.2f} GB/s at random, {} records in flight (measured{})", page.disk_gb_per_s,
                            kProbeDepth, page.disk.direct ? "" : "; may be the page cache"));
  fmt::print("\n");
  if (page.models.empty()) line("models", "none in " + page.directory);
  for (const ModelRow& row : page.models) {
    if (!row.problem.empty()) {
      line("model", fmt::format("{}: {}", row.name, row.problem));
    } else if (row.budget == 0) {
      line("model",
           fmt::format("{} ({}): does not fit, its floor is {}", row.name, row.arch, size(row.floor)));
    } else {
      line("model", fmt::format("{} ({}): fits from {} on; about {:.2f} tokens/s with --budget {} (estimate)",
                                row.name, row.arch, size(row.floor), row.tokens_per_s, size(row.budget)));
    }
  }
  fmt::print("\nwhat to change:\n");
  for (const std::string& text : page.advice) fmt::print("  {}\n", text);
}

Json to_json(const Page& page) {
  const MachineFacts& m = page.machine;
  Json out;
  out["cpu"] = {{"name", m.cpu},
                {"simd", m.simd},
                {"usable", m.cpus},
                {"online", m.cpus_online},
                {"numa_nodes", m.numa_nodes}};
  out["memory"] = {{"physical_bytes", m.memory.physical},
                   {"cgroup_limit_bytes", m.memory.cgroup_limit},
                   {"available_bytes", m.memory.available},
                   {"budget_bytes", default_budget()},
                   {"swap_bytes", m.swap},
                   {"huge_pages", m.huge_pages},
                   {"weight_gb_per_s", page.weight_gb_per_s}};
  out["disk"] = {{"directory", page.directory},          {"file_system", page.disk.file_system},
                 {"mount_point", page.disk.mount_point}, {"free_bytes", page.disk.free},
                 {"direct", page.disk.direct},           {"rotational", page.disk.rotational},
                 {"random_gb_per_s", page.disk_gb_per_s}};
  out["models"] = Json::array();
  for (const ModelRow& row : page.models) {
    out["models"].push_back({{"name", row.name},
                             {"problem", row.problem},
                             {"arch", row.arch},
                             {"sealed", row.sealed},
                             {"floor_bytes", row.floor},
                             {"fits", row.budget != 0},
                             {"memory_bytes", row.budget},
                             {"tokens_per_s", row.tokens_per_s}});
  }
  out["advice"] = page.advice;
  return out;
}

int run(const cli::po::variables_map& vm) {
  const fs::path directory = vm["models"].as<std::string>();
  if (!fs::is_directory(directory)) fail_data("{}: not a directory", directory.string());
  cli::catch_interrupts();
  const Page page = make_page(directory);
  if (cli::interrupted()) fail(ErrorKind::Interrupted, "interrupted");
  if (vm.count("json") != 0) {
    fmt::print("{}", dump_json(to_json(page)));
  } else {
    print_page(page);
  }
  return 0;
}

}  // namespace

cli::Command doctor_command() {
  cli::Command command{
      .name = "doctor",
      .usage = "[options]",
      .summary = "one page about this machine: what fits, how fast, what to change",
      .help = R"(Takes a few seconds: up to 1 GB is written to the models' folder, read back and gone.

  waste-verify doctor --models /mnt/nvme/models
)",
      .positionals = {},
      .options = {},
      .run = run};
  command.options.add_options()                                                                            //
      ("models", cli::po::value<std::string>()->default_value("."), "the folder in which containers lie")  //
      ("json", "machine-readable output (verify/SCHEMA.md)");
  return command;
}

}  // namespace waste::verify
