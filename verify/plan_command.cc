// waste-verify plan: what a model needs, and what this machine can do with it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "container/core/json.h"
#include "container/core/memory.h"
#include "container/core/simd.h"
#include "container/core/text.h"
#include "container/footprint/conversion_rate.h"
#include "verify/commands.h"
#include "verify/disk.h"
#include "verify/plan.h"
#include "verify/planned_manifest.h"
#include "verify/plot.h"
#include "verify/stream_speed.h"
#include "verify/trace.h"

namespace waste::verify {

namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;
constexpr double kAssumedDisk = 2.0;  // GB/s: an ordinary NVMe drive at random reads of several MB
constexpr unsigned kMeasureDepth = 8;
constexpr double kMeasureSeconds = 0.5;

struct Model {
  Manifest manifest;
  std::string kind;          // "container", "checkpoint", "config"
  std::uint64_t source = 0;  // bytes of the checkpoint
  fs::path directory;        // of a container; else empty
};

struct Machine {
  MachineMemory memory = machine_memory();
  unsigned cpus = usable_cpus();
  std::uint64_t budget = default_budget();  // more than this and the system pages
};

struct Report {
  Model model;
  ModelFacts facts;
  FootprintOptions options;
  Footprint footprint;
  std::vector<FloorLine> floor;
  std::vector<FloorLine> like;  // the floor of the engine asked for with --like
  Speeds speeds;
  std::string hit_source;
  std::vector<BudgetRow> rows;
  DiskNeed disk;
  double convert_seconds = 0;
  Machine machine;
};

Recipe parse_recipe(const cli::po::variables_map& vm) {
  Recipe recipe;
  const auto experts = vm["experts"].as<std::string>();
  if (experts == "vq2") {
    recipe.experts = ExpertQuant::vq2();
  } else if (experts == "vq4p") {
    recipe.experts = ExpertQuant::vq4p();
  } else if (experts != "vq3") {
    fail(ErrorKind::Usage, "--experts: \"{}\" is not one of vq3, vq2, vq4p", printable(experts));
  }
  const auto bits = vm["trunk-bits"].as<std::string>();
  if (bits != "4" && bits != "8")
    fail(ErrorKind::Usage, "--trunk-bits: \"{}\" is not 4 or 8", printable(bits));
  if (bits == "8") recipe.trunk = TensorFormat::Q8G;
  return recipe;
}

std::uint64_t shard_bytes(const fs::path& directory) {
  std::uint64_t sum = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.is_regular_file() && entry.path().extension() == ".safetensors") sum += entry.file_size();
  }
  return sum;
}

Model load_model(const fs::path& path, const Recipe& recipe) {
  Model model;
  if (fs::is_directory(path) && fs::exists(path / kManifestFile)) {
    const fs::path manifest = path / kManifestFile;
    model.kind = "container";
    model.manifest = parse_manifest(read_text_file(manifest, kMaxManifestBytes), manifest.string());
    model.source = checkpoint_bytes(model.manifest.model, model.manifest.config);
    model.directory = path;
    return model;
  }
  const fs::path config_path = fs::is_directory(path) ? path / "config.json" : path;
  if (fs::is_directory(path) && !fs::exists(config_path)) {
    fail_data("{}: neither {} nor config.json: not a container and not a checkpoint", path.string(),
              kManifestFile);
  }
  const Json config = parse_json(read_text_file(config_path, kMaxConfigBytes), config_path.string());
  model.manifest = planned_manifest(config, recipe, config_path.string());
  model.kind = fs::is_directory(path) ? "checkpoint" : "config";
  const std::uint64_t found = fs::is_directory(path) ? shard_bytes(path) : 0;
  model.source = std::max(found, checkpoint_bytes(model.manifest.model, config));
  return model;
}

// The best random row of a report that `waste-verify disk --json` wrote.
double disk_report_gb_per_s(const std::string& path) {
  const Json report = parse_json(read_text_file(path, kMaxConfigBytes), path);
  double best = 0;
  for (const Json& row : json_array(report, "rows", path)) {
    if (json_string(row, "order", path) == "random")
      best = std::max(best, json_double(row, "gb_per_s", path));
  }
  if (!(best > 0)) fail_data("{}: no random row with a speed", path);
  return best;
}

double positive(const cli::po::variables_map& vm, const char* option) {
  const auto value = vm[option].as<double>();
  if (!(value > 0 && value < 1e9)) fail(ErrorKind::Usage, "--{}: {} is not a speed", option, value);
  return value;
}

