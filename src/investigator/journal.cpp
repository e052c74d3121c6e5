#include "investigator/journal.h"

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>
#include <sqlite3.h>

#include "base/check.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::json;

constexpr int kApplicationId = 0x504c4d42;  // "PLMB": tells our journals from other SQLite files
// 2: group tests choose other launches than 1 did, and a case goes on as it began. 3: log-probabilities of fixed texts;
// variants that share processes
constexpr int kVersion = 3;

constexpr const char* kSchema = R"(
PRAGMA journal_mode = DELETE;
BEGIN EXCLUSIVE;
CREATE TABLE identity (seed TEXT NOT NULL, deployment_hash TEXT NOT NULL, cells TEXT NOT NULL);
CREATE TABLE launches (id INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE, variant TEXT NOT NULL, status TEXT NOT NULL,
                       message TEXT NOT NULL, starts INTEGER NOT NULL, ready_s REAL NOT NULL, at_s REAL NOT NULL,
                       host INTEGER NOT NULL);
CREATE TABLE trials (id INTEGER PRIMARY KEY AUTOINCREMENT, launch INTEGER NOT NULL REFERENCES launches(id),
                     cell TEXT NOT NULL, seed TEXT NOT NULL, wording TEXT NOT NULL, grade TEXT NOT NULL,
                     steps TEXT NOT NULL, at_s REAL NOT NULL, UNIQUE (launch, cell, seed, wording));
CREATE TABLE scores (id INTEGER PRIMARY KEY AUTOINCREMENT, launch INTEGER NOT NULL REFERENCES launches(id),
                     item TEXT NOT NULL, wording TEXT NOT NULL, status TEXT NOT NULL, scores TEXT NOT NULL,
                     at_s REAL NOT NULL, UNIQUE (launch, item));
)";

// Statements are short and rare; each is prepared, run and dropped.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : db_(db) { failed_ = sqlite3_prepare_v2(db, sql, -1, &s_, nullptr); }
  ~Statement() { sqlite3_finalize(s_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(std::string_view text) {
    if (s_) sqlite3_bind_text(s_, ++bound_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    return *this;
  }
  Statement& bind(std::int64_t value) {
    if (s_) sqlite3_bind_int64(s_, ++bound_, value);
    return *this;
  }
  Statement& bind(double value) {
    if (s_) sqlite3_bind_double(s_, ++bound_, value);
    return *this;
  }
  // True: a row; false: the end. Errors become ok() == false.
  bool step() {
    if (failed_ != SQLITE_OK) return false;
    const int code = sqlite3_step(s_);
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) failed_ = code;
    return false;
  }
  bool ok() const { return failed_ == SQLITE_OK; }
  std::string text(int column) const {
    const auto* p = reinterpret_cast<const char*>(sqlite3_column_text(s_, column));
    return p ? std::string(p, static_cast<std::size_t>(sqlite3_column_bytes(s_, column))) : std::string();
  }
  std::int64_t integer(int column) const { return sqlite3_column_int64(s_, column); }
  bool is_number(int column) const {
    const int type = sqlite3_column_type(s_, column);
    return type == SQLITE_INTEGER || type == SQLITE_FLOAT;
  }
  double real(int column) const { return sqlite3_column_double(s_, column); }
  std::string message() const { return sqlite3_errmsg(db_); }

 private:
  sqlite3* db_;
  sqlite3_stmt* s_ = nullptr;
  int failed_ = SQLITE_OK;
  int bound_ = 0;
};

Json to_json(const StepRecord& s) {
  Json j{{"step", s.step},
         {"prompt_hash", s.prompt_hash},
         {"expected", s.expected},
         {"text", s.text},
         {"finish_reason", s.finish_reason},
         {"grade", grade_name(s.grade)},
         {"detail", s.detail},
         {"graded", s.graded},
         {"wants_hit", s.wants_hit},
         {"expected_tokens", s.expected_tokens},
         {"seconds", s.seconds}};
  if (s.padding > 0) j["padding"] = s.padding;
  if (s.dial_requests > 0) j["dial_requests"] = s.dial_requests;
  if (s.dial_tokens > 0) j["dial_tokens"] = s.dial_tokens;
  if (s.superseded) j["superseded"] = true;
  if (!s.room.empty()) j["room"] = s.room;
  if (!s.undialled.empty()) j["undialled"] = s.undialled;
  j["prompt_tokens"] = s.prompt_tokens ? Json(*s.prompt_tokens) : Json();
  j["cached_tokens"] = s.cached_tokens ? Json(*s.cached_tokens) : Json();
  return j;
}

// What a row says that we would not have written.
struct Damage {
  std::string what;
};

constexpr int kMaxStarts = 100'000;
constexpr std::int64_t kMaxTokens = 1 << 30;
constexpr double kMaxSeconds = 1e9;

int tokens_of(const Json& j, const char* key) {
  const Json& value = j.at(key);
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() > kMaxTokens)
    throw Damage{fmt::format("{} is no number of tokens", key)};
  return value.get<int>();
}

