#include "switches/switches.h"

#include <charconv>
#include <optional>

#include <fmt/ranges.h>

#include "switches/on_side.h"

namespace plumb {
namespace {

struct AtomicCounts {
  std::atomic<std::uint64_t> on{0};
  std::atomic<std::uint64_t> off{0};
};
std::array<AtomicCounts, kSwitchCount> counts;

using Layers = std::bitset<kMaxLayers>;

// "0-21,30" as a set; nothing when it does not parse or a layer is out of range.
std::optional<Layers> parse_layers(std::string_view text) {
  Layers layers;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    int first = -1;
    const char* end = part.data() + part.size();
    auto [rest, code] = std::from_chars(part.data(), end, first);
    if (code != std::errc{}) return std::nullopt;
    int last = first;
    if (rest != end) {
      if (*rest != '-') return std::nullopt;
      const auto tail = std::from_chars(rest + 1, end, last);
      if (tail.ec != std::errc{} || tail.ptr != end) return std::nullopt;
    }
    if (first < 0 || last < first || last >= kMaxLayers) return std::nullopt;
    for (int layer = first; layer <= last; ++layer) layers.set(static_cast<std::size_t>(layer));
    if (comma == std::string_view::npos) return layers;
    text.remove_prefix(comma + 1);
  }
}

std::string layers_text(const Layers& layers) {
  std::string text;
  for (std::size_t first = 0; first < layers.size(); ++first) {
    if (!layers.test(first)) continue;
    std::size_t last = first;
    while (last + 1 < layers.size() && layers.test(last + 1)) ++last;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    first = last;
  }
  return text;
}

}  // namespace

namespace detail {
std::array<SideEntry, kSwitchCount> side_table;
std::array<AnyFunction, kSteps.size()> step_table;
}  // namespace detail

Settings Settings::defaults() {
  Settings settings;
  for (std::size_t i = 0; i < kSwitchCount; ++i)
    if (kSwitches[i].by_default) settings.layers_[i].set();
  return settings;
}

bool Settings::use(std::size_t index, int layer) const {
  const bool side = on(index, layer);
  (side ? counts[index].on : counts[index].off).fetch_add(1, std::memory_order_relaxed);
  return side;
}

SideCounts side_counts(std::size_t index) {
  return {counts[index].on.load(std::memory_order_relaxed), counts[index].off.load(std::memory_order_relaxed)};
}

Result<void> Settings::set(std::string_view name, std::string_view value) {
  for (std::size_t i = 0; i < kSwitchCount; ++i) {
    if (kSwitches[i].name != name) continue;
    const std::size_t at = value.find('@');
    const std::string_view side = value.substr(0, at);
    Layers which;
    which.set();
    if (at != std::string_view::npos) {
      const auto parsed = parse_layers(value.substr(at + 1));
      if (!parsed) return error("switch {}: '{}' names no layers; write for example on@0-21,30", name, value);
      if (!kSwitches[i].per_layer) return error("switch {} has no layers; write on or off", name);
      which = *parsed;
    }
    if (side == "on")
      layers_[i] = which;
    else if (side == "off")
      layers_[i] = ~which;
    else
      return error("switch {}: '{}' is neither on nor off; write on, off, or on@LAYERS", name, value);
    return {};
  }
  std::vector<std::string_view> known;
  for (const Switch& entry : kSwitches) known.push_back(entry.name);
  return error("unknown switch '{}'; there are: {}", name, fmt::join(known, ", "));
}

std::string Settings::describe(std::size_t index) const {
  const Layers& layers = layers_[index];
  if (layers.all()) return "on";
  if (layers.none()) return "off";
  // What lies beyond the model's layers tells which of the two forms was meant.
  return layers.test(kMaxLayers - 1) ? "off@" + layers_text(~layers) : "on@" + layers_text(layers);
}

Result<void> Settings::check_layers(int layer_count) const {
  for (std::size_t i = 0; i < kSwitchCount; ++i)
    for (int layer = layer_count; layer < kMaxLayers; ++layer)
      if (on(i, layer) != on(i, kMaxLayers - 1))
        return error("switch {}={}: the model has layers 0 to {}", kSwitches[i].name, describe(i), layer_count - 1);
  return {};
}

bool Settings::agrees_at_launch(const Settings& other) const {
  for (std::size_t i = 0; i < kSwitchCount; ++i)
    if (kSwitches[i].scope == Scope::launch && layers_[i] != other.layers_[i]) return false;
  return true;
}

std::string Settings::key() const {
  std::string key;
  for (std::size_t i = 0; i < kSwitchCount; ++i) {
    key += kSwitches[i].name;
    key += '=';
    key += describe(i);
    key += ';';
  }
  return key;
}

}  // namespace plumb
