#include "convert/source.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "convert/problems.h"

namespace waste::convert {

namespace {
constexpr std::uint64_t kMaxConfig = 16 << 20;
}

Source open_source(const fs::path& directory, const Reclaimed& reclaimed) {
  if (!fs::is_directory(directory)) fail_data("{}: not a directory", directory.string());
  const fs::path config_path = directory / "config.json";
  Source source;
  source.config =
      std::make_unique<Json>(parse_json(read_text_file(config_path, kMaxConfig), config_path.string()));
  source.model = parse_model_config(*source.config, config_path.string());

  // The small files and the shards do not depend on each other: one run reports what is wrong with either.
  Problems problems;
  const auto collect = [&](const std::function<void()>& step) {
    try {
      step();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Data) throw;
      problems.add(e.what());
    }
  };
  collect([&] { source.sidecars = collect_sidecars(directory, source.model, *source.config); });
  collect([&] {
    source.checkpoint = Checkpoint::open(directory, reclaimed);
    source.map = map_model(source.checkpoint, source.model, *source.config);
  });
  problems.fail_if_any("this checkpoint cannot be converted");
  return source;
}

}  // namespace waste::convert