void measure_disk(const Model& model, Speeds& speeds) {
  if (!model.directory.empty() && !model.manifest.banks.empty()) {
    const DiskTarget target = DiskTarget::of_container(model.directory, model.manifest);
    if (!target.sparse()) {
      DiskBench bench(target);
      const DiskRow row = bench.run(true, kMeasureDepth, kMeasureSeconds, [] { return cli::interrupted(); });
      speeds.disk_gb_per_s = row.gb_per_s;
      speeds.disk_source = fmt::format("measured on this container: random records, {} in flight{}",
                                       kMeasureDepth, target.direct() ? "" : ", through the page cache");
      return;
    }
  }
  speeds.disk_gb_per_s = kAssumedDisk;
  speeds.disk_source = "assumed; see --disk-gbs and --disk";
}

Speeds find_speeds(const cli::po::variables_map& vm, const Model& model, unsigned threads) {
  Speeds speeds;
  if (vm.count("disk-gbs") != 0) {
    speeds.disk_gb_per_s = positive(vm, "disk-gbs");
    speeds.disk_source = "given";
  } else if (vm.count("disk") != 0) {
    speeds.disk_gb_per_s = disk_report_gb_per_s(vm["disk"].as<std::string>());
    speeds.disk_source = "the best random row of " + vm["disk"].as<std::string>();
  } else {
    measure_disk(model, speeds);
  }
  if (vm.count("gflops") != 0) {
    speeds.gflops = positive(vm, "gflops");
    speeds.compute_source = "given: 2 operations a weight";
  } else {
    speeds.weight_gb_per_s = stream_gb_per_s(threads, 0.3);
    speeds.compute_source =
        fmt::format("measured: weights streamed from memory by {} threads, an upper bound", threads);
  }
  return speeds;
}

Report make_report(const cli::po::variables_map& vm) {
  Report r;
  r.model = load_model(vm["MODEL"].as<std::string>(), parse_recipe(vm));
  const Manifest& m = r.model.manifest;
  r.options.context = static_cast<std::uint32_t>(
      parse_integer(vm["ctx"].as<std::string>(), "--ctx", 1, std::uint64_t{1} << 24));
  r.options.threads = r.machine.cpus;
  r.facts = model_facts(m);
  r.footprint = footprint(m, r.options);
  r.floor = floor_lines(m, r.options);
  if (vm.count("like") != 0) {
    const auto like = vm["like"].as<std::string>();
    if (like != "v0-f32") fail(ErrorKind::Usage, "--like: \"{}\" is not v0-f32", printable(like));
    r.like = v0_floor_lines(m, r.options.context);
  }
  const auto layers = static_cast<std::uint32_t>(m.banks.size());
  const HitCurve hits = vm.count("trace") != 0
                            ? HitCurve::of_trace(read_trace(vm["trace"].as<std::string>()), layers,
                                                 m.model.num_experts, vm["trace"].as<std::string>())
                            : HitCurve::measured();
  r.hit_source = hits.source();
  r.speeds = find_speeds(vm, r.model, r.machine.cpus);
  for (const std::uint64_t budget : budgets(m, r.options, {r.machine.budget})) {
    r.rows.push_back(budget_row(m, r.options, r.facts, hits, r.speeds, budget));
  }
  r.disk = disk_need(m, r.model.source);
  r.convert_seconds = static_cast<double>(r.facts.expert_parameters) /
                      (conversion_rate(simd_level()).normal * r.machine.cpus);
  return r;
}

