#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <vector>

#include "faults/forms/forms.h"
#include "ops/rope_stored/rope_stored.h"

namespace plumb::faults {
namespace {

// The stored angles of one profile are as good as computed ones, so a plant computes what its wrong table would hold.
void angles(const RopeTable& a, std::int64_t first, std::span<const double> frequencies) {
  rope_table_ref({.first = first, .step = a.step, .frequencies = frequencies, .table = a.table});
}

// The profiles that the model asks for, told apart by their first frequency that is below one: the slower one is that
// of compressed layers.
struct Profiles {
  std::vector<double> window, compressed;
};

Profiles profiles_with(std::span<const double> frequencies) {
  static std::mutex mutex;
  static Profiles seen;
  const std::lock_guard lock(mutex);
  const auto slower = [](std::span<const double> x, std::span<const double> y) { return x.back() < y.back(); };
  if (seen.window.empty() || slower(seen.window, frequencies))
    seen.window.assign(frequencies.begin(), frequencies.end());
  if (seen.compressed.empty() || slower(frequencies, seen.compressed))
    seen.compressed.assign(frequencies.begin(), frequencies.end());
  return seen;
}

// One table, that of the window layers, is made at start and used by all.
void window_profile_for_all(const RopeTable& a) { angles(a, a.first, profiles_with(a.frequencies).window); }

// The table is made from theta alone: the scaling of low frequencies was lost on the way from the config.
void without_scaling(const RopeTable& a) {
  std::vector<double> plain;
  // The first frequencies are never scaled: f_1 = theta^(-2/dim), and f_i = f_1^i.
  for (std::size_t i = 0; i < a.frequencies.size(); ++i)
    plain.push_back(std::pow(a.frequencies[1], static_cast<double>(i)));
  angles(a, a.first, plain);
}

// Compressed rows are looked up at their group's last position instead of its first.
void at_last_position(const RopeTable& a) { angles(a, a.first + a.step - 1, a.frequencies); }

// The counter that decode looks its angle up with is one ahead; prompts use the positions themselves.
void decode_one_ahead(const RopeTable& a) {
  angles(a, a.table.extent(0) == 1 && a.step == 1 ? a.first + 1 : a.first, a.frequencies);
}

template <auto Side>
void plant(const Dose&) {
  replace_on_side<"rope.table">(Side);
}

void plant_off_side(const Dose&) { replace_off_side<"rope.table">(&window_profile_for_all); }

constexpr std::string_view kHost = "rope.table";
constexpr std::array kPlants{
    Plant{.kind = "rope-layer-profile",
          .form = "window-profile-for-all",
          .host = kHost,
          .site = "prefill: layers.2.q",
          .what = "compressed layers use the angles of window layers: theta 10,000 and no scaling",
          .apply = &plant<&window_profile_for_all>,
          .prior = ".xxx....",
          .note = "Facts close by stay in the window, whose angles are right."},
    Plant{.kind = "rope-scaling-lost",
          .form = "no-ramp",
          .host = kHost,
          .site = "prefill: layers.2.q",
          .what = "low frequencies of compressed layers are not scaled down",
          .apply = &plant<&without_scaling>,
          .prior = "..xx....",
          .note = "Prompts of 1,000 tokens are far below the native length of 4,096."},
    Plant{.kind = "cmp-key-unrotated",
          .form = "last-position",
          .host = kHost,
          .site = "prefill: layers.2.compressed_kv",
          .what = "pooled rows and index keys are rotated to their group's last position",
          .apply = &plant<&at_last_position>,
          .prior = ".xxx....",
          .note = "Short questions have closed groups, too."},
    Plant{.kind = "pos-offset-slip",
          .form = "decode-one-ahead",
          .host = kHost,
          .site = "decode: layers.0.q",
          .what = "decoded tokens are rotated by the position after theirs",
          .apply = &plant<&decode_one_ahead>,
          .prior = "~xx~~.x.",
          .note = "A needle's few characters often survive a shift by one."},
    Plant{.kind = "rope-layer-profile",
          .form = "off-side",
          .host = kHost,
          .site = "prefill: layers.2.q",
          .what = "the side that computes angles uses those of window layers for all",
          .apply = &plant_off_side,
          .prior = ".xxx....",
          .note = "Single facts are found by what rows hold; texts to the letter and near ties need where they are.",
          .side = PlantSide::off},
};

}  // namespace

std::span<const Plant> rope_table_plants() { return kPlants; }

}  // namespace plumb::faults
