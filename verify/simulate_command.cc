// waste-verify simulate: how well a cache of N bytes would have served a trace.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "container/core/checked.h"
#include "container/core/file.h"
#include "container/core/json.h"
#include "container/core/text.h"
#include "verify/commands.h"
#include "verify/plot.h"
#include "verify/simulate.h"
#include "verify/trace.h"

namespace waste::verify {

namespace {

// Kimi K3 at 3 bits a weight.
constexpr const char* kDefaultRecord = "12406784";
constexpr const char* kDefaultCapacities = "8G,16G,24G,32G,48G,64G,96G,128G,192G,256G,384G,512G";

struct Row {
  std::uint64_t capacity = 0;  // bytes
  std::uint64_t experts = 0;   // whole records that fit
  std::uint64_t lru = 0;       // hits
  std::uint64_t lfru = 0;
  std::uint64_t belady = 0;
  std::uint64_t pinned = 0;
};

std::vector<std::uint64_t> parse_capacities(std::string_view list) {
  std::vector<std::uint64_t> out;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    out.push_back(parse_size(list.substr(0, comma), "--capacity"));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  if (out.empty()) fail(ErrorKind::Usage, "--capacity: an empty list");
  return out;
}

std::vector<Row> replay(const Trace& trace, const std::vector<std::uint64_t>& capacities,
                        std::uint64_t record) {
  const LruCurve lru(trace.requests, trace.experts.size());
  const Belady belady(trace);
  std::vector<Row> rows;
  for (const std::uint64_t capacity : capacities) {
    const std::uint64_t experts = capacity / record;
    rows.push_back({capacity, experts, lru.hits(experts), lfru_hits(trace, experts), belady.hits(experts),
                    pinned_lru_hits(trace, experts)});
  }
  return rows;
}

double share(std::uint64_t hits, const Trace& trace) {
  return static_cast<double>(hits) / static_cast<double>(trace.requests.size());
}

void print_table(const Trace& trace, const std::vector<Row>& rows, std::uint64_t record) {
  fmt::print("{} requests for {} distinct experts", trace.requests.size(), trace.experts.size());
  if (!trace.token_ends.empty()) fmt::print(" in {} tokens", trace.token_ends.size());
  fmt::print("; {} bytes an expert\n", record);
  if (const auto reuse = next_token_reuse(trace)) {
    fmt::print("{:.1f}% of what a token asks for, the token before it asked for too\n", 100 * *reuse);
  }
  fmt::print("\n{:>10} {:>8} {:>9} {:>9} {:>12} {:>9}\n", "cache", "experts", "LRU", "LFRU", "pinned+LRU",
             "Belady");
  for (const Row& row : rows) {
    fmt::print("{:>10} {:>8} {:>8.2f}% {:>8.2f}% {:>11.2f}% {:>8.2f}%\n",
               format_bytes(static_cast<double>(row.capacity)), row.experts, 100 * share(row.lru, trace),
               100 * share(row.lfru, trace), 100 * share(row.pinned, trace), 100 * share(row.belady, trace));
  }
}

Json to_json(const Trace& trace, const std::vector<Row>& rows, std::uint64_t record,
             const std::string& path) {
  Json out;
  out["trace"] = path;
  out["requests"] = trace.requests.size();
  out["distinct_experts"] = trace.experts.size();
  out["tokens"] = trace.token_ends.empty() ? Json(nullptr) : Json(trace.token_ends.size());
  const auto reuse = next_token_reuse(trace);
  out["next_token_reuse"] = reuse ? Json(*reuse) : Json(nullptr);
  out["record_bytes"] = record;
  out["rows"] = Json::array();
  for (const Row& row : rows) {
    out["rows"].push_back({{"capacity_bytes", row.capacity},
                           {"experts", row.experts},
                           {"lru", share(row.lru, trace)},
                           {"lfru", share(row.lfru, trace)},
                           {"pinned_lru", share(row.pinned, trace)},
                           {"belady", share(row.belady, trace)}});
  }
  return out;
}

std::string plot(const Trace& trace, std::vector<Row> rows, const std::string& path) {
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.capacity < b.capacity; });
  Chart chart;
  chart.title = "Hit rate of the expert cache: " + fs::path(path).filename().string();
  chart.x_label = "cache";
  chart.y_label = "hit rate, %";
  chart.x_text = [](double x) { return format_bytes(x); };
  chart.series = {{"LRU", {}}, {"LFRU", {}}, {"pinned + LRU", {}}, {"Belady", {}}};
  for (const Row& row : rows) {
    if (row.capacity == 0) continue;
    chart.x.push_back(static_cast<double>(row.capacity));
    const std::uint64_t hits[] = {row.lru, row.lfru, row.pinned, row.belady};
    for (std::size_t i = 0; i < std::size(hits); ++i)
      chart.series[i].y.push_back(100 * share(hits[i], trace));
  }
  if (chart.x.empty()) fail(ErrorKind::Usage, "--plot: no capacity above 0 to draw");
  return render_svg({chart});
}

int run(const cli::po::variables_map& vm) {
  const auto path = vm["TRACE"].as<std::string>();
  const auto capacities = parse_capacities(vm["capacity"].as<std::string>());
  const std::uint64_t record = parse_size(vm["record-bytes"].as<std::string>(), "--record-bytes");
  if (record == 0) fail(ErrorKind::Usage, "--record-bytes: must be above 0");
  const Trace trace = read_trace(path);
  const std::vector<Row> rows = replay(trace, capacities, record);
  if (vm.count("plot") != 0) write_file_atomic(vm["plot"].as<std::string>(), plot(trace, rows, path));
  if (vm.count("json") != 0) {
    fmt::print("{}", dump_json(to_json(trace, rows, record, path)));
  } else {
    print_table(trace, rows, record);
  }
  return 0;
}

}  // namespace

cli::Command simulate_command() {
  cli::Command command{
      .name = "simulate",
      .usage = "TRACE [options]",
      .summary = "replay a routing trace through cache policies",
      .help = R"(TRACE is little-endian int32 (layer, expert) pairs, or one JSON object a token,
{"tok": n, "layers": [[expert, ...], ...]}. Every cache starts empty and holds whole records.
LFRU is the policy of waste-run's cache. Belady is the optimum, which knows the future; pinned+LRU keeps half
the cache for the experts that this very trace uses most: both bound what a real policy can reach.

  waste-verify simulate routing.bin --capacity 8G,16G,32G,64G
  waste-verify simulate routing.jsonl --record-bytes 2658304 --capacity 4G,8G --plot hits.svg
)",
      .positionals = {{"TRACE"}},
      .options = {},
      .run = run};
  command.options.add_options()  //
      ("capacity", cli::po::value<std::string>()->default_value(kDefaultCapacities),
       "cache sizes, with commas")  //
      ("record-bytes", cli::po::value<std::string>()->default_value(kDefaultRecord),
       "bytes of one expert")                                                       //
      ("plot", cli::po::value<std::string>(), "write the curves to this SVG file")  //
      ("json", "machine-readable output (verify/SCHEMA.md)");
  return command;
}

}  // namespace waste::verify
