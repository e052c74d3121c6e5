#include "investigator/investigate.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/check.h"
#include "base/durable_file.h"
#include "investigator/dial.h"
#include "investigator/given_beside.h"
#include "investigator/live_page.h"
#include "investigator/report.h"
#include "investigator/report_redaction.h"
#include "investigator/restart_never.h"
#include "investigator/source_tree.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

using Status = LaunchRecord::Status;

constexpr const char* kJournal = "journal.sqlite";
constexpr const char* kDeployment = "deployment.toml";
constexpr const char* kEnvironment = "environment.json";

// Exclusive use of a case folder, until the process ends or this is destroyed.
class CaseLock {
 public:
  static Result<CaseLock> take(const std::filesystem::path& case_dir) {
    const auto file = case_dir / "lock";
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return error("{}: cannot be created: {}", file.string(), std::strerror(errno));
    CaseLock lock(fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0)
      return error("{}: another plumb is working on this case; wait for it or choose another folder",
                   case_dir.string());
    return lock;
  }
  CaseLock(CaseLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  CaseLock& operator=(CaseLock&&) = delete;
  ~CaseLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  explicit CaseLock(int fd) : fd_(fd) {}
  int fd_;
};

// Carries one investigation from step to step.
class Driver {
 public:
  Driver(const Plan& plan, World& world, Journal& journal, const ProgressSink& progress, LivePage* live)
      : plan_(plan),
        world_(world),
        journal_(journal),
        progress_(progress),
        live_(live),
        shape_(shape_of(plan.deployment)),
        dialler_(shape_, plan.deployment.request.answer_tokens) {}

  Result<Outcome> run() {
    auto history = journal_.read();
    if (!history) return tl::unexpected(history.error());
    history_ = std::move(*history);
    dialler_.learn(history_);
    for (const auto& damage :
         {damage_of(plan_, history_), damage_of_trials(history_, shape_), damage_of_scores(history_, plan_.seed)})
      if (damage) return error("{}: the journal is damaged: {}", journal_.file(), *damage);
    begin_s_ = world_.now_s() - history_.elapsed_s;
    for (;;) {
      history_.elapsed_s = elapsed();
      NextStep next = next_step(plan_, history_);
      host_ = 0;
      if (open_ != nullptr && (!next.wanted || next.wanted->label != open_->label)) {
        if (next.wanted && can_host(*next.wanted)) host_ = open_->process();
        if (auto closed = close(Status::done, ""); !closed) return tl::unexpected(closed.error());
      }
      if (!next.wanted) {
        if (const std::string nothing = nothing_ran(next.findings); !nothing.empty()) return error("{}", nothing);
        return Outcome{std::move(next.findings), std::move(history_), plan_.seed};
      }
      if (auto done = perform(*next.wanted); !done) return tl::unexpected(done.error());
    }
  }

 private:
  double elapsed() { return world_.now_s() - begin_s_; }

  // What a deployment that never ran is to be told about: an error, because nothing was measured that a verdict could
  // rest on. Empty when a variant launched and answered a request.
  std::string nothing_ran(const Findings& findings) const {
    const auto never_launched = [](const LaunchRecord& l) {
      return l.status == Status::failed || l.status == Status::infeasible;
    };
    const auto resolved = [](const LaunchRecord& l) {
      return std::any_of(l.trials.begin(), l.trials.end(),
                         [](const TrialRecord& t) { return t.grade != Grade::infrastructure; });
    };
    const std::vector<LaunchRecord>& launches = history_.launches;
    if (launches.empty()) return {};
    if (std::all_of(launches.begin(), launches.end(), never_launched)) {
      const LaunchRecord& last = launches.back();
      return fmt::format(
          "deployment {}: no variant launches, so there is nothing to measure; the last try was {} ({}): {}",
          plan_.deployment.name, last.label, describe(plan_.deployment, last.variant), last.message);
    }
    const bool asked =
        std::any_of(launches.begin(), launches.end(), [](const LaunchRecord& l) { return !l.trials.empty(); });
    if (!findings.unmeasured.empty() && asked && std::none_of(launches.begin(), launches.end(), resolved))
      return fmt::format("deployment {}: it launches, but answers no request: {}", plan_.deployment.name,
                         findings.unmeasured);
    return {};
  }

