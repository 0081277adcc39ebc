// waste-run bench: how fast prefill and decode are, warm and cold, where the time goes, and what the disk
// could give.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "container/core/error.h"
#include "container/core/file.h"
#include "container/core/json.h"
#include "container/core/memory.h"
#include "container/core/perf.h"
#include "container/core/text.h"
#include "container/format/manifest.h"
#include "runtime/commands.h"
#include "runtime/engine.h"
#include "runtime/generation.h"
#include "runtime/io.h"
#include "runtime/options.h"

namespace waste::runtime {

namespace {

struct Stretch {
  std::string name;
  std::uint64_t tokens = 0;
  double seconds = 0;  // wall clock
  EngineStats stats;
};

struct DiskLimit {
  double bytes_per_second = 0;
  bool page_cache = false;  // the file system refused O_DIRECT: memory may have answered
};

// Whole records at random places of random banks for a second, many in flight, through the engine's own
// reader: what the expert reads could get. Taken after the engine has run, because what lies under a virtual
// machine's disk may have cached what was read, and then both have had the same help.
DiskLimit measure_disk(const fs::path& container, IoMode mode) {
  const Manifest manifest = parse_manifest(read_text_file(container / kManifestFile, kMaxManifestBytes),
                                           (container / kManifestFile).string());
  struct Source {
    File file;
    std::uint64_t records;
  };
  DiskLimit limit;
  std::vector<Source> sources;
  for (const auto& [layer, bank] : manifest.banks) {
    const fs::path path = container / bank.file;
    auto direct = File::open_read_direct(path);
    limit.page_cache |= !direct;
    sources.push_back({direct ? std::move(*direct) : File::open_read(path), bank.experts});
  }
  if (sources.empty()) return limit;

  constexpr std::uint64_t kBufferBytes = 256 << 20;
  const std::uint64_t record_bytes = manifest.layout.record_bytes;
  const auto depth =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kBufferBytes / record_bytes, 1, 32));
  AlignedBuffer buffer(depth * record_bytes);
  const auto io = open_record_io(mode, depth);
  std::uint64_t random = 1;
  const auto submit = [&](std::uint32_t tag) {
    random = random * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    const Source& source = sources[(random >> 33) % sources.size()];
    const std::uint64_t record = (random >> 20) % source.records;
    io->submit({source.file.fd(), record * record_bytes, buffer.data() + tag * record_bytes,
                static_cast<std::uint32_t>(record_bytes), tag});
  };
  const double start = now_seconds();
  for (std::uint32_t tag = 0; tag < depth; ++tag) submit(tag);
  io->flush();
  std::uint64_t total = 0;
  for (std::uint32_t in_flight = depth; in_flight > 0;) {
    ReadResult result;
    io->next(result, true);
    if (result.error != 0) fail_errno(result.error, container.string() + ": reading a record");
    total += result.bytes;
    if (now_seconds() < start + 1 && !cli::interrupted()) {
      submit(result.tag);
      io->flush();
    } else {
      --in_flight;
    }
  }
  limit.bytes_per_second = static_cast<double>(total) / (now_seconds() - start);
  return limit;
}

// Ids that depend on nothing, spread over the vocabulary: routing is then as even as it gets, which is the
// hard case for the cache.
std::vector<std::int32_t> spread_ids(std::size_t count, std::uint32_t vocabulary) {
  std::vector<std::int32_t> ids(count);
  for (std::size_t i = 0; i < count; ++i)
    ids[i] = static_cast<std::int32_t>((i + 1) * 2654435761u % vocabulary);
  return ids;
}

class Bench {
 public:
  Bench(Engine& engine, std::size_t prompt, std::size_t decode)
      : engine_(engine),
        session_(engine),
        prompt_(spread_ids(prompt, engine.vocab_size())),
        next_(spread_ids(decode, engine.vocab_size())) {}

  std::vector<Stretch> run() {
    std::vector<Stretch> out;
    engine_.drop_cache();
    out.push_back(measure(
        "prefill cold", [&] { session_.prefill(prompt_); }, prompt_.size()));
    out.push_back(measure(
        "decode cold", [&] { decode(true); }, next_.size()));
    // The second pass over the same ids finds what the cache can hold of the first's experts.
    session_.reset();
    session_.prefill(prompt_);
    decode(false);
    session_.reset();
    out.push_back(measure(
        "prefill warm", [&] { session_.prefill(prompt_); }, prompt_.size()));
    out.push_back(measure(
        "decode warm", [&] { decode(false); }, next_.size()));
    return out;
  }

 private:
  void decode(bool cold) {
    for (const std::int32_t id : next_) {
      if (cli::interrupted()) fail(ErrorKind::Interrupted, "interrupted; nothing was measured");
      if (cold) engine_.drop_cache();
      session_.step(id);
    }
  }

  template <typename F>
  Stretch measure(std::string name, F&& work, std::uint64_t tokens) {
    const EngineStats before = engine_.stats();
    const double start = now_seconds();
    work();
    return {std::move(name), tokens, now_seconds() - start, engine_.stats() - before};
  }

