#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/durable_file.h"
#include "base/sha256.h"
#include "faults/check/children.h"
#include "faults/check/planted.h"
#include "faults/sensitivity/card.h"
#include "faults/sensitivity/journal.h"

namespace plumb::faults {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGroupTimeout = 900;  // seconds; of one group
constexpr double kWorkerTimeout = 24 * 3600;

// The first groups of a length, whose replies are also scored in one pass.
std::size_t scored_groups(const TaskLength& length) { return length.tokens <= kShortTokens ? 2 : 1; }

std::string plant_name(const Plant& plant) { return fmt::format("{}/{}", plant.kind, plant.form); }

// The cells of one length that have one honest variant: what one worker measures.
struct Work {
  const TaskLength* length;
  std::vector<const Plant*> plants;
};

// Runs in a process of its own, and starts one for each plant and group.
class Worker {
 public:
  // `least`: no more trials than a cell has at least.
  Worker(const Subject& subject, const Work& work, const Journal& journal, bool least,
         std::optional<Clock::time_point> deadline)
      : subject_(subject), work_(work), journal_(journal), least_(least), deadline_(deadline) {
    for (const Plant* plant : work_.plants) {
      Cell cell{.tokens = work_.length->tokens, .trials = {}};
      std::size_t group = 0;
      if (const auto* known = journal_.find(key(*plant)))
        for (auto it = known->find(0); it != known->end() && it->first == group; ++it, ++group)
          cell.trials.insert(cell.trials.end(), it->second.begin(), it->second.end());
      cells_.push_back(std::move(cell));
      groups_.push_back(group);
    }
  }

  // Errors: as text; empty when all went well, or time is over.
  std::string run() {
    for (std::size_t group = 0; group < work_.length->groups(); ++group) {
      if (!anyone_needs(group)) continue;
      if (late()) return {};
      const Variant honest = honest_variant(*work_.plants.front());
      const auto conversations = work_.length->of_group(group);
      const std::vector<Trial> ground =
          ask_group(subject_, honest, conversations, group < scored_groups(*work_.length));
      if (group == 0) {
        const std::vector<Trial> again = ask_group(subject_, honest, conversations, true);
        if (std::string complaint = floor_complaint(ground, again); !complaint.empty()) return complaint;
      }
      for (std::size_t i = 0; i < work_.plants.size(); ++i)
        if (needs(i, group)) {
          if (late()) return {};
          if (std::string complaint = measure(i, group, ground); !complaint.empty()) return complaint;
        }
    }
    return {};
  }

 private:
  bool late() const { return deadline_ && Clock::now() >= *deadline_; }
  CellKey key(const Plant& plant) const { return {plant_name(plant), work_.length->tokens}; }
  bool needs(std::size_t i, std::size_t group) const {
    return groups_[i] == group &&
           !(least_ && static_cast<std::int64_t>(cells_[i].trials.size()) >= least_trials(cells_[i].tokens)) &&
           !is_finished(cells_[i], static_cast<std::int64_t>(work_.length->conversations.size()));
  }
  bool anyone_needs(std::size_t group) const {
    for (std::size_t i = 0; i < cells_.size(); ++i)
      if (needs(i, group)) return true;
    return false;
  }

  // Nothing may differ without a fault: then any bit that does is a fault's.
  std::string floor_complaint(const std::vector<Trial>& once, const std::vector<Trial>& again) const {
    for (std::size_t i = 0; i < once.size(); ++i)
      for (std::size_t r = 0; r < once[i].replies.size(); ++r)
        if (once[i].replies[r].digest != again[i].replies[r].digest || again[i].decode_gap != 0)
          return fmt::format("{}: replies differ without a fault, at {} tokens", ground_name(*work_.plants.front()),
                             work_.length->tokens);
    return {};
  }

  std::string measure(std::size_t i, std::size_t group, const std::vector<Trial>& ground) {
    const Plant& plant = *work_.plants[i];
    const auto conversations = work_.length->of_group(group);
    const Job job = [&] {
      const Variant variant = planted_variant(plant, 1 + group, 1 + group);
      const auto trials = ask_group(subject_, variant, conversations, group < scored_groups(*work_.length));
      std::vector<TrialDifference> differences;
      for (std::size_t c = 0; c < trials.size(); ++c)
        differences.push_back(difference_of(ground[c], trials[c], conversations[c].questions));
      return trials_text(differences);
    };
    const auto text = run_in_children({job}, 1, kGroupTimeout, [](std::size_t) {}).front();
    if (!text) return fmt::format("{} at {} tokens: {}", plant_name(plant), work_.length->tokens, text.error().message);
    const auto differences = parse_trials(*text);
    CHECK(differences.has_value());
    if (auto kept = append_group(journal_.file(), key(plant), group, *differences); !kept) return kept.error().message;
    cells_[i].trials.insert(cells_[i].trials.end(), differences->begin(), differences->end());
    ++groups_[i];
    return {};
  }

