#include "container/core/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <utility>

#include "container/core/memory.h"

namespace waste {

namespace {

constexpr std::size_t kDirectAlignment = 4096;

int open_or_throw(const fs::path& path, int flags, bool missing_is_data) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd >= 0) return fd;
  if (errno == ENOENT && missing_is_data) fail_data("{}: no such file", path.string());
  fail_errno(errno, path.string());
}

fs::path nearest_existing(fs::path path) {
  std::error_code ignored;
  if (path.is_relative()) path = fs::current_path() / path;
  while (!fs::exists(path, ignored) && path.has_parent_path() && path != path.parent_path()) {
    path = path.parent_path();
  }
  return path;
}

}  // namespace

File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

File::~File() {
  close();
}

void File::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

File File::open_read(const fs::path& path) {
  File file(open_or_throw(path, O_RDONLY, true), path);
  struct stat st {};
  if (::fstat(file.fd_, &st) != 0) fail_errno(errno, path.string());
  if (!S_ISREG(st.st_mode)) fail_data("{}: not a regular file", path.string());
  return file;
}

std::optional<File> File::open_read_direct(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (fd < 0) {
    if (errno == ENOENT) fail_data("{}: no such file", path.string());
    if (errno == EINVAL) return std::nullopt;
    fail_errno(errno, path.string());
  }
  File file(fd, path);
  AlignedBuffer probe(kDirectAlignment);
  if (::pread(fd, probe.data(), kDirectAlignment, 0) < 0) return std::nullopt;
  return file;
}

File File::open_write(const fs::path& path) {
  return {open_or_throw(path, O_RDWR | O_CREAT, false), path};
}

File File::create(const fs::path& path) {
  return {open_or_throw(path, O_RDWR | O_CREAT | O_TRUNC, false), path};
}

std::uint64_t File::size() const {
  struct stat st {};
  if (::fstat(fd_, &st) != 0) fail_errno(errno, path_.string());
  return static_cast<std::uint64_t>(st.st_size);
}

std::uint64_t File::allocated() const {
  struct stat st {};
  if (::fstat(fd_, &st) != 0) fail_errno(errno, path_.string());
  return static_cast<std::uint64_t>(st.st_blocks) * 512;
}

ByteRange File::next_data(std::uint64_t begin, std::uint64_t end) const {
  if (begin >= end) return {end, end};
  const off_t data = ::lseek(fd_, static_cast<off_t>(begin), SEEK_DATA);
  if (data < 0) return errno == ENXIO ? ByteRange{end, end} : ByteRange{begin, end};
  const std::uint64_t first = std::min(static_cast<std::uint64_t>(data), end);
  const off_t hole = ::lseek(fd_, data, SEEK_HOLE);
  return {first, hole < 0 ? end : std::min(static_cast<std::uint64_t>(hole), end)};
}

std::size_t File::read_some(std::uint64_t offset, std::span<std::uint8_t> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0) {
      if (errno == EINTR) continue;
      fail_errno(errno, fmt::format("{}: reading {} bytes at offset {}", path_.string(), out.size(), offset));
    }
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void File::read_exact(std::uint64_t offset, std::span<std::uint8_t> out) const {
  const std::size_t got = read_some(offset, out);
  if (got != out.size()) {
    fail_data("{}: ends at byte {}, but {} bytes are needed at offset {}", path_.string(), offset + got,
              out.size(), offset);
  }
}

void File::write_exact(std::uint64_t offset, std::span<const std::uint8_t> data) const {
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t n =
        ::pwrite(fd_, data.data() + done, data.size() - done, static_cast<off_t>(offset + done));
    if (n < 0) {
      if (errno == EINTR) continue;
      fail_errno(errno,
                 fmt::format("{}: writing {} bytes at offset {}", path_.string(), data.size(), offset));
    }
    done += static_cast<std::size_t>(n);
  }
}

void File::reserve(std::uint64_t size, std::uint64_t from) const {
  if (from >= size) return;  // the kernel refuses an empty range
  while (::fallocate(fd_, 0, static_cast<off_t>(from), static_cast<off_t>(size - from)) != 0) {
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
      fail_errno(errno, fmt::format("{}: reserving {} bytes", path_.string(), size - from));
    }
    if (this->size() < size) truncate(size);
    return;
  }
}

bool File::punch_hole(std::uint64_t offset, std::uint64_t length) const {
  while (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(length)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return false;
    fail_errno(errno, fmt::format("{}: freeing {} bytes at offset {}", path_.string(), length, offset));
  }
  return true;
}

void File::truncate(std::uint64_t size) const {
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) {
    fail_errno(errno, fmt::format("{}: setting the size to {}", path_.string(), size));
  }
}

void File::sync() const {
  if (::fsync(fd_) != 0) fail_errno(errno, path_.string() + ": fsync");
}

void File::prefetch(std::uint64_t offset, std::uint64_t length) const {
  ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(length), POSIX_FADV_WILLNEED);
}

