// How far an interrupted check has come, kept in a hidden file of the container's folder: an XXH3-128 in hex
// of all that follows, a newline, and a JSON object {"container", "next", "findings"}.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "verify/check.h"

namespace waste::verify {

inline constexpr std::string_view kCheckStateFile = ".check-state";

std::string write_check_state(const CheckState& state, const Digest128& container);

/// Error(Data) opened by `where` for a state that is damaged or names extents that a container of `extents`
/// does not have; nullopt for a sound state of another container, or of this one before a file of it was
/// changed.
std::optional<CheckState> parse_check_state(std::string_view text, const Digest128& container,
                                            std::uint64_t extents, std::string_view where);

}  // namespace waste::verify
