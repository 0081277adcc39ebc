// URLs as this program needs them. Untrusted text in, nullopt out when it is no http or https URL.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace waste::download {

struct Url {
  std::string text;    // normalised, absolute
  std::string origin;  // "https://huggingface.co:443": what a token may be sent to
  bool encrypted = false;
};

/// An absolute http(s) URL without a user name or password in it.
std::optional<Url> parse_url(const std::string& text);

/// `location` as a redirect or a link on the page `base` means it.
std::optional<Url> resolve_url(const std::string& base, const std::string& location);

/// Why a redirect from `from` to `to` (nullopt when it is no http or https URL without a password), which
/// would be hop number `hops`, is not followed; nullopt when it is.
std::optional<std::string> redirect_objection(const Url& from, const std::optional<Url>& to, unsigned hops);

/// The URL without its query, which may be a signature that gives access to the file.
std::string url_for_people(std::string_view url);

}  // namespace waste::download
