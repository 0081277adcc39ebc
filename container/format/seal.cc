#include "container/format/seal.h"

#include <algorithm>

#include "container/core/bytes.h"
#include "container/core/checked.h"
#include "container/core/error.h"

namespace waste {

// seal    := header file* digest* self
//   header   0 u32 magic "WSEL"     16 u32 number of files
//            4 u32 version, 1       20 u32 bytes of all file entries
//            8 u64 size of the seal 24 u64 number of digests
//   file     u64 size, u64 extent bytes, u32 name length, name, zeros up to a multiple of 8
//   digest   XXH3-128 of an extent, files in order, extents in order
//   self     XXH3-128 of everything before

namespace {

constexpr std::uint64_t kHeaderBytes = 32;
constexpr std::uint64_t kDigestBytes = 16;
constexpr std::uint64_t kFileFixedBytes = 20;

std::uint64_t file_entry_bytes(std::size_t name_length) {
  return round_up(kFileFixedBytes + name_length, 8);
}

}  // namespace

std::uint64_t SealedFile::extent_size(std::uint64_t i) const {
  return std::min(extent_bytes, size - extent_offset(i));
}

const SealedFile* Seal::find(std::string_view name) const {
  const auto it =
      std::find_if(files.begin(), files.end(), [&](const SealedFile& f) { return f.name == name; });
  return it == files.end() ? nullptr : &*it;
}

Digest128 Seal::weights_fingerprint() const {
  Xxh3Stream stream;
  for (const SealedFile& f : files) {
    const bool bank = f.name.starts_with("experts-L");
    if (!bank && f.name != kManifestFile && f.name != kTrunkFile && f.name != kCodebooksFile) continue;
    std::uint8_t numbers[16];
    store_u64(numbers, f.size);
    store_u64(numbers + 8, f.name.size());
    stream.update(numbers);
    stream.update({reinterpret_cast<const std::uint8_t*>(f.name.data()), f.name.size()});
    for (const Digest128& d : f.digests) stream.update(d.bytes);
  }
  return stream.digest();
}

std::uint64_t extent_count(std::uint64_t size, std::uint64_t extent_bytes) {
  return size == 0 ? 1 : ceil_div(size, extent_bytes);
}

std::uint64_t seal_extent_bytes(std::string_view name, std::uint64_t size, const Manifest& manifest) {
  if (name.empty() || name[0] == '.' || name == kSealFile || name == kUsageFile || name.ends_with(".partial"))
    return 0;
  if (name == kTrunkFile || name == kCodebooksFile) return kSealExtent;
  for (const auto& [layer, bank] : manifest.banks) {
    if (bank.file == name) return manifest.layout.record_bytes;
  }
  return std::max<std::uint64_t>(size, 1);
}

std::vector<std::uint8_t> write_seal(Seal seal) {
  std::sort(seal.files.begin(), seal.files.end(),
            [](const SealedFile& a, const SealedFile& b) { return a.name < b.name; });
  std::uint64_t table = 0;
  std::uint64_t digests = 0;
  for (const SealedFile& f : seal.files) {
    table += file_entry_bytes(f.name.size());
    digests += f.digests.size();
  }
  std::vector<std::uint8_t> out(kHeaderBytes + table + (digests + 1) * kDigestBytes);
  store_u32(out.data(), kSealMagic);
  store_u32(out.data() + 4, kSealVersion);
  store_u64(out.data() + 8, out.size());
  store_u32(out.data() + 16, static_cast<std::uint32_t>(seal.files.size()));
  store_u32(out.data() + 20, static_cast<std::uint32_t>(table));
  store_u64(out.data() + 24, digests);
  std::uint8_t* entry = out.data() + kHeaderBytes;
  std::uint8_t* digest = entry + table;
  for (const SealedFile& f : seal.files) {
    store_u64(entry, f.size);
    store_u64(entry + 8, f.extent_bytes);
    store_u32(entry + 16, static_cast<std::uint32_t>(f.name.size()));
    std::copy(f.name.begin(), f.name.end(), entry + kFileFixedBytes);
    entry += file_entry_bytes(f.name.size());
    for (const Digest128& d : f.digests) {
      std::copy(d.bytes.begin(), d.bytes.end(), digest);
      digest += kDigestBytes;
    }
  }
  const Digest128 self = xxh3_128(std::span(out).first(out.size() - kDigestBytes));
  std::copy(self.bytes.begin(), self.bytes.end(), out.end() - static_cast<std::ptrdiff_t>(kDigestBytes));
  return out;
}

namespace {

void check_header(std::span<const std::uint8_t> bytes, std::string_view where) {
  if (bytes.size() < kHeaderBytes + kDigestBytes) {
    fail_data("{}: {} bytes, too short for a seal of at least {}", where, bytes.size(),
              kHeaderBytes + kDigestBytes);
  }
  const std::uint8_t* p = bytes.data();
  if (load_u32(p) != kSealMagic) {
    fail_data("{}: magic at offset 0: expected {:#010x}, found {:#010x}", where, kSealMagic, load_u32(p));
  }
  if (load_u32(p + 4) != kSealVersion) {
    fail_data("{}: version at offset 4: this program reads {}, found {}", where, kSealVersion,
              load_u32(p + 4));
  }
  if (load_u64(p + 8) != bytes.size()) {
    fail_data("{}: size at offset 8: the seal says {} bytes, the file has {}", where, load_u64(p + 8),
              bytes.size());
  }
  const Digest128 self = xxh3_128(bytes.first(bytes.size() - kDigestBytes));
  if (!std::equal(self.bytes.begin(), self.bytes.end(),
                  bytes.end() - static_cast<std::ptrdiff_t>(kDigestBytes))) {
    fail_data("{}: the seal is damaged: its digest of itself does not match", where);
  }
}

}  // namespace

Seal parse_seal(std::span<const std::uint8_t> bytes, std::string_view where) {
  check_header(bytes, where);
  const std::uint32_t files = load_u32(bytes.data() + 16);
  const std::uint64_t table = load_u32(bytes.data() + 20);
  const std::uint64_t digests = load_u64(bytes.data() + 24);
  const std::uint64_t body = bytes.size() - kHeaderBytes - kDigestBytes;
  if (table > body || digests != (body - table) / kDigestBytes || (body - table) % kDigestBytes != 0) {
    fail_data("{}: {} bytes of file entries and {} digests do not fill its {} bytes", where, table, digests,
              body);
  }
  Seal seal;
  std::uint64_t at = kHeaderBytes;
  const std::uint64_t table_end = kHeaderBytes + table;
  const std::uint8_t* digest = bytes.data() + table_end;
  std::uint64_t left = digests;
  for (std::uint32_t i = 0; i < files; ++i) {
    const auto refuse = [&](std::string_view what) {
      fail_data("{}: file entry {} at offset {}: {}", where, i, at, what);
    };
    if (table_end - at < kFileFixedBytes) refuse("runs past the table");
    SealedFile f;
    f.size = load_u64(bytes.data() + at);
    f.extent_bytes = load_u64(bytes.data() + at + 8);
    const std::uint32_t length = load_u32(bytes.data() + at + 16);
    if (length > 255 || file_entry_bytes(length) > table_end - at) refuse("its name runs past the table");
    f.name.assign(reinterpret_cast<const char*>(bytes.data() + at + kFileFixedBytes), length);
    if (f.name.empty() || f.name[0] == '.' ||
        f.name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      refuse("not a plain file name");
    }
    if (!seal.files.empty() && seal.files.back().name >= f.name) refuse("names are not in ascending order");
    if (f.extent_bytes == 0) refuse("extents of zero bytes");
    const std::uint64_t count = extent_count(f.size, f.extent_bytes);
    if (count > left) refuse("more extents than digests are left");
    left -= count;
    f.digests.resize(count);
    for (Digest128& d : f.digests) {
      std::copy_n(digest, kDigestBytes, d.bytes.begin());
      digest += kDigestBytes;
    }
    at += file_entry_bytes(length);
    seal.files.push_back(std::move(f));
  }
  if (at != table_end || left != 0) {
    fail_data("{}: {} bytes of file entries and {} digests belong to no file", where, table_end - at, left);
  }
  return seal;
}

}  // namespace waste
