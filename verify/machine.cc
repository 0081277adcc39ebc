#include "verify/machine.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "container/core/simd.h"
#include "verify/direct_file.h"

namespace waste::verify {

namespace {

// The value after "key :" in a file of such lines.
std::string value_of(const fs::path& path, std::string_view key) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != key)
      continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return {};
}

unsigned count_numa_nodes() {
  unsigned nodes = 0;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", unreadable)) {
    const std::string name = entry.path().filename().string();
    if (name.size() > 4 && name.starts_with("node") &&
        name.find_first_not_of("0123456789", 4) == std::string::npos) {
      ++nodes;
    }
  }
  return std::max(1u, nodes);
}

// "always [madvise] never" -> "madvise"
std::string bracketed(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  return open == std::string::npos || close == std::string::npos ? ""
                                                                 : line.substr(open + 1, close - open - 1);
}

// The longest mount point that is a prefix of the path: (point, type).
std::pair<std::string, std::string> mount_of(const fs::path& path) {
  std::ifstream in("/proc/self/mounts");
  std::string line;
  std::pair<std::string, std::string> best;
  const std::string wanted = path.string() + "/";
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string device;
    std::string point;
    std::string type;
    fields >> device >> point >> type;
    const std::string prefix = point == "/" ? point : point + "/";
    if (wanted.starts_with(prefix) && point.size() >= best.first.size()) best = {point, type};
  }
  return best;
}

bool is_rotational(const fs::path& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return false;
  const fs::path device = fmt::format("/sys/dev/block/{}:{}", major(st.st_dev), minor(st.st_dev));
  // A partition's queue is its disk's.
  for (const char* queue : {"queue/rotational", "../queue/rotational"}) {
    std::ifstream in(device / queue);
    int value = 0;
    if (in >> value) return value != 0;
  }
  return false;
}

}  // namespace

MachineFacts machine_facts() {
  MachineFacts f;
  f.cpu = value_of("/proc/cpuinfo", "model name");
  f.simd = simd_name(simd_level());
  f.cpus = usable_cpus();
  f.cpus_online = static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  f.numa_nodes = count_numa_nodes();
  f.memory = machine_memory();
  std::istringstream(value_of("/proc/meminfo", "SwapTotal")) >> f.swap;
  f.swap *= 1024;
  f.huge_pages = bracketed("/sys/kernel/mm/transparent_hugepage/enabled");
  return f;
}

std::string file_system_of(const fs::path& directory) {
  return mount_of(fs::canonical(directory)).second;
}

DiskFacts disk_facts(const fs::path& directory) {
  DiskFacts f;
  const fs::path path = fs::canonical(directory);
  std::tie(f.mount_point, f.file_system) = mount_of(path);
  f.free = free_space(path);
  f.rotational = is_rotational(path);
  const fs::path probe = path / fmt::format(".direct-probe-{}", ::getpid());
  write_file_atomic(probe, std::string(kDirectBlock, 'x'));
  f.direct = DirectFile::open(probe).direct();
  fs::remove(probe);
  return f;
}

}  // namespace waste::verify
