// Another copy of a container, to take bytes from: a folder, or a web server that answers range requests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace waste::verify {

/// Bytes from a source are untrusted until their digest has been compared. Not thread-safe.
class Source {
 public:
  virtual ~Source() = default;
  /// Fills `out` with the bytes at `offset` of the file `name`. What is not there is Error(Data); a server
  /// that does not answer, or answers something else, is Error(Network).
  virtual void read(std::string_view name, std::uint64_t offset, std::span<std::uint8_t> out) = 0;
  /// The whole file, of at most `limit` bytes. Errors as above; a file that does not exist is Error(Data).
  virtual std::vector<std::uint8_t> read_all(std::string_view name, std::uint64_t limit) = 0;
};

/// A folder, or an http:// or https:// address below which the container's files lie. Proxies are taken from
/// the environment as curl does.
std::unique_ptr<Source> open_source(const std::string& from);

/// Whether `from` is an address and not a folder.
bool is_url(std::string_view from);

/// What a server says a body is: the bytes it carries, [first, last] of `total`.
struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  bool operator==(const ContentRange&) const = default;
};

/// "bytes 0-99/1234". False for anything else, an unknown total or a range outside it included.
bool parse_content_range(std::string_view value, ContentRange& out);

}  // namespace waste::verify
