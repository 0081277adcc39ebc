// Hostile manifests, configs and records: each is refused with a message that names the place.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "container/codec/source_formats.h"
#include "container/format/container.h"
#include "container/format/trunk_recipe.h"
#include "tests/data_dir.h"

namespace waste {
namespace {

Json golden_manifest() {
  return parse_json(read_text_file(golden_dir() / "tiny-k3.waste" / kManifestFile, 1 << 20), "manifest.json");
}

// The message of the Error(Data) that `call` throws; fails the test when it throws nothing.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Data);
    CHECK(std::string(e.what()).find('\n') == std::string::npos);
    return e.what();
  }
  FAIL("accepted");
  return {};
}

void check_refused(const std::function<void(Json&)>& damage, std::initializer_list<const char*> named) {
  Json m = golden_manifest();
  damage(m);
  const std::string message = refusal([&] { parse_manifest(m.dump(), "manifest.json"); });
  for (const char* part : named) CHECK_MESSAGE(message.find(part) != std::string::npos, message);
}

TEST_CASE("trunk recipe: small tensors stay floats, delicate ones keep eight bits") {
  const auto of = [](std::string_view name, std::uint64_t elements) {
    return trunk_format(name, 2, elements, TensorFormat::Q4G);
  };
  CHECK(trunk_format("model.norm.weight", 1, 1 << 20, TensorFormat::Q4G) == TensorFormat::F32);
  CHECK(of("model.layers.0.mlp.up_proj.weight", 65535) == TensorFormat::F32);
  CHECK(of("model.layers.1.self_attn.q_proj.weight", 65536) == TensorFormat::Q4G);
  CHECK(of("model.layers.1.block_sparse_moe.shared_experts.up_proj.weight", 65536) == TensorFormat::Q4G);
  for (const char* name :
       {"language_model.model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.gate_proj.weight",
        "language_model.model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
        "vision_tower.encoder.blocks.0.wo.weight", "mm_projector.proj.0.weight"}) {
    CAPTURE(name);
    CHECK(of(name, 65536) == TensorFormat::Q8G);
  }
  CHECK(trunk_format("x", 2, 65536, TensorFormat::Q8G) == TensorFormat::Q8G);
}

TEST_CASE("manifests: version, config, recipe") {
  check_refused([](Json& m) { m.erase("format_version"); }, {"format_version", "missing"});
  check_refused([](Json& m) { m["format_version"] = 1; }, {"reads 0", "found 1"});
  check_refused([](Json& m) { m.erase("config"); }, {"config", "missing"});
  check_refused([](Json& m) { m["config"] = 3; }, {"config", "object"});
  check_refused([](Json& m) { m["expert_quant"]["fmt"] = "VQ9"; }, {"expert_quant", "VQ9"});
  check_refused([](Json& m) { m["expert_quant"]["vec_dim"] = 0; }, {"vec_dim", "found 0"});
  check_refused([](Json& m) { m["expert_quant"]["stages"] = 200; }, {"stages", "found 200"});
  check_refused([](Json& m) { m["expert_quant"]["index_block"] = 0; }, {"index_block"});
  for (const char* text : {"", "{", "[]", "{\"format_version\":0}", "nonsense"}) {
    refusal([&] { parse_manifest(text, "manifest.json"); });
  }
}

TEST_CASE("manifests: layers") {
  check_refused([](Json& m) { m["layers"].erase("3"); }, {"no bank for MoE layers 3"});
  check_refused([](Json& m) { m["layers"]["0"] = m["layers"]["1"]; }, {"\"0\" is not the number"});
  check_refused([](Json& m) { m["layers"]["200"] = m["layers"]["1"]; }, {"\"200\" is not the number"});
  check_refused([](Json& m) { m["layers"]["01"] = m["layers"]["1"]; }, {"\"01\""});
  check_refused([](Json& m) { m["layers"]["1"]["bytes"] = 1048576 - 32768; },
                {"layer 1", "bytes", "1048576"});
  check_refused([](Json& m) { m["layers"]["1"]["bytes"] = -1; }, {"layer 1", "bytes", "-1"});
  check_refused([](Json& m) { m["layers"]["1"]["experts"] = 31; }, {"layer 1", "expected 32"});
  check_refused([](Json& m) { m["layers"]["1"]["file"] = "../x"; }, {"layer 1", "plain file name"});
  check_refused([](Json& m) { m["layers"]["1"]["file"] = "/etc/passwd"; }, {"plain file name"});
  check_refused([](Json& m) { m["layers"]["1"]["file"] = "experts-L2.bin"; }, {"belongs to another layer"});
  check_refused([](Json& m) { m["layers"]["1"]["codebook_base"] = 1e9; }, {"codebook_base"});
}

