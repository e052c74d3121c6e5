#include "investigator/report_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "investigator/markdown.h"
#include "investigator/markup.h"

namespace plumb::investigator {
namespace {

std::string shown(std::string_view foreign_text) { return escape_markup(in_one_line(foreign_text)); }

const Shade& shade_of(double recall) {
  return *std::find_if(kShades.begin(), kShades.end(), [&](const Shade& s) { return recall >= s.least; });
}

std::string svg(const std::string& id, double width, double height, const std::string& title, const std::string& desc,
                const std::string& inner) {
  return fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" "
      "aria-labelledby=\"{2}-t {2}-d\"><title id=\"{2}-t\">{3}</title><desc id=\"{2}-d\">{4}</desc>{5}</svg>\n",
      width, height, id, title, desc, inner);
}

std::string label(double x, double y, const char* klass, const std::string& markup) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>", x, y, klass, markup);
}

// ---- timeline

struct Lane {
  std::string name;
  std::vector<const LaunchEntry*> bars;
};

std::vector<Lane> lanes_of(const Report& report, std::size_t& left_out) {
  std::vector<Lane> lanes;
  std::map<Variant, std::size_t> lane_of;
  std::size_t bars = 0;
  left_out = 0;
  for (const LaunchEntry& e : report.launches) {
    auto known = lane_of.find(e.variant);
    if (++bars > kMostBars || (known == lane_of.end() && lanes.size() == kMostLanes)) {
      ++left_out;
      continue;
    }
    if (known == lane_of.end()) {
      known = lane_of.emplace(e.variant, lanes.size()).first;
      lanes.push_back({e.variant_name, {}});
    }
    lanes[known->second].bars.push_back(&e);
  }
  return lanes;
}

std::string clock(double seconds) {
  const auto whole = static_cast<long>(seconds);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// Whole seconds, minutes or hours, so that at most seven ticks fit.
double tick_step(double span_s) {
  constexpr int kMostTicks = 7;
  for (const double step : {1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0})
    if (span_s <= kMostTicks * step) return step;
  return 3600 * std::ceil(span_s / (3600.0 * kMostTicks));
}

std::string bar(const LaunchEntry& e, double x, double width, double y, double height) {
  const bool ran = e.trials > 0;
  const char* klass = !ran ? "none" : e.failing > 0 ? "fail" : "pass";
  const std::string says = fmt::format("launch {}, {}: {}, {} of {} right, {} to {}", e.id, shown(e.label),
                                       status_name(e.status), e.right, e.trials, clock(e.begin_s), clock(e.end_s));
  const auto box = [&](const char* c) {
    return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}\"/>", x, y, width,
                       height, c);
  };
  return fmt::format("<g><title>{}</title>{}{}</g>", says, box(klass), e.failing > 0 ? box("hatch") : "");
}

}  // namespace

std::string heat_map_svg(const HeatMap& map, std::size_t variant) {
  constexpr double kLeft = 84, kTop = 22, kWidth = 56, kHeight = 34, kGap = 2;
  const double width = kLeft + kWidth * static_cast<double>(map.lengths.size());
  const double height = kTop + kHeight * static_cast<double>(map.probes.size());
  std::string inner;
  for (std::size_t l = 0; l < map.lengths.size(); ++l)
    inner += label(kLeft + kWidth * (static_cast<double>(l) + 0.5), 14, "mid", fmt::format("≤ {}", map.lengths[l]));
  std::string worst;
  double least = 2;
  for (std::size_t p = 0; p < map.probes.size(); ++p) {
    const double y = kTop + kHeight * static_cast<double>(p);
    inner += label(0, y + kHeight / 2 + 4, "row", shown(map.probes[p]));
    for (std::size_t l = 0; l < map.lengths.size(); ++l) {
      const Counts counts = map.counts[variant][p][l];
      const double x = kLeft + kWidth * static_cast<double>(l);
      if (counts.trials == 0) {
        inner += label(x + kWidth / 2, y + kHeight / 2 + 4, "none", "–");
        continue;
      }
      const double recall = 1 - static_cast<double>(counts.failures) / counts.trials;
      const std::string says = fmt::format("{}, up to {} tokens: {} of {} right", shown(map.probes[p]), map.lengths[l],
                                           counts.trials - counts.failures, counts.trials);
      if (recall < least) {
        least = recall;
        worst = says;
      }
      const Shade& shade = shade_of(recall);
      inner += fmt::format(
          "<g><title>{}</title><rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"3\" "
          "fill=\"{}\"/><text x=\"{:.0f}\" y=\"{:.0f}\" class=\"num\" style=\"fill:{}\">{}/{}</text></g>",
          says, x, y, kWidth - kGap, kHeight - kGap, shade.fill, x + (kWidth - kGap) / 2, y + kHeight / 2 + 4,
          shade.ink, counts.trials - counts.failures, counts.trials);
    }
  }
  return svg(fmt::format("heat{}", variant), width, height,
             fmt::format("Recall of the variant “{}” by probe and prompt length", shown(map.variants[variant])),
             worst.empty() ? "No question was answered." : "Lowest: " + worst + ".", inner);
}

