#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "investigator/inventory/changes.h"
#include "investigator/inventory/classify.h"

namespace plumb::investigator::inventory {

/// Both sides of a change, as tokens.
struct Sides {
  Sides(const ParsedFile& file, const Change& change);

  std::span<const Token> before, after;
  std::vector<Token> lost, gained;  // the tokens that differ
  std::vector<Token> near;          // unchanged tokens up to three beside a changed one, on either side
  Language language = Language::none;
  std::string function;  // innermost function, of the side that is there
  std::vector<Token> changed() const;
};

struct Detection {
  Class cls = Class::other;
  std::string what;
  std::optional<Rounding> rounding;
  bool widening = false;
};

/// Names of scale factors that the statement multiplies or divides by, "scale:<name>" each.
std::vector<std::string> scale_factors(std::span<const Token> tokens);

/// "guard:<condition>" if the statement is an assert, check, raise or trap; else empty. The checking word is left out,
/// so that an assert turned into a check is no change.
std::string guard_key(std::span<const Token> tokens);

/// All that the catalogue says of one changed statement. `moved(key)` tells whether a scale factor or guard has as many
/// gains as losses over the range.
std::vector<Detection> detect(const Sides& sides, const std::function<bool(const std::string&)>& moved);

}  // namespace plumb::investigator::inventory