  void tell(Progress p) {
    p.launches = history_.starts();
    p.elapsed_s = elapsed();
    if (progress_) progress_(p);
    if (live_ == nullptr) return;
    live_->tell(p);
    live_->observe(plan_, history_);
  }

  LaunchRecord& record() {
    CHECK(!history_.launches.empty());
    return history_.launches.back();
  }

  // Whether the processes of the open launch can be asked as what is wanted next.
  bool can_host(const Wanted& wanted) {
    std::string ignored;
    return wanted.shares && history_.find(wanted.label) == nullptr &&
           same_processes(plan_.deployment, open_->variant, wanted.variant) && world_.alive(ignored);
  }

  Result<void> perform(const Wanted& wanted) {
    if (open_ == nullptr) {
      auto started = start(wanted);
      if (!started) return tl::unexpected(started.error());
      if (!*started) return {};
    }
    right_ = done_ = 0;
    for (const TrialRecord& t : record().trials) count(t.grade);
    const int total = done_ + static_cast<int>(missing(wanted).size());
    Progress p{.kind = Progress::Kind::launch, .label = wanted.label, .text = wanted.why};
    p.variant = describe(plan_.deployment, wanted.variant);
    wanted_ = wanted;
    p.total = total;
    p.done = done_;
    p.right = right_;
    tell(p);
    for (const auto& [item, wording] : missing(wanted)) {
      if (elapsed() >= plan_.limits.max_minutes * 60) return close(Status::died, "the time budget ended here");
      TrialRecord t = run_trial(world_, item, wording, shape_, begin_s_ + plan_.limits.max_minutes * 60,
                                {&dialler_, &codes_, plan_.deployment.request});
      t.at_s = elapsed();
      // The free text of a weak check is measured later and holds nothing of the operator's.
      if (plan_.deployment.given.redact && !is_weak(item.cell))
        for (StepRecord& s : t.steps) s.text = withheld(s.text);
      if (auto written = journal_.add_trial(record().id, t); !written) return written;
      count(t.grade);
      p.kind = Progress::Kind::trial;
      p.cell = item.cell;
      p.grade = t.grade;
      p.done = done_;
      p.right = right_;
      const bool unresolved = t.grade == Grade::infrastructure;
      record().trials.push_back(std::move(t));
      tell(p);
      std::string why;
      if (unresolved && !world_.alive(why)) return close(Status::died, why);
    }
    return score(wanted);
  }

  // Asks for the log-probabilities of the texts: all of them are written, or none, since a hit follows its cold text.
  Result<void> score(const Wanted& wanted) {
    if (wanted.texts.empty()) return {};
    const double deadline_s = begin_s_ + plan_.limits.max_minutes * 60;
    std::vector<ScoreRecord> records;
    for (const auto& [item, wording] : wanted.texts) {
      if (elapsed() >= plan_.limits.max_minutes * 60) return close(Status::died, "the time budget ended here");
      const ScorePath path = item.path;
      const auto refused = std::find_if(records.begin(), records.end(), [path](const ScoreRecord& r) {
        return r.item.path == path && r.scores.status == Scores::Status::not_offered;
      });
      records.push_back(run_score(world_, item, plan_.seed, wording,
                                  refused == records.end() ? nullptr : &refused->scores, deadline_s));
      records.back().at_s = elapsed();
      std::string why;
      if (records.back().scores.status == Scores::Status::unanswered && !world_.alive(why))
        return close(Status::died, why);
    }
    if (auto written = journal_.add_scores(record().id, records); !written) return written;
    for (ScoreRecord& r : records) record().scores.push_back(std::move(r));
    return {};
  }

  std::vector<std::pair<ItemId, Wording>> missing(const Wanted& wanted) {
    std::vector<std::pair<ItemId, Wording>> items;
    for (const auto& item : wanted.items)
      if (std::none_of(record().trials.begin(), record().trials.end(),
                       [&](const TrialRecord& t) { return t.item == item.first && t.wording == item.second; }))
        items.push_back(item);
    return items;
  }

  void count(Grade grade) {
    ++done_;
    right_ += grade == Grade::right ? 1 : 0;
  }