std::string posterior_svg(const PosteriorTrace& trace, std::size_t number) {
  constexpr double kLeft = 40, kTop = 10, kRight = 210, kWidth = 760, kHeight = 190, kAxis = 40, kLine = 15;
  constexpr std::array kDashes{"none", "7 3", "2 3", "9 3 2 3", "4 6"};
  static_assert(kDashes.size() >= kMostTraced);
  const double right = kWidth - kRight;
  const double bottom = kTop + kHeight;
  const auto steps = static_cast<double>(std::max<std::size_t>(trace.points.size(), 2) - 1);
  const auto x_of = [&](std::size_t i) { return kLeft + (right - kLeft) * static_cast<double>(i) / steps; };
  const auto y_of = [&](double p) { return bottom - kHeight * p; };
  std::string inner;
  for (const double p : {0.0, 0.5, 1.0}) {
    inner += fmt::format("<line x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" class=\"grid\"/>", kLeft, right,
                         y_of(p), y_of(p));
    inner += label(0, y_of(p) + 4, "row", fmt::format("{:.0f} %", 100 * p));
  }
  // Marks at the bottom: what each launch showed. Numbers only where they have room.
  const std::size_t every = trace.points.size() / 20 + 1;
  for (std::size_t i = 0; i < trace.points.size(); ++i) {
    const PosteriorTrace::Point& p = trace.points[i];
    inner +=
        fmt::format("<g><title>launch {}: {}</title><circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" class=\"{}\"/></g>",
                    p.launch, p.failed ? "it fails" : "it passes", x_of(i), bottom + 12, p.failed ? "fail" : "pass");
    if (i % every == 0) inner += label(x_of(i), bottom + 32, "mid", std::to_string(p.launch));
  }
  double free_y = kTop + 4;
  for (std::size_t s = 0; s < trace.switches.size(); ++s) {
    std::string path;
    for (std::size_t i = 0; i < trace.points.size(); ++i)
      path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", x_of(i), y_of(trace.points[i].probabilities[s]));
    inner += fmt::format("<path d=\"{}\" class=\"line{}\" stroke-dasharray=\"{}\"/>", path, s == 0 ? " first" : "",
                         kDashes[s]);
    // Names from top to bottom, in the order of their ends, none over another.
    const double end = trace.points.back().probabilities[s];
    const double y = std::max(free_y, y_of(end) + 4 - kLine * static_cast<double>(trace.switches.size() - 1 - s));
    free_y = y + kLine;
    inner += fmt::format(
        "<line x1=\"{0:.0f}\" x2=\"{1:.0f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" class=\"line{3}\" "
        "stroke-dasharray=\"{4}\"/>",
        right + 8, right + 32, y - 4, s == 0 ? " first" : "", kDashes[s]);
    inner += label(right + 38, y, "row", fmt::format("{} {:.0f} %", shown(trace.switches[s]), 100 * end));
  }
  const std::string desc =
      trace.switches.empty()
          ? "No suspects."
          : fmt::format("After {} the probability of {} is {:.1f} %.", counted(trace.points.size(), "launch"),
                        shown(trace.switches.front()), 100 * trace.points.back().probabilities.front());
  return svg(fmt::format("posterior{}", number), kWidth, bottom + kAxis,
             "Probability of each suspect after each launch", desc, inner);
}

std::string timeline_svg(const Report& report) {
  constexpr double kLeft = 16, kTop = 8, kLane = 20, kBar = 14, kWidth = 760, kAxis = 24, kRight = 20, kGap = 6;
  std::size_t left_out = 0;
  const auto lanes = lanes_of(report, left_out);
  double end = 1;
  for (const LaunchEntry& e : report.launches) end = std::max(end, e.end_s);
  const double scale = (kWidth - kLeft - kRight) / end;
  const double bottom = kTop + kLane * static_cast<double>(lanes.size());
  std::string inner =
      "<defs><pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><rect width=\"2\" height=\"5\" class=\"stripe\"/></pattern></defs>";
  const double step = tick_step(end);
  for (int i = 0; i * step <= end; ++i) {
    const double x = kLeft + i * step * scale;
    inner += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\" class=\"grid\"/>", x, kTop,
                         bottom);
    inner += label(x, bottom + 16, "mid", clock(i * step));
  }
  int failing = 0;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const double y = kTop + kLane * static_cast<double>(i);
    for (const LaunchEntry* e : lanes[i].bars) {
      const double width = std::max(2.0, (e->end_s - e->begin_s) * scale - 1);
      inner += bar(*e, kLeft + e->begin_s * scale, width, y + 3, kBar);
      failing += e->failing > 0 ? 1 : 0;
    }
    // The name stands beside the lane's bars, where there is more room: a column of names would fill a phone.
    const double first = kLeft + lanes[i].bars.front()->begin_s * scale;
    const double last = kLeft + lanes[i].bars.back()->end_s * scale;
    const bool before = first > kWidth - last;
    inner += label(before ? first - kGap : last + kGap, y + 14, before ? "halo before" : "halo", shown(lanes[i].name));
  }
  std::string desc = fmt::format("{} over {} minutes and seconds; in {} of them a question was answered wrong.",
                                 counted(report.launches.size(), "launch"), clock(end), failing);
  if (left_out > 0) desc += fmt::format(" {} more are not drawn.", left_out);
  return svg("timeline", kWidth, bottom + kAxis, "Launches over time, a lane a variant", desc, inner);
}

}  // namespace plumb::investigator
