// What a server's refusal means to the person who has to do something about it.
#pragma once

#include <string>

#include "container/core/error.h"
#include "download/headers.h"
#include "download/settings.h"

namespace waste::download {

/// What was asked for when it was refused.
struct Asked {
  std::string repository;
  std::string revision;
  std::string path;  // empty when it was no file
};

/// The Error(Network) for a permanent answer of the Hub: missing, private, gated (with the page on which the
/// licence is accepted), bad token, no such revision or file, or whatever the server said. `body` is the
/// start of the answer's body. No token and no URL query appears in it.
Error refusal(const ResponseHead& head, const std::string& body, const Asked& asked,
              const Settings& settings);

/// What the server said in X-Error-Message or its JSON `error`, made printable and free of the token; may be
/// empty.
std::string server_text(const ResponseHead& head, const std::string& body, const Token& token);

}  // namespace waste::download