std::string size(std::uint64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

std::string advice(const Report& r) {
  const Footprint& f = r.footprint;
  const std::string line =
      fmt::format("{} of this machine's {} (three quarters: with more the system begins to page)",
                  size(r.machine.budget), size(r.machine.memory.usable));
  if (r.machine.budget < f.floor()) {
    return fmt::format("does not fit: the floor is {}, but only {} can be used", size(f.floor()), line);
  }
  const std::uint64_t everything = r.rows.back().budget;
  if (r.machine.budget >= everything) {
    return fmt::format("--budget {}: everything stays in memory, within {}", size(everything), line);
  }
  return fmt::format("--budget {}: {}", size(r.machine.budget), line);
}

void print_floor(const std::vector<FloorLine>& lines) {
  for (const FloorLine& l : lines) fmt::print("  {:<16} {:>10}  {}\n", l.name, size(l.bytes), l.why);
  const std::uint64_t sum = total_bytes(lines);
  fmt::print("  {:<16} {:>10}  {:.2f} GiB\n\n", "sum", size(sum), static_cast<double>(sum) / (1 << 30));
}

void print_report(const Report& r, const std::string& path) {
  const ModelConfig& m = r.model.manifest.model;
  fmt::print("{} ({}): {}, {} layers, {} parameters, {} used by a token\n\n", path, r.model.kind, m.arch,
             m.num_layers, format_count(static_cast<double>(r.facts.parameters())),
             format_count(static_cast<double>(r.facts.active_parameters)));
  if (!r.like.empty()) {
    fmt::print("The floor of the engine that version 0 comes from, for {} positions:\n", r.options.context);
    print_floor(r.like);
  }
  fmt::print("The least memory it runs in, for {} positions:\n", r.options.context);
  print_floor(r.floor);
  fmt::print("{:>10} {:>10} {:>9} {:>7} {:>13} {:>10}   (estimates)\n", "memory", "experts", "of all", "hits",
             "read a token", "tokens/s");
  for (const BudgetRow& row : r.rows) {
    fmt::print("{:>10} {:>10} {:>8.1f}% {:>6.1f}% {:>13} {:>10.2f}{}\n", size(row.budget), row.records,
               100 * row.share, 100 * row.hit_rate, format_bytes(row.read_bytes), row.tokens_per_s,
               row.budget == r.machine.budget ? "   <- this machine" : "");
  }
  fmt::print("\nthis machine: {}\n", advice(r));
  fmt::print("disk: source {}, container {}; both {} while converting, {} with --reclaim on\n",
             size(r.disk.source), size(r.disk.container), size(r.disk.peak), size(r.disk.peak_reclaim));
  if (r.model.kind != "container") {
    fmt::print("conversion here: about {} on {} cores (estimate; see waste-convert --dry-run)\n",
               format_duration(r.convert_seconds), r.machine.cpus);
  }
  fmt::print("hit rates: {}\n", r.hit_source);
  fmt::print("disk: {:.2f} GB/s, {}\n", r.speeds.disk_gb_per_s, r.speeds.disk_source);
  if (r.speeds.gflops > 0) {
    fmt::print("compute: {:.1f} GFLOP/s, {}\n", r.speeds.gflops, r.speeds.compute_source);
  } else {
    fmt::print("compute: {:.1f} GB/s, {}\n", r.speeds.weight_gb_per_s, r.speeds.compute_source);
  }
}

Json floor_json(const std::vector<FloorLine>& lines) {
  Json out;
  out["bytes"] = total_bytes(lines);
  out["parts"] = Json::array();
  for (const FloorLine& l : lines)
    out["parts"].push_back({{"name", l.name}, {"bytes", l.bytes}, {"why", l.why}});
  return out;
}

Json to_json(const Report& r, const std::string& path) {
  Json out;
  out["model"] = path;
  out["kind"] = r.model.kind;
  out["arch"] = r.model.manifest.model.arch;
  out["parameters"] = {{"total", r.facts.parameters()}, {"active", r.facts.active_parameters}};
  out["record_bytes"] = r.footprint.record;
  out["context"] = r.options.context;
  out["floor"] = floor_json(r.floor);
  out["like"] = r.like.empty() ? Json(nullptr) : floor_json(r.like);
  out["everything_bytes"] = r.rows.back().budget;
  out["rows"] = Json::array();
  for (const BudgetRow& row : r.rows) {
    out["rows"].push_back({{"memory_bytes", row.budget},
                           {"cache_records", row.records},
                           {"cache_bytes", row.records * r.footprint.record},
                           {"share", row.share},
                           {"prefill_chunk", row.chunk},
                           {"hit_rate", row.hit_rate},
                           {"read_bytes_a_token", row.read_bytes},
                           {"tokens_per_s", row.tokens_per_s}});
  }
  out["machine"] = {{"physical_bytes", r.machine.memory.physical},
                    {"cgroup_limit_bytes", r.machine.memory.cgroup_limit},
                    {"usable_bytes", r.machine.memory.usable},
                    {"budget_bytes", r.machine.budget},
                    {"cpus", r.machine.cpus},
                    {"fits", r.machine.budget >= r.footprint.floor()},
                    {"advice", advice(r)}};
  out["disk"] = {{"source_bytes", r.disk.source},
                 {"container_bytes", r.disk.container},
                 {"peak_bytes", r.disk.peak},
                 {"peak_reclaim_bytes", r.disk.peak_reclaim}};
  out["convert_seconds"] = r.model.kind == "container" ? Json(nullptr) : Json(r.convert_seconds);
  out["estimates"] = {
      {"hit_rates", r.hit_source},
      {"disk_gb_per_s", r.speeds.disk_gb_per_s},
      {"disk", r.speeds.disk_source},
      {"gflops", r.speeds.gflops > 0 ? Json(r.speeds.gflops) : Json(nullptr)},
      {"weight_gb_per_s", r.speeds.gflops > 0 ? Json(nullptr) : Json(r.speeds.weight_gb_per_s)},
      {"compute", r.speeds.compute_source}};
  return out;
}

std::string plot(const Report& r, const std::string& path) {
  Chart speed;
  speed.title =
      fmt::format("{}: tokens a second against memory (estimates)", fs::path(path).filename().string());
  speed.x_label = "memory";
  speed.y_label = "tokens/s";
  speed.x_text = [](double x) { return format_bytes(x); };
  speed.series = {{"tokens/s", {}}};
  Chart hits = speed;
  hits.title = "Hit rate of the expert cache (estimates)";
  hits.y_label = "hit rate, %";
  hits.series = {{"hit rate", {}}};
  for (const BudgetRow& row : r.rows) {
    for (Chart* chart : {&speed, &hits}) chart->x.push_back(static_cast<double>(row.budget));
    speed.series[0].y.push_back(row.tokens_per_s);
    hits.series[0].y.push_back(100 * row.hit_rate);
  }
  for (Chart* chart : {&speed, &hits}) {
    chart->markers = {{static_cast<double>(r.footprint.floor()), "floor"},
                      {static_cast<double>(r.machine.budget), "paging begins here"},
                      {static_cast<double>(r.machine.memory.usable), "this machine"}};
  }
  return render_svg({speed, hits});
}

int run(const cli::po::variables_map& vm) {
  const auto path = vm["MODEL"].as<std::string>();
  cli::catch_interrupts();
  const Report report = make_report(vm);
  if (vm.count("plot") != 0) write_file_atomic(vm["plot"].as<std::string>(), plot(report, path));
  if (vm.count("json") != 0) {
    fmt::print("{}", dump_json(to_json(report, path)));
  } else {
    print_report(report, path);
  }
  return 0;
}

}  // namespace

