#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace plumb {

/// Who computes the ops: `ref` is their meaning, accumulated in f64; `cpu` means the same in f32, one chain of fused
/// multiply-adds per output. An axis of its own, not a switch: both run every switch setting.
enum class Backend { ref, cpu };

std::string_view backend_name(Backend backend);

/// The inverse of backend_name. Errors: a name that is neither ref nor cpu.
Result<Backend> parse_backend(std::string_view name);

/// The function that backend cpu runs in place of a reference, declared beside the op's contract:
///
///   template <>
///   inline constexpr auto kCpuTwin<&linear_ref> = &linear_cpu;   // same type
///
/// An op without a twin: both backends run the reference.
template <auto* Reference>
inline constexpr auto kCpuTwin = Reference;

/// An op on a backend: the reference itself, or its twin.
template <auto* Reference>
constexpr decltype(Reference) on_backend(Backend backend) {
  return backend == Backend::cpu ? kCpuTwin<Reference> : Reference;
}

}  // namespace plumb
