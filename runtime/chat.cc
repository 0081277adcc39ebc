#include "runtime/chat.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "container/core/error.h"
#include "container/core/file.h"
#include "container/core/json.h"

namespace waste::runtime {

namespace {

constexpr std::uint64_t kMaxChatBytes = 1 << 20;
constexpr std::string_view kOpen = "<|open|>", kClose = "<|close|>", kSep = "<|sep|>",
                           kEnd = "<|end_of_msg|>";

using Attribute = std::pair<std::string_view, std::string_view>;

Fragment markup(std::string_view text) {
  return {true, std::string(text)};
}
Fragment content(std::string_view text) {
  return {false, std::string(text)};
}

// What stands between the markers of a tag is encoded as content: the same ids, and a value that holds a
// marker stays text.
void add_open_tag(Fragments& out, std::string_view name, std::initializer_list<Attribute> attributes) {
  std::string tag(name);
  for (const auto& [key, value] : attributes) tag += fmt::format(" {}=\"{}\"", key, escape_attribute(value));
  out.insert(out.end(), {markup(kOpen), content(tag), markup(kSep)});
}

void add_close_tag(Fragments& out, std::string_view name) {
  out.insert(out.end(), {markup(kClose), content(name), markup(kSep)});
}

Fragments xtml_message(std::string_view role, std::string_view name, std::string_view text) {
  Fragments out;
  if (name.empty()) {
    add_open_tag(out, "message", {{"role", role}});
  } else {
    add_open_tag(out, "message", {{"role", role}, {"name", name}});
  }
  out.push_back(content(text));
  add_close_tag(out, "message");
  out.push_back(markup(kEnd));
  return out;
}

// The stretches of `text` that are written like markers: "<|...|>".
std::vector<std::string_view> markers(std::string_view text) {
  std::vector<std::string_view> found;
  for (std::size_t at = text.find("<|"); at != std::string_view::npos; at = text.find("<|", at)) {
    const std::size_t end = text.find("|>", at + 2);
    if (end == std::string_view::npos) break;
    found.push_back(text.substr(at, end + 2 - at));
    at = end + 2;
  }
  return found;
}

// Closes the innermost element `name` and what is open inside it; does nothing if there is none.
void pop_element(std::vector<std::string>& elements, std::string_view name) {
  const auto it = std::find(elements.rbegin(), elements.rend(), name);
  if (it != elements.rend()) elements.erase(it.base() - 1, elements.end());
}

}  // namespace

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, const Fragments& fragments) {
  std::vector<std::int32_t> ids;
  for (const Fragment& f : fragments) {
    const auto part = f.markup ? tokenizer.encode_markup(f.text) : tokenizer.encode_content(f.text);
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

std::string escape_attribute(std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

Effort parse_effort(std::string_view name) {
  if (name == "max") return Effort::Max;
  if (name == "high") return Effort::High;
  if (name == "low") return Effort::Low;
  fail(ErrorKind::Usage, "--effort: \"{}\" is none of low, high, max", printable(name));
}

ChatTemplate parse_chat_template(std::string_view json, std::string_view where) {
  const Json document = parse_json(json, where);
  if (!document.is_object()) fail_data("{}: expected an object", where);
  ChatTemplate t;
  const std::pair<std::string_view, std::string*> pairs[] = {
      {"system", t.system}, {"user", t.user}, {"assistant", t.assistant}};
  for (const auto& [key, pair] : pairs) {
    const Json& value = json_array(document, key, where);
    if (value.size() != 2 || !value[0].is_string() || !value[1].is_string()) {
      fail_data("{}: {}: expected [prefix, suffix]", where, key);
    }
    for (std::size_t i = 0; i < 2; ++i) pair[i] = value[i].get<std::string>();
  }
  t.open = json_string(document, "open", where);
  if (t.assistant[1].empty())
    fail_data("{}: assistant: the suffix is empty, so turns would never end", where);
  return t;
}

ChatMarkup ChatMarkup::xtml() {
  return {};
}

ChatMarkup ChatMarkup::from_template(ChatTemplate t) {
  ChatMarkup result;
  result.template_ = std::move(t);
  return result;
}

ChatMarkup ChatMarkup::open(const std::filesystem::path& container, std::string_view arch,
                            const Tokenizer& tokenizer) {
  const auto require_special = [&](std::string_view marker) {
    if (!tokenizer.special(marker)) {
      fail_data("{}: the chat markup uses {}, which is no special token of this model", container.string(),
                printable(marker));
    }
  };
  if (arch == "kimi-k3") {
    for (const std::string_view marker : {kOpen, kClose, kSep, kEnd}) require_special(marker);
    return xtml();
  }
  const std::filesystem::path path = container / "chat.json";
  if (!std::filesystem::exists(path)) {
    fail_data("{}: no chat.json: this model's conversation format is unknown; use generate",
              container.string());
  }
  ChatTemplate t = parse_chat_template(read_text_file(path, kMaxChatBytes), path.string());
  for (const std::string* text :
       {&t.system[0], &t.system[1], &t.user[0], &t.user[1], &t.assistant[0], &t.assistant[1], &t.open}) {
    for (const std::string_view marker : markers(*text)) require_special(marker);
  }
  return from_template(std::move(t));
}

Fragments ChatMarkup::system(std::string_view text) const {
  if (template_) return {markup(template_->system[0]), content(text), markup(template_->system[1])};
  return xtml_message("system", {}, text);
}

Fragments ChatMarkup::user(std::string_view text, std::string_view name) const {
  if (template_) return {markup(template_->user[0]), content(text), markup(template_->user[1])};
  return xtml_message("user", name, text);
}

Fragments ChatMarkup::effort(Effort effort) const {
  if (template_ || effort == Effort::Max) return {};
  return system(effort == Effort::High ? "Thinking effort: high" : "Thinking effort: low");
}

Fragments ChatMarkup::opener(bool think) const {
  if (template_) return {markup(template_->open)};
  Fragments out;
  add_open_tag(out, "message", {{"role", "assistant"}});
  add_open_tag(out, think ? "think" : "response", {});
  return out;
}

ReplyReader::ReplyReader(const Tokenizer& tokenizer, const ChatMarkup& markup, bool think)
    : tokenizer_(tokenizer), markup_(markup) {
  if (markup.is_xtml()) {
    open_ = tokenizer.special(kOpen);
    close_ = tokenizer.special(kClose);
    sep_ = tokenizer.special(kSep);
    end_ = tokenizer.special(kEnd);
    elements_ = {"message", think ? "think" : "response"};
  } else if (const auto ids = tokenizer.encode_markup(markup.suffix()); tokenizer.is_special(ids[0])) {
    end_ = ids[0];
  }
}

Channel ReplyReader::channel() const {
  if (!markup_.is_xtml()) return Channel::Response;
  const std::string_view inner = elements_.empty() ? std::string_view() : elements_.back();
  return inner == "think" ? Channel::Think : inner == "response" ? Channel::Response : Channel::Other;
}

ReplyReader::Piece ReplyReader::end_tag() {
  const std::string name = tag_.substr(0, tag_.find(' '));
  const bool opens = state_ == State::OpenTag;
  Piece piece;
  if (name != "message" && name != "think" && name != "response") {
    piece = {Channel::Other, fmt::format("{}{}{}", opens ? kOpen : kClose, tag_, kSep)};
  }
  if (opens) {
    elements_.push_back(name);
  } else {
    pop_element(elements_, name);
  }
  state_ = State::Text;
  tag_.clear();
  return piece;
}

ReplyReader::Piece ReplyReader::push(std::int32_t id) {
  if (id == end_) {
    ended_ = true;
    return finish();
  }
  if (id == open_ || id == close_) {
    Piece held = finish();
    state_ = id == open_ ? State::OpenTag : State::CloseTag;
    tag_.clear();
    return held;
  }
  if (state_ == State::Text) return {channel(), detokenizer_.push(tokenizer_.bytes(id))};
  if (id == sep_) return end_tag();
  tag_ += tokenizer_.bytes(id);
  return {};
}

ReplyReader::Piece ReplyReader::finish() {
  return {channel(), detokenizer_.finish()};
}

Fragments ReplyReader::closing() const {
  if (!markup_.is_xtml()) return {markup(markup_.suffix())};
  Fragments out;
  std::vector<std::string> elements = elements_;
  if (state_ != State::Text) {
    // Cut in the middle of a tag: the tag is ended, and what it opened is closed.
    out.push_back(markup(kSep));
    const std::string name = tag_.substr(0, tag_.find(' '));
    if (state_ == State::OpenTag) {
      elements.push_back(name);
    } else {
      pop_element(elements, name);
    }
  }
  for (auto it = elements.rbegin(); it != elements.rend(); ++it) add_close_tag(out, *it);
  out.push_back(markup(kEnd));
  return out;
}

}  // namespace waste::runtime