cli::Command plan_command() {
  cli::Command command{
      .name = "plan",
      .usage = "MODEL [options]",
      .summary = "say what memory, disk and time a model needs, and how fast it will be",
      .help =
          R"(MODEL is a container, a checkpoint's folder, or only a config.json. Bytes of memory are the runtime's own
arithmetic; speeds are estimates, each printed with its source. Tokens/s count the reads of what misses and the
weights of a token one after the other.

  waste-verify plan config.json
  waste-verify plan kimi-k3.waste --ctx 131072 --trace routing.jsonl --plot plan.svg
  waste-verify plan config.json --disk-gbs 6.5 --experts vq2
)",
      .positionals = {{"MODEL"}},
      .options = {},
      .run = run};
  command.options.add_options()                                                              //
      ("ctx", cli::po::value<std::string>()->default_value("4096"), "positions of context")  //
      ("experts", cli::po::value<std::string>()->default_value("vq3"),
       "recipe of experts, without a container")                                                        //
      ("trunk-bits", cli::po::value<std::string>()->default_value("4"), "4 or 8, without a container")  //
      ("trace", cli::po::value<std::string>(), "routing trace of this model, for the hit rates")        //
      ("disk-gbs", cli::po::value<double>(), "speed of the disk at random reads, GB/s")                 //
      ("disk", cli::po::value<std::string>(), "take it from a report of waste-verify disk --json")      //
      ("gflops", cli::po::value<double>(), "speed of the arithmetic, instead of a short measurement")   //
      ("like", cli::po::value<std::string>(), "v0-f32: also the floor of the engine of version 0")      //
      ("plot", cli::po::value<std::string>(),
       "write tokens/s and hit rate against memory to this SVG file")  //
      ("json", "machine-readable output (verify/SCHEMA.md)");
  return command;
}

}  // namespace waste::verify
