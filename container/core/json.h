// JSON in and out. Reading is strict (simdjson: UTF-8, no trailing commas, no comments) and refuses repeated
// keys; writing keeps the order of insertion, so that a document's bytes depend on nothing else.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace waste {

using Json = nlohmann::ordered_json;

/// Parses a whole document. `where` (a file name) opens every error message, which is Error(Data) and says
/// what is wrong and, for syntax, at which byte.
Json parse_json(std::string_view text, std::string_view where);

/// One space of indent and a newline at the end.
std::string dump_json(const Json& value);
/// One line without a newline, for `--json` event streams.
std::string dump_json_line(const Json& value);

/// The member `key` of `object` as the asked type; missing or of another type is Error(Data), whose message
/// reads "<where>: <key>: expected ..., found ...".
std::uint64_t json_u64(const Json& object, std::string_view key, std::string_view where);
double json_double(const Json& object, std::string_view key, std::string_view where);
bool json_bool(const Json& object, std::string_view key, std::string_view where);
std::string json_string(const Json& object, std::string_view key, std::string_view where);
const Json& json_object(const Json& object, std::string_view key, std::string_view where);
const Json& json_array(const Json& object, std::string_view key, std::string_view where);

/// The member, or nullptr when it is missing or null.
const Json* json_find(const Json& object, std::string_view key);

}  // namespace waste
