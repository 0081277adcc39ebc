// How a model wants conversations written, and how it writes its own turns: Kimi K3's XTML,
//
//   <|open|>message role="user"<|sep|> text <|close|>message<|sep|><|end_of_msg|>
//
// with channels (think, response, ...) as elements inside the assistant's message; or, for other models, the
// prefixes and suffixes of the container's chat.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/detokenizer.h"
#include "runtime/tokenizer.h"

namespace waste::runtime {

/// A stretch of a conversation. Special tokens are recognised in markup only, so content cannot close its
/// turn.
struct Fragment {
  bool markup = false;
  std::string text;
};
using Fragments = std::vector<Fragment>;

/// The ids of the fragments, each encoded on its own.
std::vector<std::int32_t> encode(const Tokenizer& tokenizer, const Fragments& fragments);

/// `&` becomes `&amp;`, then `"` becomes `&quot;`.
std::string escape_attribute(std::string_view value);

/// How long a model that thinks should think. Max is what it does unasked.
enum class Effort { Max, High, Low };
/// "max", "high", "low"; anything else is Error(Usage).
Effort parse_effort(std::string_view name);

/// chat.json.
struct ChatTemplate {
  std::string system[2], user[2], assistant[2];  // prefix, suffix
  std::string open;                              // gives the assistant the floor
};
/// Anything but the documented members is Error(Data) naming `where`.
ChatTemplate parse_chat_template(std::string_view json, std::string_view where);

/// A model's conversation format. Immutable.
class ChatMarkup {
 public:
  /// XTML for a model of architecture "kimi-k3"; else what chat.json says. Error(Data) if the container has
  /// no chat.json, or a marker of the format is no special token of its tokenizer: it would be read as text.
  static ChatMarkup open(const std::filesystem::path& container, std::string_view arch,
                         const Tokenizer& tokenizer);
  static ChatMarkup xtml();
  static ChatMarkup from_template(ChatTemplate t);

  bool is_xtml() const { return !template_; }
  Fragments system(std::string_view text) const;
  /// `name`: who among several users speaks; XTML only.
  Fragments user(std::string_view text, std::string_view name = {}) const;
  /// The system message that asks for less effort; nothing for Max. XTML only.
  Fragments effort(Effort effort) const;
  /// The unfinished assistant message that gives the model the floor. `think`: it starts in its think
  /// channel.
  Fragments opener(bool think) const;
  /// What closes an assistant message of chat.json. Not for XTML, whose reader knows what is open.
  const std::string& suffix() const { return template_->assistant[1]; }

 private:
  std::optional<ChatTemplate> template_;
};

enum class Channel { Think, Response, Other };

/// Reads an assistant's turn token by token: what to show, when it is over, and what the history still needs.
/// The tokenizer must outlive it. Not thread-safe.
class ReplyReader {
 public:
  struct Piece {
    Channel channel = Channel::Response;
    std::string text;  // whole characters; may be empty
  };

  ReplyReader(const Tokenizer& tokenizer, const ChatMarkup& markup, bool think);

  /// A token of the turn. Tags of XTML are not shown, except those of elements other than message, think and
  /// response, which are shown as they stand on Channel::Other.
  Piece push(std::int32_t id);
  /// Text still held back, when no more tokens come.
  Piece finish();
  /// The token just pushed closed the turn. It belongs to closing(), so it must not be given to the model
  /// itself.
  bool ended() const { return ended_; }
  /// What must follow the tokens pushed (but for one that ended the turn) for the message to be complete.
  Fragments closing() const;

 private:
  enum class State { Text, OpenTag, CloseTag };
  Channel channel() const;
  Piece end_tag();

  const Tokenizer& tokenizer_;
  const ChatMarkup& markup_;
  Detokenizer detokenizer_;
  std::optional<std::int32_t> open_, close_, sep_, end_;
  State state_ = State::Text;
  std::string tag_;                    // of the tag being read
  std::vector<std::string> elements_;  // names, outermost first
  bool ended_ = false;
};

}  // namespace waste::runtime