// Throws nlohmann's exceptions and Damage on rows that we did not write.
StepRecord step_of(const Json& j) {
  StepRecord s;
  s.step = j.at("step");
  s.prompt_hash = j.at("prompt_hash");
  s.expected = j.at("expected");
  s.text = j.at("text");
  s.finish_reason = j.at("finish_reason");
  const auto grade = parse_grade(j.at("grade").get<std::string>());
  if (!grade) throw Damage{grade.error().message};
  s.grade = *grade;
  s.detail = j.at("detail");
  s.graded = j.at("graded");
  s.wants_hit = j.at("wants_hit");
  s.expected_tokens = tokens_of(j, "expected_tokens");
  s.seconds = j.at("seconds");
  if (!(s.seconds >= 0 && s.seconds <= kMaxSeconds)) throw Damage{"seconds is no duration"};
  // Only there where they say something.
  for (const auto& [key, value] : {std::pair("padding", &s.padding), std::pair("dial_requests", &s.dial_requests),
                                   std::pair("dial_tokens", &s.dial_tokens)})
    if (j.contains(key)) *value = tokens_of(j, key);
  s.undialled = j.value("undialled", "");
  s.superseded = j.value("superseded", false);
  s.room = j.value("room", "");
  if (!j.at("prompt_tokens").is_null()) s.prompt_tokens = tokens_of(j, "prompt_tokens");
  if (!j.at("cached_tokens").is_null()) s.cached_tokens = tokens_of(j, "cached_tokens");
  return s;
}

std::vector<StepRecord> steps_of(const std::string& text) {
  std::vector<StepRecord> steps;
  try {
    const Json list = Json::parse(text);
    if (!list.is_array() || list.empty()) throw Damage{"its steps are no list"};
    for (const Json& step : list) steps.push_back(step_of(step));
  } catch (const Json::exception&) {
    throw Damage{"its steps are not as plumb writes them"};
  }
  return steps;
}

Json to_json(const ListedToken& t) { return Json::array({t.text, t.log_probability}); }

