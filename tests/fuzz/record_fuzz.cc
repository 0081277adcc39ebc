// A record of a small model: the header check reads nothing outside the record, and whatever payload passes
// the crc32 decodes inside its buffers.
#include <algorithm>
#include <vector>

#include "container/codec/rvq.h"
#include "container/core/error.h"
#include "container/format/expert_record.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  waste::ModelConfig model;
  model.moe_intermediate_size = 72;  // not a multiple of the 64-row block
  model.expert_width = 16;
  const waste::ExpertQuant recipes[] = {waste::ExpertQuant::vq3(), waste::ExpertQuant::vq2(),
                                        waste::ExpertQuant::vq4p()};
  const waste::ExpertQuant quant = recipes[data[0] % 3];
  const waste::ExpertLayout layout = waste::expert_layout(model, quant);
  std::vector<std::uint8_t> record(layout.record_bytes);
  std::copy_n(data + 1, std::min(size - 1, record.size()), record.begin());
  const waste::RecordId id{3, 7, 9};
  try {
    waste::check_record(record, layout, id, "fuzz");
  } catch (const waste::Error&) {
    waste::write_record_header(record, layout, id);
    waste::check_record(record, layout, id, "fuzz, header made right");
  }
  const std::vector<float> books(std::size_t{quant.stages} * quant.entries * waste::kVecDim, 1.0f);
  for (std::size_t k = 0; k < waste::kMatrixKinds; ++k) {
    std::vector<float> out(std::size_t{layout.rows[k]} * layout.cols[k]);
    const std::span<const std::uint8_t> bytes(record);
    waste::decode_rvq(quant, layout.rows[k], layout.cols[k],
                      bytes.subspan(layout.index_offset[k], layout.index_bytes[k]),
                      bytes.subspan(layout.scale_offset + 2 * std::size_t{layout.first_scale[k]},
                                    2 * std::size_t{layout.rows[k]}),
                      books, out);
  }
  return 0;
}
