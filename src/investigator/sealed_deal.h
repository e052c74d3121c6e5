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
  std::string stratum = "one";        // what sort of fault is to be planted, as the dealer names it
  bool all_kinds = false;             // drawn from all that is known to do damage, not from the demo's
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
  /// Switches that are to be deployed off though they are on by default.
  const std::vector<std::string>& deployed_off() const { return deployed_off_; }
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
  std::vector<std::string> deployed_off_;
  std::string socket_;
};

/// One wrong side or step.
struct PlantedFault {
  std::string kind, form, host, layers;  // host "none": a step under no switch
  double severity = 0;
};

/// What the envelope says was planted.
struct Planted {
  std::string stratum;               // "clean", "one", "two", "stochastic", "no-switch", "off-side" or "masked"
  std::vector<PlantedFault> faults;  // none: nothing
  double rate = 1;                   // share of the launches that had them
  std::string masked_by;             // the switch that hides them while it is on; empty: none
  std::uint64_t seed = 0;
};

/// Opens the envelope and checks that its SHA-256 is the commitment. Not to be called before there is a verdict.
Result<Planted> open_envelope(const std::filesystem::path& envelope, const std::string& commitment);

}  // namespace plumb::investigator