std::string scores_text(const ScoreRecord& r) {
  Json j{{"prompt_hash", r.prompt_hash},
         {"expected_tokens", r.expected_tokens},
         {"message", r.scores.message},
         {"tokens_hash", r.scores.tokens_hash},
         {"log_probabilities", r.scores.log_probabilities},
         {"seconds", r.scores.seconds}};
  j["prompt_tokens"] = r.scores.prompt_tokens ? Json(*r.scores.prompt_tokens) : Json();
  j["cached_tokens"] = r.scores.cached_tokens ? Json(*r.scores.cached_tokens) : Json();
  j["generated"] = Json::array();
  for (const GeneratedToken& t : r.scores.generated) {
    Json list = Json::array();
    for (const ListedToken& listed : t.list) list.push_back(to_json(listed));
    j["generated"].push_back({{"chosen", to_json(t.chosen)}, {"list", list}});
  }
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double log_probability_of(const Json& j) {
  const double value = j.is_number() ? j.get<double>() : 1;
  if (!(value >= kLeastLogProbability && value <= 0)) throw Damage{"it holds a number that is no log-probability"};
  return value;
}

ListedToken listed_token_of(const Json& j) { return {j.at(0), log_probability_of(j.at(1))}; }

// Throws nlohmann's exceptions and Damage on rows that we did not write.
void read_scores(const Json& j, ScoreRecord& r) {
  r.prompt_hash = j.at("prompt_hash");
  r.expected_tokens = tokens_of(j, "expected_tokens");
  r.scores.message = j.at("message");
  r.scores.tokens_hash = j.at("tokens_hash");
  for (const Json& value : j.at("log_probabilities")) r.scores.log_probabilities.push_back(log_probability_of(value));
  r.scores.seconds = j.at("seconds");
  if (!(r.scores.seconds >= 0 && r.scores.seconds <= kMaxSeconds)) throw Damage{"seconds is no duration"};
  if (!j.at("prompt_tokens").is_null()) r.scores.prompt_tokens = tokens_of(j, "prompt_tokens");
  if (!j.at("cached_tokens").is_null()) r.scores.cached_tokens = tokens_of(j, "cached_tokens");
  for (const Json& token : j.at("generated")) {
    GeneratedToken t{listed_token_of(token.at("chosen")), {}};
    for (const Json& listed : token.at("list")) t.list.push_back(listed_token_of(listed));
    r.scores.generated.push_back(std::move(t));
  }
}

std::string bits_of(const Variant& variant) {
  std::string bits;
  for (const bool on : variant) bits += on ? '1' : '0';
  return bits;
}

Variant variant_of(const std::string& bits) {
  Variant variant;
  for (const char c : bits) {
    if (c != '0' && c != '1') throw Damage{fmt::format("its variant '{}' holds other letters than 0 and 1", bits)};
    variant.push_back(c == '1');
  }
  return variant;
}

std::uint64_t seed_of(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (code != std::errc{} || rest != text.data() + text.size())
    throw Damage{fmt::format("seed '{}' is not a number from 0 to 2^64-1", text)};
  return seed;
}

double seconds_of(const Statement& row, int column, const char* name) {
  const double value = row.is_number(column) ? row.real(column) : -1;
  if (!(value >= 0 && value <= kMaxSeconds)) throw Damage{fmt::format("{} is no duration in seconds", name)};
  return value;
}

LaunchRecord launch_of(const Statement& row, const History& before) {
  LaunchRecord l;
  l.id = row.integer(0);
  if (l.id != static_cast<std::int64_t>(before.launches.size()) + 1) throw Damage{"it does not follow the one before"};
  l.label = row.text(1);
  l.variant = variant_of(row.text(2));
  if (l.variant.size() != (before.launches.empty() ? l.variant : before.launches[0].variant).size())
    throw Damage{fmt::format("its variant has {} sides, that of launch 1 {}", l.variant.size(),
                             before.launches[0].variant.size())};
  const auto status = parse_status(row.text(3));
  if (!status) throw Damage{status.error().message};
  l.status = *status;
  l.message = row.text(4);
  l.host = row.is_number(8) ? row.integer(8) : -1;
  if (l.host < 0 || l.host >= l.id || (l.host > 0 && before.launches[static_cast<std::size_t>(l.host - 1)].host != 0))
    throw Damage{"its host is no launch before it that had processes of its own"};
  const int least = l.host == 0 ? 1 : 0;
  if (!row.is_number(5) || row.integer(5) < least || row.integer(5) > (l.host == 0 ? kMaxStarts : 0))
    throw Damage{l.host == 0 ? fmt::format("starts is not a number from 1 to {}", kMaxStarts)
                             : std::string("starts is not 0, though it has a host")};
  l.starts = static_cast<int>(row.integer(5));
  l.ready_s = seconds_of(row, 6, "ready_s");
  return l;
}

Wording wording_of(const std::string& name) {
  for (const Wording wording : {Wording::v4, Wording::plain})
    if (name == wording_name(wording)) return wording;
  throw Damage{fmt::format("'{}' is no wording", name)};
}

TrialRecord trial_of(const Statement& row) {
  TrialRecord t;
  t.item = {row.text(1), seed_of(row.text(2))};
  if (const auto probe = probe_of(t.item.cell); !probe) throw Damage{probe.error().message};
  t.wording = wording_of(row.text(3));
  const auto grade = parse_grade(row.text(4));
  if (!grade) throw Damage{grade.error().message};
  t.grade = *grade;
  t.steps = steps_of(row.text(5));
  if (worst_grade(t.steps) != t.grade)
    throw Damage{
        fmt::format("its grade is {}, that of its steps {}", grade_name(t.grade), grade_name(worst_grade(t.steps)))};
  t.at_s = seconds_of(row, 6, "at_s");
  return t;
}

ScoreRecord score_of(const Statement& row) {
  ScoreRecord r;
  const auto item = parse_score_item(row.text(1));
  if (!item) throw Damage{item.error().message};
  r.item = *item;
  r.wording = wording_of(row.text(2));
  const auto status = parse_scores_status(row.text(3));
  if (!status) throw Damage{status.error().message};
  r.scores.status = *status;
  try {
    read_scores(Json::parse(row.text(4)), r);
  } catch (const Json::exception&) {
    throw Damage{"its scores are not as plumb writes them"};
  }
  const bool has = r.item.path == ScorePath::scored ? !r.scores.log_probabilities.empty() : !r.scores.generated.empty();
  if (has != (r.scores.status == Scores::Status::measured)) throw Damage{"its log-probabilities contradict its status"};
  r.at_s = seconds_of(row, 5, "at_s");
  return r;
}

CaseIdentity identity_of(const Statement& row) {
  CaseIdentity identity{seed_of(row.text(0)), row.text(1), {}};
  try {
    identity.cells = Json::parse(row.text(2)).get<std::vector<std::string>>();
  } catch (const Json::exception&) {
    throw Damage{"its probes are no list of names"};
  }
  if (identity.cells.empty()) throw Damage{"it names no probe"};
  for (auto cell = identity.cells.begin(); cell != identity.cells.end(); ++cell) {
    if (const auto probe = probe_of(*cell); !probe) throw Damage{probe.error().message};
    if (std::find(identity.cells.begin(), cell, *cell) != cell)
      throw Damage{fmt::format("it names the probe {} twice", *cell)};
  }
  return identity;
}

}  // namespace

