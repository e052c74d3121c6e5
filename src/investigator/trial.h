#pragma once

// One trial: its requests, as they are sent, answered and recorded.

#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "investigator/history.h"
#include "investigator/probes.h"
#include "investigator/world.h"

namespace plumb::investigator {

class Dialler;

/// The codes of everything that was asked so far, to recognise one that leaked into another request's answer. For use
/// from several threads.
class KnownCodes {
 public:
  void add(const std::vector<Ask>& asks);
  bool contains(const std::string& code) const;

 private:
  mutable std::mutex mutex_;
  std::set<std::string> codes_;
};

/// What trials need besides what they ask.
struct TrialExtras {
  Dialler* dialler = nullptr;   // null: prompts keep the length that they have by plumb's own count
  KnownCodes* codes = nullptr;  // null: codes of other requests are not told from unknown ones
  RequestSpec request{};        // what an answer that stopped inside its reasoning is given more of
};

/// One trial: its requests in order, graded. Stops early at an infrastructure failure. A request may take kAskTimeoutS,
/// or until `deadline_s` of the world's clock, but kLeastAskTimeoutS always.
TrialRecord run_trial(World& world, const ItemId& item, Wording wording, const Shape& shape,
                      double deadline_s = std::numeric_limits<double>::infinity(), const TrialExtras& extras = {});

/// The requests that a recorded trial's steps answer, one a step: what make_item() says, with the padding that the
/// record names. nullopt: the record has steps that the item has not.
std::optional<std::vector<Ask>> asks_of(const TrialRecord& trial, const Shape& shape);

/// What shows that a history's trials are no answers to what plumb asks, as "launch 3: …"; empty when nothing does.
std::optional<std::string> damage_of_trials(const History& history, const Shape& shape);

/// One fixed text on the running launch. `refused`: the server does not offer this path, so that it is not asked again.
ScoreRecord run_score(World& world, const ScoreItem& item, std::uint64_t seed, Wording wording, const Scores* refused,
                      double deadline_s);

/// The same of its scored texts.
std::optional<std::string> damage_of_scores(const History& history, std::uint64_t seed);

/// Why a cell's prompts do not have the length that they should, as "boundary: partly, …"; nullopt when they do, as far
/// as the server says.
std::optional<std::string> why_lengths_differ(const std::vector<TrialRecord>& trials, std::string_view cell);

/// xxh3, 128 bits, as 32 hex digits.
std::string hash_text(std::string_view text);

}  // namespace plumb::investigator
