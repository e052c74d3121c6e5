#include "faults/dealer.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "switches/switches.h"

namespace plumb::faults {
namespace {

int applied = 0;
Dose applied_dose;
void apply_first(const Dose& dose) {
  applied = 1;
  applied_dose = dose;
}
void apply_second(const Dose&) { applied = 2; }

// Plants of this test alone, of very different lengths.
const std::array kTable{Plant{"short", "a", "prefix_cache", "x", "w", 1, "all", &apply_first},
                        Plant{"a-kind-with-a-long-name", "and-a-long-form", "prefill.chunked", "layers.3.attn_out",
                              "a sentence", 0.5, "0-3", &apply_second}};

class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "plumb-dealer-test-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path path;
};

// A dealer on a thread of this process, spoken to through pipes as a parent would.
class RunningDealer {
 public:
  RunningDealer(const DealerOptions& options, const std::string& seed) {
    EXPECT_EQ(::pipe(in_.data()), 0);
    EXPECT_EQ(::pipe(out_.data()), 0);
    thread_ = std::thread([this, options] {
      result_ = run_dealer(options, kTable, in_[0], out_[1]);
      ::close(out_[1]);
    });
    const std::string line = seed + "\n";
    EXPECT_EQ(::write(in_[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
    std::string text;
    for (char c = 0; ::read(out_[0], &c, 1) == 1 && c != '\n';) text += c;
    announcement = text.empty() ? nlohmann::json() : nlohmann::json::parse(text);
  }
  ~RunningDealer() {
    (void)end();
    for (const int fd : {in_[0], out_[0]}) ::close(fd);
  }
  RunningDealer(const RunningDealer&) = delete;
  RunningDealer& operator=(const RunningDealer&) = delete;

  Result<void> end() {
    if (thread_.joinable()) {
      ::close(in_[1]);
      thread_.join();
    }
    return result_;
  }
  std::string socket() const { return announcement.at("socket"); }

  nlohmann::json announcement;

 private:
  std::array<int, 2> in_{};
  std::array<int, 2> out_{};
  Result<void> result_;
  std::thread thread_;
};

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Draw, IsUniformOverTheTableAndAFunctionOfTheSeed) {
  std::array<int, kTable.size()> drawn{};
  constexpr int kSeeds = 2000;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto deal = draw(seed, Stratum::one, kTable);
    ASSERT_TRUE(deal);
    ++drawn[deal->plants.at(0).kind == kTable[0].kind ? 0 : 1];
    EXPECT_EQ(envelope_text(*deal), envelope_text(*draw(seed, Stratum::one, kTable)));
  }
  // Five standard deviations of Binomial(2000, 1/2) are 112; the seeds are fixed.
  EXPECT_NEAR(drawn[0], kSeeds / 2, 112);
}

TEST(Draw, RefusesWhatItCannotPlant) {
  EXPECT_FALSE(draw(1, Stratum::one, {}));
  EXPECT_FALSE(draw(1, Stratum::two, std::span(kTable).first(1)));
  EXPECT_FALSE(draw(1, Stratum::off_side, kTable));
  EXPECT_FALSE(draw(1, Stratum::no_switch, kTable));
  ASSERT_TRUE(draw(1, Stratum::clean, {}));
  EXPECT_TRUE(draw(1, Stratum::clean, {})->plants.empty());
  EXPECT_FALSE(parse_stratum("three"));
  for (const char* name : {"clean", "one", "two", "stochastic", "no-switch", "off-side", "masked"})
    EXPECT_EQ(stratum_name(*parse_stratum(name)), name);
}

TEST(Draw, EachPairOfKindAndHostIsAsLikelyHoweverManyFormsItHas) {
  std::array<Plant, 4> table{kTable[0], kTable[0], kTable[0], kTable[1]};
  table[1].form = "b";
  table[2].form = "c";
  std::map<std::string, int> drawn;
  constexpr int kSeeds = 2000;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) ++drawn[draw(seed, Stratum::one, table)->plants.at(0).form];
  EXPECT_NEAR(drawn[std::string(kTable[1].form)], kSeeds / 2, 112);
  for (const char* form : {"a", "b", "c"}) EXPECT_NEAR(drawn[form], kSeeds / 6, 84) << form;
}

TEST(Draw, StrataAreWhatTheyAreCalled) {
  std::array<Plant, 4> table{kTable[0], kTable[1], kTable[0], kTable[0]};
  table[2].side = PlantSide::off;
  table[3].side = PlantSide::step;
  table[3].host = "none";
  int others_off = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto two = draw(seed, Stratum::two, table);
    ASSERT_EQ(two->plants.size(), 2u);
    EXPECT_NE(two->plants[0].host, two->plants[1].host);
    EXPECT_NE(two->plants[0].dose.seed, two->plants[1].dose.seed);
    EXPECT_EQ(draw(seed, Stratum::stochastic, table)->rate, kStochasticRate);
    EXPECT_EQ(draw(seed, Stratum::no_switch, table)->plants.at(0).host, "none");
    const auto masked = draw(seed, Stratum::masked, table);
    ASSERT_TRUE(Settings().set(masked->masked_by, "on")) << masked->masked_by;
    Settings defaults = Settings::defaults();
    ASSERT_TRUE(defaults.set(masked->masked_by, "off"));
    EXPECT_EQ(defaults, Settings::defaults()) << "a mask is deployed off";
    const auto off = draw(seed, Stratum::off_side, table);
    EXPECT_NE(std::ranges::find(off->deployed_off, off->plants.at(0).host), off->deployed_off.end());
    others_off += static_cast<int>(off->deployed_off.size()) - 1;
  }
  const auto on_by_default = std::ranges::count_if(kSwitches, [](const Switch& entry) { return entry.by_default; });
  EXPECT_NEAR(others_off / 200.0, static_cast<double>(on_by_default - 1) / 2, 0.6);
}

