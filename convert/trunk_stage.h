// The trunk: every tensor that is not a routed expert, in blocks of rows, into trunk.bin.
#pragma once

#include "container/format/seal.h"
#include "convert/checkpoint.h"
#include "convert/journal.h"
#include "convert/meter.h"
#include "convert/plan.h"

namespace waste::convert {

/// Converts what `state` says is still missing and keeps it and the journal up to date: durable after every
/// layer's tensors. Reads ahead `in_flight` blocks of about a million weights. Error(Interrupted) once an
/// interrupt has been asked for and the tensor at hand is done.
void convert_trunk(const Checkpoint& checkpoint, const Plan& plan, const fs::path& out,
                   const Journal& journal, std::size_t in_flight, UnitState& state, Meter& meter);

/// The finished trunk.bin as the seal wants it.
SealedFile sealed_trunk(const Plan& plan, const UnitState& state);

/// Bytes one block in flight takes at most.
std::uint64_t trunk_block_bytes(const Plan& plan);

}  // namespace waste::convert