  Engine& engine_;
  Session session_;
  std::vector<std::int32_t> prompt_, next_;
};

double per_second(std::uint64_t amount, double seconds) {
  return seconds > 0 ? static_cast<double>(amount) / seconds : 0;
}

void print_table(const std::vector<Stretch>& stretches) {
  fmt::print("{:<13}{:>10}{:>11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>13}{:>12}{:>8}\n", "", "tok/s", "attention",
             "dense", "experts", "head", "waiting", "other", "weights", "read", "hits");
  for (const Stretch& s : stretches) {
    const EngineStats& e = s.stats;
    const double known =
        e.attention_seconds + e.dense_seconds + e.expert_seconds + e.head_seconds + e.wait_seconds;
    const auto ms = [&](double seconds) { return 1e3 * seconds / static_cast<double>(s.tokens); };
    fmt::print(
        "{:<13}{:>10.2f}{:>8.2f} ms{:>6.2f} ms{:>6.2f} ms{:>6.2f} ms{:>6.2f} ms{:>6.2f} ms{:>8.2f} "
        "GB/s{:>7.2f} GB/s{:>7.1f}%\n",
        s.name, per_second(s.tokens, s.seconds), ms(e.attention_seconds), ms(e.dense_seconds),
        ms(e.expert_seconds), ms(e.head_seconds), ms(e.wait_seconds), ms(s.seconds - known),
        per_second(e.weight_bytes, s.seconds) * 1e-9, per_second(e.bytes_read, s.seconds) * 1e-9,
        e.expert_uses == 0 ? 0
                           : 100 * static_cast<double>(e.expert_hits) / static_cast<double>(e.expert_uses));
  }
}

Json to_json(const std::vector<Stretch>& stretches) {
  Json out = Json::object();
  for (const Stretch& s : stretches) {
    const EngineStats& e = s.stats;
    out[s.name] = {{"tokens", s.tokens},
                   {"seconds", s.seconds},
                   {"tokens_per_second", per_second(s.tokens, s.seconds)},
                   {"attention_seconds", e.attention_seconds},
                   {"dense_seconds", e.dense_seconds},
                   {"expert_seconds", e.expert_seconds},
                   {"head_seconds", e.head_seconds},
                   {"wait_seconds", e.wait_seconds},
                   {"weight_bytes", e.weight_bytes},
                   {"bytes_read", e.bytes_read},
                   {"expert_uses", e.expert_uses},
                   {"expert_hits", e.expert_hits},
                   {"expert_products", e.expert_products}};
  }
  return out;
}

int bench(const po::variables_map& vm) {
  const EngineOptions options = engine_options(vm);
  const std::uint64_t decode = number_option(vm, "max-tokens", 1, 1 << 20, 32);
  const std::uint64_t prompt = number_option(vm, "prompt-tokens", 1, 1 << 20, 64);
  check_prompt_fits(prompt + decode, options.context);
  cli::catch_interrupts();
  std::vector<Stretch> stretches;
  unsigned threads = 0;
  std::string io;
  {
    Engine engine(options);
    stretches = Bench(engine, prompt, decode).run();
    threads = engine.threads();
    io = engine.io_name();
    if (options.learn) engine.save_usage();
  }  // its memory is free before the disk is measured
  const DiskLimit disk = measure_disk(options.container, options.io);
  if (flag(vm, "json")) {
    show(dump_json({{"threads", threads},
                    {"io", io},
                    {"disk_bytes_per_second", disk.bytes_per_second},
                    {"disk_through_page_cache", disk.page_cache},
                    {"stretches", to_json(stretches)}}));
  } else {
    fmt::print("{} threads, {}; the disk gives {:.2f} GB/s of random records{}\n", threads, io,
               disk.bytes_per_second * 1e-9,
               disk.page_cache ? " (through the page cache: memory may have answered)" : "");
    print_table(stretches);
  }
  return 0;
}

}  // namespace

cli::Command bench_command() {
  cli::Command command{.name = "bench",
                       .usage = "MODEL",
                       .summary = "measure prefill and decode, warm and cold",
                       .help = R"(examples:
  waste-run bench kimi.waste --budget 32G

Columns: milliseconds of each stage a token (stages of several threads count once), weights
streamed through the kernels, bytes read from disk, and experts found in memory. Cold decode
forgets every cached expert before each token; warm repeats ids that were just computed.
)",
                       .positionals = {{"MODEL"}},
                       .options = {},
                       .run = bench};
  command.options.add_options()                                                               //
      ("prompt-tokens", po::value<std::string>()->value_name("N"), "tokens of prefill (64)")  //
      ("max-tokens,n", po::value<std::string>()->value_name("N"), "tokens of decode (32)");
  add_engine_options(command.options);
  command.options.add_options()("json", "print one JSON document");
  return command;
}

}  // namespace waste::runtime