TEST_CASE("manifests: trunk") {
  const auto quantised = [](Json& m) -> Json& { return m["trunk"][0]; };
  check_refused([](Json& m) { m["trunk"] = Json::array(); }, {"trunk", "0 tensors"});
  check_refused([&](Json& m) { quantised(m)["off"] = -8; }, {"lm_head", "off", "-8"});
  check_refused([&](Json& m) { quantised(m)["off"] = 18446744073709551615u; }, {"lm_head", "overflows"});
  check_refused(
      [&](Json& m) {
        quantised(m)["shape"] = {1u << 20, 1u << 20, 1u << 30};
      },
      {"lm_head", "overflows"});
  check_refused([&](Json& m) { quantised(m)["shape"] = {1u << 20, 1u << 20}; }, {"lm_head", "scale_off"});
  check_refused([&](Json& m) { quantised(m)["shape"] = {0, 256}; }, {"lm_head", "zero"});
  check_refused([&](Json& m) { quantised(m)["fmt"] = 7; }, {"lm_head", "code 7"});
  check_refused([&](Json& m) { quantised(m)["group"] = 0; }, {"group", "found 0"});
  check_refused([&](Json& m) { quantised(m)["scale_off"] = 0; }, {"scale_off"});
  check_refused([&](Json& m) { quantised(m)["bytes"] = 10; }, {"scale_off"});
  check_refused(
      [](Json& m) {
        m["trunk"][1]["off"] = 1000;
        m["trunk"][1]["scale_off"] = 590824;
      },
      {"overlaps"});
  check_refused([](Json& m) { m["trunk"].push_back(m["trunk"][0]); }, {"appears twice"});
}

TEST_CASE("configs: every problem is listed at once, and nothing is guessed") {
  const Json source =
      parse_json(read_text_file(data_dir() / "tiny-linear" / "config.json", 1 << 20), "config.json");
  const auto refused = [&](const std::function<void(Json&)>& damage,
                           std::initializer_list<const char*> named) {
    Json config = source;
    damage(config);
    const std::string message = refusal([&] { parse_model_config(config, "config.json"); });
    for (const char* part : named) CHECK_MESSAGE(message.find(part) != std::string::npos, message);
  };
  refused(
      [](Json& c) {
        c.erase("hidden_size");
        c.erase("vocab_size");
        c.erase("linear_attn_config");
      },
      {"hidden_size: missing", "vocab_size: missing", "linear_attn_config: missing"});
  refused([](Json& c) { c["linear_attn_config"].erase("kda_layers"); }, {"kda_layers: missing"});
  refused([](Json& c) { c["linear_attn_config"].erase("full_attn_layers"); }, {"full_attn_layers: missing"});
  refused([](Json& c) { c["linear_attn_config"]["kda_layers"] = {0, 1, 2, 3}; }, {"from 1 to 5, found 0"});
  refused([](Json& c) { c["linear_attn_config"]["kda_layers"] = {1, 2, 3, 4, 5}; }, {"layer 4", "2 times"});
  refused([](Json& c) { c["linear_attn_config"]["kda_layers"] = {1, 2, 3}; }, {"layer 5", "0 times"});
  refused([](Json& c) { c["num_experts_per_token"] = 0; }, {"num_experts_per_token", "found 0"});
  refused([](Json& c) { c["num_experts_per_token"] = 17; }, {"num_experts_per_token", "from 1 to 16"});
  refused([](Json& c) { c["hidden_size"] = 0; }, {"hidden_size"});
  refused([](Json& c) { c["hidden_size"] = 1u << 30; }, {"hidden_size"});
  refused([](Json& c) { c["moe_intermediate_size"] = 63; }, {"multiple of 8"});
  refused([](Json& c) { c.erase("rms_norm_eps"); }, {"rms_norm_eps: missing"});
  refused([](Json& c) { c["rms_norm_eps"] = 0; }, {"rms_norm_eps"});
  refused([](Json& c) { c["rms_norm_eps"] = 1; }, {"rms_norm_eps"});
  refused([](Json& c) { c["rms_norm_eps"] = "1e-5"; }, {"rms_norm_eps"});
  refused([](Json& c) { c["hidden_act"] = "gelu"; }, {"gelu"});
  refused([](Json& c) { c["num_expert_group"] = 3; }, {"num_expert_group"});
  Json other_names = source;
  other_names["n_routed_experts"] = other_names["num_experts"];
  other_names.erase("num_experts");
  CHECK(parse_model_config(other_names, "config.json").num_experts == 16);
  CHECK(manifest_config(other_names)["num_experts"] == 16);
}

