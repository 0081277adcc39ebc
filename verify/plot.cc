#include "verify/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace waste::verify {

namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 420;  // a chart's
constexpr double kLeft = 80;
constexpr double kRight = 170;  // room for the legend
constexpr double kTop = 50;
constexpr double kBottom = 60;
constexpr double kMarkerRow = 15;
// Distinct for readers who do not tell red from green (Okabe and Ito, 2008).
constexpr std::array<const char*, 6> kColours = {"#0072b2", "#d55e00", "#009e73",
                                                 "#cc79a7", "#e69f00", "#56b4e9"};

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// 1, 2 or 5 times a power of ten: the step that gives at most six ticks up to `top`.
double tick_step(double top) {
  const double power = std::pow(10, std::floor(std::log10(top / 6)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor * 6 >= top) return power * factor;
  }
  return power * 10;
}

class Panel {
 public:
  Panel(const Chart& chart, double origin, std::string& out) : chart_(chart), origin_(origin), out_(out) {
    low_ = std::log(chart.x.front());
    high_ = std::log(chart.x.back());
    for (const auto& marker : chart.markers) {
      low_ = std::min(low_, std::log(marker.x));
      high_ = std::max(high_, std::log(marker.x));
    }
    markers_ = chart.markers;
    std::sort(markers_.begin(), markers_.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
    ceiling_ = kTop + kMarkerRow * static_cast<double>(markers_.size());
    double most = 0;
    for (const auto& series : chart.series) {
      for (const double y : series.y) {
        if (std::isfinite(y)) most = std::max(most, y);
      }
    }
    step_ = tick_step(most > 0 ? most : 1);
    top_ = step_ * std::max(1.0, std::ceil(most / step_));
  }

  void draw() {
    axes();
    for (std::size_t i = 0; i < markers_.size(); ++i) mark(i);
    for (std::size_t i = 0; i < chart_.series.size(); ++i) curve(i);
  }

 private:
  double px(double x) const {
    const double span = high_ > low_ ? (std::log(x) - low_) / (high_ - low_) : 0.5;
    return kLeft + span * (kWidth - kLeft - kRight);
  }
  double py(double y) const {
    return origin_ + kHeight - kBottom - y / top_ * (kHeight - ceiling_ - kBottom);
  }

  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void axes() {
    put(R"(<text x="{:.0f}" y="{:.0f}" class="title">{}</text>)", kLeft, origin_ + 28, escape(chart_.title));
    for (double y = 0; y <= top_ + step_ / 2; y += step_) {
      put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="grid"/>)", kLeft, py(y),
          kWidth - kRight, py(y));
      put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{:g}</text>)", kLeft - 8, py(y) + 4, y);
    }
    double free_from = 0;  // labels that would overlap the one before are left out
    for (const double x : chart_.x) {
      put(R"(<line x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}" class="axis"/>)", px(x), py(0),
          py(0) + 5);
      if (px(x) < free_from) continue;
      put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", px(x), py(0) + 20,
          escape(chart_.x_text(x)));
      free_from = px(x) + 58;
    }
    put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="axis"/>)", kLeft, py(0),
        kWidth - kRight, py(0));
    put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", (kLeft + kWidth - kRight) / 2,
        py(0) + 42, escape(chart_.x_label));
    put(R"svg(<text x="18" y="{0:.1f}" text-anchor="middle" transform="rotate(-90 18 {0:.1f})">{1}</text>)svg",
        py(top_ / 2), escape(chart_.y_label));
  }

  // Labels stand above the plotted area, one a row, the leftmost on top: no line crosses another's label.
  void mark(std::size_t index) {
    const Chart::Marker& marker = markers_[index];
    const double row = origin_ + kTop + kMarkerRow * static_cast<double>(index);
    put(R"(<line x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}" class="mark"/>)", px(marker.x), py(0),
        row - 8);
    put(R"(<text x="{:.1f}" y="{:.1f}" class="small">{}</text>)", px(marker.x) + 4, row,
        escape(marker.label));
  }

  void curve(std::size_t index) {
    const Chart::Series& series = chart_.series[index];
    const char* colour = kColours[index % kColours.size()];
    std::string points;
    const auto flush = [&] {
      if (!points.empty()) put(R"(<polyline points="{}" stroke="{}" class="curve"/>)", points, colour);
      points.clear();
    };
    for (std::size_t i = 0; i < series.y.size() && i < chart_.x.size(); ++i) {
      if (!std::isfinite(series.y[i])) {
        flush();
        continue;
      }
      const double x = px(chart_.x[i]);
      const double y = py(series.y[i]);
      fmt::format_to(std::back_inserter(points), "{}{:.1f},{:.1f}", points.empty() ? "" : " ", x, y);
      put(R"(<circle cx="{:.1f}" cy="{:.1f}" r="2.5" fill="{}"/>)", x, y, colour);
    }
    flush();
    const double y = origin_ + ceiling_ + 20 * static_cast<double>(index);
    put(R"(<line x1="{0:.0f}" y1="{1:.0f}" x2="{2:.0f}" y2="{1:.0f}" stroke="{3}" class="curve"/>)",
        kWidth - kRight + 16, y, kWidth - kRight + 40, colour);
    put(R"(<text x="{:.0f}" y="{:.0f}">{}</text>)", kWidth - kRight + 46, y + 4, escape(series.name));
  }

  const Chart& chart_;
  std::vector<Chart::Marker> markers_;  // by x
  double ceiling_ = kTop;               // of the plotted area
  double origin_;
  std::string& out_;
  double low_ = 0;
  double high_ = 0;
  double step_ = 1;
  double top_ = 1;
};

}  // namespace

std::string render_svg(const std::vector<Chart>& charts) {
  const double height = kHeight * static_cast<double>(charts.size());
  std::string out = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}">
<style>
text {{ font: 13px sans-serif; fill: #222; }}
.title {{ font-size: 16px; font-weight: bold; }}
.small {{ font-size: 11px; fill: #555; }}
.grid {{ stroke: #ddd; }}
.axis {{ stroke: #222; }}
.mark {{ stroke: #777; stroke-dasharray: 5 4; }}
.curve {{ fill: none; stroke-width: 2; }}
</style>
<rect width="100%" height="100%" fill="#fff"/>
)",
      kWidth, height);
  for (std::size_t i = 0; i < charts.size(); ++i)
    Panel(charts[i], kHeight * static_cast<double>(i), out).draw();
  out += "</svg>\n";
  return out;
}

}  // namespace waste::verify
