#include "investigator/investigate.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/durable_file.h"
#include "investigator/live_page.h"
#include "investigator/report.h"
#include "investigator/restart_never.h"
#include "investigator/source_tree.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

using Status = LaunchRecord::Status;

constexpr const char* kJournal = "journal.sqlite";
// Launches, for a plan.
constexpr int kLeastGround = 4;
constexpr int kMostGround = 6;
constexpr int kUsualConfirmation = 6;

constexpr const char* kDeployment = "deployment.toml";
constexpr const char* kEnvironment = "environment.json";
constexpr const char* kDemo = "demo.json";

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

std::string prompt_text(const Ask& ask) {
  if (ask.messages.empty()) return ask.prompt;
  std::string text;
  for (const Message& m : ask.messages) text += m.role + "\n" + m.content + "\n";
  return text;
}

int tokens_of_trial(const std::string& cell, const Shape& shape) {
  int tokens = 0;
  for (const Ask& ask : make_item({cell, 1}, Wording::phantom, shape).asks) tokens += ask.prompt_tokens;
  return tokens;
}

StepRecord ask_one(World& world, const Ask& ask, double deadline_s) {
  const Reply reply = world.ask(ask, std::clamp(deadline_s - world.now_s(), kLeastAskTimeoutS, kAskTimeoutS));
  StepRecord s;
  s.step = ask.step;
  s.prompt_hash = hash_text(prompt_text(ask));
  s.expected = ask.expected;
  s.text = reply.text;
  s.finish_reason = reply.finish_reason;
  s.graded = !ask.expected.empty();
  s.wants_hit = ask.wants_hit;
  s.prompt_tokens = reply.prompt_tokens;
  s.expected_tokens = ask.prompt_tokens;
  s.cached_tokens = reply.cached_tokens;
  s.seconds = reply.seconds;
  if (s.graded) {
    const Graded graded = grade_reply(reply, ask);
    s.grade = graded.grade;
    s.detail = graded.detail;
  } else if (reply.kind == Reply::Kind::answered) {
    s.grade = Grade::right;
  } else {
    // A primer or weak check that got no text: nothing to grade, so it is unresolved, whatever the reason.
    s.grade = Grade::infrastructure;
    s.detail = reply.text;
  }
  return s;
}

// Carries one investigation from step to step.
class Driver {
 public:
  Driver(const Plan& plan, World& world, Journal& journal, const ProgressSink& progress, LivePage* live)
      : plan_(plan),
        world_(world),
        journal_(journal),
        progress_(progress),
        live_(live),
        shape_(shape_of(plan.deployment)) {}

