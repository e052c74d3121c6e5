#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "switches/switches.h"

namespace plumb {

/// A string literal as a template argument.
template <std::size_t N>
struct FixedString {
  char text[N]{};
  consteval FixedString(const char (&literal)[N]) { std::copy_n(literal, N, text); }  // NOLINT(*-explicit-*)
  constexpr std::string_view view() const { return {text, N - 1}; }
};

/// The two functions of a switch, declared beside the contract of the op or step it chooses for:
///
///   template <> struct Sides<"attention.split_k"> {
///     static constexpr auto* off = &sparse_attention_ref;
///     static constexpr auto* on = &sparse_attention_split_ref;   // same type
///   };
template <FixedString Name>
struct Sides;

namespace detail {
using AnyFunction = void (*)();
struct SideEntry {
  AnyFunction off = nullptr;  // null: the function that Sides<> names
  AnyFunction on = nullptr;
};
/// The one on-side table. It is written before the server starts and only read afterwards.
extern std::array<SideEntry, kSwitchCount> side_table;
}  // namespace detail

/// Runs the on side of a switch: the function its Sides<> names, unless the table says otherwise.
template <FixedString Name, class... Args>
decltype(auto) on_side(Args&&... args) {
  constexpr std::size_t index = switch_index(Name.view());
  using Function = std::remove_const_t<decltype(Sides<Name>::on)>;
  const auto entry = detail::side_table[index].on;
  return (entry != nullptr ? reinterpret_cast<Function>(entry) : Sides<Name>::on)(std::forward<Args>(args)...);
}

/// Runs the off side of a switch: the reference.
template <FixedString Name, class... Args>
decltype(auto) off_side(Args&&... args) {
  constexpr std::size_t index = switch_index(Name.view());
  using Function = std::remove_const_t<decltype(Sides<Name>::off)>;
  const auto entry = detail::side_table[index].off;
  return (entry != nullptr ? reinterpret_cast<Function>(entry) : Sides<Name>::off)(std::forward<Args>(args)...);
}

/// Runs the side that the settings choose for `layer`, and counts it.
template <FixedString Name, class... Args>
decltype(auto) chosen_side(const Settings& settings, int layer, Args&&... args) {
  if (settings.use(switch_index(Name.view()), layer)) return on_side<Name>(std::forward<Args>(args)...);
  return off_side<Name>(std::forward<Args>(args)...);
}

/// Replaces the on side in this process. For plumb-faulty and tests, before the server starts.
template <FixedString Name>
void replace_on_side(std::remove_const_t<decltype(Sides<Name>::on)> function) {
  detail::side_table[switch_index(Name.view())].on = reinterpret_cast<detail::AnyFunction>(function);
}

}  // namespace plumb
