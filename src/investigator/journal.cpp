#include "investigator/journal.h"

#include <nlohmann/json.hpp>
#include <sqlite3.h>

#include "base/check.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::json;

constexpr int kApplicationId = 0x504c4d42;  // "PLMB": tells our journals from other SQLite files
constexpr int kVersion = 1;

constexpr const char* kSchema = R"(
PRAGMA journal_mode = DELETE;
BEGIN EXCLUSIVE;
CREATE TABLE identity (seed TEXT NOT NULL, deployment_hash TEXT NOT NULL, cells TEXT NOT NULL);
CREATE TABLE launches (id INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE, variant TEXT NOT NULL, status TEXT NOT NULL,
                       message TEXT NOT NULL, starts INTEGER NOT NULL, ready_s REAL NOT NULL, at_s REAL NOT NULL);
CREATE TABLE trials (id INTEGER PRIMARY KEY AUTOINCREMENT, launch INTEGER NOT NULL REFERENCES launches(id),
                     cell TEXT NOT NULL, seed TEXT NOT NULL, wording TEXT NOT NULL, grade TEXT NOT NULL,
                     steps TEXT NOT NULL, at_s REAL NOT NULL, UNIQUE (launch, cell, seed, wording));
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
  j["prompt_tokens"] = s.prompt_tokens ? Json(*s.prompt_tokens) : Json();
  j["cached_tokens"] = s.cached_tokens ? Json(*s.cached_tokens) : Json();
  return j;
}

// Throws nlohmann's exceptions on rows that we did not write.
StepRecord step_of(const Json& j) {
  StepRecord s;
  s.step = j.at("step");
  s.prompt_hash = j.at("prompt_hash");
  s.expected = j.at("expected");
  s.text = j.at("text");
  s.finish_reason = j.at("finish_reason");
  s.grade = parse_grade(j.at("grade").get<std::string>()).value();
  s.detail = j.at("detail");
  s.graded = j.at("graded");
  s.wants_hit = j.at("wants_hit");
  s.expected_tokens = j.at("expected_tokens");
  s.seconds = j.at("seconds");
  if (!j.at("prompt_tokens").is_null()) s.prompt_tokens = j.at("prompt_tokens").get<int>();
  if (!j.at("cached_tokens").is_null()) s.cached_tokens = j.at("cached_tokens").get<int>();
  return s;
}

std::string bits_of(const Variant& variant) {
  std::string bits;
  for (const bool on : variant) bits += on ? '1' : '0';
  return bits;
}

Variant variant_of(const std::string& bits) {
  Variant variant;
  for (const char c : bits) variant.push_back(c == '1');
  return variant;
}

std::uint64_t seed_of(const std::string& text) { return std::stoull(text); }

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
  if (auto done = impl->run("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"); !done)
    return impl->failure("this is no journal of plumb");
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
    impl->identity = {seed_of(read.text(0)), read.text(1), Json::parse(read.text(2)).get<std::vector<std::string>>()};
  } catch (const std::exception& e) {
    return error("{}: the journal is damaged: {}", file.string(), e.what());
  }
  return Journal(std::move(impl));
}

Result<History> Journal::read() const {
  History history;
  try {
    Statement launches(impl_->db,
                       "SELECT id, label, variant, status, message, starts, ready_s, at_s FROM launches ORDER BY id");
    while (launches.step()) {
      LaunchRecord l;
      l.id = launches.integer(0);
      l.label = launches.text(1);
      l.variant = variant_of(launches.text(2));
      l.status = parse_status(launches.text(3)).value();
      l.message = launches.text(4);
      l.starts = static_cast<int>(launches.integer(5));
      l.ready_s = launches.real(6);
      history.elapsed_s = std::max(history.elapsed_s, launches.real(7));
      history.launches.push_back(std::move(l));
    }
    Statement trials(impl_->db, "SELECT launch, cell, seed, wording, grade, steps, at_s FROM trials ORDER BY id");
    while (trials.step()) {
      TrialRecord t;
      t.item = {trials.text(1), seed_of(trials.text(2))};
      t.wording = trials.text(3) == wording_name(Wording::phantom) ? Wording::phantom : Wording::plain;
      t.grade = parse_grade(trials.text(4)).value();
      for (const Json& step : Json::parse(trials.text(5))) t.steps.push_back(step_of(step));
      t.at_s = trials.real(6);
      history.elapsed_s = std::max(history.elapsed_s, t.at_s);
      const auto launch = std::find_if(history.launches.begin(), history.launches.end(),
                                       [&](const LaunchRecord& l) { return l.id == trials.integer(0); });
      if (launch == history.launches.end())
        return error("{}: the journal is damaged: a trial without launch", impl_->file);
      launch->trials.push_back(std::move(t));
    }
    if (!launches.ok() || !trials.ok()) return impl_->failure("the journal is damaged");
  } catch (const std::exception& e) {
    return error("{}: the journal is damaged: {}", impl_->file, e.what());
  }
  return history;
}

Result<void> Journal::put_launch(const LaunchRecord& l, double at_s) {
  Statement s(
      impl_->db,
      "INSERT INTO launches VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET status = "
      "excluded.status, message = excluded.message, starts = excluded.starts, ready_s = excluded.ready_s, at_s = "
      "excluded.at_s");
  s.bind(l.id).bind(l.label).bind(bits_of(l.variant)).bind(status_name(l.status)).bind(l.message);
  s.bind(static_cast<std::int64_t>(l.starts)).bind(l.ready_s).bind(at_s).step();
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

}  // namespace plumb::investigator
