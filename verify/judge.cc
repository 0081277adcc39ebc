#include "verify/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "container/core/checksum.h"
#include "container/core/half.h"

namespace waste::verify {

namespace {

// Both checksums go over a block while it is in the second-level cache.
constexpr std::size_t kHashBlock = std::size_t{128} << 10;

struct Sums {
  Digest128 digest;
  std::uint32_t crc = 0;
};

// XXH3-128 of the record and crc32 of its bytes [begin, end), in one pass over memory.
Sums record_sums(std::span<const std::uint8_t> record, std::size_t begin, std::size_t end) {
  Xxh3Stream stream;
  Sums sums;
  for (std::size_t at = 0; at < record.size(); at += kHashBlock) {
    const auto block = record.subspan(at, std::min(kHashBlock, record.size() - at));
    const std::size_t from = std::clamp(begin, at, at + block.size());
    const std::size_t to = std::clamp(end, from, at + block.size());
    sums.crc = crc32(record.subspan(from, to - from), sums.crc);
    stream.update(block);
  }
  sums.digest = stream.digest();
  return sums;
}

// Index of the first infinity or NaN, or nullopt. `T` is the value's bits, `exponent` the mask that both have
// set.
template <typename T>
std::optional<std::uint64_t> first_not_finite(const std::uint8_t* p, std::uint64_t count, T exponent) {
  constexpr std::uint64_t kBlock = 512;
  const auto bad = [&](std::uint64_t i) {
    T v;
    std::memcpy(&v, p + i * sizeof v, sizeof v);
    return (v & exponent) == exponent;
  };
  for (std::uint64_t at = 0; at < count; at += kBlock) {
    const std::uint64_t end = std::min(count, at + kBlock);
    bool any = false;
    for (std::uint64_t i = at; i < end; ++i) any |= bad(i);  // no early exit: this loop becomes vector code
    for (std::uint64_t i = at; any && i < end; ++i) {
      if (bad(i)) return i;
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> first_bad_half(const std::uint8_t* p, std::uint64_t count) {
  return first_not_finite<std::uint16_t>(p, count, 0x7C00);
}

std::optional<std::uint64_t> first_bad_float(const std::uint8_t* p, std::uint64_t count) {
  return first_not_finite<std::uint32_t>(p, count, 0x7F800000);
}

}  // namespace

ExtentJudge::ExtentJudge(const ContainerMap& map) : map_(map) {
  if (!map.manifest) return;
  for (std::uint32_t i = 0; i < map.manifest->trunk.size(); ++i) {
    const TrunkTensor& t = map.manifest->trunk[i];
    const TrunkBytes bytes = trunk_bytes(t.format, t.rows(), t.cols(), t.name);
    if (t.quantised()) {
      floats_.push_back({t.scale_offset, bytes.scales / 2, 2, i});
    } else {
      const std::uint32_t width = t.format == TensorFormat::F32 ? 4 : 2;
      floats_.push_back({t.offset, bytes.data / width, width, i});
    }
  }
  std::sort(floats_.begin(), floats_.end(),
            [](const Floats& a, const Floats& b) { return a.offset < b.offset; });
}

std::uint64_t ExtentJudge::longest_view() const {
  return map_.manifest ? std::max<std::uint64_t>(kSealExtent, map_.manifest->layout.record_bytes)
                       : kSealExtent;
}

Verdict ExtentJudge::judge(const Extent& extent,
                           const std::function<std::span<const std::uint8_t>()>& next) const {
  const FileRole role = map_.files[extent.file].role;
  const auto view = next();
  Verdict verdict;
  std::string content;  // what is wrong with what the bytes say
  if (map_.manifest && role == FileRole::Bank && view.size() == map_.manifest->layout.record_bytes) {
    const ExpertLayout& layout = map_.manifest->layout;
    const Sums sums = record_sums(view, kRecordHeaderBytes, layout.payload_end);
    verdict.digest = sums.digest;
    content = record_problem(extent, view, sums.crc);
  } else if (view.size() == extent.length) {
    verdict.digest = xxh3_128(view);
    if (map_.manifest && role == FileRole::Trunk) content = trunk_problem(extent, view);
  } else {
    Xxh3Stream stream;
    for (auto rest = view; !rest.empty(); rest = next()) stream.update(rest);
    verdict.digest = stream.digest();
  }
  const Digest128* sealed = map_.digest(extent);
  if (sealed != nullptr && *sealed != verdict.digest) {
    verdict.problem = fmt::format("XXH3-128: sealed {}, found {}", sealed->hex(), verdict.digest.hex());
    if (!content.empty()) verdict.problem += "; " + content;
  } else {
    verdict.problem = content;
  }
  return verdict;
}

std::string ExtentJudge::record_problem(const Extent& extent, std::span<const std::uint8_t> record,
                                        std::uint32_t crc) const {
  const ExpertLayout& layout = map_.manifest->layout;
  const std::uint32_t layer = map_.files[extent.file].layer;
  const RecordId id{layer, static_cast<std::uint32_t>(extent.index),
                    map_.manifest->banks.at(layer).codebook_base};
  try {
    check_record_header(record.first(kRecordHeaderBytes), layout, id, "");
  } catch (const Error& e) {
    const std::string_view text = e.what();
    return std::string(text.substr(std::min(text.size(), text.find_first_not_of(": "))));
  }
  if (crc != stored_crc(record)) {
    return fmt::format("crc32: the header says {:#010x}, the payload has {:#010x}", stored_crc(record), crc);
  }
  const std::uint8_t* scales = record.data() + layout.scale_offset;
  if (const auto bad = first_bad_half(scales, layout.scale_count)) {
    return fmt::format("scale {} at offset {} of the record is not finite", *bad,
                       layout.scale_offset + 2 * *bad);
  }
  const auto padding = record.subspan(layout.payload_end);
  const auto stray = std::find_if(padding.begin(), padding.end(), [](std::uint8_t b) { return b != 0; });
  if (stray != padding.end()) {
    return fmt::format("padding: byte {} of the record is {:#04x}, not zero",
                       layout.payload_end + (stray - padding.begin()), *stray);
  }
  return {};
}

std::string ExtentJudge::trunk_problem(const Extent& extent, std::span<const std::uint8_t> bytes) const {
  const std::uint64_t end = extent.offset + bytes.size();
  // From the last run that begins at or before the extent: runs do not overlap.
  auto run = std::upper_bound(floats_.begin(), floats_.end(), extent.offset,
                              [](std::uint64_t offset, const Floats& f) { return offset < f.offset; });
  if (run != floats_.begin()) --run;
  for (; run != floats_.end() && run->offset < end; ++run) {
    // Whole values inside this extent. One that an unaligned tensor lays across two extents is left to the
    // digest.
    const std::uint64_t skip = extent.offset > run->offset ? extent.offset - run->offset : 0;
    const std::uint64_t first = (skip + run->width - 1) / run->width;
    const std::uint64_t last = std::min(run->count, (end - run->offset) / run->width);
    if (first >= last) continue;
    const std::uint64_t at = run->offset + first * run->width;
    const std::uint8_t* p = bytes.data() + (at - extent.offset);
    const auto bad = run->width == 4 ? first_bad_float(p, last - first) : first_bad_half(p, last - first);
    if (bad) {
      return fmt::format("{}: {} {} at offset {} is not finite",
                         printable(map_.manifest->trunk[run->tensor].name),
                         run->width == 4 ? "value" : "scale", first + *bad, at + *bad * run->width);
    }
  }
  return {};
}

}  // namespace waste::verify
