// What another program wrote, decoded here and compared with digests that a third program computed.
#include <doctest/doctest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "container/codec/rvq.h"
#include "container/format/container.h"
#include "tests/data_dir.h"

namespace waste {
namespace {

std::string sha256_of(const std::vector<float>& values) {
  std::uint8_t digest[32];
  REQUIRE(EVP_Digest(values.data(), values.size() * sizeof(float), digest, nullptr, EVP_sha256(), nullptr) ==
          1);
  std::string hex;
  for (const std::uint8_t b : digest) hex += fmt::format("{:02x}", b);
  return hex;
}

class GoldenDigests {
 public:
  explicit GoldenDigests(const std::string& container)
      : all_(parse_json(read_text_file(golden_dir() / "decoded.json", 1 << 20), "decoded.json")
                 .at(container)) {}

  void compare(const std::string& name, const std::vector<float>& values) {
    CAPTURE(name);
    REQUIRE(all_.contains(name));
    CHECK(sha256_of(values) == all_[name].get<std::string>());
    ++compared_;
  }
  bool all_compared() const { return compared_ == all_.size(); }

 private:
  Json all_;
  std::size_t compared_ = 0;
};

void compare_container(const std::string& name) {
  CAPTURE(name);
  GoldenDigests digests(name);
  const Container c = Container::open(golden_dir() / name);
  const ExpertLayout& l = c.layout();
  for (const TrunkTensor& t : c.manifest().trunk) {
    std::vector<float> values(t.elements());
    c.read_trunk_rows(t, 0, t.rows(), values);
    digests.compare(t.name, values);
  }
  std::vector<std::uint8_t> record(l.record_bytes);
  for (const auto& [layer, bank] : c.manifest().banks) {
    for (std::uint32_t e = 0; e < bank.experts; ++e) {
      c.read_expert(layer, e, record);
      for (const MatrixKind kind : {MatrixKind::Gate, MatrixKind::Up, MatrixKind::Down}) {
        const auto k = static_cast<std::size_t>(kind);
        std::vector<float> values(std::size_t{l.rows[k]} * l.cols[k]);
        c.decode_matrix(layer, record, kind, values);
        digests.compare(fmt::format("layers.{}.experts.{}.{}", layer, e, matrix_name(kind)), values);
      }
    }
  }
  CHECK(digests.all_compared());
}

TEST_CASE("golden containers decode to the digests, bit by bit") {
  compare_container("tiny-k3.waste");
  compare_container("tiny-linear.waste");
  compare_container("tiny-linear.vq2.waste");
  compare_container("tiny-linear.vq4p.waste");
}

TEST_CASE("what we write back is what the other program wrote: records, codebooks, manifest") {
  for (const char* name : {"tiny-k3.waste", "tiny-linear.vq2.waste", "tiny-linear.vq4p.waste"}) {
    CAPTURE(name);
    const Container c = Container::open(golden_dir() / name);
    const ExpertLayout& l = c.layout();
    const std::uint32_t layer = c.manifest().banks.rbegin()->first;
    const std::uint32_t expert = c.model().num_experts - 1;
    std::vector<std::uint8_t> record(l.record_bytes);
    c.read_expert(layer, expert, record);
    std::vector<std::uint8_t> again = record;
    std::fill_n(again.begin(), kRecordHeaderBytes, std::uint8_t{0xAA});
    for (std::size_t k = 0; k < kMatrixKinds; ++k) {
      const auto packed = std::span(again).subspan(l.index_offset[k], l.index_bytes[k]);
      std::vector<std::uint8_t> plain(std::size_t{l.rows[k]} * (l.cols[k] / kVecDim) * l.quant.stages);
      unpack_indices(l.quant, l.rows[k], l.cols[k], packed, plain);
      std::fill(packed.begin(), packed.end(), std::uint8_t{0xAA});
      pack_indices(l.quant, l.rows[k], l.cols[k], plain, packed);
    }
    write_record_header(again, l, c.record_id(layer, expert));
    CHECK(again == record);

    const auto file = read_file(c.directory() / kCodebooksFile, 1 << 20);
    const std::uint64_t size = codebook_bytes(l.quant);
    for (std::uint32_t id = 0; id < c.codebooks().count(); ++id) {
      std::vector<std::uint16_t> halves(std::size_t{l.quant.entries} * kVecDim);
      for (std::size_t i = 0; i < halves.size(); ++i) {
        halves[i] =
            static_cast<std::uint16_t>(file[id * size + 16 + 2 * i] | file[id * size + 17 + 2 * i] << 8);
      }
      std::vector<std::uint8_t> book(size, 0xAA);
      write_codebook(book, id, l.quant, halves);
      REQUIRE(std::equal(book.begin(), book.end(), file.begin() + static_cast<std::ptrdiff_t>(id * size)));
    }

    const std::string text = read_text_file(c.directory() / kManifestFile, 1 << 20);
    CHECK(parse_json(write_manifest(c.manifest()), "ours") == parse_json(text, "theirs"));
  }
}

TEST_CASE("the manifest's config follows from the checkpoint's") {
  for (const char* name : {"tiny-k3", "tiny-linear"}) {
    const Json source = parse_json(read_text_file(data_dir() / name / "config.json", 1 << 20), "config.json");
    const Container c = Container::open(golden_dir() / (std::string(name) + ".waste"));
    CHECK(manifest_config(source) == c.manifest().config);
    const ModelConfig from_source = parse_model_config(source, "config.json");
    CHECK(from_source.tensor_prefix == c.model().tensor_prefix);
    CHECK(from_source.arch == c.model().arch);
    CHECK(from_source.kda_layer == c.model().kda_layer);
  }
}

}  // namespace
}  // namespace waste
