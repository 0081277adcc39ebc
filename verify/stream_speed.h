// A short measurement of how fast this machine gets through weights that lie in memory.
#pragma once

namespace waste::verify {

/// GB/s that `threads` threads together read from memory and take through integer arithmetic (XXH3, whose
/// vector code is bound by memory on most machines), over about `seconds`. The kernels of a runtime can come
/// close to it and not exceed it by much: an upper bound.
double stream_gb_per_s(unsigned threads, double seconds);

}  // namespace waste::verify