struct Journal::Impl {
  std::string file;
  sqlite3* db = nullptr;
  CaseIdentity identity;
  ~Impl() { sqlite3_close(db); }

  tl::unexpected<Error> failure(const std::string& what) const {
    return error("{}: {}: {}", file, what, db ? sqlite3_errmsg(db) : "out of memory");
  }
  Result<void> run(const char* sql) {
    if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return failure("the journal cannot be written");
    return {};
  }
};

Journal::Journal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Journal::~Journal() = default;
Journal::Journal(Journal&&) noexcept = default;
Journal& Journal::operator=(Journal&&) noexcept = default;
const CaseIdentity& Journal::identity() const { return impl_->identity; }
const std::string& Journal::file() const { return impl_->file; }

Result<Journal> Journal::create(const std::filesystem::path& file, const CaseIdentity& identity) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored))
    return error("{}: there is a journal already; resume the case or choose another folder", file.string());
  // Built beside its place and renamed: a journal that exists is complete.
  const std::filesystem::path draft = file.string() + ".new";
  std::filesystem::remove(draft, ignored);
  {
    Impl impl;
    impl.file = draft.string();
    if (sqlite3_open_v2(draft.c_str(), &impl.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr) != SQLITE_OK)
      return impl.failure("cannot create the journal");
    if (auto done = impl.run(kSchema); !done) return tl::unexpected(done.error());
    Statement insert(impl.db, "INSERT INTO identity VALUES (?, ?, ?)");
    insert.bind(std::to_string(identity.seed)).bind(identity.deployment_hash).bind(Json(identity.cells).dump());
    insert.step();
    if (!insert.ok()) return impl.failure("the journal cannot be written");
    const std::string marks = "PRAGMA application_id = " + std::to_string(kApplicationId) +
                              "; PRAGMA user_version = " + std::to_string(kVersion) + "; COMMIT;";
    if (auto done = impl.run(marks.c_str()); !done) return tl::unexpected(done.error());
  }
  std::filesystem::rename(draft, file, ignored);
  if (ignored) return error("{}: cannot be renamed: {}", draft.string(), ignored.message());
  return open(file);
}

