#include "download/report.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "container/core/error.h"
#include "container/core/perf.h"
#include "container/core/text.h"

namespace waste::download {

namespace {

constexpr double kTerminalInterval = 0.1;
constexpr double kPlainInterval = 30;
constexpr double kJsonInterval = 1;
constexpr std::size_t kBarWidth = 24;
constexpr std::size_t kMostFileLines = 8;

double fraction(std::uint64_t done, std::uint64_t total) {
  return total == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
}

std::string bar(std::uint64_t done, std::uint64_t total) {
  const double f = fraction(done, total);
  // Rounded down: 100.0% is shown when all is there, not before.
  const double percent = done >= total ? 100.0 : std::min(99.9, f * 100);
  return fmt::format("[{:<{}}] {:5.1f}%", std::string(static_cast<std::size_t>(f * kBarWidth), '#'),
                     kBarWidth, percent);
}

std::string bytes(std::uint64_t n) {
  return format_bytes(static_cast<double>(n));
}

std::size_t terminal_columns() {
  struct winsize size {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Report::Report(bool json, bool quiet)
    : json_(json), quiet_(quiet || json), terminal_(::isatty(STDERR_FILENO) == 1) {}

Report::~Report() {
  erase();
}

void Report::event(const Json& event) {
  fmt::print("{}\n", dump_json_line(event));
  std::fflush(stdout);
}

void Report::say(const std::string& line) {
  if (quiet_) return;
  erase();
  fmt::print(stderr, "{}\n", line);
}

void Report::erase() {
  if (drawn_ == 0) return;
  fmt::print(stderr, "\r\033[{}A\033[J", drawn_);
  std::fflush(stderr);
  drawn_ = 0;
}

void Report::plan(const Plan& p, bool dry_run) {
  if (json_) {
    Json e;
    e["event"] = "plan";
    e["repository"] = p.repository;
    e["commit"] = p.commit;
    e["folder"] = p.folder;
    e["files"] = p.files;
    e["bytes"] = p.bytes;
    e["present_files"] = p.present_files;
    e["present_bytes"] = p.present_bytes;
    e["needed_disk"] = p.needed_disk;
    e["free_disk"] = p.free_disk;
    e["dry_run"] = dry_run;
    event(e);
    return;
  }
  const std::uint64_t remaining = p.free_disk > p.needed_disk ? p.free_disk - p.needed_disk : 0;
  say(fmt::format("{} at {} -> {}", p.repository, p.commit.substr(0, 12), p.folder));
  say(fmt::format("  {} files, {}; present: {} files, {}; to fetch: {}", p.files, bytes(p.bytes),
                  p.present_files, bytes(p.present_bytes), bytes(p.bytes - p.present_bytes)));
  say(fmt::format("  free disk {}, afterwards {}", bytes(p.free_disk), bytes(remaining)));
}

void Report::note(const std::string& text) {
  if (json_) {
    Json e;
    e["event"] = "note";
    e["text"] = text;
    event(e);
  }
  say(text);
}

void Report::retry(const std::string& what, const std::string& why, double delay) {
  ++retries_;
  if (json_) {
    Json e;
    e["event"] = "retry";
    e["what"] = what;
    e["why"] = why;
    e["delay"] = delay;
    event(e);
  }
  // A drop that goes on at once is the daily bread of a long download: counted in the display, not told.
  if (delay >= 5) say(fmt::format("{}: {}; again in {}", what, why, format_duration(delay)));
}

void Report::file(const std::string& path, std::string_view state, std::uint64_t size,
                  const std::string& detail) {
  if (json_) {
    Json e;
    e["event"] = "file";
    e["path"] = path;
    e["state"] = std::string(state);
    e["size"] = size;
    if (!detail.empty()) e["detail"] = detail;
    event(e);
  }
  const bool ordinary = state == "done" || state == "present" || state == "good" || state == "imported";
  if (!ordinary) say(fmt::format("{}: {}{}{}", printable(path), state, detail.empty() ? "" : ": ", detail));
}

void Report::begin(std::string_view verb, std::uint64_t already, std::uint64_t total) {
  verb_ = verb;
  total_ = total;
  begun_ = now_seconds();
  meter_.start(begun_, already);
  shown_ = already;
  next_ = json_ || terminal_ ? 0 : begun_ + kPlainInterval;
}

void Report::progress(std::uint64_t done, const std::vector<FileProgress>& files) {
  const double now = now_seconds();
  done = std::min(done, total_);
  // Blocks that proved to be wrong are missing again.
  if (done < shown_) meter_.start(now, done);
  shown_ = done;
  meter_.update(now, done);
  if (now < next_) return;
  next_ = now + (json_ ? kJsonInterval : terminal_ ? kTerminalInterval : kPlainInterval);
  if (json_) {
    Json e;
    e["event"] = "progress";
    e["done"] = done;
    e["total"] = total_;
    e["rate"] = meter_.rate(now);
    const double eta = meter_.eta(now, total_);
    e["eta"] = eta < 0 ? Json(nullptr) : Json(eta);
    e["retries"] = retries_;
    event(e);
  } else if (!quiet_) {
    draw(done, files, now);
  }
}

void Report::draw(std::uint64_t done, const std::vector<FileProgress>& files, double now) {
  const double eta = meter_.eta(now, total_);
  std::string retries;
  if (retries_ != 0) retries = fmt::format(", {} {}", retries_, retries_ == 1 ? "retry" : "retries");
  const std::string total =
      fmt::format("{}  {} / {}  {}/s  {}{}", bar(done, total_), bytes(done), bytes(total_),
                  format_bytes(meter_.rate(now)),
                  eta < 0 ? std::string("ETA unknown") : "ETA " + format_duration(eta), retries);
  if (!terminal_) {
    fmt::print(stderr, "{} {}\n", verb_, total);
    return;
  }
  erase();
  const std::size_t columns = terminal_columns();
  const auto put = [&](std::string line) {
    if (line.size() >= columns) line.resize(columns - 1);
    fmt::print(stderr, "{}\n", line);
    ++drawn_;
  };
  put(total);
  for (std::size_t i = 0; i < std::min(files.size(), kMostFileLines); ++i) {
    put(fmt::format("{}  {}", bar(files[i].done, files[i].size), printable(files[i].path)));
  }
  std::fflush(stderr);
}

void Report::finish(std::string_view summary, std::uint64_t done) {
  const double seconds = now_seconds() - begun_;
  if (json_) {
    Json e;
    e["event"] = "finished";
    e["summary"] = std::string(summary);
    e["bytes"] = done;
    e["seconds"] = seconds;
    e["retries"] = retries_;
    event(e);
  }
  say(std::string(summary));
}

}  // namespace waste::download
