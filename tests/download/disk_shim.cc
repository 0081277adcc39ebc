// Preloaded into waste-download by the tests: a disk that fills up or cannot be written to, without
// privileges or a real one. WASTE_SHIM_DISK_BYTES=N: nothing can be reserved, and after N bytes written with
// pwrite there is no space left. WASTE_SHIM_READ_ONLY=DIR: nothing below DIR can be created.

// The build's setting would give pwrite and pwrite64 one name; both are needed here.
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

const char* disk_bytes() {
  return std::getenv("WASTE_SHIM_DISK_BYTES");
}

bool is_read_only(const char* path) {
  const char* folder = std::getenv("WASTE_SHIM_READ_ONLY");
  return folder != nullptr && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

int open_checked(const char* name, const char* path, int flags, mode_t mode) {
  if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) != 0 && is_read_only(path)) {
    errno = EROFS;
    return -1;
  }
  return next<int (*)(const char*, int, mode_t)>(name)(path, flags, mode);
}

ssize_t write_checked(const char* name, int fd, const void* data, size_t size, off_t offset) {
  static std::atomic<long long> written{0};
  if (const char* limit = disk_bytes(); limit != nullptr) {
    const long long room = std::atoll(limit) - written.fetch_add(static_cast<long long>(size));
    if (room <= 0) {
      errno = ENOSPC;
      return -1;
    }
    // As a real file system does, what fits is written first.
    if (static_cast<long long>(size) > room) size = static_cast<size_t>(room);
  }
  return next<ssize_t (*)(int, const void*, size_t, off_t)>(name)(fd, data, size, offset);
}

int reserve_checked(const char* name, int fd, int mode, off_t offset, off_t length) {
  if (disk_bytes() != nullptr) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return next<int (*)(int, int, off_t, off_t)>(name)(fd, mode, offset, length);
}

}  // namespace

extern "C" {

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return write_checked("pwrite", fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off_t offset) {
  return write_checked("pwrite64", fd, data, size, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  return reserve_checked("fallocate", fd, mode, offset, length);
}

int fallocate64(int fd, int mode, off_t offset, off_t length) {
  return reserve_checked("fallocate64", fd, mode, offset, length);
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return open_checked("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return open_checked("open64", path, flags, mode);
}

int mkdir(const char* path, mode_t mode) {
  if (is_read_only(path)) {
    errno = EROFS;
    return -1;
  }
  return next<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}
}
