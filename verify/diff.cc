#include "verify/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "container/format/container.h"
#include "verify/scan.h"

namespace waste::verify {

namespace {

constexpr std::uint64_t kDecodeBlock = std::uint64_t{1} << 20;  // values decoded at a time

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
  Diff(const fs::path& a, const fs::path& b, const DiffCalls& calls)
      : a_(Container::open(a)), b_(Container::open(b)), calls_(calls) {
    const auto same_shape = [&] {
      const ExpertLayout& x = a_.layout();
      const ExpertLayout& y = b_.layout();
      return x.rows == y.rows && x.cols == y.cols &&
             a_.manifest().banks.size() == b_.manifest().banks.size() &&
             a_.model().num_experts == b_.model().num_experts;
    };
    if (!same_shape()) fail_data("{} and {} hold models of different shapes", a.string(), b.string());
    same_recipe_ = a_.layout().quant == b_.layout().quant;
  }

  DiffResult run() {
    compare_documents();
    list_tensors();
    list_experts();
    const std::size_t prefix =
        scan(files_, pieces_, 0, a_.layout().record_bytes,
             {.handle = [&](std::size_t piece, PieceReader& reader) { compare(piece, reader); },
              .progress = [&](std::size_t) { calls_.progress(done_, total_); },
              .stop = calls_.stop});
    if (prefix != pieces_.size()) return std::move(result_);
    measure_tensors();
    measure_experts();
    result_.finished = !calls_.stop();
    return std::move(result_);
  }

 private:
  // The same bytes of the second container, for a piece of the first.
  struct Twin {
    const File* file = nullptr;
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
      result_.documents.push_back(fmt::format("recipe: {} and {}", format_name(a_.layout().quant.format),
                                              format_name(b_.layout().quant.format)));
    }
    for (const std::string_view name : {kTokenizerFile, kSpecialsFile, kChatFile, kVisionFile}) {
      const fs::path p = a_.directory() / name;
      const fs::path q = b_.directory() / name;
      constexpr std::uint64_t kLimit = std::uint64_t{1} << 30;
      if (fs::exists(p) != fs::exists(q)) {
        result_.documents.push_back(
            fmt::format("{}: only in the {}", name, fs::exists(p) ? "first" : "second"));
      } else if (fs::exists(p) && read_file(p, kLimit) != read_file(q, kLimit)) {
        result_.documents.push_back(fmt::format("{}: other bytes", name));
      }
    }
  }

  void add_piece(const fs::path& path, std::uint64_t offset, std::uint64_t length, const Twin& twin) {
    if (files_.empty() || files_.back().path() != path) files_.push_back(DirectFile::open(path));
    pieces_.push_back({static_cast<std::uint32_t>(files_.size() - 1), offset, length});
    twins_.push_back(twin);
    total_ += length;
  }

  void list_tensors() {
    for (const TrunkTensor& t : b_.manifest().trunk) {
      if (a_.manifest().find(t.name) == nullptr)
        result_.tensors.push_back({t.name, "only in the second", {}});
    }
    for (const TrunkTensor& t : a_.manifest().trunk) {
      const TrunkTensor* other = b_.manifest().find(t.name);
      if (other == nullptr) {
        result_.tensors.push_back({t.name, "only in the first", {}});
      } else if (other->rows() != t.rows() || other->cols() != t.cols()) {
        result_.tensors.push_back({t.name, "shapes differ", {}});
      } else if (other->format != t.format || other->bytes != t.bytes) {
        differing_tensors_.insert(&t);
      } else {
        add_piece(a_.directory() / kTrunkFile, t.offset, t.bytes, {&b_.trunk_file(), other->offset, &t});
      }
    }
  }

  void list_experts() {
    for (const auto& [layer, bank] : a_.manifest().banks) {
      for (std::uint32_t e = 0; e < bank.experts; ++e) {
        const std::uint64_t offset = std::uint64_t{e} * a_.layout().record_bytes;
        if (same_recipe_) {
          add_piece(a_.bank_path(layer), offset, a_.layout().record_bytes,
                    {&b_.bank_file(layer), offset, nullptr, layer, e});
        } else {
          result_.experts.push_back({.layer = layer, .expert = e, .problem = {}, .values = {}});
        }
      }
    }
  }

  void compare(std::size_t piece, PieceReader& reader) {
    thread_local std::vector<std::uint8_t> other;
    const Twin& twin = twins_[piece];
    bool differs = false;
    std::uint64_t at = twin.offset;
    for (auto view = reader.next(); !view.empty(); view = reader.next()) {
      other.resize(std::max(other.size(), view.size()));
      twin.file->read_exact(at, std::span(other).first(view.size()));
      twin.file->drop_cache(at, view.size());
      differs |= std::memcmp(view.data(), other.data(), view.size()) != 0;
      at += view.size();
    }
    const std::lock_guard lock(mutex_);
    done_ += pieces_[piece].length;
    result_.bytes += pieces_[piece].length;
    if (!differs) return;
    if (twin.tensor != nullptr) {
      differing_tensors_.insert(twin.tensor);
    } else {
      result_.experts.push_back({.layer = twin.layer, .expert = twin.expert, .problem = {}, .values = {}});
    }
  }

  void measure_tensors() {
    for (const TrunkTensor& t : a_.manifest().trunk) {
      if (!differing_tensors_.contains(&t) || calls_.stop()) continue;
      const TrunkTensor& other = b_.manifest().tensor(t.name);
      const std::uint64_t block = std::max<std::uint64_t>(1, kDecodeBlock / t.cols());
      std::vector<float> x(block * t.cols());
      std::vector<float> y(block * t.cols());
      Accumulator sum;
      for (std::uint64_t row = 0; row < t.rows(); row += block) {
        const std::uint64_t count = std::min(block, t.rows() - row);
        const auto part = [&](std::vector<float>& v) { return std::span(v).first(count * t.cols()); };
        a_.read_trunk_rows(t, row, count, part(x));
        b_.read_trunk_rows(other, row, count, part(y));
        sum.add(part(x), part(y));
      }
      result_.tensors.push_back({t.name, {}, sum.result()});
    }
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
    std::vector<std::uint8_t> p(a_.layout().record_bytes);
    std::vector<std::uint8_t> q(b_.layout().record_bytes);
    a_.read_expert(e.layer, e.expert, p);
    b_.read_expert(e.layer, e.expert, q);
    for (std::uint32_t kind = 0; kind < kMatrixKinds; ++kind) {
      const std::uint64_t count = std::uint64_t{a_.layout().rows[kind]} * a_.layout().cols[kind];
      std::vector<float> x(count);
      std::vector<float> y(count);
      a_.decode_matrix(e.layer, p, static_cast<MatrixKind>(kind), x);
      b_.decode_matrix(e.layer, q, static_cast<MatrixKind>(kind), y);
      Accumulator sum;
      sum.add(x, y);
      e.values[kind] = sum.result();
    }
  }

  Container a_;
  Container b_;
  const DiffCalls& calls_;
  bool same_recipe_ = false;
  DiffResult result_;
  std::vector<DirectFile> files_;
  std::vector<Piece> pieces_;
  std::vector<Twin> twins_;
  std::uint64_t total_ = 0;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
  std::set<const TrunkTensor*> differing_tensors_;
};

}  // namespace

DiffResult diff_containers(const fs::path& a, const fs::path& b, const DiffCalls& calls) {
  return Diff(a, b, calls).run();
}

}  // namespace waste::verify
