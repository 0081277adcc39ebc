// The engine: a .waste container opened for running, and the sessions that run on it. It prints nothing,
// never exits and has no globals; the program waste-run is one client of it.
//
//   Engine engine(options);
//   Session session(engine);
//   std::span<const float> logits = session.prefill(prompt);
//   while (...) logits = session.step(sample(logits));
//
// The same container and the same ids give the same bits of logits whatever the threads, budget, cache,
// prefill chunk, I/O method and instruction set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace waste {
struct ModelConfig;
}

namespace waste::runtime {

namespace fs = std::filesystem;

/// How the latents of MLA layers are kept. F16 halves the only part of the state that grows with the context.
enum class KvType { F16, F32 };

/// How expert records are read. Auto: io_uring, or a pool of pread threads where the kernel refuses it.
enum class IoMode { Auto, Uring, Pread };

struct EngineOptions {
  fs::path container;
  std::uint64_t budget = 0;      // bytes for the whole process; 0: three quarters of the usable memory
  unsigned threads = 0;          // 0: every CPU this process may use
  std::uint32_t context = 4096;  // positions a session can hold
  KvType kv = KvType::F16;
  std::uint32_t prefill_chunk = 0;  // positions computed together in prefill; 0: what the budget pays for
  IoMode io = IoMode::Auto;
  bool verify = false;  // check every record's crc32 as it is read, not only its header
  bool cache = true;    // false: keep only the records a layer is using
  bool learn = false;   // preload the experts usage.waste counts highest; save_usage() updates it
  std::function<bool()> interrupted;  // asked between tokens and between prefill chunks; may be empty
};

/// Where a budget goes, in bytes; the arithmetic is container/footprint's.
struct MemoryUse {
  std::uint64_t budget = 0;
  std::uint64_t floor = 0;          // the smallest budget this container, context and chunk run in
  std::uint64_t trunk = 0;          // resident weights and codebooks
  std::uint64_t state = 0;          // one session: recurrent state and latents
  std::uint64_t scratch = 0;        // activations, tables, buffers and the process itself
  std::uint64_t cache = 0;          // expert records
  std::uint64_t cache_records = 0;  // how many that is
  std::uint64_t record_bytes = 0;
  std::uint32_t prefill_chunk = 0;  // positions computed together in prefill
};

/// Counters since the engine was opened; subtract two to measure a stretch.
struct EngineStats {
  std::uint64_t tokens = 0;           // positions computed
  std::uint64_t expert_uses = 0;      // records asked of the cache (once for each expert of a chunk)
  std::uint64_t expert_hits = 0;      // of these, found in memory
  std::uint64_t expert_products = 0;  // token-expert pairs computed
  std::uint64_t bytes_read = 0;       // from disk while running, embedding rows included
  std::uint64_t weight_bytes = 0;     // of trunk and experts, streamed through the kernels
  double seconds = 0;                 // inside prefill() and step()
  double attention_seconds = 0;       // KDA and MLA
  double dense_seconds = 0;           // dense and shared MLPs, routing, residuals, norms
  double expert_seconds = 0;          // expert products
  double wait_seconds = 0;            // waiting for the disk with nothing to compute
  double head_seconds = 0;            // lm_head
};

/// Called for each position in order; the span is valid during the call only.
using LogitsSink = std::function<void(std::uint32_t position, std::span<const float> logits)>;

class Session;

/// An opened model. Not thread-safe: one call into an engine or its sessions at a time.
class Engine {
 public:
  /// Opens, checks and loads. Error(Data): the container is damaged or its model unsupported; Error(Machine):
  /// the budget is below the floor (the message has the parts) or a file cannot be read; Error(Usage): an
  /// option makes no sense.
  explicit Engine(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelConfig& config() const;
  std::uint32_t vocab_size() const;
  std::uint32_t context() const;
  unsigned threads() const;
  MemoryUse memory() const;
  EngineStats stats() const;
  /// "io_uring, O_DIRECT", "pread x 8, page cache" and so on.
  std::string io_name() const;
  /// 32 hex digits that name this model's configuration and weights: the seal's where there is one.
  const std::string& fingerprint() const;

  /// Forgets every cached record: the next token is cold.
  void drop_cache();
  /// Adds this run's expert counts to usage.waste, atomically. Only with `learn`.
  void save_usage() const;

 private:
  friend class Session;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One conversation's state. The engine must outlive it; the budget holds one session.
class Session {
 public:
  explicit Session(Engine& engine);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Computes `ids` after what is already there and returns the logits at the last of them, valid until the
  /// next call. `every`, when given, gets the logits of each position. An empty `ids`, an id outside the
  /// vocabulary, or more than remains() is Error(Usage) before anything is computed. When `interrupted` says
  /// so the call stops after a chunk with Error(Interrupted); position() then tells how much was taken, and
  /// the state is sound. After any other error the session must be reset or reloaded.
  std::span<const float> prefill(std::span<const std::int32_t> ids, const LogitsSink& every = {});
  /// prefill() of one id, which no interrupt stops.
  std::span<const float> step(std::int32_t id);

  /// The logits of the last position; empty before the first.
  std::span<const float> logits() const;
  std::uint32_t position() const;
  std::uint32_t remains() const;
  void reset();

  /// Writes the state, atomically: a failed save leaves an older file as it was. `note` is the client's own
  /// text and comes back from load_state().
  void save_state(const fs::path& path, std::string_view note = {}) const;
  /// Replaces the state by the file's and returns its note. A damaged file, another version, another model,
  /// or one longer than the context is Error(Data), and leaves this session as it was.
  std::string load_state(const fs::path& path);

  /// For traces: called with each layer's chosen experts, token by token, in the order of their scores.
  using RouteSink =
      std::function<void(std::uint32_t position, std::uint32_t layer, std::span<const std::uint32_t>)>;
  void set_route_sink(RouteSink sink);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace waste::runtime
