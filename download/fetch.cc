#include "download/fetch.h"

#include <algorithm>
#include <memory>

#include "cli/cli.h"
#include "container/core/memory.h"
#include "container/core/perf.h"

namespace waste::download {

namespace {

constexpr std::size_t kBufferSize = 256 << 10;  // divides every block size
constexpr std::size_t kSpareBuffers = 32;       // that may wait to be hashed
constexpr double kTick = 0.5;                   // seconds between looks at the clock, at most

class Fetch {
 public:
  Fetch(Http& http, const Settings& settings, const FetchOptions& options, const LocalFolder& folder,
        const Source& source, Report& report)
      : http_(http),
        options_(options),
        report_(report),
        pool_(std::size_t{options.files} * options.connections, kSpareBuffers, kBufferSize),
        mailbox_([&http] { http.wake(); }),
        workers_(1 + std::min(usable_cpus(), options.files), mailbox_),
        context_{
            http,   settings, options_.limits, folder,  source.repository, source.commit, options.connections,
            report, mailbox_, pool_,           workers_} {}

  std::vector<std::string> run(const std::vector<Entry>& entries, std::uint64_t present) {
    try {
      for (const Entry& entry : entries) waiting_ += context_.folder.arrived(entry);
      std::size_t next = 0;
      while (true) {
        mailbox_.run();
        retire(present);
        while (next < entries.size() && active_.size() < options_.files) begin(entries[next++]);
        if (active_.empty()) return std::move(failures_);
        const double now = now_seconds();
        double due = now + kTick;
        for (const auto& file : active_) {
          due = std::min(due, file->pump(now));
          file->sync_if_due(now);
        }
        show(present);
        http_.poll(due - now, cli::interrupt_fd());
        if (cli::interrupted()) {
          fail(ErrorKind::Interrupted, "interrupted; what has arrived is saved, run again to continue");
        }
      }
    } catch (const Error& e) {
      stop();
      if (e.kind() != ErrorKind::Machine) throw;
      fail(ErrorKind::Machine, "{}; what has arrived is kept, run again when the disk can take the rest",
           e.what());
    } catch (...) {
      stop();
      throw;
    }
  }

 private:
  void begin(const Entry& entry) {
    waiting_ -= context_.folder.arrived(entry);
    context_.folder.prepare_for(entry.path);
    const unsigned hash_lanes = workers_.lanes() - 1;
    active_.push_back(std::make_unique<FileFetch>(context_, entry, 1 + begun_++ % hash_lanes));
  }

  void retire(std::uint64_t& present) {
    const auto finished = std::stable_partition(active_.begin(), active_.end(),
                                                [](const auto& file) { return !file->is_finished(); });
    for (auto it = finished; it != active_.end(); ++it) {
      if ((*it)->failure()) {
        failures_.push_back(*(*it)->failure());
      } else {
        present += (*it)->entry().size;
      }
    }
    active_.erase(finished, active_.end());
  }

  void show(std::uint64_t present) {
    std::vector<FileProgress> files;
    for (const auto& file : active_) {
      files.push_back({file->entry().path, file->durable(), file->entry().size});
      present += files.back().done;
    }
    report_.progress(present + waiting_, files);
  }

  void stop() {
    for (const auto& file : active_) {
      try {
        file->stop();
      } catch (const Error&) {
        // The disk that is the reason for stopping may refuse this too; the journal already has every whole
        // block.
      }
    }
  }

  Http& http_;
  FetchOptions options_;
  Report& report_;
  BufferPool pool_;
  Mailbox mailbox_;
  std::vector<std::unique_ptr<FileFetch>> active_;
  Workers workers_;  // joined before what its tasks use goes
  FetchContext context_;
  std::vector<std::string> failures_;
  unsigned begun_ = 0;
  std::uint64_t waiting_ = 0;  // bytes that have arrived of files whose turn has not come
};

}  // namespace

std::vector<std::string> fetch_files(Http& http, const Settings& settings, const FetchOptions& options,
                                     const LocalFolder& folder, const Source& source,
                                     const std::vector<Entry>& entries, std::uint64_t present,
                                     Report& report) {
  return Fetch(http, settings, options, folder, source, report).run(entries, present);
}

}  // namespace waste::download
