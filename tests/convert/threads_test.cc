#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "convert/pipeline.h"
#include "tests/data_dir.h"
#include "tests/temp_dir.h"

namespace waste::convert {

namespace {

int threads_of_this_process() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int threads = 0;
    if (word == "Threads:" && status >> threads) return threads;
  }
  return 0;
}

}  // namespace

// Reading, training, encoding and their inner loops share one pool, whose threads stay until the process
// ends: what is there afterwards is all there ever was.
TEST_CASE("a conversion on 64 threads makes 64 threads, whatever runs inside what") {
  constexpr int kThreads = 64;
  constexpr int kSpare = 1;  // oneTBB may keep one besides
  const TempDir dir;
  Options options;
  options.source = data_dir() / "tiny-linear";
  options.out = dir / "out";
  options.recipe.quality = Quality::Fast;
  options.recipe.experts = ExpertQuant::vq4p();
  options.recipe.codebook_sample = 1024;
  options.threads = kThreads;
  options.quiet = true;
  CHECK(run_conversion(options) == 0);
  CHECK(threads_of_this_process() <= kThreads + kSpare);
  CHECK(threads_of_this_process() > kThreads / 2);  // so that the line above can fail
}

}  // namespace waste::convert
