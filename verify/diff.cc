#include "verify/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "container/core/perf.h"
#include "verify/diff_side.h"
#include "verify/scan.h"

namespace waste::verify {

namespace {

constexpr std::uint64_t kDecodeBlock = std::uint64_t{1} << 20;   // values decoded at a time
constexpr std::uint64_t kTensorPiece = std::uint64_t{64} << 20;  // so that all readers share a large one
// Bytes compared at a time: a piece that differs is left at the first view that does.
constexpr std::uint64_t kView = std::uint64_t{4} << 20;

class Accumulator {
 public:
  void add(std::span<const float> a, std::span<const float> b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
      difference_ += d * d;
      norm_ += static_cast<double>(a[i]) * static_cast<double>(a[i]);
      largest_ = std::max(largest_, std::abs(d));
    }
  }
  ValueDifference result() const {
    if (difference_ == 0) return {};
    return {norm_ > 0 ? std::sqrt(difference_ / norm_) : HUGE_VAL, largest_};
  }

 private:
  double difference_ = 0;
  double norm_ = 0;
  double largest_ = 0;
};

class Diff {
 public:
  Diff(const fs::path& a, const fs::path& b, const DiffCalls& calls) : a_(a), b_(b), calls_(calls) {
    const auto same_shape = [&] {
      const ExpertLayout& x = a_.container.layout();
      const ExpertLayout& y = b_.container.layout();
      return x.rows == y.rows && x.cols == y.cols &&
             a_.manifest().banks.size() == b_.manifest().banks.size() &&
             a_.container.model().num_experts == b_.container.model().num_experts;
    };
    if (!same_shape()) fail_data("{} and {} hold models of different shapes", a.string(), b.string());
    same_recipe_ = a_.container.layout().quant == b_.container.layout().quant;
    result_.first_sealed = a_.map.seal.has_value();
    result_.second_sealed = b_.map.seal.has_value();
  }

  DiffResult run() {
    const double begin = now_seconds();
    compare_documents();
    list_tensors();
    list_experts();
    const std::size_t prefix =
        scan(a_.files, pieces_, 0, kView,
             {.handle = [&](std::size_t piece, PieceReader& reader) { compare(piece, reader); },
              .progress = [&](std::size_t) { report(); },
              .stop = calls_.stop});
    result_.seconds = now_seconds() - begin;
    if (prefix != pieces_.size()) return std::move(result_);
    judge();
    compare_books();
    measure_tensors();
    measure_experts();
    result_.finished = !calls_.stop();
    return std::move(result_);
  }

 private:
  // Where the second container has a piece of the first.
  struct Twin {
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
    const TrunkTensor* tensor = nullptr;  // else an expert
    std::uint32_t layer = 0;
    std::uint32_t expert = 0;
  };

  void compare_documents() {
    const Json& x = a_.manifest().config;
    const Json& y = b_.manifest().config;
    std::set<std::string> keys;
    for (const auto& [key, value] : x.items()) keys.insert(key);
    for (const auto& [key, value] : y.items()) keys.insert(key);
    for (const std::string& key : keys) {
      if (!x.contains(key) || !y.contains(key) || x[key] != y[key]) {
        result_.documents.push_back("config: " + printable(key));
      }
    }
    if (!same_recipe_) {
      result_.documents.push_back(fmt::format("recipe: {} and {}",
                                              format_name(a_.container.layout().quant.format),
                                              format_name(b_.container.layout().quant.format)));
    }
    for (const std::string_view name : {kTokenizerFile, kSpecialsFile, kChatFile, kVisionFile}) {
      compare_sidecar(std::string(name));
    }
  }

  void compare_sidecar(const std::string& name) {
    constexpr std::uint64_t kLimit = std::uint64_t{1} << 30;
    const fs::path p = a_.map.directory / name;
    const fs::path q = b_.map.directory / name;
    if (fs::exists(p) != fs::exists(q)) {
      result_.documents.push_back(
          fmt::format("{}: only in the {}", name, fs::exists(p) ? "first" : "second"));
    } else if (fs::exists(p) && read_file(p, kLimit) != read_file(q, kLimit)) {
      result_.documents.push_back(fmt::format("{}: other bytes", name) + damage_of_file(name));
    }
  }

  // "; damaged in the second: ..." where a seal tells.
  std::string damage_of_file(const std::string& name) const {
    std::string text;
    for (const auto& [side, word] : {std::pair(&a_, "first"), std::pair(&b_, "second")}) {
      const std::string problem = problem_of_file(*side, name);
      if (!problem.empty()) text += fmt::format("; damaged in the {}: {}", word, problem);
    }
    return text;
  }

  void add_piece(std::uint32_t file, std::uint64_t offset, std::uint64_t length, const Twin& twin) {
    pieces_.push_back({file, offset, length});
    twins_.push_back(twin);
    total_ += length;
  }

