#include "runtime/engine.h"

#include <algorithm>
#include <cmath>

#include "container/core/error.h"
#include "container/core/text.h"
#include "container/footprint/footprint.h"
#include "runtime/forward.h"
#include "runtime/session_file.h"
#include "runtime/usage.h"

namespace waste::runtime {

namespace {

constexpr std::uint32_t kMaxContext = 1u << 24;
constexpr std::uint32_t kMaxChunk = 4096;  // of those that a client may ask for
constexpr unsigned kMaxThreads = 512;

EngineOptions checked(EngineOptions o) {
  if (o.threads == 0) o.threads = usable_cpus();
  if (o.budget == 0) o.budget = default_budget();
  if (o.threads > kMaxThreads)
    fail(ErrorKind::Usage, "threads: at most {}, found {}", kMaxThreads, o.threads);
  if (o.context == 0 || o.context > kMaxContext)
    fail(ErrorKind::Usage, "context: expected 1 to {}, found {}", kMaxContext, o.context);
  if (o.prefill_chunk > kMaxChunk)
    fail(ErrorKind::Usage, "prefill chunk: at most {}, found {}", kMaxChunk, o.prefill_chunk);
  return o;
}

FootprintOptions footprint_options(const Container& container, const EngineOptions& o) {
  FootprintOptions options{
      .context = o.context, .threads = o.threads, .latent_bytes = o.kv == KvType::F16 ? 2u : 4u};
  if (o.prefill_chunk == 0) return with_chunk_for(container.manifest(), options, o.budget);
  options.chunk = o.prefill_chunk;
  return options;
}

// Refuses before anything large is allocated.
Footprint affordable(const Container& container, const EngineOptions& o, const FootprintOptions& sizes) {
  const Footprint f = footprint(container.manifest(), sizes);
  if (o.budget < f.floor()) {
    fail(ErrorKind::Machine, "{}: a budget of {} is below the {} this needs: {}",
         container.directory().string(), format_bytes(static_cast<double>(o.budget)),
         format_bytes(static_cast<double>(f.floor())), f.describe());
  }
  return f;
}

std::unique_ptr<ExpertCache> make_cache(const Container& container, const EngineOptions& o,
                                        const Footprint& f) {
  if (f.experts == 0) return nullptr;
  const std::uint32_t slots = o.cache ? f.cache_records(o.budget) : f.least_records;
  return std::make_unique<ExpertCache>(container, slots, o.io, o.verify);
}

}  // namespace

struct Engine::Impl {
  explicit Impl(const EngineOptions& o)
      : options(checked(o)),
        container(Container::open(options.container)),
        sizes(footprint_options(container, options)),
        parts(affordable(container, options, sizes)),
        pool(options.threads),
        weights(container, parts.trunk),
        cache(make_cache(container, options, parts)),
        forward(container, weights, sizes, pool, cache.get(), options.cache) {
    if (options.learn && cache) cache->preload(read_usage(container).hits);
  }

