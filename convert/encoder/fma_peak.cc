#include "convert/encoder/fma_peak.h"

#include <algorithm>
#include <cstdint>

#include "container/core/perf.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convert/encoder/fma_peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace waste::convert {
namespace HWY_NAMESPACE {

// Twelve chains cover four cycles of latency on three pipes. Returns the operations done.
double run_fma_chains(std::int64_t turns, float* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 16> f;
  const auto m = hn::Set(f, out[0]);
  // Different values, or the compiler sees that one chain does for all.
  auto a0 = hn::Set(f, 0.0f), a1 = hn::Set(f, 0.1f), a2 = hn::Set(f, 0.2f), a3 = hn::Set(f, 0.3f);
  auto a4 = hn::Set(f, 0.4f), a5 = hn::Set(f, 0.5f), a6 = hn::Set(f, 0.6f), a7 = hn::Set(f, 0.7f);
  auto a8 = hn::Set(f, 0.8f), a9 = hn::Set(f, 0.9f), a10 = hn::Set(f, 1.0f), a11 = hn::Set(f, 1.1f);
  for (std::int64_t turn = 0; turn < turns; turn++) {
    a0 = hn::MulAdd(a0, m, m), a1 = hn::MulAdd(a1, m, m), a2 = hn::MulAdd(a2, m, m),
    a3 = hn::MulAdd(a3, m, m);
    a4 = hn::MulAdd(a4, m, m), a5 = hn::MulAdd(a5, m, m), a6 = hn::MulAdd(a6, m, m),
    a7 = hn::MulAdd(a7, m, m);
    a8 = hn::MulAdd(a8, m, m), a9 = hn::MulAdd(a9, m, m), a10 = hn::MulAdd(a10, m, m),
    a11 = hn::MulAdd(a11, m, m);
  }
  const auto low = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  const auto high = hn::Add(hn::Add(hn::Add(a6, a7), hn::Add(a8, a9)), hn::Add(a10, a11));
  out[0] = hn::GetLane(hn::Add(low, high));
  return 12.0 * static_cast<double>(turns) * static_cast<double>(hn::Lanes(f));
}

}  // namespace HWY_NAMESPACE
}  // namespace waste::convert
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace waste::convert {

HWY_EXPORT(run_fma_chains);

double measure_fma_peak() {
  constexpr std::int64_t kTurns = 4'000'000;
  constexpr int kRepeats = 5;
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; repeat++) {
    float value = 0.5f;
    const double begin = now_seconds();
    const double done = HWY_DYNAMIC_DISPATCH(run_fma_chains)(kTurns, &value);
    best = std::max(best, done / (now_seconds() - begin));
  }
  return best;
}

}  // namespace waste::convert
#endif
