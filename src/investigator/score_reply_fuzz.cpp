// Replies of a foreign server that should hold log-probabilities: whatever they are, what is kept can be written and
// compared.

#include <cmath>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "investigator/distance.h"
#include "investigator/scores.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plumb;
  using namespace plumb::investigator;
  if (size < 2) return 0;
  const ScorePath path = data[0] % 2 == 0 ? ScorePath::scored : ScorePath::generated;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  ScoreRecord record{.item = {path, CacheState::cold, 256, 0}};
  record.scores = parse_scores(200, body, path);
  const Scores& s = record.scores;
  const bool has = path == ScorePath::scored ? !s.log_probabilities.empty() : !s.generated.empty();
  CHECK(has == (s.status == Scores::Status::measured));
  for (const double value : s.log_probabilities) CHECK(kLeastLogProbability <= value && value <= 0);
  for (const GeneratedToken& t : s.generated) CHECK(kLeastLogProbability <= t.chosen.log_probability);
  for (const TextDistance& d : distances({record}, {record})) CHECK(d.d == 0);
  return 0;
}
