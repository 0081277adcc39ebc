#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/pretokenizer.h"

#include <pcre2.h>

#include <cstdint>
#include <limits>

#include "container/core/error.h"
#include "runtime/utf8.h"

namespace waste::runtime {

namespace {

// The released pattern is written for Rust's regex syntax. Said in PCRE2's:
//   - Rust's \p{Han} is the script property; PCRE2's bare \p{Han} is Script_Extensions, which also has U+3001
//   and
//     U+30FC among others, so it must be spelled sc:Han.
//   - Rust's \s is White_Space; PCRE2's \s has U+180E too.
//   - The intersections [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]] and [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
//   are
//     the complements of what they leave out. A look-ahead before a plain class says the same, but a repeated
//     group takes JIT stack for each character: a few thousand letters in a row would exhaust it.
#define UPPER R"([^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])"
#define LOWER R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])"
#define SUFFIX R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
constexpr std::string_view kPattern = R"(\p{sc:Han}+)"
                                      R"(|[^\r\n\p{L}\p{N}]?)" UPPER "*" LOWER "+" SUFFIX
                                      R"(|[^\r\n\p{L}\p{N}]?)" UPPER "+" LOWER "*" SUFFIX R"(|\p{N}{1,3})"
                                      R"(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n]*)"
                                      R"(|\p{wspace}*[\r\n]+)"
                                      R"(|\p{wspace}+(?!\P{wspace}))"
                                      R"(|\p{wspace}+)";
#undef UPPER
#undef LOWER
#undef SUFFIX

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct MatchDelete {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct PreTokenizer::Impl {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;

  ~Impl() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }

  // `text` is valid UTF-8.
  void split_valid(std::string_view text, pcre2_match_data* match,
                   std::vector<std::string_view>& pieces) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    for (std::size_t at = 0; at < text.size();) {
      const int count = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match, context);
      const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match);
      // Every character starts a match, so one that fails or matches nothing is a fault in PCRE2 or the
      // machine.
      if (count < 0) fail(ErrorKind::Machine, "splitting text at byte {}: {}", at, pcre2_message(count));
      if (span[0] != at || span[1] <= at)
        fail(ErrorKind::Machine, "splitting text at byte {}: no progress", at);
      pieces.push_back(text.substr(at, span[1] - at));
      at = span[1];
    }
  }
};

PreTokenizer::PreTokenizer() : impl_(std::make_unique<Impl>()) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern.data()), kPattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
  if (impl_->code == nullptr) {
    fail(ErrorKind::Machine, "PCRE2 refuses the tokenizer's pattern at {}: {}", offset, pcre2_message(error));
  }
  // Where the system forbids executable memory this fails, and pcre2_match interprets instead.
  pcre2_jit_compile(impl_->code, PCRE2_JIT_COMPLETE);
  impl_->context = pcre2_match_context_create(nullptr);
  if (impl_->context == nullptr) throw std::bad_alloc();
  // The limits guard against patterns that backtrack exponentially; ours is linear in the piece it matches,
  // and a piece may be as long as the text.
  pcre2_set_match_limit(impl_->context, std::numeric_limits<std::uint32_t>::max());
  pcre2_set_heap_limit(impl_->context, std::numeric_limits<std::uint32_t>::max());
}

PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, MatchDelete> match(pcre2_match_data_create(1, nullptr));
  if (match == nullptr) throw std::bad_alloc();
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t valid = utf8_valid_prefix(text);
    impl_->split_valid(text.substr(0, valid), match.get(), pieces);
    text.remove_prefix(valid);
    std::size_t invalid = 0;
    while (invalid < text.size() && utf8_length(text.substr(invalid)) == 0) ++invalid;
    if (invalid != 0) pieces.push_back(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
  return pieces;
}

}  // namespace waste::runtime