  Result<Outcome> run() {
    auto history = journal_.read();
    if (!history) return tl::unexpected(history.error());
    history_ = std::move(*history);
    for (const auto& damage : {damage_of(plan_, history_), damage_of_prompts()})
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

  // Whether the journal's trials are answers to what this plan asks.
  std::optional<std::string> damage_of_prompts() const {
    for (const LaunchRecord& l : history_.launches)
      for (const TrialRecord& t : l.trials) {
        const std::vector<Ask> asks = make_item(t.item, t.wording, shape_).asks;
        bool same = t.steps.size() <= asks.size();
        for (std::size_t i = 0; same && i < t.steps.size(); ++i) {
          const StepRecord& s = t.steps[i];
          const bool claims = s.graded && s.grade == Grade::right;
          same = s.step == asks[i].step && s.expected == asks[i].expected &&
                 s.prompt_hash == hash_text(prompt_text(asks[i])) && s.graded == !asks[i].expected.empty() &&
                 (!claims || s.text.find(s.expected) != std::string::npos);
        }
        if (!same)
          return fmt::format("launch {}: its trial {} with seed {} is no answer to what plumb asks there", l.id,
                             t.item.cell, t.item.seed);
      }
    return std::nullopt;
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
      TrialRecord t = run_trial(world_, item, wording, shape_, begin_s_ + plan_.limits.max_minutes * 60);
      t.at_s = elapsed();
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

// The failing and the passing variant once more, then launches for 1.25 times the bits that name one of the switches.
int usual_search(std::size_t turned) {
  constexpr int kOnceMore = 2;
  constexpr double kOverBound = 1.25;
  turned = std::min(turned, GroupTest::kMostSuspects);
  if (turned == 0) return kOnceMore;
  std::vector<std::size_t> suspects(turned);
  std::iota(suspects.begin(), suspects.end(), std::size_t{0});
  const GroupTest test({.suspects = suspects, .bad = Variant(turned, true), .both_sides = false, .ranks = {}});
  const double bits = test.bits_to({Hypothesis::Class::any_of, {0}}, {true});
  return kOnceMore + static_cast<int>(std::ceil(kOverBound * bits));
}

Result<Plan> plan_of(const Deployment& deployment, std::uint64_t seed, const Limits& limits) {
  auto cells = cells_of("all", {});
  if (!cells) return tl::unexpected(cells.error());
  const Shape shape = shape_of(deployment);
  std::vector<std::string> fitting;
  for (const std::string& cell : *cells) {
    const int least = least_prompt_tokens(cell, shape);
    if (shape.max_len > 0 && least > shape.max_len) continue;
    if (least > kMaxPromptTokens)
      return error(
          "[facts]: with this window, chunk and page the {} probe needs prompts of {} tokens or more; plumb "
          "makes at most {}: state smaller ones, or a max_len that leaves the probe out",
          cell, least, kMaxPromptTokens);
    const auto items = make_item({cell, 1}, Wording::phantom, shape).asks;
    const bool fits =
        shape.max_len <= 0 || std::all_of(items.begin(), items.end(), [&](const Ask& a) {
          return a.prompt_tokens + std::max(a.max_tokens, deployment.request.answer_tokens) <= shape.max_len;
        });
    if (fits) fitting.push_back(cell);
  }
  if (fitting.empty()) return error("[facts] max_len {}: no probe is that short", shape.max_len);
  return Plan{deployment, seed, limits_of(deployment, limits), fitting};
}

}  // namespace

// The environment of processes is left out: it holds
// sockets and keys that differ from run to run.
std::string hash_deployment(const Deployment& d) {
  std::string text;
  const auto add = [&](const std::string& part) { text += fmt::format("{}:{}", part.size(), part); };
  const auto add_all = [&](const std::vector<std::string>& parts) {
    add(std::to_string(parts.size()));
    for (const std::string& part : parts) add(part);
  };
  for (const ProcessSpec& p : d.processes) {
    add("process " + p.name);
    add(p.role);
    add(p.cwd);
    add_all(p.command);
    add_all(p.after);
    if (p.via != "local") add_all({p.via, p.host, p.image});
    if (p.via != "local") add_all(p.via_args);
    if (!p.gpus.empty() || !p.cpus.empty()) add(fmt::format("{} {}", fmt::join(p.gpus, ","), p.cpus));
  }
  for (const EndpointSpec& e : d.endpoints) add_all({e.url, e.api, e.model});
  add(d.request.extra);
  add(fmt::format("{} {}", d.request.temperature, d.request.answer_tokens));
  if (d.request.thinking_tokens > 0) add(fmt::format("thinking {}", d.request.thinking_tokens));
  if (!d.source.repository.empty()) add_all({"source", d.source.repository});
  if (!d.source.repository.empty()) add_all(d.source.build);
  for (const SwitchSpec& s : d.switches) {
    add(fmt::format("{} {} {}", s.name, s.deployed_on ? "on" : "off", s.working_off ? "" : "always"));
    for (const SwitchSide* side : {&s.off, &s.on})
      if (!side->patch.empty() || !side->endpoint.empty()) add_all({side->patch, side->endpoint});
    add(s.apply);
    for (const auto* names : {&s.processes, &s.needs, &s.conflicts}) add_all(*names);
    for (const SwitchSide* side : {&s.off, &s.on}) {
      add(std::to_string(side->env.size()));
      for (const auto& [key, value] : side->env) add(key + "=" + value);
      add_all(side->args);
      add(side->body);
    }
  }
  for (const auto& [name, value] : d.facts) add(fmt::format("{}={}", name, value));
  return hash_text(text);
}

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

std::string hash_text(std::string_view text) {
  const XXH128_hash_t h = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

Shape shape_of(const Deployment& deployment) {
  const auto fact = [&](const char* name) {
    const auto it = deployment.facts.find(name);
    return it == deployment.facts.end() ? 0 : static_cast<int>(it->second);
  };
  return {.window = fact("window"),
          .chunk = fact("chunk"),
          .page = fact("page"),
          .index_topk = fact("index_topk"),
          .max_len = fact("max_len")};
}

TrialRecord run_trial(World& world, const ItemId& id, Wording wording, const Shape& shape, double deadline_s) {
  TrialRecord t;
  t.item = id;
  t.wording = wording;
  for (const Ask& ask : make_item(id, wording, shape).asks) {
    t.steps.push_back(ask_one(world, ask, deadline_s));
    if (t.steps.back().grade == Grade::infrastructure) break;
  }
  t.grade = worst_grade(t.steps);
  return t;
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

Result<Outcome> investigate(const Deployment& deployment, const InvestigateOptions& options) {
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
  auto plan = plan_of(deployment, options.seed ? *options.seed : seed_from_system(), options.limits);
  if (!plan) return tl::unexpected(plan.error());
  auto journal = open_or_create(options, *plan);
  if (!journal) return tl::unexpected(journal.error());
  plan->seed = journal->identity().seed;
  plan->cells = journal->identity().cells;
  if (auto done = write_atomically(options.case_dir / kDeployment, options.deployment_toml); !done)
    return tl::unexpected(done.error());

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

std::string go_on_command(const std::filesystem::path& case_dir, const Findings& findings, const Limits& limits) {
  const auto quoted = [](const std::string& text) {
    const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char ch) {
      return std::isalnum(ch) != 0 ||
             std::string_view("/._-+:@%").find(static_cast<char>(ch)) != std::string_view::npos;
    });
    if (plain && !text.empty()) return text;
    std::string out = "'";
    for (const char ch : text) out += ch == '\'' ? std::string("'\\''") : std::string(1, ch);
    return out + "'";
  };
  std::string more;
  if (findings.budget == "launches") more = fmt::format(" --max-restarts {}", 2 * limits.max_restarts);
  if (findings.budget == "minutes") more = fmt::format(" --max-minutes {}", 2 * limits.max_minutes);
  if (findings.budget == "tokens") more = fmt::format(" --max-tokens {}", 2 * limits.max_tokens);
  std::error_code ignored;
  if (!std::filesystem::exists(case_dir / kDemo, ignored)) return "plumb isolate " + quoted(case_dir.string()) + more;
  if (!more.empty()) return "plumb demo" + more;
  return fmt::format("plumb demo --case {} --resume", quoted(case_dir.string()));
}

Result<Case> read_case(const std::filesystem::path& case_dir, const Limits& limits) {
  if (!has_journal(case_dir)) return error("{}: is no case: it has no {}", case_dir.string(), kJournal);
  auto toml = read_file(case_dir / kDeployment);
  if (!toml) return tl::unexpected(toml.error());
  auto deployment = parse_deployment(*toml, (case_dir / kDeployment).string());
  if (!deployment) return tl::unexpected(deployment.error());
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

Result<std::string> describe_plan(const Deployment& deployment, const Limits& limits) {
  auto plan = plan_of(deployment, 1, limits);
  if (!plan) return tl::unexpected(plan.error());
  const Variant deployed = as_deployed(deployment);
  const Variant reference = reference_variant(deployment);
  std::string out = fmt::format("as deployed: {}\nreference:   {}\n", describe(deployment, deployed),
                                describe(deployment, reference));
  out += fmt::format("budget: {} launches, {} minutes, {}\n", limits.max_restarts, limits.max_minutes,
                     plan->limits.max_tokens == 0 ? std::string("any number of tokens")
                                                  : fmt::format("{} tokens", plan->limits.max_tokens));
  out += "probes and prompt tokens of one trial:\n";
  for (const std::string& cell : plan->cells) {
    out += fmt::format("  {:<14} {:>6}  {}\n", cell, tokens_of_trial(cell, shape_of(deployment)),
                       probe_of(cell).value()->asks);
  }
  std::size_t turned = 0;
  for (std::size_t i = 0; i < deployed.size(); ++i) turned += deployed[i] != reference[i] ? 1 : 0;
  out += fmt::format(
      "launches: {} to {} to measure as deployed and reference, and if something fails about {} in which groups of the "
      "{} switches are turned, then about {} fresh ones to confirm (more when launches differ from each other)\n",
      kLeastGround, kMostGround, usual_search(turned), turned, kUsualConfirmation);
  const auto by_request = std::count_if(deployment.switches.begin(), deployment.switches.end(),
                                        [](const SwitchSpec& s) { return s.apply == "request"; });
  if (by_request > 0 && deployment.restart == "allowed")
    out += fmt::format("{} switches are turned by requests: variants that differ in them alone share a launch\n",
                       by_request);
  return out;
}

Result<std::string> plan_json(const Deployment& deployment, const Limits& limits) {
  using Json = nlohmann::ordered_json;
  const auto plan = plan_of(deployment, 1, limits);
  if (!plan) return tl::unexpected(plan.error());
  const Variant deployed = as_deployed(deployment);
  const Variant reference = reference_variant(deployment);
  Json probes = Json::array();
  Json switches = Json::array();
  int tokens = 0;
  for (const std::string& cell : plan->cells) {
    probes.push_back({{"probe", cell},
                      {"prompt_tokens", tokens_of_trial(cell, shape_of(deployment))},
                      {"asks", probe_of(cell).value()->asks}});
    tokens += tokens_of_trial(cell, shape_of(deployment));
  }
  std::size_t turned = 0;
  const auto side = [](bool on) { return on ? "on" : "off"; };
  for (std::size_t i = 0; i < deployed.size(); ++i) {
    const SwitchSpec& spec = deployment.switches[i];
    switches.push_back({{"switch", spec.name},
                        {"deployed", side(deployed[i])},
                        {"reference", side(reference[i])},
                        {"cost_s", spec.cost_s}});
    turned += deployed[i] != reference[i] ? 1 : 0;
  }
  const Json document{{"plan",
                       {{"deployed", describe(deployment, deployed)},
                        {"reference", describe(deployment, reference)},
                        {"budget",
                         {{"launches", limits.max_restarts},
                          {"minutes", limits.max_minutes},
                          {"prompt_tokens", plan->limits.max_tokens == 0 ? Json() : Json(plan->limits.max_tokens)}}},
                        {"probes", probes},
                        {"launches",
                         {{"ground", {{"least", kLeastGround}, {"most", kMostGround}}},
                          {"search_if_something_fails", usual_search(turned)},
                          {"confirmation_if_something_fails", kUsualConfirmation}}},
                        {"costs",
                         {{"prompt_tokens_of_one_trial_of_each_probe", tokens},
                          {"start_timeout_s", deployment.start_timeout_s},
                          {"switches", switches}}}}}};
  return document.dump(2) + "\n";
}

std::string summary(const Outcome& outcome, const std::string& go_on) {
  const Findings& f = outcome.findings;
  const Verdict& v = f.verdict;
  std::string out = fmt::format("verdict: {} (class {})\n", v.verdict, v.klass);
  for (const Culprit& c : v.culprits) out += fmt::format("culprit: {}, {} side, {}\n", c.switch_name, c.side, c.word);
  for (const Round& r : f.rounds)
    for (const Contrast& c : r.contrasts)
      out += fmt::format("evidence: {}: {}/{} against {}/{} launches failing, e-value {:.3g}\n", c.name, c.failed,
                         c.pairs, c.wrongly_failed, c.pairs, c.e_value);
  for (const std::string& reason : f.reasons) out += "because: " + reason + "\n";
  for (const std::string& open : v.not_covered) out += "not covered: " + open + "\n";
  out += fmt::format("launches: {} floor, {} search, {} confirmation{}; {} trials in {:.0f} s; seed {}\n",
                     v.floor_launches, v.search_launches, v.confirm_launches,
                     v.turned == 0 ? "" : fmt::format("; {} more variants asked in running processes", v.turned),
                     v.trials, outcome.history.elapsed_s, outcome.seed);
  if (!go_on.empty() && !f.budget.empty()) out += "go on with: " + go_on + "\n";
  return out;
}

Result<Case> report_case(const std::filesystem::path& case_dir, const Limits& limits) {
  auto c = read_case(case_dir, limits);
  if (!c) return c;
  if (auto done = write_reports(case_dir, *c); !done) return tl::unexpected(done.error());
  return c;
}

}  // namespace plumb::investigator
