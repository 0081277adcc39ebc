// Names that come from a repository's listing: whether they may become files, how they go into URLs, and the
// patterns that choose among them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace waste::download {

/// Why a listed path must not be written below a folder, or nullopt for a good one. Refused: absolute paths,
/// drive letters, backslashes, control characters, empty, "." and ".." components, components over 240 bytes
/// (suffixes must fit into a file name), and the places in which the download keeps its own state.
std::optional<std::string> path_objection(std::string_view path);

/// Why a set of listed paths cannot live in one folder: a path listed twice, one that is a folder in another,
/// or "x.partial" beside "x".
std::optional<std::string> collision(std::vector<std::string> paths);

/// "org/name" or "name", each of letters, digits, '-', '_' and '.', not starting with '.' or '-', without
/// "..".
bool is_repository_name(std::string_view name);

/// Percent-encoded; '/' stays when `keep_slashes`.
std::string percent_encode(std::string_view text, bool keep_slashes);

/// Shell pattern over the whole path: '*' any run of bytes, '/' included; '?' one byte; "[a-z]", "[!x]". An
/// unclosed '[' is a literal.
bool matches_pattern(std::string_view pattern, std::string_view path);

}  // namespace waste::download
