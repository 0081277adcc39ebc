// What a conversion says on stdout: lines for people, or with --json one object a line.
#pragma once

#include <string>
#include <vector>

#include "cli/cli.h"
#include "convert/meter.h"
#include "convert/plan.h"
#include "convert/source.h"

namespace waste::convert {

class Report {
 public:
  Report(const Options& options, cli::ProgressLine& line) : options_(options), line_(line) {}

  void plan(const Plan& plan, const Source& source, const DiskNeed& need) const;
  void layer(std::uint32_t layer, const std::vector<ErrorSums>& errors) const;
  void note(const std::string& text) const;
  /// `quality` is QualityReport::json of what there is; `seconds` the whole run.
  void done(const Plan& plan, const Json& quality, const Meter& meter, double seconds) const;

 private:
  void event(const Json& json) const;
  void text(const std::string& line) const;

  const Options& options_;
  cli::ProgressLine& line_;
};

}  // namespace waste::convert
