#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.h"
#include "base/view.h"
#include "engine/state.h"
#include "switches/backend.h"
#include "switches/switches.h"
#include "weights/model.h"

namespace plumb {

/// A tensor at an op's output while it is computed. `name` as in docs (for example "layers.2.attn_out"); the observer
/// may read it or write to it; exactly one of the two data pointers is set. First extent: tokens of this sequence in
/// this pass, except for
///   "compressed_kv", "indexer.keys"                   the rows closed in this pass (no visit when there are none)
///   "indexer.scores"                                  up to 64 tokens a visit, as wide as the last of them needs
///   "hc_head_out", "final_norm_out", "logits"         the tokens that get logits
/// "q", "kv", "compressed_kv" and "indexer.keys" are normed and rotated, "attn_heads" rotated back: as they are used.
struct Port {
  std::string_view name;
  std::int64_t first;  // absolute position of the first token, or number of the first row
  std::span<const std::int64_t> extents;
  float* f32;
  std::int32_t* i32;
};

/// Sees every port of every pass it is given to. Observing never changes which side of a switch runs: what a fused side
/// does not materialise is absent.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void visit(const Port& port) = 0;
};

/// Asks a pass for the open part of a sequence as it stands after `length` positions, which lie inside the pass: with
/// it and the window rows, a tail can be taken there although the pass goes on.
struct OpenSnapshot {
  std::int64_t length;
  std::vector<float>* open;  // filled by the pass, open_floats()
};

/// What to compute for one sequence in a pass: its next tokens, appended at state->length.
struct BatchSequence {
  SequenceState* state;
  std::span<const std::int32_t> tokens;  // at least one, each in [0, vocab)
  bool all_logits;                       // a logits row for every token, else for the last one only
  Observer* observer;                    // may be null
  std::span<const OpenSnapshot> snapshots = {};
};

/// A forward pass: several sequences under one settings vector.
struct Batch {
  std::span<const BatchSequence> sequences;
  const Settings* settings;
};

/// The forward pass on one backend: no clock, no queue, no allocation of state. The result for a sequence does not
/// depend on what else is in the batch, on how its tokens were cut into passes, or on the executor: equal to the bit.
/// State of one backend is not continued by another: what they store differs by rounding. `launch` decides how weights
/// and state are stored: a batch's settings must agree with it in every switch of launch scope.
class Engine {
 public:
  Engine(std::shared_ptr<const Model> model, std::shared_ptr<Executor> executor, Backend backend = Backend::ref,
         const Settings& launch = {});
  ~Engine();
  Engine(Engine&&) noexcept;

  const ModelConfig& config() const;
  const StateLayout& layout() const;
  Backend backend() const;

  /// Number of logits rows that `forward` writes for this batch.
  static std::int64_t logits_rows(const Batch& batch);

  /// Runs the batch, appends to every state (length included) and writes logits [logits_rows, vocab] in batch order.
  void forward(const Batch& batch, View<float, 2> logits);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb
