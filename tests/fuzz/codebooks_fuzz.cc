// The first byte chooses the recipe, the rest is the file.
#include "container/core/error.h"
#include "container/format/codebooks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const waste::ExpertQuant quant = data[0] % 2 == 0 ? waste::ExpertQuant::vq4p() : waste::ExpertQuant::vq3();
  try {
    const waste::Codebooks books = waste::Codebooks::parse({data + 1, size - 1}, quant, "fuzz");
    for (std::uint32_t id = 0; id < books.count(); ++id) {
      if (books.used(id)) books.book(id);
    }
    books.books(0, waste::MatrixKind::Down);
  } catch (const waste::Error&) {
  }
  return 0;
}