TEST_CASE("released models: the sizes that the public facts give") {
  const auto load = [](const char* name) {
    return parse_model_config(parse_json(read_text_file(data_dir() / "configs" / name, 1 << 20), name), name);
  };
  const ModelConfig k3 = load("kimi-k3.json");
  CHECK(k3.moe_layers() == 92);
  CHECK(k3.kda_layers() == 69);
  CHECK(expert_layout(k3, ExpertQuant::vq3()).record_bytes == 12'406'784);
  const ModelConfig linear = load("kimi-linear.json");
  CHECK(linear.moe_layers() == 26);
  CHECK(linear.mla_layers() == 7);
}

TEST_CASE("records: each header field is compared, none is followed") {
  const Container c = Container::open(golden_dir() / "tiny-linear.waste");
  std::vector<std::uint8_t> record(c.layout().record_bytes);
  c.read_expert(2, 5, record);
  for (std::size_t bit = 0; bit < kRecordHeaderBytes * 8; ++bit) {
    if (bit / 8 == 9 && (bit % 8 == 1 || bit % 8 == 2)) continue;  // the two hint flags carry no meaning here
    CAPTURE(bit);
    record[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    refusal([&] { check_record(record, c.layout(), c.record_id(2, 5), "bank"); });
    record[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
  }
  for (std::size_t at = kRecordHeaderBytes; at < c.layout().payload_end; at += 97) {
    record[at] ^= 0x10;
    CHECK(refusal([&] { check_record(record, c.layout(), c.record_id(2, 5), "bank"); }).find("crc32") !=
          std::string::npos);
    record[at] ^= 0x10;
  }
  CHECK(refusal([&] { check_record(record, c.layout(), c.record_id(2, 6), "bank"); }) ==
        "bank: record header: expert: expected 6, found 5");
}

TEST_CASE("codebook files: truncation, foreign entries, values that are not finite") {
  const ExpertQuant quant = ExpertQuant::vq3();
  const std::vector<std::uint8_t> good =
      read_file(golden_dir() / "tiny-linear.waste" / kCodebooksFile, 1 << 20);
  const auto refused = [&](const std::function<void(std::vector<std::uint8_t>&)>& damage) {
    std::vector<std::uint8_t> bytes = good;
    damage(bytes);
    return refusal([&] { Codebooks::parse(bytes, quant, "codebooks.bin"); });
  };
  refused([](auto& b) { b.pop_back(); });
  CHECK(refused([](auto& b) { b[4112] ^= 1; }).find("codebook 1: magic") != std::string::npos);
  CHECK(refused([](auto& b) { b[4112 + 4] ^= 1; }).find("codebook 1: id") != std::string::npos);
  refused([](auto& b) { b[7] = 0; });
  refused([](auto& b) { b[8] = 64; });
  CHECK(refused([](auto& b) { b[17] = 0x7C; }).find("entry 0 is not finite") != std::string::npos);
  std::vector<std::uint8_t> with_gap = good;
  std::fill_n(with_gap.begin() + 4112, 4112, std::uint8_t{0});
  const Codebooks books = Codebooks::parse(with_gap, quant, "codebooks.bin");
  CHECK_FALSE(books.used(1));
  CHECK_THROWS_AS(books.books(0, MatrixKind::Gate), Error);
  CHECK_THROWS_AS(books.book(books.count()), Error);
}

TEST_CASE("MXFP4: every code and scale") {
  std::vector<std::uint8_t> packed(16);
  for (std::size_t i = 0; i < 16; ++i) packed[i] = static_cast<std::uint8_t>(i | (15 - i) << 4);
  std::vector<float> out(32);
  for (int e = 0; e < 255; ++e) {
    const std::uint8_t scale = static_cast<std::uint8_t>(e);
    decode_mxfp4(1, 32, packed, {&scale, 1}, out);
    const double unit = std::ldexp(1.0, e - 127);
    constexpr double kMagnitude[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    for (std::size_t i = 0; i < 16; ++i) {
      const double value = kMagnitude[i & 7] * unit * (i & 8 ? -1 : 1);
      REQUIRE(out[2 * i] == static_cast<float>(value));
      REQUIRE(out[2 * (15 - i) + 1] == static_cast<float>(value));
    }
  }
}

}  // namespace
}  // namespace waste
