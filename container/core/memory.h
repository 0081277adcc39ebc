// Large buffers, and how much memory this process may really use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace waste {

/// Zeroed memory aligned to 4 KiB (2 MiB, with huge pages asked for, from 4 MiB up), for O_DIRECT and for
/// buffers that live as long as the program: a page touched for the first time can cost 12 us on a virtual
/// machine, so what matters is allocated once. Throws Error(Machine) when there is none.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size);
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();

  std::uint8_t* data() { return data_; }
  const std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::uint8_t> span() { return {data_, size_}; }
  std::span<const std::uint8_t> span() const { return {data_, size_}; }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;
};

struct MachineMemory {
  std::uint64_t physical = 0;      // bytes of RAM in the machine
  std::uint64_t cgroup_limit = 0;  // smallest limit on the way to the root cgroup; 0 when there is none
  std::uint64_t usable = 0;        // min of the two: what a ceiling may be computed from
  std::uint64_t available = 0;     // the kernel's MemAvailable, at most `usable`
};

/// Reads /proc/meminfo and the cgroup (v1 or v2) this process is in.
MachineMemory machine_memory();

/// Peak resident set size of this process in bytes.
std::uint64_t peak_rss();

/// CPUs this process may run on: its affinity mask, cut to the cgroup's CPU quota rounded up. At least 1.
unsigned usable_cpus();

}  // namespace waste
