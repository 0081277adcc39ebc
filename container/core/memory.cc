#include "container/core/memory.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "container/core/checked.h"
#include "container/core/error.h"

namespace waste {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t size) : size_(size) {
  if (size == 0) return;
  const bool huge = size >= 2 * kHugePage;
  mapped_ = round_up(size, huge ? kHugePage : kPage);
  // One huge page more than needed, so that an aligned start can be cut out of the mapping.
  const std::size_t reserved = huge ? mapped_ + kHugePage : mapped_;
  void* p =
      ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail_errno(errno, fmt::format("allocating {} bytes", size));
  auto* base = static_cast<std::uint8_t*>(p);
  if (huge) {
    const std::size_t head = (kHugePage - reinterpret_cast<std::uintptr_t>(base) % kHugePage) % kHugePage;
    if (head != 0) ::munmap(base, head);
    ::munmap(base + head + mapped_, kHugePage - head);
    base += head;
    ::madvise(base, mapped_, MADV_HUGEPAGE);
  }
  data_ = base;
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) ::munmap(data_, mapped_);
}

namespace {

std::uint64_t meminfo(const std::string& key) {
  std::ifstream in("/proc/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  std::string unit;
  while (in >> name >> kib && std::getline(in, unit)) {
    if (name == key + ":") return kib * 1024;
  }
  return 0;
}

// The first number of a one-line cgroup file; "max" and a missing file are 0.
std::uint64_t first_number(const std::string& path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  return in >> value ? value : 0;
}

// Path of this process in the hierarchy of `controller` ("" is v2's), as /proc/self/cgroup gives it.
std::string cgroup_path(const std::string& controller) {
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const auto a = line.find(':');
    const auto b = a == std::string::npos ? a : line.find(':', a + 1);
    if (b == std::string::npos) continue;
    std::istringstream names(line.substr(a + 1, b - a - 1));
    std::string name;
    if (controller.empty() && b == a + 1) return line.substr(b + 1);
    while (std::getline(names, name, ',')) {
      if (!controller.empty() && name == controller) return line.substr(b + 1);
    }
  }
  return "/";
}

// Calls visit(directory) for the process's cgroup and each of its parents up to the mount point.
template <typename Visit>
void each_cgroup(const std::string& mount, const std::string& controller, Visit visit) {
  std::string path = cgroup_path(controller);
  for (;;) {
    visit(mount + (path == "/" ? "" : path));
    const auto cut = path.find_last_of('/');
    if (path == "/" || cut == std::string::npos) return;
    path = cut == 0 ? "/" : path.substr(0, cut);
  }
}

std::uint64_t cgroup_memory_limit(std::uint64_t physical) {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  const auto take = [&](std::uint64_t limit) {
    if (limit != 0 && limit < physical)
      least = std::min(least, limit);  // v1 says "no limit" as a huge number
  };
  each_cgroup("/sys/fs/cgroup", "", [&](const std::string& dir) {
    take(first_number(dir + "/memory.max"));
    take(first_number(dir + "/memory.high"));
  });
  each_cgroup("/sys/fs/cgroup/memory", "memory",
              [&](const std::string& dir) { take(first_number(dir + "/memory.limit_in_bytes")); });
  return least == std::numeric_limits<std::uint64_t>::max() ? 0 : least;
}

}  // namespace

MachineMemory machine_memory() {
  MachineMemory m;
  m.physical = meminfo("MemTotal");
  m.cgroup_limit = cgroup_memory_limit(m.physical);
  m.usable = m.cgroup_limit != 0 ? m.cgroup_limit : m.physical;
  m.available = std::min(meminfo("MemAvailable"), m.usable);
  return m;
}

std::uint64_t peak_rss() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

unsigned usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // A host with more than 1024 CPUs makes the fixed-size call fail; the online count then stands in.
  unsigned cpus = ::sched_getaffinity(0, sizeof set, &set) == 0
                      ? static_cast<unsigned>(CPU_COUNT(&set))
                      : static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  each_cgroup("/sys/fs/cgroup", "", [&](const std::string& dir) {
    std::ifstream in(dir + "/cpu.max");
    std::uint64_t quota = 0;
    std::uint64_t period = 0;
    if (in >> quota >> period && period != 0) {
      cpus = std::min(cpus, static_cast<unsigned>(std::max<std::uint64_t>(1, ceil_div(quota, period))));
    }
  });
  return std::max(1u, cpus);
}

}  // namespace waste
