// What the engine refuses, how it fails, and what it counts.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "container/core/error.h"
#include "container/footprint/footprint.h"
#include "container/format/container.h"
#include "tests/runtime/engine/golden.h"
#include "tests/temp_dir.h"

using namespace waste;
using namespace waste::runtime;

namespace {

const std::vector<std::int32_t> kIds = {1151, 258, 1921, 1281, 401, 280, 561, 284};

template <typename F>
std::pair<ErrorKind, std::string> error_of(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  }
  FAIL("no error");
  return {};
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

fs::path copy_of(const char* model, const TempDir& dir) {
  const fs::path to = dir / "copy.waste";
  fs::copy(golden_dir() / (std::string(model) + ".waste"), to, fs::copy_options::recursive);
  return to;
}

void flip(const fs::path& file, std::uint64_t offset) {
  const File f = File::open_write(file);
  std::uint8_t byte = 0;
  f.read_exact(offset, {&byte, 1});
  byte ^= 4;
  f.write_exact(offset, {&byte, 1});
}

}  // namespace

TEST_CASE("bad requests are refused before anything is computed") {
  Engine engine(options_for("tiny-linear"));
  Session session(engine);
  CHECK(session.logits().empty());
  for (const std::int32_t id : {-1, 2304, 1 << 30}) {
    const auto [kind, what] = error_of([&] { session.prefill(std::vector<std::int32_t>{5, id}); });
    CHECK(kind == ErrorKind::Usage);
    CHECK(contains(what, std::to_string(id)));
  }
  CHECK(error_of([&] { session.prefill({}); }).first == ErrorKind::Usage);
  CHECK(error_of([&] { session.prefill(std::vector<std::int32_t>(257, 1)); }).first == ErrorKind::Usage);
  CHECK(session.position() == 0);
  session.prefill(std::vector<std::int32_t>(256, 1));
  CHECK(session.remains() == 0);
  CHECK(error_of([&] { session.step(1); }).first == ErrorKind::Usage);
  session.reset();
  CHECK(session.remains() == 256);
}

TEST_CASE("a budget below the floor is refused with its parts") {
  EngineOptions options = options_for("tiny-k3");
  const MemoryUse use = Engine(options).memory();
  options.budget = use.floor - 1;
  const auto [kind, what] = error_of([&] { Engine{options}; });
  CHECK(kind == ErrorKind::Machine);
  for (const char* part : {"trunk", "recurrent state", "latent cache", "scratch", "5 expert records"})
    CHECK(contains(what, part));
  options.budget = use.floor;
  CHECK(Engine(options).memory().cache_records == 5);

  const Container container = Container::open(options.container);
  FootprintOptions planned;
  planned.context = options.context;
  planned.threads = options.threads;
  CHECK(footprint(container.manifest(), planned).floor() == use.floor);
}

TEST_CASE("impossible options are refused") {
  const auto refused = [](auto change) {
    EngineOptions o = options_for("tiny-linear");
    change(o);
    return error_of([&] { Engine{o}; }).first == ErrorKind::Usage;
  };
  CHECK(refused([](EngineOptions& o) { o.context = 0; }));
  CHECK(refused([](EngineOptions& o) { o.prefill_chunk = 1 << 20; }));
  CHECK(refused([](EngineOptions& o) { o.threads = 100000; }));
}

TEST_CASE("a damaged record ends the run by name, and no other record is computed with in its place") {
  const TempDir dir;
  const fs::path copy = copy_of("tiny-linear", dir);
  const Container container = Container::open(copy);
  const std::uint64_t record = container.layout().record_bytes;
  EngineOptions options = options_for("tiny-linear");
  options.container = copy;

  // The payload: only `verify` looks at it.
  for (std::uint32_t e = 0; e < 16; ++e) flip(container.bank_path(2), e * record + 1000);
  options.verify = true;
  for (const IoMode io : {IoMode::Auto, IoMode::Pread}) {
    options.io = io;
    Engine engine(options);
    Session session(engine);
    const auto [kind, what] = error_of([&] { session.prefill(kIds); });
    CHECK(kind == ErrorKind::Data);
    CHECK(contains(what, "experts-L2.bin: expert"));
    CHECK(contains(what, "crc32"));
    // Nothing is left pinned or taken for good: the same error again.
    session.reset();
    CHECK(error_of([&] { session.prefill(kIds); }).second.substr(0, 22) == what.substr(0, 22));
  }
  for (std::uint32_t e = 0; e < 16; ++e) flip(container.bank_path(2), e * record + 1000);

  // Any byte of the header that means something is always compared.
  options.verify = false;
  for (std::uint32_t e = 0; e < 16; ++e) flip(container.bank_path(3), e * record + 20);
  {
    Engine engine(options);
    Session session(engine);
    const auto [kind, what] = error_of([&] { session.prefill(kIds); });
    CHECK(kind == ErrorKind::Data);
    CHECK(contains(what, "experts-L3.bin: expert"));
    CHECK(contains(what, "header"));
  }
  for (std::uint32_t e = 0; e < 16; ++e) flip(container.bank_path(3), e * record + 20);

  // A bank that is short from the start, and one that shrinks while it is in use.
  const std::uint64_t size = fs::file_size(container.bank_path(4));
  for (const IoMode io : {IoMode::Auto, IoMode::Pread}) {
    options.io = io;
    Engine engine(options);
    Session session(engine);
    fs::resize_file(container.bank_path(4), 100);
    const auto [kind, what] = error_of([&] { session.prefill(kIds); });
    CHECK(kind == ErrorKind::Data);
    CHECK(contains(what, "experts-L4.bin: expert"));
    CHECK(error_of([&] { Engine{options}; }).first == ErrorKind::Data);
    fs::copy_file(golden_dir() / "tiny-linear.waste" / "experts-L4.bin", container.bank_path(4),
                  fs::copy_options::overwrite_existing);
    CHECK(fs::file_size(container.bank_path(4)) == size);
  }
  Engine engine(options);
  Session session(engine);
  session.prefill(kIds);
}