  void list_tensors() {
    for (const TrunkTensor& t : b_.manifest().trunk) {
      if (a_.manifest().find(t.name) == nullptr)
        result_.tensors.push_back(
            {.name = t.name, .problem = "only in the second", .damage = {}, .values = {}});
    }
    const std::uint32_t file = a_.open(std::string(kTrunkFile));
    const std::uint32_t twin = b_.open(std::string(kTrunkFile));
    for (const TrunkTensor& t : a_.manifest().trunk) {
      const TrunkTensor* other = b_.manifest().find(t.name);
      if (other == nullptr) {
        result_.tensors.push_back(
            {.name = t.name, .problem = "only in the first", .damage = {}, .values = {}});
      } else if (other->rows() != t.rows() || other->cols() != t.cols()) {
        result_.tensors.push_back({.name = t.name, .problem = "shapes differ", .damage = {}, .values = {}});
      } else if (other->format != t.format || other->bytes != t.bytes) {
        other_formats_.insert(&t);
      } else {
        for (std::uint64_t at = 0; at < t.bytes; at += kTensorPiece) {
          add_piece(file, t.offset + at, std::min(kTensorPiece, t.bytes - at),
                    {.file = twin, .offset = other->offset + at, .tensor = &t});
        }
      }
    }
  }

  void add_expert(std::uint32_t layer, std::uint32_t expert) {
    result_.experts.push_back({.layer = layer, .expert = expert, .problem = {}, .damage = {}, .values = {}});
  }

  void list_experts() {
    const std::uint64_t record = a_.container.layout().record_bytes;
    for (const auto& [layer, bank] : a_.manifest().banks) {
      if (!same_recipe_) {
        for (std::uint32_t e = 0; e < bank.experts; ++e) add_expert(layer, e);
        continue;
      }
      const std::uint32_t file = a_.open(bank.file);
      const std::uint32_t twin = b_.open(b_.container.bank(layer).file);
      for (std::uint32_t e = 0; e < bank.experts; ++e) {
        const std::uint64_t offset = std::uint64_t{e} * record;
        add_piece(file, offset, record, {.file = twin, .offset = offset, .layer = layer, .expert = e});
      }
    }
  }

  void compare(std::size_t piece, PieceReader& reader) {
    const Twin& twin = twins_[piece];
    std::uint64_t holes = 0;
    bool same = false;
    try {
      same = same_bytes(pieces_[piece], reader, twin, holes);
    } catch (const Error&) {
      // Read again by the judge, who says what is wrong.
    }
    const std::lock_guard lock(mutex_);
    result_.bytes += pieces_[piece].length;
    result_.hole_bytes += holes;
    if (same) return;
    if (twin.tensor != nullptr) {
      differing_tensors_.insert(twin.tensor);
    } else {
      add_expert(twin.layer, twin.expert);
    }
  }

  // What is a hole on both sides reads as zeros on both, and is left out.
  bool same_bytes(const Piece& piece, PieceReader& reader, const Twin& twin, std::uint64_t& holes) const {
    thread_local AlignedBuffer buffer(DirectFile::room(kView));
    const DirectFile& other = b_.files[twin.file];
    for (std::uint64_t at = 0; at < piece.length;) {
      const ByteRange mine = reader.file().next_data(piece.offset + at, piece.offset + piece.length);
      const ByteRange theirs = other.next_data(twin.offset + at, twin.offset + piece.length);
      const ByteRange x{mine.begin - piece.offset, mine.end - piece.offset};
      const ByteRange y{theirs.begin - twin.offset, theirs.end - twin.offset};
      const ByteRange data = x.begin <= y.begin ? x : y;
      reader.skip(data.begin - at);
      holes += data.begin - at;
      for (at = data.begin; at < data.end;) {
        const auto view = reader.next(std::min(kView, data.end - at));
        const auto twin_view = other.read(twin.offset + at, view.size(), buffer);
        if (std::memcmp(view.data(), twin_view.data(), view.size()) != 0) return false;
        at += view.size();
      }
    }
    return true;
  }

  void report() {
    std::uint64_t done = 0;
    {
      const std::lock_guard lock(mutex_);
      done = result_.bytes;
    }
    calls_.progress(done, total_);
  }

  // Which side of what differs is not what it was when it was sealed.
  void judge() {
    const std::uint64_t record = a_.container.layout().record_bytes;
    const auto visit_all = [&](const DiffSide& side, const auto& visit_tensor, const auto& visit_expert) {
      for (const TrunkTensor* t : differing_tensors_) {
        const std::uint64_t begin = side.manifest().tensor(t->name).offset;
        visit_tensor(t, kTrunkFile, begin, begin + t->bytes);
      }
      for (std::size_t i = 0; same_recipe_ && i < result_.experts.size(); ++i) {
        const std::uint64_t begin = result_.experts[i].expert * record;
        visit_expert(i, side.container.bank(result_.experts[i].layer).file, begin, begin + record);
      }
    };
    const auto judge_side = [&](const DiffSide& side, auto member) {
      Judgement judgement(side);
      const auto add = [&](auto, std::string_view name, std::uint64_t begin, std::uint64_t end) {
        judgement.add(name, begin, end);
      };
      visit_all(side, add, add);
      judgement.run(calls_.stop);
      visit_all(
          side,
          [&](const TrunkTensor* t, std::string_view name, std::uint64_t begin, std::uint64_t end) {
            tensor_damage_[t].*member = judgement.problem(name, begin, end);
          },
          [&](std::size_t i, std::string_view name, std::uint64_t begin, std::uint64_t end) {
            result_.experts[i].damage.*member = judgement.problem(name, begin, end);
          });
    };
    judge_side(a_, &Damage::first);
    judge_side(b_, &Damage::second);
  }