  EngineOptions options;
  Container container;
  FootprintOptions sizes;
  Footprint parts;
  ThreadPool pool;
  Weights weights;
  std::unique_ptr<ExpertCache> cache;
  Forward forward;
};

Engine::Engine(const EngineOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Engine::~Engine() = default;

const ModelConfig& Engine::config() const {
  return impl_->container.model();
}
std::uint32_t Engine::vocab_size() const {
  return config().vocab_size;
}
std::uint32_t Engine::context() const {
  return impl_->options.context;
}
unsigned Engine::threads() const {
  return impl_->pool.size();
}
const std::string& Engine::fingerprint() const {
  return impl_->weights.fingerprint();
}
std::string Engine::io_name() const {
  return impl_->cache ? impl_->cache->io_name() : "no experts";
}

MemoryUse Engine::memory() const {
  const Footprint& f = impl_->parts;
  MemoryUse use;
  use.budget = impl_->options.budget;
  FootprintOptions least = impl_->sizes;
  if (impl_->options.prefill_chunk == 0) least.chunk = kLeastChunk;
  use.floor = footprint(impl_->container.manifest(), least).floor();
  use.trunk = f.trunk + f.codebooks;
  use.state = f.state();
  use.scratch = f.scratch + f.process;
  use.record_bytes = f.record;
  use.cache_records = impl_->cache ? impl_->cache->slots() : 0;
  use.cache = use.cache_records * f.record;
  use.prefill_chunk = impl_->sizes.chunk;
  return use;
}

EngineStats Engine::stats() const {
  EngineStats s = impl_->forward.stats();
  if (!impl_->cache) return s;
  const ExpertCache::Counters& c = impl_->cache->counters();
  s.expert_uses = c.uses;
  s.expert_hits = c.hits;
  s.bytes_read += c.bytes_read;
  return s;
}

void Engine::drop_cache() {
  if (impl_->cache) impl_->cache->clear();
}

void Engine::save_usage() const {
  if (!impl_->options.learn || !impl_->cache) return;
  Usage usage = read_usage(impl_->container);
  const auto& counts = impl_->forward.expert_counts();
  for (std::size_t i = 0; i < counts.size(); ++i) usage.hits[i] += counts[i];
  usage.tokens += impl_->forward.stats().tokens;
  write_usage(impl_->container, usage);
}

struct Session::Impl {
  explicit Impl(Engine::Impl& e)
      : engine(e),
        state(e.container.model(), e.options.context, e.options.kv),
        logits(e.container.model().vocab_size) {}

  Engine::Impl& engine;
  SessionState state;
  std::vector<float> logits;  // of the last position
  RouteSink routes;
};

Session::Session(Engine& engine) : impl_(std::make_unique<Impl>(*engine.impl_)) {}
Session::~Session() = default;

std::uint32_t Session::position() const {
  return impl_->state.position;
}
std::uint32_t Session::remains() const {
  return impl_->engine.options.context - position();
}
void Session::reset() {
  impl_->state.clear();
}
void Session::set_route_sink(RouteSink sink) {
  impl_->routes = std::move(sink);
}

std::span<const float> Session::logits() const {
  return {impl_->logits.data(), position() == 0 ? 0 : impl_->logits.size()};
}

std::span<const float> Session::prefill(std::span<const std::int32_t> ids, const LogitsSink& every) {
  Impl& s = *impl_;
  const std::uint32_t vocabulary = s.engine.container.model().vocab_size;
  if (ids.empty()) fail(ErrorKind::Usage, "no tokens to compute");
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= vocabulary)
      fail(ErrorKind::Usage, "token id {} is outside the vocabulary of {}", id, vocabulary);
  }
  if (ids.size() > remains()) {
    fail(ErrorKind::Usage, "{} tokens do not fit: {} of the context of {} are taken", ids.size(), position(),
         s.engine.options.context);
  }
  const std::size_t chunk = s.engine.sizes.chunk;
  for (std::size_t at = 0; at < ids.size(); at += chunk) {
    if (at > 0 && s.engine.options.interrupted && s.engine.options.interrupted()) {
      fail(ErrorKind::Interrupted, "interrupted after {} of {} tokens", at, ids.size());
    }
    const std::uint32_t first = position();
    Forward::LogitsOf sink;
    if (every)
      sink = [&](std::uint32_t token, std::span<const float> logits) { every(first + token, logits); };
    s.engine.forward.run(s.state, ids.subspan(at, std::min(chunk, ids.size() - at)), sink, s.routes);
    const auto last = s.engine.forward.last_logits();
    std::copy(last.begin(), last.end(), s.logits.begin());
    // An infinite scale in the trunk, which nothing else checks, would otherwise choose tokens at random.
    if (!std::all_of(last.begin(), last.end(), [](float f) { return std::isfinite(f); })) {
      fail_data("{}: the logits at position {} are not finite: the weights are damaged",
                s.engine.container.directory().string(), position() - 1);
    }
  }
  return logits();
}

std::span<const float> Session::step(std::int32_t id) {
  return prefill({&id, 1});
}

void Session::save_state(const fs::path& path, std::string_view note) const {
  Impl& s = *impl_;
  SessionHeader header;
  header.position = position();
  header.latent_bytes = static_cast<std::uint32_t>(s.state.latent_bytes());
  header.note_bytes = note.size();
  header.fingerprint = s.engine.weights.fingerprint();
  std::vector<std::span<const std::uint8_t>> pieces;
  pieces.emplace_back(reinterpret_cast<const std::uint8_t*>(note.data()), note.size());
  pieces.emplace_back(reinterpret_cast<const std::uint8_t*>(s.logits.data()),
                      s.logits.size() * sizeof(float));
  for (const auto& piece : s.state.pieces(position())) pieces.emplace_back(piece);
  write_session(path, header, pieces);
}

std::string Session::load_state(const fs::path& path) {
  Impl& s = *impl_;
  const SessionFile file(path);
  const SessionHeader& h = file.header();
  if (h.fingerprint != s.engine.weights.fingerprint())
    fail_data("{}: saved from another model or other weights", path.string());
  if (h.latent_bytes != s.state.latent_bytes()) {
    fail_data("{}: saved with latents of {} bits, this session keeps {}", path.string(), h.latent_bytes * 8,
              s.state.latent_bytes() * 8);
  }
  if (h.position > s.engine.options.context) {
    fail_data("{}: holds {} tokens, the context only {}", path.string(), h.position,
              s.engine.options.context);
  }
  std::uint64_t bytes = s.logits.size() * sizeof(float);
  auto pieces = s.state.pieces(h.position);
  for (const auto& piece : pieces) bytes += piece.size();
  if (h.payload_bytes - h.note_bytes != bytes)
    fail_data("{}: expected a state of {} bytes, found {}", path.string(), bytes,
              h.payload_bytes - h.note_bytes);
  constexpr std::uint64_t kMaxNote = std::uint64_t{16} << 20;
  if (h.note_bytes > kMaxNote) fail_data("{}: a note of {} bytes", path.string(), h.note_bytes);
  file.verify();

  std::string note(h.note_bytes, '\0');
  pieces.insert(pieces.begin(),
                {reinterpret_cast<std::uint8_t*>(s.logits.data()), s.logits.size() * sizeof(float)});
  pieces.insert(pieces.begin(), {reinterpret_cast<std::uint8_t*>(note.data()), note.size()});
  file.read(pieces);
  s.state.position = h.position;
  return note;
}

}  // namespace waste::runtime
