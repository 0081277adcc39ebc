// Preloaded into waste-run: a disk with unreadable sectors. Positioned reads from the file WASTE_SHIM_UNREADABLE names,
// at or past its second 4 KiB (the probe for O_DIRECT reads the first), fail with EIO. io_uring is refused, so that
// every read takes the path that is watched here.

// The build's setting would give pread and pread64 one name; both are needed here.
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool unreadable(int fd, off_t offset) {
  const char* file = std::getenv("WASTE_SHIM_UNREADABLE");
  if (file == nullptr || offset < 4096) return false;
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  return length > 0 && std::strlen(file) == static_cast<std::size_t>(length) &&
         std::strncmp(path, file, static_cast<std::size_t>(length)) == 0;
}

ssize_t read_checked(const char* name, int fd, void* data, size_t size, off_t offset) {
  if (unreadable(fd, offset)) {
    errno = EIO;
    return -1;
  }
  using Function = ssize_t (*)(int, void*, size_t, off_t);
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name))(fd, data, size, offset);
}

}  // namespace

extern "C" {

ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  return read_checked("pread", fd, data, size, offset);
}

ssize_t pread64(int fd, void* data, size_t size, off_t offset) {
  return read_checked("pread64", fd, data, size, offset);
}

int io_uring_queue_init(unsigned, void*, unsigned) { return -EPERM; }
}
