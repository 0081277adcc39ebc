#include <string>

#include "cli/cli.h"
#include "container/core/memory.h"
#include "container/core/text.h"
#include "convert/bench.h"
#include "convert/compare.h"
#include "convert/pipeline.h"

namespace waste::convert {
namespace {

namespace po = cli::po;

constexpr unsigned kMaxThreads = 1024;
constexpr std::uint64_t kMinSample = 1024;

template <typename Value>
Value choose(const std::string& text, std::string_view option,
             std::initializer_list<std::pair<std::string_view, Value>> values) {
  std::string known;
  for (const auto& [name, value] : values) {
    if (name == text) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  fail(ErrorKind::Usage, "{}: \"{}\" is not one of {}", option, printable(text), known);
}

// "1,5,10-20"
std::set<std::uint32_t> parse_layers(const std::string& text) {
  constexpr std::uint64_t kMaxLayer = 4095;
  std::set<std::uint32_t> layers;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::string part = text.substr(at, text.find(',', at) - at);
    const std::size_t dash = part.find('-');
    const auto first = parse_integer(part.substr(0, dash), "--layers", 0, kMaxLayer);
    const auto last =
        dash == part.npos ? first : parse_integer(part.substr(dash + 1), "--layers", first, kMaxLayer);
    for (auto layer = first; layer <= last; ++layer) layers.insert(static_cast<std::uint32_t>(layer));
    at += part.size() + 1;
  }
  return layers;
}

unsigned parse_threads(const po::variables_map& vm) {
  if (vm.count("threads") == 0) return usable_cpus();
  return static_cast<unsigned>(parse_integer(vm["threads"].as<std::string>(), "--threads", 1, kMaxThreads));
}

Options parse_options(const po::variables_map& vm) {
  const auto text = [&](const char* name) { return vm[name].as<std::string>(); };
  Options o;
  o.source = text("SRC");
  o.out = text("OUT");
  o.recipe.experts = choose<ExpertQuant>(
      text("experts"), "--experts",
      {{"vq3", ExpertQuant::vq3()}, {"vq2", ExpertQuant::vq2()}, {"vq4p", ExpertQuant::vq4p()}});
  o.recipe.trunk = choose<TensorFormat>(text("trunk-bits"), "--trunk-bits",
                                        {{"4", TensorFormat::Q4G}, {"8", TensorFormat::Q8G}});
  o.recipe.quality = parse_quality(text("quality"));
  o.recipe.codebook_sample = training_vectors(o.recipe.quality);
  if (vm.count("codebook-sample") != 0) {
    o.recipe.codebook_sample =
        parse_integer(text("codebook-sample"), "--codebook-sample", kMinSample, o.recipe.codebook_sample);
  }
  if (vm.count("importance") != 0) o.importance = text("importance");
  if (vm.count("layers") != 0) o.layers = parse_layers(text("layers"));
  o.probe = vm.count("probe") != 0;
  if (o.probe && o.layers) fail(ErrorKind::Usage, "--probe and --layers exclude each other");
  o.reclaim = choose<Reclaim>(text("reclaim"), "--reclaim",
                              {{"off", Reclaim::Off}, {"dry", Reclaim::Dry}, {"on", Reclaim::On}});
  o.threads = parse_threads(vm);
  if (vm.count("memory") != 0) o.memory = parse_size(text("memory"), "--memory");
  o.dry_run = vm.count("dry-run") != 0;
  o.json = vm.count("json") != 0;
  o.quiet = vm.count("quiet") != 0;
  return o;
}

cli::Command convert_command() {
  cli::Command c;
  c.usage = "SRC OUT [options]";
  c.summary = "convert a checkpoint into a container";
  c.help =
      "Examples:\n"
      "  waste-convert ~/models/Kimi-K3 ~/models/kimi-k3.waste --dry-run   what it would write, and whether "
      "it fits\n"
      "  waste-convert ~/models/Kimi-K3 ~/models/kimi-k3.waste             convert; the same call resumes\n"
      "  waste-convert SRC OUT --probe                                     one layer, to see error and "
      "speed\n"
      "  waste-convert SRC OUT --reclaim on                                delete source shards as they are "
      "used up\n"
      "\n"
      "Ctrl-C saves what is done and exits 5. Whatever the number of threads and interruptions, the same "
      "source and\n"
      "recipe give the same bytes.\n";
  c.positionals = {{"SRC"}, {"OUT"}};
  c.options.add_options()("experts", po::value<std::string>()->default_value("vq3"),
                          "storage of routed experts: vq3, vq2 or vq4p")(
      "trunk-bits", po::value<std::string>()->default_value("4"),
      "bits of the trunk's large matrices: 4 or 8")(
      "quality", po::value<std::string>()->default_value("normal"), "encoder effort: fast, normal or best")(
      "codebook-sample", po::value<std::string>(), "vectors of 8 weights to train each codebook on")(
      "importance", po::value<std::string>(),
      "safetensors file with the mean square of every input dimension")(
      "layers", po::value<std::string>(), "only these MoE layers, as 1,5,10-20; leaves OUT unpublished")(
      "probe", "only the first MoE layer, with its report")(
      "reclaim", po::value<std::string>()->default_value("off"),
      "delete shards whose data is durable: off, dry, on")(
      "threads,j", po::value<std::string>(), "threads (default: the CPUs this process may use)")(
      "memory", po::value<std::string>(), "ceiling on this process's memory, such as 4G")(
      "dry-run", "check the source, print the plan, write nothing")(
      "json", "events on stdout, one JSON object a line")("quiet,q", "no progress and no report");
  c.run = [](const po::variables_map& vm) {
    cli::catch_interrupts();
    return run_conversion(parse_options(vm));
  };
  return c;
}

cli::Command compare_command() {
  cli::Command c;
  c.name = "compare";
  c.usage = "SRC OUT [options]";
  c.summary = "measure a container's errors against its checkpoint";
  c.help =
      "Prints ||W - decoded|| / ||W|| by layer and kind; exit 1 if quality.json in OUT says something "
      "else.\n";
  c.positionals = {{"SRC"}, {"OUT"}};
  c.options.add_options()("threads,j", po::value<std::string>(),
                          "threads (default: the CPUs this process may use)")(
      "json", "the whole report as JSON")("quiet,q", "no progress");
  c.run = [](const po::variables_map& vm) {
    cli::catch_interrupts();
    CompareOptions o;
    o.source = vm["SRC"].as<std::string>();
    o.container = vm["OUT"].as<std::string>();
    o.threads = parse_threads(vm);
    o.json = vm.count("json") != 0;
    o.quiet = vm.count("quiet") != 0;
    return run_compare(o);
  };
  return c;
}

cli::Command bench_command() {
  cli::Command c;
  c.name = "bench";
  c.usage = "[SRC] [options]";
  c.summary = "measure the encoder's errors and speed on this machine";
  c.help =
      "On synthetic weights, and on the first MoE layer of SRC if given; encoding is timed on one core.\n"
      "Examples:\n"
      "  waste-convert bench --experts vq3 --quality normal\n"
      "  waste-convert bench ~/models/Kimi-K3 --json\n";
  c.positionals = {{.name = "SRC", .required = false}};
  c.options.add_options()("experts", po::value<std::string>()->default_value("all"), "vq3, vq2, vq4p or all")(
      "quality", po::value<std::string>()->default_value("all"), "fast, normal, best or all")(
      "threads,j", po::value<std::string>(), "threads for training (default: the CPUs this process may use)")(
      "json", "one JSON object a line");
  c.run = [](const po::variables_map& vm) {
    using Shapes = std::vector<ExpertRecipe>;
    const auto quality = vm["quality"].as<std::string>();
    BenchOptions o;
    for (const ExpertRecipe& shape : choose<Shapes>(vm["experts"].as<std::string>(), "--experts",
                                                    {{"vq3", Shapes{{3, 256}}},
                                                     {"vq2", Shapes{{2, 256}}},
                                                     {"vq4p", Shapes{{4, 64}}},
                                                     {"all", Shapes{{3, 256}, {2, 256}, {4, 64}}}})) {
      for (const Quality q : {Quality::Fast, Quality::Normal, Quality::Best}) {
        if (quality != "all" && parse_quality(quality) != q) continue;
        o.recipes.push_back({shape.stages, shape.entries, q});
      }
    }
    if (vm.count("SRC") != 0) o.source = vm["SRC"].as<std::string>();
    o.threads = parse_threads(vm);
    o.json = vm.count("json") != 0;
    return run_bench(o);
  };
  return c;
}

}  // namespace
}  // namespace waste::convert

int main(int argc, char** argv) {
  using namespace waste;
  const cli::Program program{
      .name = "waste-convert",
      .summary = "turn a Hugging Face checkpoint into a .waste container",
      .notes =
          "exit: 0 done, 1 the data is bad, 2 the command is wrong, 3 the machine refused,\n"
          "      5 interrupted with the state saved\n",
      .commands = {convert::convert_command(), convert::compare_command(), convert::bench_command()}};
  return cli::run(program, argc, argv);
}