TEST_CASE("a trunk tensor that is missing or misshapen is named") {
  const TempDir dir;
  const fs::path copy = copy_of("tiny-linear", dir);
  const std::string text = read_text_file(copy / kManifestFile, kMaxManifestBytes);
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string changed = text;
    const auto at = changed.find(from);
    REQUIRE(at != std::string::npos);
    changed.replace(at, from.size(), to);
    write_file_atomic(copy / kManifestFile, changed);
    EngineOptions options = options_for("tiny-linear");
    options.container = copy;
    return error_of([&] { Engine{options}; });
  };
  const auto missing = with("model.layers.1.self_attn.dt_bias", "model.layers.1.self_attn.dt_bla");
  CHECK(missing.first == ErrorKind::Data);
  CHECK(contains(missing.second, "dt_bias"));
  const auto swapped =
      with("\"model.layers.0.mlp.gate_proj.weight\"", "\"model.layers.0.mlp.down_xxxx.weight\"");
  CHECK(swapped.first == ErrorKind::Data);
  CHECK(contains(swapped.second, "gate_proj"));
}

TEST_CASE("an infinite scale in the trunk is an error, not a random token") {
  const TempDir dir;
  const fs::path copy = copy_of("tiny-linear", dir);
  const Container container = Container::open(copy);
  const TrunkTensor& head = container.manifest().tensor("lm_head.weight");
  REQUIRE(head.quantised());
  const std::uint8_t infinity[2] = {0x00, 0x7C};
  File::open_write(copy / kTrunkFile).write_exact(head.scale_offset + 2 * 700, infinity);
  EngineOptions options = options_for("tiny-linear");
  options.container = copy;
  Engine engine(options);
  Session session(engine);
  const auto [kind, what] = error_of([&] { session.prefill(kIds); });
  CHECK(kind == ErrorKind::Data);
  CHECK(contains(what, "not finite"));
}

TEST_CASE("counters add up") {
  EngineOptions options = options_for("tiny-linear");
  Engine engine(options);
  Session session(engine);
  std::size_t routed = 0;
  session.set_route_sink(
      [&](std::uint32_t position, std::uint32_t layer, std::span<const std::uint32_t> experts) {
        CHECK(position < kIds.size());
        CHECK(layer >= 1);
        CHECK(experts.size() == 4);
        ++routed;
      });
  session.prefill(kIds);
  CHECK(routed == 4 * kIds.size());
  const EngineStats first = engine.stats();
  CHECK(first.tokens == kIds.size());
  CHECK(first.expert_products == 4 * 4 * kIds.size());
  CHECK(first.expert_hits == 0);
  CHECK(first.bytes_read >= first.expert_uses * engine.memory().record_bytes);
  session.reset();
  session.prefill(kIds);
  EngineStats again = engine.stats();
  CHECK(again.expert_hits == first.expert_uses);  // all of it fits
  engine.drop_cache();
  session.reset();
  session.prefill(kIds);
  CHECK(engine.stats().expert_hits == again.expert_hits);
  CHECK(engine.stats().seconds > 0);
}

TEST_CASE("learned counts are saved and preloaded") {
  const TempDir dir;
  const fs::path copy = copy_of("tiny-linear", dir);
  EngineOptions options = options_for("tiny-linear");
  options.container = copy;
  options.learn = true;
  std::vector<float> want;
  {
    Engine engine(options);
    Session session(engine);
    want = all_logits(session, kIds);
    engine.save_usage();
  }
  REQUIRE(fs::exists(copy / kUsageFile));
  {
    Engine engine(options);
    Session session(engine);
    CHECK(same_bits(all_logits(session, kIds), want));
    CHECK(engine.stats().expert_hits == engine.stats().expert_uses);
  }
  // A damaged hint is no hint.
  flip(copy / kUsageFile, 1);
  Engine engine(options);
  Session session(engine);
  CHECK(same_bits(all_logits(session, kIds), want));
  CHECK(engine.stats().expert_hits == 0);
}

TEST_CASE("an interrupt stops between chunks with a sound state") {
  EngineOptions options = options_for("tiny-linear");
  options.prefill_chunk = 4;
  bool stop = false;
  options.interrupted = [&] { return stop; };
  Engine engine(options);
  Session session(engine);
  const auto want = all_logits(session, kIds);
  session.reset();
  stop = true;
  CHECK(error_of([&] { session.prefill(kIds); }).first == ErrorKind::Interrupted);
  CHECK(session.position() == 4);
  stop = false;
  const auto last = session.prefill(std::span(kIds).subspan(4));
  CHECK(same_bits(last, std::span(want).last(engine.vocab_size())));
}
