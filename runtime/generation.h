// The decode loop, and what there is to say about a run once it is over.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/core/checksum.h"
#include "container/core/json.h"
#include "runtime/engine.h"
#include "runtime/sampler.h"

namespace waste::runtime {

/// XXH3-128 over the float32 logits of every position that a token was chosen from, in order: two runs whose
/// hashes agree computed the same bits.
class LogitsHash {
 public:
  void add(std::span<const float> logits) {
    stream_.update({reinterpret_cast<const std::uint8_t*>(logits.data()), logits.size_bytes()});
  }
  std::string hex() const { return stream_.digest().hex(); }

 private:
  Xxh3Stream stream_;
};

enum class Finish {
  End,          // the model ended its text
  Stop,         // a stop string
  Length,       // as many tokens as were asked for
  Context,      // the context is full
  Interrupted,  // on request, after a whole token
};
/// "end", "stop", "length", "context", "interrupted".
std::string_view finish_name(Finish finish);

/// What the receiver of a token wants next: to go on, to end before this token (it is not part of the text),
/// or to stop after it.
enum class Verdict { Continue, EndBefore, StopAfter };

struct Generation {
  std::vector<std::int32_t> ids;  // the text's, in order
  std::vector<std::int32_t>
      pending;  // the last of these, if the session has not been given it yet; else empty
  Finish finish = Finish::Length;
};

/// Gives `ids` to the session. True if it took them all, and `ids` is empty; false if it was interrupted, and
/// `ids` keeps those that it did not take.
bool prefill(Session& session, std::vector<std::int32_t>& ids);

/// Samples from the session's logits, offers each token to `receive`, and steps, at most `limit` times.
Generation generate(Session& session, Sampler& sampler, std::uint64_t limit, LogitsHash& hash,
                    const std::function<bool()>& interrupted,
                    const std::function<Verdict(std::int32_t)>& receive);

/// Figures of one stretch of prefill and decode. Times are wall clock.
struct RunReport {
  std::uint64_t prompt_tokens = 0;
  double prompt_seconds = 0;
  std::uint64_t new_tokens = 0;
  std::uint64_t steps = 0;  // of decode: fewer than new_tokens, whose first comes with the prompt
  double decode_seconds = 0;
  EngineStats engine;  // the stretch's own: a difference of two
  std::string logits_hash;
  Finish finish = Finish::Length;
  /// "12 tokens of prompt at 240 tok/s, 64 new at 31.2 tok/s (end); 1.2 GB read, 83.1% hits; logits 0123..."
  std::string line() const;
  Json json() const;
};

/// prefill() and generate(), timed. If the prompt was interrupted, what it lacked is the result's `pending`.
Generation run(Engine& engine, Session& session, std::vector<std::int32_t> prompt, Sampler& sampler,
               std::uint64_t limit, const std::function<bool()>& interrupted,
               const std::function<Verdict(std::int32_t)>& receive, RunReport& report);

/// later - earlier, counter by counter.
EngineStats operator-(const EngineStats& later, const EngineStats& earlier);

/// What a saved session must remember besides the engine's state: who wrote it, and ids that belong to the
/// text but were not computed yet.
struct SessionNote {
  std::string kind;  // "generate" or "chat"
  std::vector<std::int32_t> pending;

  std::string encode() const;
  /// Error(Data), opened by `where`, for a note that is not of this `kind` or holds ids outside the
  /// vocabulary.
  static SessionNote decode(std::string_view text, std::string_view kind, std::uint32_t vocabulary,
                            std::string_view where);
};

}  // namespace waste::runtime
