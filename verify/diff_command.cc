// waste-verify diff: what two containers of one model do not have in common.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "container/core/json.h"
#include "container/core/text.h"
#include "container/format/types.h"
#include "verify/commands.h"
#include "verify/diff.h"
#include "verify/report.h"

namespace waste::verify {

namespace {

Json values_json(const std::optional<ValueDifference>& v) {
  if (!v) return nullptr;
  return {{"relative", v->relative}, {"largest", v->largest}};
}

Json to_json(const std::string& a, const std::string& b, const DiffResult& r) {
  Json out;
  out["first"] = a;
  out["second"] = b;
  out["finished"] = r.finished;
  out["same"] = r.finished && r.same();
  out["bytes"] = r.bytes;
  out["hole_bytes"] = r.hole_bytes;
  out["seconds"] = r.seconds;
  out["first_sealed"] = r.first_sealed;
  out["second_sealed"] = r.second_sealed;
  out["documents"] = r.documents;
  out["tensors"] = Json::array();
  for (const TensorDifference& t : r.tensors) {
    out["tensors"].push_back({{"name", t.name},
                              {"problem", t.problem},
                              {"first_damage", t.damage.first},
                              {"second_damage", t.damage.second},
                              {"difference", values_json(t.values)}});
  }
  out["experts"] = Json::array();
  for (const ExpertDifference& e : r.experts) {
    Json row = {{"layer", e.layer},
                {"expert", e.expert},
                {"problem", e.problem},
                {"first_damage", e.damage.first},
                {"second_damage", e.damage.second}};
    for (std::uint32_t kind = 0; kind < kMatrixKinds; ++kind) {
      row[std::string(matrix_name(static_cast<MatrixKind>(kind)))] = values_json(e.values[kind]);
    }
    out["experts"].push_back(std::move(row));
  }
  return out;
}

void print_damage(const std::string& place, const Damage& damage) {
  if (!damage.first.empty()) fmt::print("{}: damaged in the first: {}\n", place, damage.first);
  if (!damage.second.empty()) fmt::print("{}: damaged in the second: {}\n", place, damage.second);
}

// Who judged what differs, for whoever has to decide which side to keep.
void print_authority(const DiffResult& r) {
  if (r.first_sealed && r.second_sealed) {
    fmt::print("what differs was compared with the seal of each\n");
    return;
  }
  fmt::print("{}: damage there shows only in what a record's crc32 covers\n",
             r.first_sealed    ? "the second is not sealed"
             : r.second_sealed ? "the first is not sealed"
                               : "neither is sealed");
}

void print_result(const DiffResult& r) {
  const auto values = [](const std::optional<ValueDifference>& v) {
    return v ? fmt::format("relative {:.3g}, largest {:.3g}", v->relative, v->largest)
             : std::string("not decoded");
  };
  for (const std::string& document : r.documents) fmt::print("{}\n", document);
  for (const TensorDifference& t : r.tensors) {
    print_damage(printable(t.name), t.damage);
    fmt::print("{}: {}\n", printable(t.name), t.problem.empty() ? values(t.values) : t.problem);
  }
  std::size_t undecoded = 0;
  for (const ExpertDifference& e : r.experts) {
    const std::string place = fmt::format("expert {} of layer {}", e.expert, e.layer);
    print_damage(place, e.damage);
    if (!e.problem.empty()) {
      fmt::print("{}: not decoded: {}\n", place, e.problem);
    } else if (!e.values[0]) {
      ++undecoded;
    } else {
      for (std::uint32_t kind = 0; kind < kMatrixKinds; ++kind) {
        fmt::print("{}, {}: {}\n", place, matrix_name(static_cast<MatrixKind>(kind)), values(e.values[kind]));
      }
    }
  }
  if (undecoded > 0) fmt::print("{} more experts differ; see --experts\n", undecoded);
  if (!r.finished) {
    fmt::print("interrupted\n");
  } else if (r.same()) {
    fmt::print("the same: {} compared in {}", format_bytes(static_cast<double>(r.bytes)),
               format_duration(r.seconds));
    if (r.hole_bytes > 0) {
      fmt::print("; {} of them are holes on both sides\n", format_bytes(static_cast<double>(r.hole_bytes)));
    } else {
      fmt::print(", both sides read at {:.2f} GB/s together\n",
                 r.seconds > 0 ? 2 * static_cast<double>(r.bytes) / r.seconds * 1e-9 : 0);
    }
  } else {
    fmt::print("{} documents, {} tensors and {} experts differ\n", r.documents.size(), r.tensors.size(),
               r.experts.size());
    print_authority(r);
  }
}

int run(const cli::po::variables_map& vm) {
  const auto a = vm["A"].as<std::string>();
  const auto b = vm["B"].as<std::string>();
  cli::catch_interrupts();
  ByteProgress progress("compared", vm.count("quiet") != 0);
  const DiffCalls calls{.stop = [] { return cli::interrupted(); },
                        .progress = [&](auto done, auto total) { progress.show(done, total); },
                        .decode = static_cast<std::uint32_t>(
                            parse_integer(vm["experts"].as<std::string>(), "--experts", 0, 1u << 20))};
  const DiffResult result = diff_containers(a, b, calls);
  progress.line().clear();
  if (vm.count("json") != 0) {
    fmt::print("{}", dump_json(to_json(a, b, result)));
  } else {
    print_result(result);
  }
  if (!result.finished) return static_cast<int>(ErrorKind::Interrupted);
  return result.same() ? 0 : static_cast<int>(ErrorKind::Data);
}

}  // namespace

cli::Command diff_command() {
  cli::Command command{
      .name = "diff",
      .usage = "A B [options]",
      .summary = "say which tensors and experts of two containers differ, and by how much",
      .help =
          R"(Both are read once, past the page cache, and compared byte by byte; holes on both sides are left out. What
differs is read again: each side is judged by its own seal, which says where the damage is, and decoded to say by how
much they differ. Containers of different recipes can be compared as long as the model is the same. Exit 1 if they
differ. That two copies are the same does not say that they are sound: see waste-verify check.

  waste-verify diff kimi-k3.waste /mnt/old/kimi-k3.waste
  waste-verify diff kimi-k3.vq3.waste kimi-k3.vq2.waste --experts 1
)",
      .positionals = {{"A"}, {"B"}},
      .options = {},
      .run = run};
  command.options.add_options()  //
      ("experts", cli::po::value<std::string>()->default_value("4"),
       "decode so many of a layer's differing experts")       //
      ("json", "machine-readable output (verify/SCHEMA.md)")  //
      ("quiet,q", "no progress");
  return command;
}

}  // namespace waste::verify
