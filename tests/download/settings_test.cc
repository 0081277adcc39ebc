#include "download/settings.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "tests/temp_dir.h"

namespace waste::download {
namespace {

Environment variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> std::optional<std::string> {
    const auto it = values.find(name);
    return it == values.end() ? std::nullopt : std::optional(it->second);
  };
}

void write(const fs::path& path, std::string_view text) {
  write_file_atomic(path, text);
}

TEST_CASE("endpoint: option, variable, default; the slash goes") {
  CHECK(read_settings(variables({}), "", {}).endpoint == "https://huggingface.co");
  CHECK(read_settings(variables({{"HF_ENDPOINT", "https://mirror.org//"}}), "", {}).endpoint ==
        "https://mirror.org");
  CHECK(read_settings(variables({{"HF_ENDPOINT", "https://a"}}), "https://b/", {}).endpoint == "https://b");
  CHECK_THROWS_AS(read_settings(variables({{"HF_ENDPOINT", "mirror"}}), "", {}), Error);
  CHECK_THROWS_AS(read_settings(variables({}), "https://u:p@h", {}), Error);
}

TEST_CASE("where a token comes from, in order") {
  const TempDir dir;
  write(dir / "file", "from-file\r\n");
  write(dir / "token", "from-home\n");
  write(dir / "named", " from-path ");
  const std::map<std::string, std::string> home = {{"HF_HOME", dir.path().string()}};
  const auto with = [&](std::map<std::string, std::string> more) {
    more.insert(home.begin(), home.end());
    return variables(more);
  };
  CHECK(read_settings(with({}), "", {}).token.value() == "from-home");
  CHECK(read_settings(with({{"HF_TOKEN_PATH", dir / "named"}}), "", {}).token.value() == "from-path");
  CHECK(read_settings(with({{"HUGGING_FACE_HUB_TOKEN", "old"}}), "", {}).token.value() == "old");
  CHECK(
      read_settings(with({{"HUGGING_FACE_HUB_TOKEN", "old"}, {"HF_TOKEN", "new\n"}}), "", {}).token.value() ==
      "new");
  CHECK(read_settings(with({{"HF_TOKEN", "new"}}), "", dir / "file").token.value() == "from-file");
  CHECK(read_settings(with({{"HF_TOKEN", "new"}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "yes"}}), "", {})
            .token.empty());
  CHECK(read_settings(with({{"HF_TOKEN", " \n"}}), "", {}).token.value() == "from-home");
  CHECK_THROWS_AS(read_settings(with({}), "", dir / "missing"), Error);
}

TEST_CASE("a token with a newline inside is refused, and not printed") {
  try {
    const Token token("hf_abc\ndef", "HF_TOKEN");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(std::string(e.what()).find("hf_abc") == std::string::npos);
    CHECK(std::string(e.what()).find("HF_TOKEN") != std::string::npos);
  }
}

TEST_CASE("a token that comes back from a server is taken out") {
  const Token token("hf_secret", "HF_TOKEN");
  CHECK(token.redact("bad hf_secret, hf_secret!") == "bad (token), (token)!");
  CHECK(Token().redact("text") == "text");
}

TEST_CASE("folders, offline mode, timeout") {
  const auto cache = [](std::map<std::string, std::string> values) {
    return read_settings(variables(std::move(values)), "", {}).hub_cache.string();
  };
  CHECK(cache({{"HOME", "/none"}}) == "/none/.cache/huggingface/hub");
  CHECK(cache({{"HOME", "/none"}, {"XDG_CACHE_HOME", "/x"}}) == "/x/huggingface/hub");
  CHECK(cache({{"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "/h"}}) == "/h/hub");
  CHECK(cache({{"HF_HOME", "/h"}, {"HF_HUB_CACHE", "/c"}}) == "/c");
  for (const char* yes : {"1", "ON", "yes", "True"}) {
    CHECK(read_settings(variables({{"HF_HUB_OFFLINE", yes}}), "", {}).offline);
  }
  for (const char* no : {"", "0", "off", "2"}) {
    CHECK_FALSE(read_settings(variables({{"HF_HUB_OFFLINE", no}}), "", {}).offline);
  }
  CHECK(read_settings(variables({{"HF_HUB_DOWNLOAD_TIMEOUT", "7"}}), "", {}).stall_timeout == 7);
  CHECK_THROWS_AS(read_settings(variables({{"HF_HUB_DOWNLOAD_TIMEOUT", "soon"}}), "", {}), Error);
}

}  // namespace
}  // namespace waste::download
