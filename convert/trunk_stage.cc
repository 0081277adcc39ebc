#include "convert/trunk_stage.h"

#include <tbb/parallel_pipeline.h>

#include <algorithm>

#include "container/core/bytes.h"
#include "convert/encoder/group_quantiser.h"
#include "convert/extent_writer.h"
#include "convert/source_rows.h"

namespace waste::convert {

namespace {

// Fixed, because the error sums are added up block by block.
constexpr std::uint64_t kBlockWeights = 1 << 20;

std::uint64_t block_rows(const TrunkTensor& place) {
  return std::max<std::uint64_t>(1, kBlockWeights / place.cols());
}

struct Block {
  std::size_t item = 0;
  std::uint64_t first = 0, rows = 0;
  std::vector<std::uint8_t> raw;
  std::vector<float> values;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint16_t> scales;
  ErrorSums errors;
};

void quantise(const TrunkItem& item, Block& block, StageTimes& times) {
  const std::uint64_t cols = item.place.cols();
  block.values.resize(block.rows * cols);
  {
    const PerfTimer timer(times.decode);
    const MatrixSource source{item.source, nullptr};
    decode_rows(source, block.first, block.rows, cols, block.raw, {}, block.values);
  }
  const PerfTimer timer(times.trunk);
  block.errors = {};
  if (!item.place.quantised()) {
    block.codes.resize(4 * block.values.size());
    for (std::size_t i = 0; i < block.values.size(); ++i)
      store_f32(block.codes.data() + 4 * i, block.values[i]);
    block.scales.clear();
    return;
  }
  const GroupFormat format = item.place.format == TensorFormat::Q4G ? GroupFormat::Q4G : GroupFormat::Q8G;
  block.codes.resize(block.rows * row_code_bytes(format, cols));
  block.scales.resize(block.rows * row_groups(cols));
  quantise_rows(format, block.values, block.rows, cols, block.codes, block.scales, block.errors);
}

// "model.layers.7." for everything in layer 7: tensors between two durable points.
std::string_view group_of(std::string_view name) {
  const auto at = name.find("layers.");
  if (at == name.npos) return "";
  return name.substr(0, name.find('.', at + std::string_view("layers.").size()));
}

// Appends finished blocks in order, a tensor's scales after its codes.
class TrunkOutput {
 public:
  TrunkOutput(const Plan& plan, const fs::path& out, const Journal& journal, UnitState& state, Meter& meter)
      : plan_(plan),
        journal_(journal),
        state_(state),
        meter_(meter),
        writer_(out / kTrunkFile, plan.trunk_bytes, kSealExtent, state.bytes, state.digests) {
    if (writer_.position() != state.bytes) state = {};
    for (const ErrorSums& e : state_.errors) total_.add(e);
  }

  void write(const Block& block) {
    const TrunkTensor& place = plan_.trunk[block.item].place;
    if (block.first == 0) {
      writer_.pad_to(place.offset);
      tensor_ = {};
      scales_.clear();
    }
    writer_.append(block.codes);
    for (const std::uint16_t s : block.scales) {
      scales_.resize(scales_.size() + 2);
      store_u16(scales_.data() + scales_.size() - 2, s);
    }
    tensor_.add(block.errors);
    if (block.first + block.rows == place.rows()) finish_tensor(block.item);
    total_.add(block.errors);
    meter_.add(block.rows * place.cols(), "trunk", total_);
  }

  void save() {
    writer_.checkpoint();
    state_.bytes = writer_.position();
    state_.digests = writer_.digests();
    journal_.save_trunk(state_);
  }

  void publish() {
    state_.digests = writer_.finish().digests;
    state_.bytes = plan_.trunk_bytes;
    state_.complete = true;
    journal_.save_trunk(state_);
  }

 private:
  void finish_tensor(std::size_t item) {
    writer_.append(scales_);
    state_.errors.push_back(tensor_);
    state_.items = item + 1;
    const bool last = item + 1 == plan_.trunk.size();
    if (last || group_of(plan_.trunk[item + 1].place.name) != group_of(plan_.trunk[item].place.name)) save();
  }

  const Plan& plan_;
  const Journal& journal_;
  UnitState& state_;
  Meter& meter_;
  ExtentWriter writer_;
  std::vector<std::uint8_t> scales_;
  ErrorSums tensor_;
  ErrorSums total_;
};

}  // namespace

std::uint64_t trunk_block_bytes(const Plan& plan) {
  std::uint64_t largest = 0;
  for (const TrunkItem& item : plan.trunk) {
    largest = std::max(largest, std::min(block_rows(item.place), item.place.rows()) * item.place.cols());
  }
  return largest * (4 + 4 + 4);  // as stored (at most f32), as floats, as written
}

void convert_trunk(const Checkpoint& checkpoint, const Plan& plan, const fs::path& out,
                   const Journal& journal, std::size_t in_flight, UnitState& state, Meter& meter) {
  TrunkOutput output(plan, out, journal, state, meter);
  std::vector<Block> blocks(in_flight);
  std::size_t sequence = 0;
  std::size_t item = state.items;
  std::uint64_t row = 0;

  const auto read_next = [&](tbb::flow_control& flow) -> Block* {
    if (item == plan.trunk.size() || (row == 0 && cli::interrupted())) {
      flow.stop();
      return nullptr;
    }
    const PerfTimer timer(meter.times().read);
    const TrunkItem& trunk = plan.trunk[item];
    Block& block = blocks[sequence++ % in_flight];  // tokens leave in order, so the oldest slot is free
    block.item = item;
    block.first = row;
    block.rows = std::min(block_rows(trunk.place), trunk.place.rows() - row);
    const std::uint64_t bytes = trunk.place.cols() * dtype_bytes(trunk.source->dtype);
    block.raw.resize(block.rows * bytes);
    checkpoint.read(*trunk.source, row * bytes, block.raw);
    row += block.rows;
    if (row == trunk.place.rows()) {
      row = 0;
      ++item;
    }
    return &block;
  };
  const auto encode = [&](Block* block) {
    quantise(plan.trunk[block->item], *block, meter.times());
    return block;
  };
  const auto write = [&](Block* block) {
    const PerfTimer timer(meter.times().write);
    output.write(*block);
  };
  tbb::parallel_pipeline(in_flight,
                         tbb::make_filter<void, Block*>(tbb::filter_mode::serial_in_order, read_next) &
                             tbb::make_filter<Block*, Block*>(tbb::filter_mode::parallel, encode) &
                             tbb::make_filter<Block*, void>(tbb::filter_mode::serial_in_order, write));
  if (state.items == plan.trunk.size()) {
    output.publish();
    return;
  }
  output.save();
  fail(ErrorKind::Interrupted, "interrupted at tensor {} of {} of the trunk; saved, run again to continue",
       state.items, plan.trunk.size());
}

SealedFile sealed_trunk(const Plan& plan, const UnitState& state) {
  return {std::string(kTrunkFile), plan.trunk_bytes, kSealExtent, state.digests};
}

}  // namespace waste::convert
