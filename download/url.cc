#include "download/url.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "container/core/error.h"

namespace waste::download {

namespace {

struct FreeHandle {
  void operator()(CURLU* u) const { curl_url_cleanup(u); }
};
using Handle = std::unique_ptr<CURLU, FreeHandle>;

std::optional<std::string> part(CURLU* url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, which, &text, flags) != CURLUE_OK) return std::nullopt;
  std::string out(text);
  curl_free(text);
  return out;
}

bool set(CURLU* url, const std::string& text) {
  // libcurl would encode or drop odd bytes in its own ways; what needs that is no URL from an honest server.
  const bool odd = std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c == 0x7F; });
  return !odd && text.size() <= 8192 && curl_url_set(url, CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
}

std::optional<Url> finish(CURLU* url) {
  const auto scheme = part(url, CURLUPART_SCHEME);
  const auto host = part(url, CURLUPART_HOST);
  const auto port = part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  if (!scheme || !host || !port || (*scheme != "http" && *scheme != "https")) return std::nullopt;
  if (part(url, CURLUPART_USER) || part(url, CURLUPART_PASSWORD)) return std::nullopt;
  curl_url_set(url, CURLUPART_FRAGMENT, nullptr, 0);
  const auto text = part(url, CURLUPART_URL);
  if (!text) return std::nullopt;
  std::string lower_host = *host;
  for (char& c : lower_host) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return Url{*text, *scheme + "://" + lower_host + ":" + *port, *scheme == "https"};
}

}  // namespace

std::optional<Url> parse_url(const std::string& text) {
  const Handle url(curl_url());
  if (url == nullptr || !set(url.get(), text)) return std::nullopt;
  return finish(url.get());
}

std::optional<Url> resolve_url(const std::string& base, const std::string& location) {
  const Handle url(curl_url());
  if (url == nullptr || !set(url.get(), base) || !set(url.get(), location)) return std::nullopt;
  return finish(url.get());
}

std::optional<std::string> redirect_objection(const Url& from, const std::optional<Url>& to, unsigned hops) {
  constexpr unsigned kMostRedirects = 8;
  if (!to) return "redirects to something that is not a plain http or https URL";
  if (from.encrypted && !to->encrypted) return "redirects from https to http, which is not followed";
  if (hops > kMostRedirects)
    return fmt::format("is the end of {} redirects, more are not followed", kMostRedirects);
  return std::nullopt;
}

std::string url_for_people(std::string_view url) {
  return printable(url.substr(0, url.find_first_of("?#")));
}

}  // namespace waste::download