  const Subject& subject_;
  const Work& work_;
  const Journal& journal_;
  const bool least_;
  const std::optional<Clock::time_point> deadline_;
  std::vector<Cell> cells_;
  std::vector<std::size_t> groups_;  // that each plant has
};

Result<std::vector<const TaskLength*>> chosen_lengths(const CardOptions& options, const Subject& subject) {
  std::vector<const TaskLength*> lengths;
  for (const std::int64_t tokens : options.lengths) {
    const auto found = std::ranges::find(subject.tasks, tokens, &TaskLength::tokens);
    if (found == subject.tasks.end())
      return error("{}: has no questions of {} tokens", options.questions.string(), tokens);
    lengths.push_back(&*found);
  }
  return lengths;
}

Result<std::vector<const Plant*>> chosen_plants(const CardOptions& options) {
  for (const std::string& kind : options.kinds)
    if (std::ranges::find(plants(), kind, &Plant::kind) == plants().end())
      return error("no plant of kind {}; plumb-faulty faults lists them", kind);
  std::vector<const Plant*> list;
  for (const Plant& plant : plants())
    if (options.kinds.empty() || std::ranges::find(options.kinds, plant.kind) != options.kinds.end())
      list.push_back(&plant);
  return list;
}

// Lengths ascending, so that a run that is stopped knows most of the cheap ones.
std::vector<Work> work_of(const std::vector<const TaskLength*>& lengths, const std::vector<const Plant*>& list) {
  std::vector<Work> work;
  for (const TaskLength* length : lengths) {
    std::vector<std::string> grounds;
    const std::size_t first = work.size();
    for (const Plant* plant : list) {
      const auto at = std::ranges::find(grounds, ground_name(*plant)) - grounds.begin();
      if (at == static_cast<std::ptrdiff_t>(grounds.size())) {
        grounds.push_back(ground_name(*plant));
        work.push_back({length, {}});
      }
      work[first + static_cast<std::size_t>(at)].plants.push_back(plant);
    }
  }
  return work;
}

Result<void> measure_all(const Subject& subject, const std::vector<Work>& work, const Journal& journal, bool least,
                         int processes, std::optional<Clock::time_point> deadline) {
  std::vector<Job> jobs;
  for (const Work& part : work)
    jobs.emplace_back(
        [&subject, &part, &journal, least, deadline] { return Worker(subject, part, journal, least, deadline).run(); });
  std::size_t done = 0;
  const auto results = run_in_children(jobs, processes, kWorkerTimeout, [&](std::size_t job) {
    std::fprintf(stderr, "%zu of %zu: %s at %lld tokens\n", ++done, jobs.size(),
                 ground_name(*work[job].plants.front()).c_str(), static_cast<long long>(work[job].length->tokens));
  });
  for (const auto& result : results) {
    if (!result) return tl::unexpected(result.error());
    if (!result->empty()) return error("{}", *result);
  }
  return {};
}

}  // namespace

Result<Card> measure_card(const CardOptions& options) {
  const auto list = chosen_plants(options);
  if (!list) return tl::unexpected(list.error());
  const auto subject = load_subject(options.model, options.questions);
  if (!subject) return tl::unexpected(subject.error());
  const auto lengths = chosen_lengths(options, *subject);
  if (!lengths) return tl::unexpected(lengths.error());
  const auto questions = read_file(options.questions);
  if (!questions) return tl::unexpected(questions.error());

  Card card{.model_hash = subject->model->hash, .lengths = {}, .plants = {}};
  const std::string named = fmt::format("{} {}", card.model_hash, sha256_hex(*questions));
  auto journal = Journal::open(options.journal, named);
  if (!journal) return tl::unexpected(journal.error());
  std::optional<Clock::time_point> deadline;
  if (options.minutes > 0)
    deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double, std::ratio<60>>(options.minutes));
  const std::vector<Work> work = work_of(*lengths, *list);
  // First a little of every cell, then all that it needs: who stops early has the whole table.
  for (const bool least : {true, false}) {
    if (auto done = measure_all(*subject, work, *journal, least, options.processes, deadline); !done)
      return tl::unexpected(done.error());
    journal = Journal::open(options.journal, named);
    if (!journal) return tl::unexpected(journal.error());
  }
  card.complete = true;
  for (const TaskLength* length : *lengths) card.lengths.push_back(length->tokens);
  for (const Plant* plant : *list) {
    PlantCells row{.plant = plant, .cells = {}};
    for (const TaskLength* length : *lengths) {
      Cell cell{.tokens = length->tokens, .trials = {}};
      if (const auto* known = journal->find({plant_name(*plant), length->tokens}))
        for (const auto& [group, trials] : *known) cell.trials.insert(cell.trials.end(), trials.begin(), trials.end());
      card.complete &= is_finished(cell, static_cast<std::int64_t>(length->conversations.size()));
      row.cells.push_back(summary_of(cell));
    }
    card.plants.push_back(std::move(row));
  }
  return card;
}

}  // namespace plumb::faults
