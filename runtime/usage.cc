#include "runtime/usage.h"

#include <algorithm>
#include <map>

#include "container/core/bytes.h"
#include "container/core/file.h"

namespace waste::runtime {

namespace {

constexpr std::uint32_t kMagic = 0x47535557;
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kEntryBytes = 16;
constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;

}  // namespace

Usage read_usage(const Container& c) {
  Usage usage;
  const std::size_t experts = c.model().num_experts;
  usage.hits.resize(c.manifest().banks.size() * experts);
  const fs::path path = c.directory() / kUsageFile;
  std::error_code missing;
  if (const auto size = fs::file_size(path, missing); missing || size < kHeaderBytes || size > kMaxBytes)
    return usage;
  const auto bytes = read_file(path, kMaxBytes);
  if (load_u32(bytes.data()) != kMagic || load_u32(bytes.data() + 4) != kVersion) return usage;
  usage.tokens = load_u64(bytes.data() + 8);
  std::map<std::uint32_t, std::size_t> first;
  for (const auto& [layer, bank] : c.manifest().banks) first.emplace(layer, first.size() * experts);
  for (std::size_t at = kHeaderBytes; at + kEntryBytes <= bytes.size(); at += kEntryBytes) {
    const std::uint8_t* e = bytes.data() + at;
    const auto layer = first.find(load_u16(e));
    const std::uint32_t expert = load_u16(e + 2);
    if (layer != first.end() && expert < experts) usage.hits[layer->second + expert] += load_u32(e + 4);
  }
  return usage;
}

void write_usage(const Container& c, const Usage& usage) {
  std::vector<std::uint8_t> out(kHeaderBytes);
  store_u32(out.data(), kMagic);
  store_u32(out.data() + 4, kVersion);
  store_u64(out.data() + 8, usage.tokens);
  std::size_t item = 0;
  for (const auto& [layer, bank] : c.manifest().banks) {
    for (std::uint32_t expert = 0; expert < bank.experts; ++expert, ++item) {
      if (usage.hits[item] == 0) continue;
      std::uint8_t e[kEntryBytes] = {};
      store_u16(e, static_cast<std::uint16_t>(layer));
      store_u16(e + 2, static_cast<std::uint16_t>(expert));
      store_u32(e + 4, static_cast<std::uint32_t>(std::min<std::uint64_t>(usage.hits[item], 0xFFFFFFFF)));
      store_u32(e + 8, static_cast<std::uint32_t>(std::min<std::uint64_t>(usage.tokens, 0xFFFFFFFF)));
      out.insert(out.end(), e, e + kEntryBytes);
    }
  }
  write_file_atomic(c.directory() / kUsageFile, out);
}

}  // namespace waste::runtime