TEST(HalfSeed, DiffersByLabelAndSeed) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (const char* label : {"plant", "probe", "dose"}) seen.insert(half_seed(seed, label));
  EXPECT_EQ(seen.size(), 300u);
}

TEST(Envelope, IsPrivateCompleteAndNeverOverwritten) {
  const Folder folder;
  const auto path = folder.path / "e.json";
  ASSERT_TRUE(write_envelope(path, "first"));
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_FALSE(write_envelope(path, "second"));
  EXPECT_EQ(bytes_of(path), "first");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
}

TEST(Envelope, HasOneSizeWhateverWasDrawn) {
  std::vector<Plant> all(kTable.begin(), kTable.end());
  all.insert(all.end(), plants().begin(), plants().end());
  for (const std::uint64_t seed : {std::uint64_t{0}, ~std::uint64_t{0}}) {
    Deal none{.seed = seed};
    none.nonce = random_nonce();
    EXPECT_EQ(envelope_text(none).size(), kEnvelopeBytes);
    for (const Plant& plant : all) {
      Deal deal = *draw(seed,
                        plant.side == PlantSide::on    ? Stratum::one
                        : plant.side == PlantSide::off ? Stratum::off_side
                                                       : Stratum::no_switch,
                        std::span(&plant, 1));
      deal.nonce = random_nonce();
      EXPECT_EQ(envelope_text(deal).size(), kEnvelopeBytes) << plant.kind;
    }
  }
}

TEST(Envelope, SurvivesTheRoundTrip) {
  auto deal = *draw(42, Stratum::two, kTable);
  deal.nonce = random_nonce();
  EXPECT_EQ(deal.nonce.size(), 32u);
  const auto read = parse_envelope(envelope_text(deal));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(envelope_text(*read), envelope_text(deal));
  EXPECT_FALSE(parse_envelope("{}"));
  EXPECT_FALSE(parse_envelope("no"));
}

TEST(Dealer, CommitsToTheEnvelopeAndServesItsPlant) {
  const Folder folder;
  const auto path = folder.path / "e.json";
  RunningDealer dealer({.envelope = path}, "7");
  EXPECT_EQ(dealer.announcement.at("commitment"), sha256_hex(bytes_of(path)));
  EXPECT_EQ(dealer.announcement.at("probe_seed"), half_seed(7, "probe"));
  const auto sealed = parse_envelope(bytes_of(path));
  ASSERT_TRUE(sealed);
  for (int launch = 0; launch < 3; ++launch) {
    const auto deal = ask_dealer(dealer.socket());
    ASSERT_TRUE(deal) << deal.error().message;
    EXPECT_EQ(deal->seed, 0u) << "who knows the seed knows the draw";
    EXPECT_EQ(deal->plants.at(0).form, sealed->plants.at(0).form);
    EXPECT_EQ(deal->plants.at(0).dose.seed, sealed->plants.at(0).dose.seed);
    applied = 0;
    ASSERT_TRUE(plant(*deal, kTable, Backend::cpu, Settings()));
    EXPECT_EQ(applied, deal->plants.at(0).kind == kTable[0].kind ? 1 : 2);
  }
}

TEST(Dealer, EndsWhenItsInputClosesAndLeavesNothingButTheEnvelope) {
  const Folder folder;
  RunningDealer dealer({.envelope = folder.path / "e.json"}, "7");
  const std::filesystem::path socket = dealer.socket();
  EXPECT_TRUE(std::filesystem::exists(socket));
  EXPECT_TRUE(dealer.end());
  EXPECT_FALSE(std::filesystem::exists(socket.parent_path()));
  EXPECT_FALSE(ask_dealer(socket));
}

TEST(Dealer, DrawsFromTheOperatingSystemWithoutASeed) {
  const Folder folder;
  std::set<std::string> commitments;
  std::set<std::uint64_t> seeds;
  for (const char* name : {"a", "b", "c"}) {
    RunningDealer dealer({.envelope = folder.path / name, .stratum = Stratum::clean}, "");
    commitments.insert(dealer.announcement.at("commitment"));
    seeds.insert(dealer.announcement.at("probe_seed").get<std::uint64_t>());
  }
  EXPECT_EQ(commitments.size(), 3u);
  EXPECT_EQ(seeds.size(), 3u);
}

