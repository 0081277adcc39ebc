#include "container/format/container.h"

#include "container/codec/group_quant.h"
#include "container/codec/rvq.h"
#include "container/codec/source_formats.h"
#include "container/core/bytes.h"

namespace waste {

namespace {

constexpr std::uint64_t kMaxCodebooksBytes = std::uint64_t{1} << 30;

void check_size(const File& file, std::uint64_t least, bool exact, std::string_view why) {
  const std::uint64_t found = file.size();
  if (exact ? found != least : found < least) {
    fail_data("{}: {} bytes, but {} {}{}", file.path().string(), found, why, exact ? "" : "at least ", least);
  }
}

}  // namespace

Container Container::open(const fs::path& directory) {
  if (!fs::is_directory(directory)) fail_data("{}: not a directory", directory.string());
  const fs::path manifest_path = directory / kManifestFile;
  if (!fs::exists(manifest_path)) {
    fail_data("{}: no {}: not a container, or its conversion has not finished", directory.string(),
              kManifestFile);
  }
  Container c;
  c.directory_ = directory;
  c.manifest_ = parse_manifest(read_text_file(manifest_path, kMaxManifestBytes), manifest_path.string());
  const fs::path codebooks_path = directory / kCodebooksFile;
  c.codebooks_ = Codebooks::parse(read_file(codebooks_path, kMaxCodebooksBytes), c.manifest_.quant,
                                  codebooks_path.string());
  for (const auto& [layer, bank] : c.manifest_.banks) {
    for (std::uint32_t b = 0; b < c.manifest_.quant.books_per_layer(); ++b) {
      if (!c.codebooks_.used(bank.codebook_base + b)) {
        fail_data("{}: codebook {}, which layer {} needs, is not there", codebooks_path.string(),
                  bank.codebook_base + b, layer);
      }
    }
    File file = File::open_read(directory / bank.file);
    check_size(file, bank.bytes, true, "the manifest says");
    c.banks_.emplace(layer, std::move(file));
  }
  c.trunk_ = File::open_read(directory / kTrunkFile);
  check_size(c.trunk_, c.manifest_.trunk_end(), false, "the manifest's tensors need");
  const fs::path seal_path = directory / kSealFile;
  if (fs::exists(seal_path)) c.seal_ = parse_seal(read_file(seal_path, kMaxSealBytes), seal_path.string());
  return c;
}

std::string Container::record_name(std::uint32_t layer, std::uint32_t expert) const {
  return fmt::format("{}: expert {} at offset {}", bank(layer).file, expert,
                     std::uint64_t{expert} * layout().record_bytes);
}

void Container::read_expert(std::uint32_t layer, std::uint32_t expert, std::span<std::uint8_t> record) const {
  bank_file(layer).read_exact(std::uint64_t{expert} * layout().record_bytes,
                              record.first(layout().record_bytes));
  check_record(record, layout(), record_id(layer, expert), record_name(layer, expert));
}

void Container::decode_matrix(std::uint32_t layer, std::span<const std::uint8_t> record, MatrixKind kind,
                              std::span<float> out) const {
  const ExpertLayout& l = layout();
  const auto k = static_cast<std::size_t>(kind);
  decode_rvq(l.quant, l.rows[k], l.cols[k], record.subspan(l.index_offset[k], l.index_bytes[k]),
             record.subspan(l.scale_offset + 2 * std::size_t{l.first_scale[k]}, 2 * std::size_t{l.rows[k]}),
             codebooks_.books(bank(layer).codebook_base, kind), out);
}

void Container::read_trunk_rows(const TrunkTensor& tensor, std::uint64_t first, std::uint64_t count,
                                std::span<float> out) const {
  if (first > tensor.rows() || count > tensor.rows() - first) {
    fail_data("{}: rows [{}, {}) of a tensor of {}", tensor.name, first, first + count, tensor.rows());
  }
  const std::uint64_t cols = tensor.cols();
  if (!tensor.quantised()) {
    const std::uint64_t width = tensor.format == TensorFormat::F32 ? 4 : 2;
    std::vector<std::uint8_t> raw(count * cols * width);
    trunk_.read_exact(tensor.offset + first * cols * width, raw);
    if (tensor.format == TensorFormat::F16) return decode_f16(raw, out);
    for (std::size_t i = 0; i < count * cols; ++i) out[i] = load_f32(raw.data() + 4 * i);
    return;
  }
  std::vector<std::uint8_t> codes(count * group_row_bytes(tensor.format, cols));
  std::vector<std::uint8_t> scales(count * group_row_scale_bytes(cols));
  trunk_.read_exact(tensor.offset + first * group_row_bytes(tensor.format, cols), codes);
  trunk_.read_exact(tensor.scale_offset + first * group_row_scale_bytes(cols), scales);
  decode_groups(tensor.format, count, cols, codes, scales, out);
}

}  // namespace waste
