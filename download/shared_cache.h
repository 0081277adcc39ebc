// The cache that the Hugging Face tools share. Files found there need no network; nothing is ever written
// into it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "container/core/file.h"
#include "download/local_folder.h"

namespace waste::download {

/// A file of the right size for `entry`: the blob named by its digest, or what lies at its path in the
/// commit's snapshot. What it holds is for a hash to say.
std::optional<fs::path> find_in_cache(const fs::path& hub_cache, const std::string& repository,
                                      const std::string& commit, const Entry& entry);

/// Whether import_file() would need no further disk space for this file.
bool import_is_free(const fs::path& source, const LocalFolder& folder, const Entry& entry);

/// Brings `source` into the folder under the entry's name: as a reflink where the file system can; else as a
/// hard link when the file is a big one; else as a copy. The result is hashed before it gets its name; false,
/// and nothing left behind, when it is not what the entry says. `stop` is called with the bytes hashed so
/// far.
bool import_file(const fs::path& source, const LocalFolder& folder, const Entry& entry,
                 const std::string& commit, const std::function<bool(std::uint64_t)>& stop);

}  // namespace waste::download
