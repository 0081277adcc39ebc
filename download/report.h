// What the person, or the program behind --json, is told: the plan, live progress, retries, results.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "container/core/json.h"
#include "container/core/rate.h"

namespace waste::download {

/// One file that is arriving: bytes that are durable, of how many.
struct FileProgress {
  std::string path;
  std::uint64_t done = 0;
  std::uint64_t size = 0;
};

struct Plan {
  std::string repository;
  std::string commit;
  std::string folder;
  std::size_t files = 0;
  std::uint64_t bytes = 0;          // of all files chosen
  std::size_t present_files = 0;    // complete
  std::uint64_t present_bytes = 0;  // complete files and the parts of others
  std::uint64_t needed_disk = 0;    // bytes that the disk must still take
  std::uint64_t free_disk = 0;
};

/// Not thread-safe: everything is reported from the event loop's thread.
class Report {
 public:
  /// With `json`, one event a line on stdout; else lines and a display on stderr, nothing when `quiet`.
  Report(bool json, bool quiet);
  ~Report();

  void plan(const Plan& plan, bool dry_run);
  /// A remark that stays on the screen.
  void note(const std::string& text);
  void retry(const std::string& what, const std::string& why, double delay);
  /// `state`: "done", "present", "good", "imported"; or, told also to people: "differs", "damaged",
  /// "missing", "refetching", "failed".
  void file(const std::string& path, std::string_view state, std::uint64_t size,
            const std::string& detail = {});

  /// Sets what progress counts towards; `already` never counts as speed.
  void begin(std::string_view verb, std::uint64_t already, std::uint64_t total);
  /// Shows progress when it is time to: `done` durable bytes in all, and the files at work.
  void progress(std::uint64_t done, const std::vector<FileProgress>& files);
  /// The last line.
  void finish(std::string_view summary, std::uint64_t done);

 private:
  void event(const Json& event);
  void say(const std::string& line);
  void draw(std::uint64_t done, const std::vector<FileProgress>& files, double now);
  void erase();

  bool json_;
  bool quiet_;
  bool terminal_;
  RateMeter meter_;
  std::string verb_;
  std::uint64_t total_ = 0;
  std::uint64_t shown_ = 0;
  std::uint64_t retries_ = 0;
  double begun_ = 0;
  double next_ = 0;
  unsigned drawn_ = 0;  // lines on the terminal that the next drawing replaces
};

}  // namespace waste::download