  // Launches what is wanted; false: that failed, and the journal says so. A launch that was open when the process
  // before us ended is continued in a new process: its trials are independent of each other.
  Result<bool> start(const Wanted& wanted) {
    if (history_.find(wanted.label) == nullptr) {
      LaunchRecord l;
      l.id = static_cast<std::int64_t>(history_.launches.size()) + 1;
      l.label = wanted.label;
      l.variant = wanted.variant;
      history_.launches.push_back(std::move(l));
    }
    CHECK(record().label == wanted.label);
    LaunchRecord& l = record();
    if (host_ != 0) {
      l.host = std::exchange(host_, 0);
      world_.turn(wanted.variant);
      open_ = &l;
      if (auto written = journal_.put_launch(l, elapsed()); !written) return tl::unexpected(written.error());
      return true;
    }
    l.host = 0;  // what was asked in the processes of another goes on in its own
    ++l.starts;
    if (auto written = journal_.put_launch(l, elapsed()); !written) return tl::unexpected(written.error());
    const auto ready = world_.launch(wanted.variant, l.id);
    // Not the variant's fault: the launch stays open, so that resuming tries it again.
    const bool outside = !ready && (ready.error().kind == LaunchFailure::Kind::environment ||
                                    ready.error().kind == LaunchFailure::Kind::stale);
    if (outside) {
      l.message = ready.error().message;
    } else if (!ready) {
      const bool infeasible = ready.error().kind == LaunchFailure::Kind::infeasible;
      l.status = infeasible ? Status::infeasible : Status::failed;
      l.message = ready.error().message;
      tell({.kind = Progress::Kind::note,
            .label = l.label,
            .text = fmt::format("{} did not launch: {}", l.label, l.message)});
    } else {
      l.ready_s = *ready;
      l.message.clear();
      open_ = &l;
    }
    if (auto written = journal_.put_launch(l, elapsed()); !written) return tl::unexpected(written.error());
    if (outside)
      return error("deployment {}: it cannot be launched ({}): {}", plan_.deployment.name, l.label, l.message);
    return ready.has_value();
  }

  // What the launch answered to the question it was made for; "" for none, or when its trials are not all answered.
  std::string judged() {
    const Wanted::Judgement& j = wanted_.judgement;
    if (j.threshold == 0) return {};
    int failures = 0;
    for (std::size_t i = 0; i < j.judged; ++i) {
      const auto& trials = record().trials;
      const auto it = std::find_if(trials.begin(), trials.end(), [&](const TrialRecord& t) {
        return t.item == wanted_.items[i].first && t.wording == wanted_.items[i].second;
      });
      if (it == trials.end() || it->grade == Grade::infrastructure) return {};
      failures += is_failure(it->grade) ? 1 : 0;
    }
    return failures >= j.threshold ? j.failing : j.passing;
  }

  Result<void> close(Status status, const std::string& message) {
    CHECK(open_ == &record());
    open_ = nullptr;
    record().status = status;
    record().message = message;
    tell({.kind = Progress::Kind::launch_end,
          .label = record().label,
          .text = wanted_.why,
          .answer = judged(),
          .right = right_,
          .done = done_});
    // Before the stop, so that a kill during a slow stop does not reopen the launch.
    if (auto written = journal_.put_launch(record(), elapsed()); !written) return written;
    return host_ != 0 ? Result<void>{} : world_.stop();
  }

