// What kind of machine this is, as far as it matters for running models from disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "container/core/file.h"
#include "container/core/memory.h"

namespace waste::verify {

struct MachineFacts {
  std::string cpu;           // as the kernel names it
  std::string simd;          // the path in force
  unsigned cpus = 0;         // this process may use
  unsigned cpus_online = 0;  // in the machine
  unsigned numa_nodes = 1;
  MachineMemory memory;
  std::uint64_t swap = 0;  // bytes of swap space
  std::string huge_pages;  // the kernel's setting: "always", "madvise", "never"; empty when unknown
};

/// Reads /proc and /sys. What cannot be read is left at its default.
MachineFacts machine_facts();

struct DiskFacts {
  std::string file_system;  // "ext4", "xfs", ...
  std::string mount_point;
  std::uint64_t free = 0;
  bool direct = false;      // proved by a transfer
  bool rotational = false;  // a spinning disk, as far as the kernel knows
};

/// The type of the file system that holds `directory`, as /proc/self/mounts names it.
std::string file_system_of(const fs::path& directory);

/// About the file system that holds `directory`, where a small file is written and removed to prove O_DIRECT.
/// A folder that cannot be written to is Error(Machine).
DiskFacts disk_facts(const fs::path& directory);

}  // namespace waste::verify