Result<Journal> Journal::open(const std::filesystem::path& file) {
  auto impl = std::make_unique<Impl>();
  impl->file = file.string();
  if (!std::filesystem::exists(file)) return error("{}: no journal here; the case was never begun", file.string());
  if (sqlite3_open_v2(file.c_str(), &impl->db, SQLITE_OPEN_READWRITE, nullptr) != SQLITE_OK)
    return impl->failure("the journal cannot be opened");
  if (auto done = impl->run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"); !done)
    return impl->failure(sqlite3_errcode(impl->db) == SQLITE_NOTADB ? "this is no journal of plumb"
                                                                    : "the journal cannot be opened");
  const auto pragma = [&](const char* sql) {
    Statement s(impl->db, sql);
    return s.step() ? s.integer(0) : -1;
  };
  if (pragma("PRAGMA application_id") != kApplicationId) return error("{}: this is no journal of plumb", file.string());
  if (const auto version = pragma("PRAGMA user_version"); version != kVersion)
    return error("{}: this journal has version {}, this plumb reads version {}; use the plumb that wrote it",
                 file.string(), version, kVersion);
  Statement check(impl->db, "PRAGMA quick_check(1)");
  if (!check.step() || check.text(0) != "ok")
    return error("{}: the journal is damaged: {}", file.string(), check.ok() ? check.text(0) : check.message());
  Statement read(impl->db, "SELECT seed, deployment_hash, cells FROM identity");
  if (!read.step()) return impl->failure("the journal is damaged");
  try {
    impl->identity = identity_of(read);
  } catch (const Damage& damage) {
    return error("{}: the journal is damaged: the case's identity: {}", file.string(), damage.what);
  }
  return Journal(std::move(impl));
}

Result<History> Journal::read() const {
  History history;
  const auto damaged = [&](const char* kind, std::int64_t id, const Damage& damage) {
    return error("{}: the journal is damaged: {} {}: {}", impl_->file, kind, id, damage.what);
  };
  Statement launches(
      impl_->db, "SELECT id, label, variant, status, message, starts, ready_s, at_s, host FROM launches ORDER BY id");
  while (launches.step()) try {
      history.launches.push_back(launch_of(launches, history));
      history.elapsed_s = std::max(history.elapsed_s, seconds_of(launches, 7, "at_s"));
    } catch (const Damage& damage) {
      return damaged("launch", launches.integer(0), damage);
    }
  Statement trials(impl_->db, "SELECT launch, cell, seed, wording, grade, steps, at_s, id FROM trials ORDER BY id");
  while (trials.step()) try {
      TrialRecord t = trial_of(trials);
      history.elapsed_s = std::max(history.elapsed_s, t.at_s);
      const std::int64_t launch = trials.integer(0);
      if (launch < 1 || launch > static_cast<std::int64_t>(history.launches.size()))
        throw Damage{fmt::format("there is no launch {}", launch)};
      history.launches[static_cast<std::size_t>(launch - 1)].trials.push_back(std::move(t));
    } catch (const Damage& damage) {
      return damaged("trial", trials.integer(7), damage);
    }
  Statement scores(impl_->db, "SELECT launch, item, wording, status, scores, at_s, id FROM scores ORDER BY id");
  while (scores.step()) try {
      ScoreRecord r = score_of(scores);
      history.elapsed_s = std::max(history.elapsed_s, r.at_s);
      const std::int64_t launch = scores.integer(0);
      if (launch < 1 || launch > static_cast<std::int64_t>(history.launches.size()))
        throw Damage{fmt::format("there is no launch {}", launch)};
      history.launches[static_cast<std::size_t>(launch - 1)].scores.push_back(std::move(r));
    } catch (const Damage& damage) {
      return damaged("scored text", scores.integer(6), damage);
    }
  if (!launches.ok() || !trials.ok() || !scores.ok()) return impl_->failure("the journal is damaged");
  return history;
}

Result<void> Journal::put_launch(const LaunchRecord& l, double at_s) {
  Statement s(
      impl_->db,
      "INSERT INTO launches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET status = "
      "excluded.status, message = excluded.message, starts = excluded.starts, ready_s = excluded.ready_s, at_s = "
      "excluded.at_s, host = excluded.host");
  s.bind(l.id).bind(l.label).bind(bits_of(l.variant)).bind(status_name(l.status)).bind(l.message);
  s.bind(static_cast<std::int64_t>(l.starts)).bind(l.ready_s).bind(at_s).bind(l.host).step();
  if (!s.ok()) return impl_->failure("the journal cannot be written");
  return {};
}

Result<void> Journal::add_trial(std::int64_t launch_id, const TrialRecord& t) {
  Json steps = Json::array();
  for (const StepRecord& step : t.steps) steps.push_back(to_json(step));
  // Replies are raw bytes; what is not UTF-8 is written with replacement characters.
  const std::string text = steps.dump(-1, ' ', false, Json::error_handler_t::replace);
  Statement s(impl_->db,
              "INSERT INTO trials (launch, cell, seed, wording, grade, steps, at_s) VALUES (?, ?, ?, ?, ?, ?, ?)");
  s.bind(launch_id).bind(t.item.cell).bind(std::to_string(t.item.seed)).bind(wording_name(t.wording));
  s.bind(grade_name(t.grade)).bind(text).bind(t.at_s).step();
  if (!s.ok()) return impl_->failure("the journal cannot be written");
  return {};
}

Result<void> Journal::add_scores(std::int64_t launch_id, const std::vector<ScoreRecord>& scores) {
  if (auto begun = impl_->run("BEGIN IMMEDIATE"); !begun) return begun;
  for (const ScoreRecord& r : scores) {
    Statement s(impl_->db,
                "INSERT INTO scores (launch, item, wording, status, scores, at_s) VALUES (?, ?, ?, ?, ?, ?)");
    s.bind(launch_id).bind(name_of(r.item)).bind(wording_name(r.wording)).bind(status_name(r.scores.status));
    s.bind(scores_text(r)).bind(r.at_s).step();
    if (s.ok()) continue;
    auto failure = impl_->failure("the journal cannot be written");
    if (auto undone = impl_->run("ROLLBACK"); !undone) return undone;
    return failure;
  }
  return impl_->run("COMMIT");
}

}  // namespace plumb::investigator
