#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace plumb::investigator {

/// Where and with what a case was measured; "" where not known. environment.json of a case.
struct Environment {
  std::string date;        // when the case was begun, UTC, as 2026-11-30T01:56:00Z
  std::string cpu;         // "AMD EPYC 7763, 2 cores"
  std::string os;          // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
  std::string plumb;       // version
  std::string commit;      // of plumb's checkout, as ./plumb states it in PLUMB_COMMIT
  std::string model;       // the name the server gives its model
  std::string model_hash;  // that the server states of its weights

  bool operator==(const Environment&) const = default;
};

/// This machine, now, without a model.
Environment environment_here();

std::string environment_json(const Environment& environment);
/// Errors: not written by environment_json().
Result<Environment> parse_environment(const std::string& json);

}  // namespace plumb::investigator
