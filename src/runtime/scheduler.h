#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/parallel.h"
#include "base/result.h"
#include "engine/engine.h"
#include "runtime/generator.h"
#include "runtime/page_pool.h"
#include "runtime/prefix_cache.h"
#include "runtime/runtime.h"
#include "runtime/sequence.h"
#include "runtime/step_plan.h"
#include "weights/model.h"

namespace plumb {

/// Decides what is computed next, and computes it: no thread and no clock. Apart from stats(), one thread calls.
///
/// Order: by age. The queue is first come, first served; what does not fit holds back those behind it. A sequence
/// starts when there are pages for what it knows, beside what prompts under way still need and one more for each
/// running sequence; it grows page by page. When a page is needed and neither free nor held by the cache alone, the
/// youngest running sequence is preempted: stored as a prefix, its pages given back, first in the queue again. The
/// oldest one always runs: pages for the longest request are planned at the start.
///
/// Fairness: a running sequence takes part in at least one of max_running consecutive passes (longest_waiting).
///
/// None of this changes a bit of any result.
class Scheduler {
 public:
  /// Plans all memory. Errors: options that contradict each other or the model, or that the machine has no memory for.
  static Result<std::unique_ptr<Scheduler>> make(std::shared_ptr<const Model> model, std::shared_ptr<Executor> executor,
                                                 const RuntimeOptions& options);
  Scheduler(Engine engine, PagePool pages, PagePool window_pages, const RuntimeOptions& plan);
  ~Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  const RuntimeOptions& plan() const { return options_; }
  const ModelConfig& config() const { return engine_.config(); }

  /// Puts a request that refuse_request lets pass at the end of the queue. Ids ascend from call to call.
  void add(std::unique_ptr<Sequence> sequence);
  /// Ends a sequence, wherever it is. Unknown ids are ignored.
  void cancel(std::uint64_t id);
  void cancel_all();
  /// Starts what may start and computes one pass. False when there was nothing to compute.
  bool step();
  /// Forgets all stored prefixes.
  void clear_cache();

  /// May be called from any thread. `rejected` is not counted here.
  GeneratorStats stats() const;

 private:
  // scheduler.cpp: the pass
  bool provide_pages();
  void run_pass();
  void take_results(Sequence& sequence, View<const float, 2> logits);
  void store_borders(Sequence& sequence);
  void store_prefix(const Sequence& sequence, const SequenceState& state);
  void finish(Sequence& sequence, Finish reason);
  void drop_done();
  void update_gauges();

  // admission.cpp: who runs
  void admit();
  bool may_start(const Sequence& sequence) const;
  bool start(Sequence& sequence);
  bool has_room_beside_others(const Sequence& sequence, std::int64_t longest) const;
  void count_start(Sequence& sequence, std::int64_t longest);
  bool grow(Sequence& sequence);
  void preempt_youngest();
  void give_back(Sequence& sequence);
  void shrink_window_reserve(Sequence& sequence);
  std::int64_t window_need(const Sequence& sequence) const;
  Pools pools() { return {&engine_.layout(), &pages_, &window_pages_}; }

  const RuntimeOptions options_;
  Engine engine_;
  PagePool pages_;
  PagePool window_pages_;
  PrefixCache cache_;
  std::int64_t window_free_;                                  // not reserved by a running sequence
  std::map<std::uint64_t, std::unique_ptr<Sequence>> queue_;  // waiting and preempted, oldest first
  std::vector<std::unique_ptr<Sequence>> running_;            // oldest first
  std::uint64_t set_version_ = 1;                             // of running_
  // How often a running sequence gave something back. What did not fit is not tried again before that.
  std::uint64_t releases_ = 1;
  StepPlan plan_;
  std::vector<float> logits_;
  std::vector<float> scratch_;  // one row of logits

  mutable std::mutex stats_mutex_;
  GeneratorStats stats_;  // written by the scheduler's thread alone, under the mutex
};

}  // namespace plumb
