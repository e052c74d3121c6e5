#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "switches/backend.h"
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
///
/// Sides of an op are references, and each backend runs its own form of them: backend cpu the kCpuTwin of `off` and of
/// `on`, where there is one. So the off side is always the backend's plain op, and a switch says nothing of backends.
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

/// Steps that no switch chooses for, but that are entries of the same table: a fault under no switch is planted there.
inline constexpr std::array<std::string_view, 1> kSteps{"attention.derotate"};
extern std::array<AnyFunction, kSteps.size()> step_table;  // null: the function that Step<> names

consteval std::size_t step_index(std::string_view name) {
  for (std::size_t i = 0; i < kSteps.size(); ++i)
    if (kSteps[i] == name) return i;
  throw "unknown step";
}
}  // namespace detail

/// The function of a step under no switch, declared beside its contract:
///
///   template <> struct Step<"attention.derotate"> { static constexpr auto* run = &rope_ref; };
template <FixedString Name>
struct Step;

namespace detail {
/// A switch of an op has layers and runs on a backend; a step of the runtime has neither.
template <FixedString Name>
inline constexpr bool kIsOp = kSwitches[switch_index(Name.view())].per_layer;

template <FixedString Name>
auto* on_function(Backend backend) {
  using Function = std::remove_const_t<decltype(Sides<Name>::on)>;
  const AnyFunction entry = side_table[switch_index(Name.view())].on;
  return entry != nullptr ? reinterpret_cast<Function>(entry) : on_backend<Sides<Name>::on>(backend);
}

template <FixedString Name>
auto* off_function(Backend backend) {
  using Function = std::remove_const_t<decltype(Sides<Name>::off)>;
  const AnyFunction entry = side_table[switch_index(Name.view())].off;
  return entry != nullptr ? reinterpret_cast<Function>(entry) : on_backend<Sides<Name>::off>(backend);
}
}  // namespace detail

/// Runs the on side of an op's switch: what the table says, else the function that Sides<> names, on this backend.
template <FixedString Name, class... Args>
  requires detail::kIsOp<Name>
decltype(auto) on_side(Backend backend, Args&&... args) {
  return detail::on_function<Name>(backend)(std::forward<Args>(args)...);
}

/// Runs the off side of an op's switch: the plain op on this backend.
template <FixedString Name, class... Args>
  requires detail::kIsOp<Name>
decltype(auto) off_side(Backend backend, Args&&... args) {
  return detail::off_function<Name>(backend)(std::forward<Args>(args)...);
}

/// Runs the side of an op's switch that the settings choose for `layer`, and counts it.
template <FixedString Name, class... Args>
  requires detail::kIsOp<Name>
decltype(auto) chosen_side(Backend backend, const Settings& settings, int layer, Args&&... args) {
  if (settings.use(switch_index(Name.view()), layer)) return on_side<Name>(backend, std::forward<Args>(args)...);
  return off_side<Name>(backend, std::forward<Args>(args)...);
}

/// Runs the side of a runtime step that the settings choose, and counts it.
template <FixedString Name, class... Args>
  requires(!detail::kIsOp<Name>)
decltype(auto) chosen_side(const Settings& settings, Args&&... args) {
  if (settings.use(switch_index(Name.view())))
    return detail::on_function<Name>(Backend::ref)(std::forward<Args>(args)...);
  return detail::off_function<Name>(Backend::ref)(std::forward<Args>(args)...);
}

/// Runs a step under no switch on a backend.
template <FixedString Name, class... Args>
decltype(auto) run_step(Backend backend, Args&&... args) {
  using Function = std::remove_const_t<decltype(Step<Name>::run)>;
  const detail::AnyFunction entry = detail::step_table[detail::step_index(Name.view())];
  const Function run = entry != nullptr ? reinterpret_cast<Function>(entry) : on_backend<Step<Name>::run>(backend);
  return run(std::forward<Args>(args)...);
}

/// Replaces the on side in this process, on every backend. For plumb-faulty and tests, before the server starts.
template <FixedString Name>
void replace_on_side(std::remove_const_t<decltype(Sides<Name>::on)> function) {
  detail::side_table[switch_index(Name.view())].on = reinterpret_cast<detail::AnyFunction>(function);
}

/// Same, the off side and a step under no switch: for the investigator's tests, which must find those too.
template <FixedString Name>
void replace_off_side(std::remove_const_t<decltype(Sides<Name>::off)> function) {
  detail::side_table[switch_index(Name.view())].off = reinterpret_cast<detail::AnyFunction>(function);
}
template <FixedString Name>
void replace_step(std::remove_const_t<decltype(Step<Name>::run)> function) {
  detail::step_table[detail::step_index(Name.view())] = reinterpret_cast<detail::AnyFunction>(function);
}

}  // namespace plumb