  const Plan& plan_;
  World& world_;
  Journal& journal_;
  const ProgressSink& progress_;
  LivePage* live_;
  Shape shape_;
  Dialler dialler_;
  KnownCodes codes_;
  History history_;
  LaunchRecord* open_ = nullptr;  // the last of history_.launches while its process runs
  std::int64_t host_ = 0;         // the launch whose processes go on as the next one's
  Wanted wanted_;
  double begin_s_ = 0;
  int right_ = 0;
  int done_ = 0;
};

std::uint64_t seed_from_system() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

namespace {

// Whether nothing was measured that a case could go on from. A launch that is still open is gone on with, unless the
// case cannot be: it is to be begun, or with a corrected deployment file.
bool tried_in_vain(const History& history, bool may_go_on) {
  return std::all_of(history.launches.begin(), history.launches.end(),
                     [&](const LaunchRecord& l) {
                       return l.trials.empty() &&
                              (!may_go_on || l.status == Status::failed || l.status == Status::infeasible);
                     }) &&
         !(may_go_on && history.launches.empty());
}

// Replaces a journal without trials. A kill in between leaves none, and the case can be begun.
Result<Journal> begin_anew(Journal before, const InvestigateOptions& options, CaseIdentity identity) {
  if (options.resume) identity.seed = before.identity().seed;
  const auto file = options.case_dir / kJournal;
  {
    const Journal closed = std::move(before);
  }
  for (const char* part : {"-wal", "-shm", ""}) {
    std::error_code failed;
    std::filesystem::remove(file.string() + part, failed);
    if (failed) return error("{}{}: cannot be removed: {}", file.string(), part, failed.message());
  }
  return Journal::create(file, identity);
}

Result<Journal> open_or_create(const InvestigateOptions& options, const Plan& plan) {
  const auto file = options.case_dir / kJournal;
  const CaseIdentity identity{plan.seed, hash_deployment(plan.deployment), plan.cells};
  if (!has_journal(options.case_dir)) return Journal::create(file, identity);
  auto journal = Journal::open(file);
  if (!journal) return journal;
  if (options.resume && options.seed && *options.seed != journal->identity().seed)
    return error("{}: the case was begun with seed {}, not {}; resume it without --seed", options.case_dir.string(),
                 journal->identity().seed, *options.seed);
  const bool same = journal->identity().deployment_hash == identity.deployment_hash;
  const auto history = journal->read();
  if (!history) return tl::unexpected(history.error());
  if (tried_in_vain(*history, options.resume && same)) return begin_anew(std::move(*journal), options, identity);
  if (!options.resume) return Journal::create(file, identity);
  if (!same) return error("{}: the case was begun with another deployment file", options.case_dir.string());
  return journal;
}

}  // namespace

bool has_journal(const std::filesystem::path& case_dir) {
  std::error_code ignored;
  return std::filesystem::exists(case_dir / kJournal, ignored);
}

namespace {

// The environment a case was begun in, as its folder has it; nothing where it has none that can be read.
std::optional<Environment> environment_of(const std::filesystem::path& case_dir) {
  std::error_code ignored;
  if (!std::filesystem::exists(case_dir / kEnvironment, ignored)) return std::nullopt;
  const auto text = read_file(case_dir / kEnvironment);
  if (!text) return std::nullopt;
  const auto environment = parse_environment(*text);
  return environment ? std::optional(*environment) : std::nullopt;
}

Result<void> keep_environment(const std::filesystem::path& case_dir, const Environment& environment) {
  if (environment_of(case_dir) == environment) return {};
  return write_atomically(case_dir / kEnvironment, environment_json(environment));
}

}  // namespace

Result<Outcome> run_investigation(const Plan& plan, World& world, Journal& journal, const ProgressSink& progress,
                                  LivePage* live) {
  return Driver(plan, world, journal, progress, live).run();
}

Result<Outcome> investigate(const Deployment& as_written, const InvestigateOptions& options) {
  Deployment deployment = as_written;
  if (deployment.restart == "never" && deployment.switches.empty())
    return error(
        "deployment {}: restart = \"never\" and no [[switch]], so there is nothing to turn: probe the endpoints with "
        "plumb probe URL, compare two with plumb probe URL URL_B, or add a switch with apply = \"request\"",
        deployment.name);
  if (deployment.endpoints.empty()) return error("deployment {}: no [[endpoint]] to ask", deployment.name);
  if (options.resume && !has_journal(options.case_dir))
    return error("nothing to resume in {}: it has no {}; begin the case without --resume", options.case_dir.string(),
                 kJournal);
  std::error_code failed;
  std::filesystem::create_directories(options.case_dir / "logs", failed);
  if (failed) return error("{}: cannot be created: {}", options.case_dir.string(), failed.message());
  auto lock = CaseLock::take(options.case_dir);
  if (!lock) return tl::unexpected(lock.error());
  if (options.resume)
    if (auto read = read_given(options.case_dir, deployment); !read) return tl::unexpected(read.error());
  auto plan = make_plan(deployment, options.seed ? *options.seed : seed_from_system(), options.limits);
  if (!plan) return tl::unexpected(plan.error());
  auto journal = open_or_create(options, *plan);
  if (!journal) return tl::unexpected(journal.error());
  plan->seed = journal->identity().seed;
  plan->cells = journal->identity().cells;
  if (auto done = write_atomically(options.case_dir / kDeployment, options.deployment_toml); !done)
    return tl::unexpected(done.error());
  if (auto done = keep_given(options.case_dir, plan->deployment); !done) return tl::unexpected(done.error());

  Environment environment = environment_of(options.case_dir).value_or(environment_here());
  if (auto done = keep_environment(options.case_dir, environment); !done) return tl::unexpected(done.error());

  // Of an investigation that was killed.
  const auto tree = options.case_dir / "logs" / "tree";
  if (auto removed = remove_source_tree(tree); !removed) return tl::unexpected(removed.error());
  LaunchedWorld world(plan->deployment, options.case_dir / "logs", {}, options.surroundings);
  auto outcome = run_investigation(*plan, world, *journal, options.progress, options.live);
  if (auto removed = remove_source_tree(tree); !removed && outcome) return tl::unexpected(removed.error());
  if (outcome) state_what_no_restart_leaves_open(deployment, outcome->findings);
  if (const World::ServedModel served = world.served_model(); !served.name.empty()) {
    environment.model = served.name;
    environment.model_hash = served.hash;
    if (auto done = keep_environment(options.case_dir, environment); !done) return tl::unexpected(done.error());
  }
  if (!outcome) return outcome;
  std::string go_on;
  if (!outcome->findings.budget.empty()) go_on = go_on_command(options.case_dir, outcome->findings, options.limits);
  const Case c{*plan, options.deployment_toml, std::move(*outcome), true, environment, go_on};
  if (auto done = write_reports(options.case_dir, c); !done) return tl::unexpected(done.error());
  if (options.live != nullptr) options.live->finish(c);
  return c.outcome;
}

Result<Case> read_case(const std::filesystem::path& case_dir, const Limits& limits) {
  if (!has_journal(case_dir)) return error("{}: is no case: it has no {}", case_dir.string(), kJournal);
  auto toml = read_file(case_dir / kDeployment);
  if (!toml) return tl::unexpected(toml.error());
  auto deployment = parse_deployment(*toml, (case_dir / kDeployment).string());
  if (!deployment) return tl::unexpected(deployment.error());
  if (auto read = read_given(case_dir, *deployment); !read) return tl::unexpected(read.error());
  auto journal = Journal::open(case_dir / kJournal);
  if (!journal) return tl::unexpected(journal.error());
  if (journal->identity().deployment_hash != hash_deployment(*deployment))
    return error("{}: deployment.toml is not the file the case was begun with", case_dir.string());
  auto history = journal->read();
  if (!history) return tl::unexpected(history.error());
  const Limits within = limits_of(*deployment, limits);
  Case c{{std::move(*deployment), journal->identity().seed, within, journal->identity().cells}, *toml, {}, false};
  if (const auto damage = damage_of(c.plan, *history))
    return error("{}: the journal is damaged: {}", journal->file(), *damage);
  NextStep next = next_step(c.plan, *history);
  c.ended = !next.wanted.has_value();
  if (c.ended) state_what_no_restart_leaves_open(c.plan.deployment, next.findings);
  c.outcome = {std::move(next.findings), std::move(*history), c.plan.seed};
  if (const auto environment = environment_of(case_dir)) c.environment = *environment;
  if (!c.ended) {
    c.go_on = go_on_command(case_dir, {}, limits);
    c.outcome.findings = findings_so_far(c.plan, c.outcome.history);
    c.outcome.findings.reasons.push_back("the case is not finished; go on with: " + c.go_on);
  } else if (!c.outcome.findings.budget.empty()) {
    c.go_on = go_on_command(case_dir, c.outcome.findings, limits);
  }
  return c;
}

Result<Case> resume_case(const std::filesystem::path& case_dir, const Limits& limits, const ProgressSink& progress) {
  auto before = read_case(case_dir, limits);
  if (!before) return before;
  InvestigateOptions options;
  options.case_dir = case_dir;
  options.deployment_toml = before->deployment_toml;
  options.resume = true;
  options.limits = limits;
  options.progress = progress;
  auto outcome = investigate(before->plan.deployment, options);
  if (!outcome) return tl::unexpected(outcome.error());
  before->outcome = std::move(*outcome);
  before->ended = true;
  before->go_on.clear();
  if (!before->outcome.findings.budget.empty())
    before->go_on = go_on_command(case_dir, before->outcome.findings, limits);
  return before;
}

Result<Case> report_case(const std::filesystem::path& case_dir, const Limits& limits) {
  auto c = read_case(case_dir, limits);
  if (!c) return c;
  if (auto done = write_reports(case_dir, *c); !done) return tl::unexpected(done.error());
  return c;
}

}  // namespace plumb::investigator
