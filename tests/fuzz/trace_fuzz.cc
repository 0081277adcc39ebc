// Routing traces, both forms: parsed or refused, and what parses can be replayed.
#include <cstddef>
#include <cstdint>

#include "container/core/error.h"
#include "verify/simulate.h"
#include "verify/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const waste::verify::Trace trace = waste::verify::parse_trace({data, size}, "trace");
    const waste::verify::LruCurve lru(trace.requests, trace.experts.size());
    const std::uint64_t best = waste::verify::Belady(trace).hits(3);
    if (lru.hits(3) > best || waste::verify::lfru_hits(trace, 3) > best) __builtin_trap();
    waste::verify::next_token_reuse(trace);
  } catch (const waste::Error&) {
  }
  return 0;
}
