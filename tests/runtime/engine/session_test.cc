// Sessions on disk: what continues is what was, and nothing damaged is taken for whole.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "container/core/checksum.h"
#include "container/core/error.h"
#include "tests/runtime/engine/golden.h"
#include "tests/temp_dir.h"

using namespace waste;
using namespace waste::runtime;

namespace {

std::vector<std::int32_t> long_prompt(const std::string& model) {
  return read_prompts(model).back().ids;
}

template <typename F>
bool refused(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.kind() == ErrorKind::Data;
  }
  return false;
}

}  // namespace

TEST_CASE("a session continued is the session never interrupted") {
  const TempDir dir;
  for (const std::string model : {"tiny-k3", "tiny-linear"}) {
    const auto ids = long_prompt(model);
    for (const KvType kv : {KvType::F16, KvType::F32}) {
      EngineOptions options = options_for(model);
      options.kv = kv;
      std::vector<float> want;
      {
        Engine engine(options);
        Session session(engine);
        session.prefill(std::span(ids).first(70));
        session.save_state(dir / "s", "a note\nwith \0 zero");
        session.prefill(std::span(ids).subspan(70));
        want.assign(session.logits().begin(), session.logits().end());
      }
      Engine engine(options);
      Session session(engine);
      session.prefill(ids);  // something to be replaced
      CHECK(session.load_state(dir / "s") == "a note\nwith ");
      CHECK(session.position() == 70);
      CHECK(session.logits().size() == engine.vocab_size());
      session.prefill(std::span(ids).subspan(70));
      CHECK(same_bits(session.logits(), want));
    }
  }
}

TEST_CASE("an empty session can be saved") {
  const TempDir dir;
  Engine engine(options_for("tiny-linear"));
  Session session(engine);
  session.save_state(dir / "s");
  session.step(5);
  CHECK(session.load_state(dir / "s").empty());
  CHECK(session.position() == 0);
  CHECK(session.logits().empty());
}

TEST_CASE("damage, other models, other versions and other options are refused and change nothing") {
  const TempDir dir;
  const fs::path path = dir / "s";
  const auto ids = long_prompt("tiny-linear");
  Engine engine(options_for("tiny-linear"));
  Session session(engine);
  session.prefill(std::span(ids).first(20));
  session.save_state(path, "note");
  const auto good = read_file(path, 1 << 24);
  session.prefill(std::span(ids).subspan(20, 10));

  const auto try_bytes = [&](std::vector<std::uint8_t> bytes) {
    write_file_atomic(dir / "bad", bytes);
    return refused([&] { session.load_state(dir / "bad"); });
  };
  for (std::size_t at = 0; at < good.size(); at += at < 128 ? 1 : good.size() / 97 + 1) {
    CAPTURE(at);
    auto bad = good;
    bad[at] ^= 0x10;
    CHECK(try_bytes(bad));
  }
  for (std::size_t size = 0; size < good.size(); size += size < 128 ? 1 : good.size() / 41 + 1) {
    CAPTURE(size);
    CHECK(try_bytes({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}));
  }
  auto longer = good;
  longer.push_back(0);
  CHECK(try_bytes(longer));

  // A header that is sound in itself but of another version.
  auto older = good;
  older[4] = 0;
  const auto digest = xxh3_128(std::span(older).first(88));
  std::copy(digest.bytes.begin(), digest.bytes.end(), older.begin() + 88);
  CHECK(try_bytes(older));
  CHECK(refused([&] { session.load_state(dir / "absent"); }));

  for (const std::string model : {"tiny-k3", "tiny-linear.vq2"}) {
    Engine other(options_for(model));
    Session theirs(other);
    CHECK(refused([&] { theirs.load_state(path); }));
  }
  EngineOptions options = options_for("tiny-linear");
  options.kv = KvType::F32;
  Engine wide(options);
  Session wide_session(wide);
  CHECK(refused([&] { wide_session.load_state(path); }));
  options = options_for("tiny-linear");
  options.context = 16;
  Engine small(options);
  Session small_session(small);
  CHECK(refused([&] { small_session.load_state(path); }));

  // After all that this session is where it was.
  CHECK(session.position() == 30);
  const auto next = session.step(ids[30]);
  const std::vector<float> got(next.begin(), next.end());
  session.reset();
  session.prefill(std::span(ids).first(31));
  CHECK(same_bits(session.logits(), got));
}

TEST_CASE("a failed save leaves the old file") {
  const TempDir dir;
  const fs::path path = dir / "s";
  Engine engine(options_for("tiny-linear"));
  Session session(engine);
  session.step(5);
  session.save_state(path, "old");
  session.step(6);
  // A folder where the partial file would have to be: it cannot be created, whoever runs this.
  fs::create_directory(partial_path(path));
  CHECK_THROWS_AS(session.save_state(path, "new"), Error);
  fs::remove(partial_path(path));
  CHECK(session.load_state(path) == "old");
  CHECK(session.position() == 1);
}
