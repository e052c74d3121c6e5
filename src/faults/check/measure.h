#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "faults/check/task_questions.h"
#include "faults/check/trace_digest.h"
#include "model/encoding.h"
#include "switches/backend.h"
#include "switches/switches.h"
#include "weights/model.h"

namespace plumb::faults {

/// One graded answer. `logprobs`: of the expected ids, up to and with the first that was not given.
struct Answer {
  bool right = false;
  std::vector<float> logprobs;
};

/// Comparisons of replies that must be equal to the bit.
struct Pairs {
  int differing = 0;
  int of = 0;
};

/// Everything that one process saw, unjudged: judged against the reference variant by outcome_of (outcome.h).
struct Sightings {
  std::vector<Answer> near, boundary, needle, turns;  // in the order of the questions
  std::vector<Answer> hits_answered, crowd_answered, exacting;
  Pairs hit, crowd, decode;
  std::int64_t hit_tokens = 0;         // prompt tokens that the hit probe found in the cache
  std::vector<std::uint64_t> replies;  // digests of the replies to all questions, in order
  std::vector<std::uint64_t> repeats;  // digests of the replies to one prompt, asked again and again without a cache
  // Log-probabilities of the tokens of fixed texts: scored from a cold start; at cut points, each a hit on the prefix
  // that the one before left behind; and decoded one by one, the text's own tokens given. Entry i of `scores[t]` is of
  // token i + 1, of `hits[t]` of token text_cuts()[i], of `decoded[t]` of token kDecodeFrom + i.
  std::vector<std::vector<float>> scores, hits, decoded;
  std::vector<std::vector<std::int32_t>> likeliest;  // ids, of passages of unfamiliar text
  std::vector<PortDigest> trace;
};

/// A loaded checkpoint, shared by everything that one process measures.
struct Subject {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Encoding> encoding;
  std::vector<TaskLength> tasks;
};
/// `questions`: the file that phantom/write_questions.py writes. Errors: those of load_model, load_encoding and
/// read_task_questions, and a file with too few conversations.
Result<Subject> load_subject(const std::string& folder, const std::filesystem::path& questions);

/// The backend that is served by default.
inline constexpr Backend kMeasuredBackend = Backend::cpu;

/// What to measure with.
struct Variant {
  Settings probes;  // of probes and trace
  Settings texts;   // of the fixed texts
  /// Plants the fault, if any: called before each generator, which stands for a server of its own.
  std::function<void()> plant = [] {};
};

/// Asks all probes, each once, on one thread: the same sightings on every machine.
Sightings measure(const Subject& subject, const Variant& variant);
/// The repeat probe alone: what a further launch is asked.
std::vector<std::uint64_t> measure_repeats(const Subject& subject, const Variant& variant);

/// Cut points of the fixed texts, in tokens, and where decoding begins.
std::vector<std::int64_t> text_cuts();
inline constexpr std::int64_t kDecodeFrom = 360;

nlohmann::json to_json(const Sightings& sightings);
Sightings sightings_from_json(const nlohmann::json& json);

}  // namespace plumb::faults
