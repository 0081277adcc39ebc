#include "download/paths.h"

#include <algorithm>
#include <array>

#include "container/core/error.h"

namespace waste::download {

namespace {

constexpr std::size_t kLongestComponent = 240;
constexpr std::size_t kLongestPath = 1024;
constexpr std::array<std::string_view, 2> kOwnFolders = {".cache/huggingface", ".cache/waste-download"};
constexpr std::string_view kOwnLock = ".waste-download.lock";

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::optional<std::string> component_objection(std::string_view component) {
  if (component.empty()) return "an empty component";
  if (component == "." || component == "..") return fmt::format("a \"{}\" component", component);
  if (component.size() > kLongestComponent)
    return fmt::format("a component over {} bytes", kLongestComponent);
  return std::nullopt;
}

// The position after a bracket expression and whether it holds `c`; nullopt when the bracket never closes.
struct Bracket {
  std::size_t end;
  bool holds;
};
std::optional<Bracket> match_bracket(std::string_view pattern, std::size_t open, char c) {
  std::size_t i = open + 1;
  const bool negated = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (negated) ++i;
  bool holds = false;
  for (const std::size_t first = i; i < pattern.size(); ++i) {
    if (pattern[i] == ']' && i != first) return Bracket{i + 1, holds != negated};
    const auto low = static_cast<unsigned char>(pattern[i]);
    auto high = low;
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      high = static_cast<unsigned char>(pattern[i + 2]);
      i += 2;
    }
    const auto byte = static_cast<unsigned char>(c);
    holds = holds || (low <= byte && byte <= high);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> path_objection(std::string_view path) {
  if (path.empty()) return "an empty name";
  if (path.size() > kLongestPath) return fmt::format("over {} bytes", kLongestPath);
  if (path.front() == '/') return "an absolute path";
  if (path.size() >= 2 && path[1] == ':' && is_letter_or_digit(path[0])) return "a drive letter";
  for (const char c : path) {
    if (c == '\\') return "a backslash";
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return "a control character";
  }
  std::string_view rest = path;
  while (true) {
    const std::size_t slash = rest.find('/');
    if (auto objection = component_objection(rest.substr(0, slash))) return objection;
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  for (const std::string_view own : kOwnFolders) {
    if (path == own || (path.starts_with(own) && path[own.size()] == '/'))
      return "inside the download's own state";
  }
  if (path == kOwnLock) return "the download's own lock";
  return std::nullopt;
}

std::optional<std::string> collision(std::vector<std::string> paths) {
  std::sort(paths.begin(), paths.end());
  const auto listed = [&](std::string_view path) {
    return std::binary_search(paths.begin(), paths.end(), path);
  };
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string& path = paths[i];
    if (i > 0 && paths[i - 1] == path) return fmt::format("\"{}\" is listed twice", printable(path));
    if (listed(path + ".partial")) {
      return fmt::format("\"{0}\" and \"{0}.partial\" cannot be told apart while they arrive",
                         printable(path));
    }
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      if (listed(std::string_view(path).substr(0, slash))) {
        return fmt::format("\"{}\" is a file and a folder", printable(path.substr(0, slash)));
      }
    }
  }
  return std::nullopt;
}

bool is_repository_name(std::string_view name) {
  if (name.empty() || name.size() > 193 || name.find("..") != std::string_view::npos) return false;
  if (std::count(name.begin(), name.end(), '/') > 1) return false;
  bool first = true;
  for (const char c : name) {
    if (c == '/') {
      if (first) return false;
      first = true;
      continue;
    }
    const bool good = is_letter_or_digit(c) || c == '_' || (!first && (c == '-' || c == '.'));
    if (!good) return false;
    first = false;
  }
  return !first;
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain =
        is_letter_or_digit(c) || c == '-' || c == '.' || c == '_' || c == '~' || (keep_slashes && c == '/');
    if (plain) {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

bool matches_pattern(std::string_view pattern, std::string_view path) {
  // Backtracking to the last star only: linear for one star, quadratic at worst, never exponential.
  std::size_t p = 0;
  std::size_t s = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_s = 0;
  while (s < path.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_s = s;
      continue;
    }
    if (p < pattern.size()) {
      const auto bracket = pattern[p] == '[' ? match_bracket(pattern, p, path[s]) : std::nullopt;
      if (bracket ? bracket->holds : pattern[p] == '?' || pattern[p] == path[s]) {
        p = bracket ? bracket->end : p + 1;
        ++s;
        continue;
      }
    }
    if (star == std::string_view::npos) return false;
    p = star + 1;
    s = ++star_s;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace waste::download
