#pragma once

// Pictures of a report as inline SVG: no script, no file, colours from the page's style.

#include <array>
#include <string>
#include <string_view>

#include "investigator/report_model.h"

namespace plumb::investigator {

/// Recall by probe and prompt length of one variant: a grid of shaded fields, each with its numbers in it.
std::string heat_map_svg(const HeatMap& map, std::size_t variant);

/// Launches over time, a lane a variant (kMostLanes at most), failing ones hatched; at most kMostBars bars.
std::string timeline_svg(const Report& report);
inline constexpr std::size_t kMostLanes = 24;
inline constexpr std::size_t kMostBars = 400;

/// The probability of each suspect after each launch: a line each, told apart by its dashes and by its name at the end.
/// `number` tells several such pictures of one page apart.
std::string posterior_svg(const PosteriorTrace& trace, std::size_t number);

/// A shade of the heat map: recall of at least `least`.
struct Shade {
  double least;
  std::string_view fill;
  std::string_view ink;  // of the numbers in it
  std::string_view says;
};
/// From all right to nothing right, the same in light and dark, told apart without red and green.
inline constexpr std::array kShades{
    Shade{1.0, "#1d5a93", "#ffffff", "all right"},    Shade{0.9, "#74a9d4", "#10151a", "90 % or more"},
    Shade{0.7, "#c3dbee", "#10151a", "70 % or more"}, Shade{0.4, "#f3ddb9", "#10151a", "40 % or more"},
    Shade{0.1, "#e39247", "#10151a", "10 % or more"}, Shade{0.0, "#8c2d04", "#ffffff", "under 10 %"}};

/// A colour of the page, by name.
struct Colour {
  std::string_view name;
  std::string_view light;
  std::string_view dark;
};
inline constexpr std::array kColours{Colour{"bg", "#ffffff", "#14171c"},    Colour{"fg", "#1a1d21", "#e6e8eb"},
                                     Colour{"muted", "#545b65", "#a6aeb9"}, Colour{"edge", "#d0d5dc", "#39414c"},
                                     Colour{"panel", "#f3f5f8", "#1d2229"}, Colour{"good", "#17652f", "#7fd699"},
                                     Colour{"bad", "#a3200d", "#ff9c8a"},   Colour{"warn", "#7a4b00", "#f2c063"},
                                     Colour{"pass", "#1d5a93", "#74b3ee"},  Colour{"fail", "#b3400e", "#ff9a5c"}};

}  // namespace plumb::investigator
