// waste-verify info: what a container is, from its manifest and the folder alone.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "container/core/file.h"
#include "container/core/json.h"
#include "container/core/text.h"
#include "container/format/container.h"
#include "verify/commands.h"
#include "verify/facts.h"

namespace waste::verify {

namespace {

constexpr std::uint64_t kMaxQualityBytes = std::uint64_t{64} << 20;

struct Sizes {
  std::uint64_t trunk = 0;
  std::uint64_t codebooks = 0;
  std::uint64_t disk = 0;  // all files of the folder
};

Sizes sizes_of(const Container& c) {
  Sizes s{.trunk = c.trunk_file().size(), .codebooks = fs::file_size(c.directory() / kCodebooksFile)};
  for (const auto& entry : fs::directory_iterator(c.directory())) {
    if (entry.is_regular_file()) s.disk += entry.file_size();
  }
  return s;
}

// Mean relative errors against the checkpoint, as the converter measured them; null where the container does
// not say.
Json known_errors(const Container& c) {
  const fs::path path = c.directory() / kQualityFile;
  if (!fs::exists(path)) return nullptr;
  const Json quality = parse_json(read_text_file(path, kMaxQualityBytes), path.string());
  return json_object(quality, "summary", path.string());
}

Json to_json(const Container& c, const ModelFacts& f, const Sizes& sizes, const Json& errors) {
  const Manifest& m = c.manifest();
  Json out;
  out["container"] = c.directory().string();
  out["arch"] = m.model.arch;
  out["layers"] = m.model.num_layers;
  out["moe_layers"] = m.banks.size();
  out["experts"] = m.model.num_experts;
  out["experts_per_token"] = m.model.num_experts_per_token;
  out["recipe"] = {{"experts", format_name(m.quant.format)},
                   {"bits_per_weight", m.quant.bits_per_weight()},
                   {"record_bytes", m.layout.record_bytes}};
  out["parameters"] = {{"total", f.parameters()},
                       {"trunk", f.trunk_parameters},
                       {"experts", f.expert_parameters},
                       {"active", f.active_parameters}};
  out["bytes"] = {{"disk", sizes.disk},
                  {"trunk", sizes.trunk},
                  {"experts", f.expert_bytes},
                  {"codebooks", sizes.codebooks},
                  {"experts_a_token", f.pick_bytes}};
  out["sealed"] = c.seal().has_value();
  out["weights_fingerprint"] = c.seal() ? Json(c.seal()->weights_fingerprint().hex()) : Json(nullptr);
  out["relative_errors"] = errors;
  return out;
}

void print_facts(const Container& c, const ModelFacts& f, const Sizes& sizes, const Json& errors) {
  const Manifest& m = c.manifest();
  const auto line = [](std::string_view name, const std::string& value) {
    fmt::print("{:<12} {}\n", name, value);
  };
  const auto size = [](std::uint64_t n) { return format_bytes(static_cast<double>(n)); };
  const auto count = [](std::uint64_t n) { return format_count(static_cast<double>(n)); };
  line("container", c.directory().string());
  line("model", fmt::format("{}: {} layers ({} KDA, {} MLA), hidden {}", m.model.arch, m.model.num_layers,
                            m.model.kda_layers(), m.model.mla_layers(), m.model.hidden_size));
  line("experts", fmt::format("{} in each of {} layers, {} a token", m.model.num_experts, m.banks.size(),
                              m.model.num_experts_per_token));
  line("parameters",
       fmt::format("{}, {} of them used by a token", count(f.parameters()), count(f.active_parameters)));
  line("recipe", fmt::format("experts {}: {} bits a weight and a scale a row; {} bytes a record",
                             format_name(m.quant.format), m.quant.bits_per_weight(), m.layout.record_bytes));
  line("sizes", fmt::format("{}: experts {}, trunk {}, codebooks {}", size(sizes.disk), size(f.expert_bytes),
                            size(sizes.trunk), size(sizes.codebooks)));
  line("a token", fmt::format("reads {} of experts when none is in memory", size(f.pick_bytes)));
  std::string known;
  for (const auto& [kind, error] : errors.items()) {
    if (error.is_number())
      known += fmt::format("{}{} {:.4f}", known.empty() ? "" : ", ", printable(kind), error.get<double>());
  }
  if (!known.empty()) line("error", known + " (relative, means, as the converter measured them)");
  line("seal", c.seal() ? "weights " + c.seal()->weights_fingerprint().hex()
                        : std::string("none: only expert records can be checked; see waste-verify seal"));
}

int run(const cli::po::variables_map& vm) {
  const Container container = Container::open(vm["DIR"].as<std::string>());
  const ModelFacts facts = model_facts(container.manifest());
  const Sizes sizes = sizes_of(container);
  const Json errors = known_errors(container);
  if (vm.count("json") != 0) {
    fmt::print("{}", dump_json(to_json(container, facts, sizes, errors)));
  } else {
    print_facts(container, facts, sizes, errors);
  }
  return 0;
}

}  // namespace

cli::Command info_command() {
  cli::Command command{
      .name = "info",
      .usage = "DIR [options]",
      .summary = "say what a container is: model, recipe, sizes, parameters, seal",
      .help =
          R"(Reads the manifest and the sizes of the files alone; whether their bytes are sound is what check says.

  waste-verify info kimi-k3.waste
  waste-verify info kimi-k3.waste --json
)",
      .positionals = {{"DIR"}},
      .options = {},
      .run = run};
  command.options.add_options()("json", "machine-readable output (verify/SCHEMA.md)");
  return command;
}

}  // namespace waste::verify
