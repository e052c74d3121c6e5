#include "faults/check/check.h"

#include <fstream>
#include <iterator>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "faults/check/docs.h"
#include "faults/recorded.h"

namespace plumb::faults {
namespace {

const std::string kHome = PLUMB_SOURCE_DIR;

Outcome outcome_from(const Recorded& r) {
  return {.signature = *parse_signature(r.signature),
          .d_cold = r.d_cold,
          .d_hit = r.d_hit,
          .d_decode = r.d_decode,
          .flips = r.flips,
          .passages = r.passages,
          .lost_answers = r.lost_answers,
          .lost_nats = r.lost_nats,
          .word = std::string(r.word),
          .site = std::string(r.site)};
}

TEST(Recorded, HasEveryPlantOnceAndWhatIsRecordedMatchesItsStatement) {
  ASSERT_EQ(recorded().size(), plants().size());
  for (std::size_t i = 0; i < plants().size(); ++i) {
    const Plant& plant = plants()[i];
    const Recorded& r = recorded()[i];
    EXPECT_EQ(r.kind, plant.kind);
    EXPECT_EQ(r.form, plant.form);
    ASSERT_TRUE(parse_signature(r.signature)) << r.signature;
    EXPECT_EQ(difference(plant, outcome_from(r)), "") << plant.kind << ' ' << plant.form;
  }
}

TEST(Recorded, EveryChangeOfAnOutcomeIsADifference) {
  const Plant& plant = plants().front();
  const auto complaint = [&](auto&& change) {
    Outcome outcome = outcome_from(recorded().front());
    change(outcome);
    return difference(plant, outcome);
  };
  EXPECT_NE(complaint([](Outcome& o) { ++o.signature[2].failed; }), "");
  EXPECT_NE(complaint([](Outcome& o) { o.word = kNothing; }), "");
  EXPECT_NE(complaint([](Outcome& o) { o.site = "decode: layers.1.q"; }), "");
  EXPECT_NE(complaint([](Outcome& o) { ++o.flips; }), "");
  EXPECT_NE(complaint([](Outcome& o) { o.d_cold *= 1.2; }), "");
  EXPECT_EQ(complaint([](Outcome& o) { o.d_cold *= 1.05; }), "");
}

TEST(Recorded, RowsAreWrittenAsTheyAreRead) {
  std::ifstream file(std::string(PLUMB_SOURCE_DIR) + "/src/faults/recorded.inc");
  EXPECT_EQ(recorded_rows({}), std::string(std::istreambuf_iterator<char>(file), {}));
}

TEST(Docs, AreWhatTheTableSays) {
  std::ifstream file(std::string(PLUMB_SOURCE_DIR) + "/docs/faults.md");
  EXPECT_EQ(faults_document(), std::string(std::istreambuf_iterator<char>(file), {}))
      << "write it anew: plumb-faulty faults --docs docs/faults.md";
}

TEST(Docs, TellWhatEveryPlantDiffersInFromThePrior) {
  for (const Plant& plant : plants()) {
    const Recorded* r = find_recorded(plant.kind, plant.form);
    ASSERT_NE(r, nullptr);
    bool against = false;
    const std::string letters = signature_letters(*parse_signature(r->signature));
    for (std::size_t i = 0; i < plant.prior.size(); ++i)
      against |= plant.prior[i] != '~' && letters[i] != '~' && letters[i] != plant.prior[i];
    EXPECT_FALSE(against && plant.note.empty())
        << plant.kind << ' ' << plant.form << ": measured " << letters << ", prior " << plant.prior << ": say why";
  }
}

TEST(Measure, RepeatsAndTracesAreEqualWithoutAFault) {
  const auto subject = load_subject(kHome + "/phantom/checkpoint", task_questions_file(kHome));
  ASSERT_TRUE(subject);
  const auto first = measure_repeats(*subject, {.probes = Settings::defaults(), .texts = {}});
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 1u);
  std::vector<std::int32_t> text;
  for (std::int32_t i = 0; i < kTraceTokens; ++i) text.push_back(20 + i);
  const auto trace = trace_digests(subject->model, text, Settings::defaults(), kMeasuredBackend);
  EXPECT_EQ(first_difference(trace, trace_digests(subject->model, text, Settings::defaults(), kMeasuredBackend)), "");
  text[250] = 19;  // a token of the first prompt's last chunk
  EXPECT_EQ(first_difference(trace, trace_digests(subject->model, text, Settings::defaults(), kMeasuredBackend)),
            "prefill: embed");
}

TEST(Sightings, SurviveTheWayBetweenProcesses) {
  Sightings s;
  s.near = {{true, {-0.5f, -1e-7f}}, {false, {-3.25f}}};
  s.exacting = {{true, {-2.0f}}};
  s.hit = {1, 10};
  s.hit_tokens = 77;
  s.repeats = {~std::uint64_t{0}, 1};
  s.replies = {3, ~std::uint64_t{0}};
  s.scores = {{-1.5f}, {}};
  s.hits = {{}, {-0.25f}};
  s.decoded = {{-0.125f}};
  s.likeliest = {{1, 2}};
  s.trace = {{"prefill: layers.0.q", ~std::uint64_t{0}}};
  EXPECT_EQ(to_json(sightings_from_json(nlohmann::json::parse(to_json(s).dump()))), to_json(s));
}

}  // namespace
}  // namespace plumb::faults
