#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "container/core/bytes.h"
#include "container/core/error.h"
#include "verify/plot.h"
#include "verify/simulate.h"
#include "verify/trace.h"

namespace waste::verify {
namespace {

std::vector<std::uint8_t> pairs(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& requests) {
  std::vector<std::uint8_t> out(requests.size() * 8);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    store_u32(&out[i * 8], requests[i].first);
    store_u32(&out[i * 8 + 4], requests[i].second);
  }
  return out;
}

Trace from_text(const std::string& text) {
  return parse_trace({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, "t");
}

Trace from_requests(const std::vector<std::uint32_t>& experts) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> requests;
  for (const std::uint32_t e : experts) requests.emplace_back(1, e);
  return parse_trace(pairs(requests), "t");
}

std::string refusal(const std::string& text) {
  try {
    from_text(text);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Data);
    return e.what();
  }
  return "accepted";
}

TEST_CASE("trace: pairs and lines give the same requests") {
  const Trace a = parse_trace(pairs({{0, 5}, {0, 6}, {1, 5}, {0, 5}}), "t");
  const Trace b = from_text("{\"tok\": 0, \"layers\": [[5, 6], [5]]}\n\n{\"tok\": 1, \"layers\": [[5], []]}");
  CHECK(a.requests == std::vector<std::uint32_t>{0, 1, 2, 0});
  CHECK(b.requests == a.requests);
  CHECK(b.experts == a.experts);
  CHECK(a.token_ends.empty());
  CHECK(b.token_ends == std::vector<std::uint32_t>{3, 4});
  CHECK(a.experts[2] == Trace::Expert{1, 5});
}

TEST_CASE("trace: what the next token reuses") {
  const Trace trace = from_text("{\"layers\": [[1, 2]]}\n{\"layers\": [[2, 3]]}\n{\"layers\": [[1, 3]]}\n");
  CHECK(next_token_reuse(trace).value() == doctest::Approx(0.5));  // 2 of the second's two, 3 of the third's
  CHECK(!next_token_reuse(from_requests({1, 1})).has_value());
}

TEST_CASE("trace: malformed input is refused by request or line") {
  CHECK(refusal("") == "t: a trace without a request");
  CHECK(refusal("1234567").find("not a whole number") != std::string::npos);
  CHECK(refusal("{\"layers\": [[1]]}\n{\"layers\": 3}\n").find("t: line 2: layers") == 0);
  CHECK(refusal("{\"layers\": [[1, -2]]}").find("found -2") != std::string::npos);
  CHECK(refusal("{\"layers\": [[1], [65536]]}").find("layers[1]") != std::string::npos);
  CHECK(refusal("{\"layers\": [1]}").find("layers[0]: expected an array") != std::string::npos);
  CHECK(refusal("{\"layers\": [[1]]").find("t: line 1") == 0);
  CHECK_THROWS_WITH_AS(parse_trace(pairs({{0, 1}, {0, 0xFFFFFFFF}}), "t"),
                       "t: request 1 at offset 8: layer 0, expert -1; neither can be above 65535", Error);
}

TEST_CASE("policies: the textbook string") {
  // 7 0 1 2 0 3 0 4 2 3 0 3 2 1 2 0 1 7 0 1 with three frames: LRU misses 12 times, the optimum 9.
  const Trace trace = from_requests({7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1});
  CHECK(LruCurve(trace.requests, trace.experts.size()).hits(3) == 8);
  CHECK(Belady(trace).hits(3) == 11);
  // Two frames: one for expert 0 (6 requests), the other LRU over what is left,
  // 7 1 2 3 4 2 3 3 2 1 2 1 7 1, which hits only the 3 after a 3.
  CHECK(pinned_lru_hits(trace, 2) == 5 + 1);
}

TEST_CASE("policies: LFRU keeps what is used often through a scan that empties LRU") {
  std::vector<std::uint32_t> experts;
  for (std::uint32_t round = 0; round < 10; ++round) {
    experts.push_back(0);
    for (std::uint32_t i = 0; i < 4; ++i) experts.push_back(1 + 4 * round + i);  // never seen again
  }
  const Trace trace = from_requests(experts);
  CHECK(LruCurve(trace.requests, trace.experts.size()).hits(3) == 0);
  // Expert 0 goes once, when it has been used no more often than the newcomers, and stays after its second
  // use.
  CHECK(lfru_hits(trace, 3) == 8);
  CHECK(Belady(trace).hits(3) == 9);
}

