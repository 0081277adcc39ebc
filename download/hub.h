// The Hub's calls: from a repository's name to a commit, to the list of its files, to the URL of one of them.
#pragma once

#include <string>
#include <vector>

#include "download/http.h"
#include "download/listing.h"
#include "download/refusal.h"
#include "download/report.h"
#include "download/retry.h"
#include "download/settings.h"

namespace waste::download {

/// "https://huggingface.co/org/name/resolve/<commit>/<path>", every segment percent-encoded.
std::string file_url(const Settings& settings, const std::string& repository, const std::string& commit,
                     const std::string& path);

/// Throws Error(Data) when what the Hub says about a file on its own answer (commit, size, digest) is not
/// what its listing said.
void check_linked_headers(const ResponseHead& head, const Entry& entry, const std::string& commit);

/// What an HTML page in place of a file means to the person who gets it.
inline constexpr const char* kHtmlPage =
    "an HTML page instead of the file (the login page of a network or proxy?)";

/// A uniform number in [0, 1) for the back-off.
double random_jitter();

/// Blocking calls, each with retries; an interrupt ends them with Error(Interrupted).
class Hub {
 public:
  Hub(Http& http, const Settings& settings, const RetryLimits& limits, Report& report)
      : http_(http), settings_(settings), limits_(limits), report_(report) {}

  /// The commit a revision means now, and the repository's present name.
  Revision resolve(const std::string& repository, const std::string& revision);
  /// All files of the commit.
  std::vector<Entry> list(const std::string& repository, const std::string& commit);
  /// The content of one file of at most `limit` bytes, verified against its digest.
  std::string fetch_text(const std::string& repository, const std::string& commit, const Entry& entry,
                         std::uint64_t limit);

 private:
  struct Answer {
    ResponseHead head;
    std::string body;
    std::string url;  // after redirects
  };
  Answer get(const Request& request, const Asked& asked, std::uint64_t limit);

  Http& http_;
  const Settings& settings_;
  const RetryLimits& limits_;
  Report& report_;
};

}  // namespace waste::download
