#include "download/refusal.h"

#include <nlohmann/json.hpp>

#include "container/core/json.h"

namespace waste::download {

namespace {

bool mentions_bad_credentials(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  const bool credentials =
      text.find("credential") != std::string::npos || text.find("token") != std::string::npos;
  return credentials &&
         (text.find("invalid") != std::string::npos || text.find("expired") != std::string::npos);
}

}  // namespace

std::string server_text(const ResponseHead& head, const std::string& body, const Token& token) {
  std::string text;
  if (const std::string* message = head.find("x-error-message")) {
    text = *message;
  } else if (body.starts_with('{')) {
    try {
      const Json json = parse_json(body, "error");
      if (const Json* error = json_find(json, "error"); error != nullptr && error->is_string()) {
        text = error->get<std::string>();
      }
    } catch (const Error&) {
      // A cut or odd body says nothing; the status still does.
    }
  }
  return printable(token.redact(text));
}

Error refusal(const ResponseHead& head, const std::string& body, const Asked& asked,
              const Settings& settings) {
  const std::string* code_field = head.find("x-error-code");
  const std::string code = code_field == nullptr ? "" : *code_field;
  const std::string said = server_text(head, body, settings.token);
  const std::string repository = printable(asked.repository);
  const std::string page = settings.endpoint + "/" + repository;
  std::string message;
  if (code == "GatedRepo") {
    message = fmt::format(
        "{} is gated: accept its licence at {} with your account, then run again with that "
        "account's token in HF_TOKEN or --token-file",
        repository, page);
    if (!settings.token.empty()) {
      message = fmt::format(
          "{} is gated: accept its licence at {} with the account whose token {} holds, then run "
          "again",
          repository, page, settings.token.source());
    }
  } else if (code == "RevisionNotFound") {
    message = fmt::format("{} has no revision \"{}\"; see {}/commits/main", repository,
                          printable(asked.revision), page);
  } else if (code == "EntryNotFound") {
    message = fmt::format("{} has no file \"{}\" at revision {}", repository, printable(asked.path),
                          printable(asked.revision));
  } else if (head.status == 401 && !settings.token.empty() && mentions_bad_credentials(said)) {
    message =
        fmt::format("the token from {} is not valid (or no longer): make a new one at {}/settings/tokens",
                    settings.token.source(), settings.endpoint);
  } else if (head.status == 401 || code == "RepoNotFound") {
    message =
        fmt::format("{} does not exist, is private, or is gated: check the name at {}; ", repository, page);
    message += settings.token.empty()
                   ? "if it is private or gated, put a token that may read it into HF_TOKEN or "
                     "--token-file"
                   : fmt::format(
                         "if it is private or gated, the token from {} (HF_TOKEN and "
                         "--token-file go before it) may not read it",
                         settings.token.source());
  } else if (head.status == 403) {
    message = fmt::format(
        "{} refuses access to {}: the token needs the permission to read it (HF_TOKEN or "
        "--token-file)",
        settings.endpoint, repository);
  } else if (head.status == 404) {
    message = fmt::format("{} does not exist at {}: check the name and the endpoint",
                          asked.path.empty() ? repository : repository + "/" + printable(asked.path),
                          settings.endpoint);
  } else {
    message = fmt::format("{} answers {} for {}", settings.endpoint, head.status, repository);
  }
  if (!said.empty()) message += fmt::format(" (the server says: {})", said);
  return Error(ErrorKind::Network, message);
}

}  // namespace waste::download
