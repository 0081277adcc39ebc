#include "verify/check_state.h"

#include <nlohmann/json.hpp>

#include "container/core/checksum.h"
#include "container/core/json.h"

namespace waste::verify {

namespace {

std::string digest_line(std::string_view body) {
  return xxh3_128({reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}).hex();
}

}  // namespace

std::string write_check_state(const CheckState& state, const Digest128& container) {
  Json out;
  out["container"] = container.hex();
  out["next"] = state.next;
  out["findings"] = Json::array();
  for (const Finding& f : state.findings) {
    out["findings"].push_back({{"file", f.file},
                               {"extent", *f.extent},
                               {"offset", f.offset},
                               {"bytes", f.bytes},
                               {"problem", f.problem}});
  }
  const std::string body = dump_json(out);
  return digest_line(body) + "\n" + body;
}

std::optional<CheckState> parse_check_state(std::string_view text, const Digest128& container,
                                            std::uint64_t extents, std::string_view where) {
  const std::size_t newline = text.find('\n');
  const std::string_view body = newline == std::string_view::npos ? "" : text.substr(newline + 1);
  if (newline == std::string_view::npos || text.substr(0, newline) != digest_line(body)) {
    fail_data("{}: the saved state is damaged; delete it and check from the start", where);
  }
  const Json in = parse_json(body, where);
  if (json_string(in, "container", where) != container.hex()) return std::nullopt;
  CheckState state;
  state.next = json_u64(in, "next", where);
  if (state.next > extents) fail_data("{}: next: {} of {} extents", where, state.next, extents);
  for (const Json& f : json_array(in, "findings", where)) {
    const std::uint64_t extent = json_u64(f, "extent", where);
    if (extent >= state.next)
      fail_data("{}: a finding about extent {}, which was not reached", where, extent);
    state.findings.push_back({.file = json_string(f, "file", where),
                              .extent = extent,
                              .offset = json_u64(f, "offset", where),
                              .bytes = json_u64(f, "bytes", where),
                              .problem = json_string(f, "problem", where)});
  }
  return state;
}

}  // namespace waste::verify
