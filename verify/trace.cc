#include "verify/trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>

#include "container/core/bytes.h"
#include "container/core/checked.h"
#include "container/core/error.h"
#include "container/core/file.h"
#include "container/core/json.h"

namespace waste::verify {

namespace {

constexpr std::uint64_t kTraceLimit = std::uint64_t{1} << 30;
constexpr std::int64_t kIdLimit = 0xFFFF;  // records hold layer and expert as u16

class Builder {
 public:
  void add(std::uint64_t layer, std::uint64_t expert) {
    const Trace::Expert key{static_cast<std::uint16_t>(layer), static_cast<std::uint16_t>(expert)};
    const auto next = static_cast<std::uint32_t>(trace_.experts.size());
    const auto [it, fresh] = index_.try_emplace(std::uint32_t{key.layer} << 16 | key.expert, next);
    if (fresh) trace_.experts.push_back(key);
    trace_.requests.push_back(it->second);
  }
  void end_token() { trace_.token_ends.push_back(static_cast<std::uint32_t>(trace_.requests.size())); }
  Trace take() { return std::move(trace_); }

 private:
  Trace trace_;
  std::unordered_map<std::uint32_t, std::uint32_t> index_;
};

Trace parse_pairs(std::span<const std::uint8_t> bytes, std::string_view where) {
  if (bytes.size() % 8 != 0) {
    fail_data("{}: {} bytes, not a whole number of 8-byte (layer, expert) pairs", where, bytes.size());
  }
  Builder builder;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const std::uint32_t layer = load_u32(&bytes[at]);
    const std::uint32_t expert = load_u32(&bytes[at + 4]);
    if (layer > kIdLimit || expert > kIdLimit) {
      fail_data("{}: request {} at offset {}: layer {}, expert {}; neither can be above {}", where, at / 8,
                at, static_cast<std::int32_t>(layer), static_cast<std::int32_t>(expert), kIdLimit);
    }
    builder.add(layer, expert);
  }
  return builder.take();
}

void parse_line(std::string_view line, const std::string& where, Builder& builder) {
  const Json token = parse_json(line, where);
  const Json& layers = json_array(token, "layers", where);
  if (layers.size() > std::size_t{kIdLimit} + 1) fail_data("{}: {} layers", where, layers.size());
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (!layers[layer].is_array()) fail_data("{}: layers[{}]: expected an array of expert ids", where, layer);
    for (const Json& id : layers[layer]) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > kIdLimit) {
        fail_data("{}: layers[{}]: expected expert ids of 0 to {}, found {}", where, layer, kIdLimit,
                  printable(dump_json_line(id)));
      }
      builder.add(layer, static_cast<std::uint64_t>(id.get<std::int64_t>()));
    }
  }
  builder.end_token();
}

Trace parse_lines(std::string_view text, std::string_view where) {
  Builder builder;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      parse_line(line, fmt::format("{}: line {}", where, number), builder);
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return builder.take();
}

// A pair's first four bytes are a layer of at most 65535: its third byte is 0, which no JSON text contains.
bool is_text(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 3 && bytes[2] != 0 && (bytes[0] == '{' || bytes[0] == ' ' || bytes[0] == '\n');
}

}  // namespace

std::optional<double> next_token_reuse(const Trace& trace) {
  if (trace.token_ends.size() < 2) return std::nullopt;
  std::vector<std::uint32_t> seen_in(trace.experts.size(), 0);  // the last token that asked for it, from 1
  std::uint64_t reused = 0;
  std::uint32_t at = 0;
  for (std::uint32_t token = 1; token <= trace.token_ends.size(); ++token) {
    for (; at < trace.token_ends[token - 1]; ++at) {
      std::uint32_t& last = seen_in[trace.requests[at]];
      if (last != 0 && last + 1 == token) ++reused;
      last = token;
    }
  }
  const std::uint64_t asked = trace.requests.size() - trace.token_ends.front();
  if (asked == 0) return std::nullopt;
  return static_cast<double>(reused) / static_cast<double>(asked);
}

std::uint32_t token_requests(const Trace& trace) {
  if (!trace.token_ends.empty()) {
    return static_cast<std::uint32_t>(ceil_div(trace.requests.size(), trace.token_ends.size()));
  }
  std::set<std::uint16_t> layers;
  std::size_t of_layer = 0;
  for (std::size_t begin = 0, end = 0; begin < trace.requests.size(); begin = end) {
    const std::uint16_t layer = trace.experts[trace.requests[begin]].layer;
    while (end < trace.requests.size() && trace.experts[trace.requests[end]].layer == layer) ++end;
    layers.insert(layer);
    of_layer = std::gcd(of_layer, end - begin);
  }
  return static_cast<std::uint32_t>(layers.size() * of_layer);
}

Trace parse_trace(std::span<const std::uint8_t> bytes, std::string_view where) {
  Trace trace = is_text(bytes)
                    ? parse_lines({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, where)
                    : parse_pairs(bytes, where);
  if (trace.requests.empty()) fail_data("{}: a trace without a request", where);
  return trace;
}

Trace read_trace(const std::filesystem::path& path) {
  return parse_trace(read_file(path, kTraceLimit), path.string());
}

}  // namespace waste::verify
