#include "weights/model_hash.h"

#include <memory>

#include <xxhash.h>

#include "base/check.h"
#include "weights/tensor_map.h"

namespace plumb {
namespace {

constexpr std::string_view kFormat = "plumb model hash 1";

class Digest {
 public:
  Digest() : state_(XXH3_createState(), XXH3_freeState) {
    CHECK(state_ != nullptr && XXH3_128bits_reset(state_.get()) == XXH_OK);
  }
  void bytes(const void* data, std::size_t size) { CHECK(XXH3_128bits_update(state_.get(), data, size) == XXH_OK); }
  void number(std::int64_t value) { bytes(&value, sizeof value); }
  void number(double value) { bytes(&value, sizeof value); }
  void text(std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));  // so that neighbours cannot run into each other
    bytes(value.data(), value.size());
  }
  std::string hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

void add(Digest& digest, const RopeProfile& rope) {
  for (const double value : {rope.theta, rope.factor, rope.original_max_positions, rope.beta_fast, rope.beta_slow})
    digest.number(value);
}

void add(Digest& digest, const ModelConfig& c) {
  for (const std::int64_t value : {static_cast<std::int64_t>(c.profile),
                                   c.vocab_size,
                                   c.hidden_size,
                                   c.heads,
                                   c.head_dim,
                                   c.rope_dim,
                                   c.q_lora_rank,
                                   c.o_groups,
                                   c.o_lora_rank,
                                   c.window,
                                   c.index_heads,
                                   c.index_head_dim,
                                   c.index_topk,
                                   c.hc_mult,
                                   c.hc_sinkhorn_iters,
                                   c.experts,
                                   c.experts_per_token,
                                   c.shared_experts,
                                   c.moe_intermediate,
                                   c.max_positions,
                                   std::int64_t{c.bos_token_id},
                                   std::int64_t{c.eos_token_id}})
    digest.number(value);
  for (const double value : {c.hc_eps, c.routed_scaling_factor, c.swiglu_limit, c.rms_norm_eps}) digest.number(value);
  add(digest, c.window_rope);
  add(digest, c.compressed_rope);
  for (const LayerConfig& layer : c.layers) {
    digest.number(static_cast<std::int64_t>(layer.attention));
    digest.number(std::int64_t{layer.compress_rate});
    digest.number(static_cast<std::int64_t>(layer.moe));
  }
}

}  // namespace

std::string model_hash(const ModelConfig& config, const ModelWeights& weights) {
  Digest digest;
  digest.text(kFormat);
  add(digest, config);
  // list_slots hands out mutable pointers; nothing is written here, and no array is empty, so nothing is allocated.
  for (const Slot& slot : list_slots(config, const_cast<ModelWeights&>(weights))) {
    digest.text(slot.name);
    for (const std::int64_t extent : slot.shape) digest.number(extent);
    const auto count = static_cast<std::size_t>(slot.count());
    if (slot.ids != nullptr)
      digest.bytes(slot.ids, count * sizeof *slot.ids);
    else
      digest.bytes(slot.values, count * sizeof *slot.values);
  }
  return digest.hex();
}

}  // namespace plumb