TEST(Dealer, SameSeedHasAnotherCommitmentEachTime) {
  const Folder folder;
  RunningDealer a({.envelope = folder.path / "a"}, "7");
  RunningDealer b({.envelope = folder.path / "b"}, "7");
  EXPECT_EQ(a.announcement.at("probe_seed"), b.announcement.at("probe_seed"));
  EXPECT_NE(a.announcement.at("commitment"), b.announcement.at("commitment"));
}

TEST(Dealer, ResumesTheSameDealAtTheSameSocket) {
  const Folder folder;
  const auto path = folder.path / "e.json";
  nlohmann::json first;
  {
    RunningDealer dealer({.envelope = path}, "7");
    first = dealer.announcement;
  }
  RunningDealer again({.envelope = path, .resume = true, .commitment = first.at("commitment")}, "");
  EXPECT_EQ(again.announcement, first);
  EXPECT_TRUE(ask_dealer(again.socket()));
}

TEST(Dealer, ResumingDemandsTheEnvelopeUnlessNothingWasCommitted) {
  const Folder folder;
  const auto path = folder.path / "e.json";
  {
    RunningDealer dealer({.envelope = path, .resume = true}, "7");
    const auto result = dealer.end();
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find("nothing to resume"), std::string::npos) << result.error().message;
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  RunningDealer dealer({.envelope = path, .resume = true, .uncommitted = true}, "7");
  EXPECT_EQ(dealer.announcement.at("probe_seed"), half_seed(7, "probe"));
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Dealer, RefusesAChangedEnvelope) {
  const Folder folder;
  const auto path = folder.path / "e.json";
  std::string commitment;
  {
    RunningDealer dealer({.envelope = path}, "7");
    commitment = dealer.announcement.at("commitment");
  }
  std::ofstream(path, std::ios::app) << " ";
  RunningDealer again({.envelope = path, .resume = true, .commitment = commitment}, "");
  const auto result = again.end();
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("was changed"), std::string::npos);
}

TEST(Dealer, RefusesToResumeWithAnotherSeed) {
  const Folder folder;
  const auto path = folder.path / "e";
  (void)RunningDealer({.envelope = path}, "7").end();
  RunningDealer other({.envelope = path, .resume = true}, "8");
  const auto result = other.end();
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("another seed than 8"), std::string::npos) << result.error().message;
  RunningDealer same({.envelope = path, .resume = true}, "7");
  EXPECT_TRUE(same.end());
}

TEST(Dealer, NamesTheVariableOfATemporaryFolderThatIsNotThere) {
  const Folder folder;
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("TMPDIR", "/no/such/folder", 1);
  const auto result = RunningDealer({.envelope = folder.path / "e"}, "7").end();
  kept.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", kept.c_str(), 1);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("TMPDIR is /no/such/folder"), std::string::npos) << result.error().message;
}

TEST(Dealer, RefusesSeedsThatAreNoNumbers) {
  const Folder folder;
  for (const char* seed : {"x", "-1", "7 ", "18446744073709551616"}) {
    RunningDealer dealer({.envelope = folder.path / "e"}, seed);
    EXPECT_FALSE(dealer.end()) << seed;
    EXPECT_FALSE(std::filesystem::exists(folder.path / "e"));
  }
}

TEST(Plant, NoneChangesNothingAndUnknownKindsAreRefused) {
  applied = 0;
  EXPECT_TRUE(plant(Deal{}, kTable, Backend::cpu, Settings()));
  EXPECT_FALSE(plant(Deal{.plants = {{.kind = "short", .form = "other"}}}, kTable, Backend::cpu, Settings()));
  EXPECT_EQ(applied, 0);
}

TEST(Plant, IsThereInItsShareOfLaunchesAndNotBehindItsMask) {
  Deal deal = *draw(3, Stratum::stochastic, kTable);
  int there = 0;
  constexpr int kLaunches = 1000;
  for (int launch = 0; launch < kLaunches; ++launch) {
    applied = 0;
    ASSERT_TRUE(plant(deal, kTable, Backend::cpu, Settings()));
    there += applied != 0 ? 1 : 0;
  }
  EXPECT_NEAR(there, kStochasticRate * kLaunches, 100);  // 6 standard deviations of 15.5
  deal = *draw(3, Stratum::masked, kTable);
  Settings behind;
  ASSERT_TRUE(behind.set(deal.masked_by, "on"));
  applied = 0;
  ASSERT_TRUE(plant(deal, kTable, Backend::cpu, behind));
  EXPECT_EQ(applied, 0);
  ASSERT_TRUE(plant(deal, kTable, Backend::cpu, Settings()));
  EXPECT_NE(applied, 0);
}

}  // namespace
}  // namespace plumb::faults
