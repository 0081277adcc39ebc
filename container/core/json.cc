#include "container/core/json.h"

#include <simdjson.h>
#include <nlohmann/json.hpp>

#include "container/core/error.h"

namespace waste {

namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

Json convert(const element& value, std::string_view where) {
  switch (value.type()) {
    case element_type::ARRAY: {
      Json out = Json::array();
      for (const element item : simdjson::dom::array(value)) out.push_back(convert(item, where));
      return out;
    }
    case element_type::OBJECT: {
      Json out = Json::object();
      for (const auto field : simdjson::dom::object(value)) {
        std::string key(field.key);
        // ordered_json looks keys up by scanning; the objects read here have tens of them.
        if (out.contains(key)) fail_data("{}: key \"{}\" appears twice in one object", where, printable(key));
        out.emplace(std::move(key), convert(field.value, where));
      }
      return out;
    }
    case element_type::INT64:
      return std::int64_t(value);
    case element_type::UINT64:
      return std::uint64_t(value);
    case element_type::DOUBLE:
      return double(value);
    case element_type::STRING:
      return std::string(std::string_view(value));
    case element_type::BOOL:
      return bool(value);
    case element_type::NULL_VALUE:
      return nullptr;
  }
  fail_data("{}: a JSON value of unknown type", where);
}

const Json& member(const Json& object, std::string_view key, std::string_view where) {
  if (!object.is_object()) fail_data("{}: expected an object, found {}", where, object.type_name());
  const auto it = object.find(std::string(key));
  if (it == object.end()) fail_data("{}: key \"{}\" is missing", where, key);
  return *it;
}

[[noreturn]] void wrong_type(const Json& value, std::string_view key, std::string_view where,
                             std::string_view expected) {
  std::string found = value.is_primitive() ? value.dump(-1, ' ', false, Json::error_handler_t::replace)
                                           : std::string(value.type_name());
  fail_data("{}: {}: expected {}, found {}", where, key, expected, printable(found));
}

}  // namespace

Json parse_json(std::string_view text, std::string_view where) {
  simdjson::dom::parser parser;
  element root;
  const simdjson::padded_string padded(text);
  if (const auto error = parser.parse(padded).get(root)) {
    fail_data("{}: not valid JSON: {}", where, simdjson::error_message(error));
  }
  return convert(root, where);
}

std::string dump_json(const Json& value) {
  return value.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string dump_json_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::uint64_t json_u64(const Json& object, std::string_view key, std::string_view where) {
  const Json& value = member(object, key, where);
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (value.is_number_integer() && value.get<std::int64_t>() >= 0) return value.get<std::uint64_t>();
  wrong_type(value, key, where, "a non-negative integer");
}

double json_double(const Json& object, std::string_view key, std::string_view where) {
  const Json& value = member(object, key, where);
  if (!value.is_number()) wrong_type(value, key, where, "a number");
  return value.get<double>();
}

bool json_bool(const Json& object, std::string_view key, std::string_view where) {
  const Json& value = member(object, key, where);
  if (!value.is_boolean()) wrong_type(value, key, where, "true or false");
  return value.get<bool>();
}

std::string json_string(const Json& object, std::string_view key, std::string_view where) {
  const Json& value = member(object, key, where);
  if (!value.is_string()) wrong_type(value, key, where, "a string");
  return value.get<std::string>();
}

const Json& json_object(const Json& object, std::string_view key, std::string_view where) {
  const Json& value = member(object, key, where);
  if (!value.is_object()) wrong_type(value, key, where, "an object");
  return value;
}

const Json& json_array(const Json& object, std::string_view key, std::string_view where) {
  const Json& value = member(object, key, where);
  if (!value.is_array()) wrong_type(value, key, where, "an array");
  return value;
}

const Json* json_find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

}  // namespace waste
