#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "switches/backend.h"
#include "switches/switches.h"
#include "weights/model.h"

namespace plumb::faults {

/// What stood at a port, or in a kind of state before a pass, as a digest of its bytes. `site` is
/// "<stage>: <port>" or "<stage>: state <kind>".
struct PortDigest {
  std::string site;
  std::uint64_t digest;
  bool operator==(const PortDigest&) const = default;
};

/// Runs three sequences by hand through the same steps as the runtime (prefix_cache, prefill.chunked, the engine) under
/// `settings` on `backend` and takes the digest of every port and every kind of state, in order of time:
///   prefill, decode   a prompt from a cold start, in chunks, then token by token
///   hit               a prompt that goes on from where the first one ended
///   fork              one that shares its beginning only
/// `text`: at least kTraceTokens ids.
std::vector<PortDigest> trace_digests(const std::shared_ptr<const Model>& model, std::span<const std::int32_t> text,
                                      const Settings& settings, Backend backend);
inline constexpr std::int64_t kTraceTokens = 400;

/// The first site at which two traces part; empty where they do not.
std::string first_difference(std::span<const PortDigest> a, std::span<const PortDigest> b);

}  // namespace plumb::faults