void File::start_writeback(std::uint64_t offset, std::uint64_t length) const {
  sync_range(offset, length, SYNC_FILE_RANGE_WRITE);
}

void File::await_writeback(std::uint64_t offset, std::uint64_t length) const {
  sync_range(offset, length, SYNC_FILE_RANGE_WAIT_BEFORE);
}

// An error must not be lost: the kernel reports it to whoever asks first, which is not sync() any more.
void File::sync_range(std::uint64_t offset, std::uint64_t length, unsigned flags) const {
  if (length == 0) return;  // which the kernel takes for "to the end"
  while (::sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(length), flags) != 0) {
    if (errno == EINTR) continue;
    if (errno == ENOSYS || errno == EOPNOTSUPP) return;  // sync() will do all of it
    fail_errno(errno, fmt::format("{}: writing back {} bytes at offset {}", path_.string(), length, offset));
  }
}

void File::drop_cache(std::uint64_t offset, std::uint64_t length) const {
  ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(length), POSIX_FADV_DONTNEED);
}

namespace {

template <typename Bytes>
Bytes read_whole(const fs::path& path, std::uint64_t limit) {
  const File file = File::open_read(path);
  const std::uint64_t size = file.size();
  if (size > limit)
    fail_data("{}: {} bytes, more than the {} such a file may have", path.string(), size, limit);
  Bytes bytes(size, 0);
  file.read_exact(0, {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()});
  return bytes;
}

}  // namespace

std::vector<std::uint8_t> read_file(const fs::path& path, std::uint64_t limit) {
  return read_whole<std::vector<std::uint8_t>>(path, limit);
}

std::string read_text_file(const fs::path& path, std::uint64_t limit) {
  return read_whole<std::string>(path, limit);
}

void sync_directory(const fs::path& directory) {
  const fs::path path = directory.empty() ? fs::path(".") : directory;
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_errno(errno, path.string());
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (result != 0) fail_errno(error, path.string() + ": fsync");
}

fs::path partial_path(const fs::path& path) {
  fs::path partial = path;
  partial += ".partial";
  return partial;
}

void publish(const fs::path& path) {
  const fs::path partial = partial_path(path);
  if (::rename(partial.c_str(), path.c_str()) != 0) {
    fail_errno(errno, fmt::format("renaming {} to {}", partial.string(), path.filename().string()));
  }
  sync_directory(path.parent_path());
}

void write_file_atomic(const fs::path& path, std::span<const std::uint8_t> data) {
  {
    const File file = File::create(partial_path(path));
    file.write_exact(0, data);
    file.sync();
  }
  publish(path);
}

void write_file_atomic(const fs::path& path, std::string_view text) {
  write_file_atomic(path, std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

std::uint64_t free_space(const fs::path& path) {
  struct statvfs st {};
  const fs::path existing = nearest_existing(path);
  if (::statvfs(existing.c_str(), &st) != 0) fail_errno(errno, existing.string());
  return static_cast<std::uint64_t>(st.f_bavail) * st.f_frsize;
}

bool same_file_system(const fs::path& a, const fs::path& b) {
  struct stat sa {};
  struct stat sb {};
  const fs::path pa = nearest_existing(a);
  const fs::path pb = nearest_existing(b);
  if (::stat(pa.c_str(), &sa) != 0) fail_errno(errno, pa.string());
  if (::stat(pb.c_str(), &sb) != 0) fail_errno(errno, pb.string());
  return sa.st_dev == sb.st_dev;
}

namespace {

[[noreturn]] void refuse_second_process(const fs::path& directory, const File& lock) {
  std::string holder(200, '\0');
  holder.resize(lock.read_some(0, {reinterpret_cast<std::uint8_t*>(holder.data()), holder.size()}));
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  fail(ErrorKind::Machine, "{} is in use by another process ({}); wait for it or stop it", directory.string(),
       holder.empty() ? "which has not said its name yet" : printable(holder));
}

// Whether the path still leads to the open file: a holder that leaves unlinks its lock, and whoever opened
// the file just before would otherwise lock a file that nobody can find any more.
bool still_linked(const File& file) {
  struct stat open {};
  struct stat named {};
  return ::fstat(file.fd(), &open) == 0 && ::stat(file.path().c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

}  // namespace

DirectoryLock::DirectoryLock(const fs::path& directory, std::string_view name) {
  do {
    file_ = File::open_write(directory / name);
    if (::flock(file_.fd(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail_errno(errno, file_.path().string() + ": lock");
      refuse_second_process(directory, file_);
    }
  } while (!still_linked(file_));
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char since[32];
  std::strftime(since, sizeof since, "%Y-%m-%d %H:%M:%SZ", &utc);
  const std::string text = fmt::format("pid {} on {} since {}\n", ::getpid(), host, since);
  file_.truncate(0);
  file_.write_exact(0, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

DirectoryLock::~DirectoryLock() {
  std::error_code ignored;
  fs::remove(file_.path(), ignored);
}

}  // namespace waste
