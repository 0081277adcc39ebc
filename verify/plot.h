// Line charts as SVG text: no scripts, no fonts or files from elsewhere, readable in any browser.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace waste::verify {

struct Chart {
  struct Series {
    std::string name;
    std::vector<double> y;  // one value an x
  };
  struct Marker {  // a vertical line at `x`, which is positive, with a label
    double x = 0;
    std::string label;
  };

  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<double> x;                      // positive, ascending; drawn on a logarithmic axis
  std::function<std::string(double)> x_text;  // how a tick reads: "64 GB"
  std::vector<Series> series;                 // values of 0 and up
  std::vector<Marker> markers;                // the axis reaches as far as they do
};

/// The charts one below the other. Text is escaped; values that are not finite leave a gap.
std::string render_svg(const std::vector<Chart>& charts);

}  // namespace waste::verify
