#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace plumb::investigator {

struct DealerRequest {
  std::filesystem::path executable;  // plumb-faulty
  std::filesystem::path envelope;
  int faults = 1;
  std::optional<std::uint64_t> seed;  // none: the dealer takes one from the operating system
  bool resume = false;
  std::string commitment;  // of the deal to resume; empty: none was announced
};

/// A dealer process with a sealed plant, as the investigator may see it: a hash, a seed for the probes, and a socket
/// that it cannot read from. The process ends with this object and with this process: its standard input then closes.
class SealedDeal {
 public:
  static Result<SealedDeal> start(const DealerRequest& request);
  ~SealedDeal();
  SealedDeal(SealedDeal&& other) noexcept;

  /// SHA-256 of the envelope.
  const std::string& commitment() const { return commitment_; }
  std::uint64_t probe_seed() const { return probe_seed_; }
  /// What the served processes need in their environment.
  const std::string& socket() const { return socket_; }
  /// Whether the dealer still serves; the error says how it ended.
  Result<void> alive();
  /// Ends the dealer and waits for it. Errors: it had ended before, or does not end.
  Result<void> end();

 private:
  struct Process;
  SealedDeal();

  std::unique_ptr<Process> process_;
  std::string commitment_;
  std::uint64_t probe_seed_ = 0;
  std::string socket_;
};

/// What the envelope says was planted; kind "none" for nothing.
struct Planted {
  std::string kind, form, host, layers;
  double severity = 0;
  std::uint64_t seed = 0;
};

/// Opens the envelope and checks that its SHA-256 is the commitment. Not to be called before there is a verdict.
Result<Planted> open_envelope(const std::filesystem::path& envelope, const std::string& commitment);

}  // namespace plumb::investigator