  // Where a layer's books differ, all its experts do, whatever their bytes.
  void compare_books() {
    if (!same_recipe_) return;
    std::set<std::pair<std::uint32_t, std::uint32_t>> listed;
    for (const ExpertDifference& e : result_.experts) listed.emplace(e.layer, e.expert);
    std::string layers;
    for (const auto& [layer, bank] : a_.manifest().banks) {
      bool same = true;
      for (std::uint32_t kind = 0; kind < kMatrixKinds; ++kind) {
        const auto x = a_.container.codebooks().books(bank.codebook_base, static_cast<MatrixKind>(kind));
        const auto y = b_.container.codebooks().books(b_.container.bank(layer).codebook_base,
                                                      static_cast<MatrixKind>(kind));
        same = same && std::ranges::equal(x, y);
      }
      if (same) continue;
      layers += fmt::format("{}{}", layers.empty() ? "" : ", ", layer);
      for (std::uint32_t e = 0; e < bank.experts; ++e) {
        if (!listed.contains({layer, e})) add_expert(layer, e);
      }
    }
    if (layers.empty()) return;
    result_.documents.push_back(fmt::format("{}: books of layers {}", kCodebooksFile, layers) +
                                damage_of_file(std::string(kCodebooksFile)));
  }

  void measure_tensors() {
    for (const TrunkTensor& t : a_.manifest().trunk) {
      if (!differing_tensors_.contains(&t) && !other_formats_.contains(&t)) continue;
      if (calls_.stop()) return;
      TensorDifference difference{.name = t.name, .problem = {}, .damage = tensor_damage_[&t], .values = {}};
      try {
        difference.values = measure_tensor(t, b_.manifest().tensor(t.name));
      } catch (const Error& error) {
        difference.problem = error.what();
      }
      result_.tensors.push_back(std::move(difference));
    }
  }

  ValueDifference measure_tensor(const TrunkTensor& t, const TrunkTensor& other) const {
    const std::uint64_t block = std::max<std::uint64_t>(1, kDecodeBlock / t.cols());
    std::vector<float> x(block * t.cols());
    std::vector<float> y(block * t.cols());
    Accumulator sum;
    for (std::uint64_t row = 0; row < t.rows(); row += block) {
      const std::uint64_t count = std::min(block, t.rows() - row);
      const auto part = [&](std::vector<float>& v) { return std::span(v).first(count * t.cols()); };
      a_.container.read_trunk_rows(t, row, count, part(x));
      b_.container.read_trunk_rows(other, row, count, part(y));
      sum.add(part(x), part(y));
    }
    return sum.result();
  }

  void measure_experts() {
    std::sort(result_.experts.begin(), result_.experts.end(), [](const auto& x, const auto& y) {
      return std::pair(x.layer, x.expert) < std::pair(y.layer, y.expert);
    });
    std::map<std::uint32_t, std::uint32_t> decoded;
    for (ExpertDifference& e : result_.experts) {
      if (calls_.stop() || decoded[e.layer]++ >= calls_.decode) continue;
      try {
        measure_expert(e);
      } catch (const Error& error) {
        e.problem = error.what();
      }
    }
  }

  void measure_expert(ExpertDifference& e) const {
    std::vector<std::uint8_t> p(a_.container.layout().record_bytes);
    std::vector<std::uint8_t> q(b_.container.layout().record_bytes);
    a_.container.read_expert(e.layer, e.expert, p);
    b_.container.read_expert(e.layer, e.expert, q);
    for (std::uint32_t kind = 0; kind < kMatrixKinds; ++kind) {
      const std::uint64_t count =
          std::uint64_t{a_.container.layout().rows[kind]} * a_.container.layout().cols[kind];
      std::vector<float> x(count);
      std::vector<float> y(count);
      a_.container.decode_matrix(e.layer, p, static_cast<MatrixKind>(kind), x);
      b_.container.decode_matrix(e.layer, q, static_cast<MatrixKind>(kind), y);
      Accumulator sum;
      sum.add(x, y);
      e.values[kind] = sum.result();
    }
  }

  DiffSide a_;
  DiffSide b_;
  const DiffCalls& calls_;
  bool same_recipe_ = false;
  DiffResult result_;
  std::vector<Piece> pieces_;
  std::vector<Twin> twins_;
  std::uint64_t total_ = 0;
  std::mutex mutex_;
  std::set<const TrunkTensor*> differing_tensors_;  // in bytes, of the first container
  std::set<const TrunkTensor*> other_formats_;
  std::map<const TrunkTensor*, Damage> tensor_damage_;
};

}  // namespace

DiffResult diff_containers(const fs::path& a, const fs::path& b, const DiffCalls& calls) {
  return Diff(a, b, calls).run();
}

}  // namespace waste::verify