TEST_CASE("policies: limits") {
  const Trace trace = from_requests({1, 2, 1, 2, 3});
  const LruCurve lru(trace.requests, trace.experts.size());
  for (const std::uint64_t capacity : {3ull, 4ull, 1'000'000'000'000ull}) {
    CHECK(lru.hits(capacity) == 2);
    CHECK(Belady(trace).hits(capacity) == 2);
    CHECK(lfru_hits(trace, capacity) == 2);
    CHECK(pinned_lru_hits(trace, 2 * capacity) == 2);
  }
  CHECK(lru.hits(0) == 0);
  CHECK(Belady(trace).hits(0) == 0);
  CHECK(lfru_hits(trace, 0) == 0);
  CHECK(pinned_lru_hits(trace, 0) == 0);
  CHECK(lru.hits(1) == 0);
  CHECK(Belady(trace).hits(1) == 0);
}

// The policies as anybody would first write them.
std::uint64_t plain_lru(const std::vector<std::uint32_t>& requests, std::size_t capacity) {
  std::vector<std::uint32_t> held;  // latest last
  std::uint64_t hits = 0;
  for (const std::uint32_t r : requests) {
    const auto it = std::find(held.begin(), held.end(), r);
    if (it != held.end()) {
      ++hits;
      held.erase(it);
    } else if (held.size() == capacity) {
      held.erase(held.begin());
    }
    held.push_back(r);
  }
  return hits;
}

std::uint64_t plain_belady(const std::vector<std::uint32_t>& requests, std::size_t capacity) {
  std::vector<std::uint32_t> held;
  std::uint64_t hits = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (std::find(held.begin(), held.end(), requests[i]) != held.end()) {
      ++hits;
      continue;
    }
    if (held.size() == capacity) {
      const auto next = [&](std::uint32_t e) {
        return std::find(requests.begin() + static_cast<std::ptrdiff_t>(i), requests.end(), e);
      };
      held.erase(std::max_element(held.begin(), held.end(),
                                  [&](std::uint32_t a, std::uint32_t b) { return next(a) < next(b); }));
    }
    held.push_back(requests[i]);
  }
  return hits;
}

TEST_CASE("policies: the fast forms agree with the plain ones on random traces") {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint32_t> experts(200);
    for (auto& e : experts) e = static_cast<std::uint32_t>(random() % 20 * (random() % 3) / 2);
    const Trace trace = from_requests(experts);
    const LruCurve lru(trace.requests, trace.experts.size());
    const Belady belady(trace);
    for (std::size_t capacity = 1; capacity <= 20; ++capacity) {
      REQUIRE(lru.hits(capacity) == plain_lru(trace.requests, capacity));
      REQUIRE(belady.hits(capacity) == plain_belady(trace.requests, capacity));
      REQUIRE(belady.hits(capacity) >= lfru_hits(trace, capacity));
      REQUIRE(belady.hits(capacity) >= pinned_lru_hits(trace, capacity));
    }
  }
}

TEST_CASE("plot: text is escaped, gaps are left, nothing runs") {
  Chart chart;
  chart.title = "a < b & \"c\"";
  chart.x = {1, 10, 100};
  chart.x_text = [](double x) { return std::to_string(static_cast<int>(x)); };
  chart.series = {{"s", {1, 0.0 / 0.0, 3}}};
  chart.markers = {{10, "here"}, {1000, "beyond"}};
  const std::string svg = render_svg({chart, chart});
  CHECK(svg.find("a &lt; b &amp; &quot;c&quot;") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("here") != std::string::npos);
  CHECK(svg.find("beyond") != std::string::npos);
  CHECK(svg.find("<script") == std::string::npos);
  CHECK(svg.find("</svg>") != std::string::npos);
}

TEST_CASE("token_requests: from the tokens where they are known, else from the runs of a layer") {
  CHECK(token_requests(from_text("{\"layers\": [[1, 2], [3, 4]]}\n{\"layers\": [[1, 2], [5, 6]]}\n")) == 4);
  // Three tokens together, then two, each asking two layers for two experts.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> runs;
  for (const std::uint32_t tokens : {3u, 2u}) {
    for (const std::uint32_t layer : {0u, 1u}) runs.insert(runs.end(), 2 * tokens, {layer, 7});
  }
  CHECK(token_requests(parse_trace(pairs(runs), "t")) == 4);
}

}  // namespace
}  // namespace waste::verify
