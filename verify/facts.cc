#include "verify/facts.h"

namespace waste::verify {

ModelFacts model_facts(const Manifest& m) {
  ModelFacts f;
  for (const TrunkTensor& t : m.trunk) {
    f.trunk_parameters += t.elements();
    if (t.name.starts_with("vision_tower.") || t.name.starts_with("mm_projector.")) continue;
    const bool table = t.name.ends_with("embed_tokens.weight");  // a token uses one row of it
    f.active_parameters += table ? t.cols() : t.elements();
  }
  f.picks = std::uint64_t{m.model.num_experts_per_token} * m.banks.size();
  f.pick_bytes = f.picks * m.layout.record_bytes;
  f.expert_parameters = m.model.expert_parameters() * m.model.num_experts * m.banks.size();
  f.active_parameters += m.model.expert_parameters() * f.picks;
  for (const auto& [layer, bank] : m.banks) f.expert_bytes += bank.bytes;
  return f;
}

}  // namespace waste::verify
