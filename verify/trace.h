// Routing traces: which experts a model asked for, in order. They are what cache policies are judged by.
//
// Two forms are read, told apart by their first bytes:
//   pairs   little-endian int32 (layer, expert) a request, nothing else
//   lines   one JSON object a token: {"tok": n, "layers": [[expert, ...], ...]}, one inner list a MoE layer
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace waste::verify {

struct Trace {
  struct Expert {
    std::uint16_t layer = 0;
    std::uint16_t expert = 0;
    bool operator==(const Expert&) const = default;
  };

  std::vector<std::uint32_t> requests;  // indices into `experts`, in the order they were asked for
  std::vector<Expert> experts;          // distinct, in the order of their first request
  std::vector<std::uint32_t>
      token_ends;  // how many requests there were at each token's end; empty when unknown
};

/// The share of a token's requests that the token before it made too, over all tokens but the first; nullopt
/// when the trace does not say where tokens end or has fewer than two.
std::optional<double> next_token_reuse(const Trace& trace);

/// Requests a token. Where the trace does not say where tokens end, it is taken from the runs of requests of
/// one layer: however many tokens a run served, what one token asks of a layer divides it.
std::uint32_t token_requests(const Trace& trace);

/// Reads either form. `where` opens the messages. An odd length, a layer or expert outside [0, 65535], a line
/// that is not such an object, or a trace without requests is Error(Data) naming the request or line.
Trace parse_trace(std::span<const std::uint8_t> bytes, std::string_view where);

/// parse_trace of a file of at most 1 GiB.
Trace read_trace(const std::filesystem::path& path);

}  // namespace waste::verify
