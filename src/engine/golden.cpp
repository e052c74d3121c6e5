#include "engine/golden.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/durable_file.h"
#include "engine/local_sequence.h"
#include "tensor/safetensors.h"

namespace plumb {
namespace {

bool holds_rows(std::string_view name) { return name.ends_with("compressed_kv") || name.ends_with("indexer.keys"); }

// The ports in the order of computation: before the layers, in a layer, after them.
constexpr std::string_view kFirst[] = {"embed"};
constexpr std::string_view kOfALayer[] = {"attn_hc.post",
                                          "attn_hc.comb",
                                          "attn_hc.collapsed",
                                          "attn_norm_out",
                                          "qr",
                                          "q",
                                          "kv",
                                          "compressed_kv",
                                          "indexer.keys",
                                          "indexer.scores",
                                          "indexer.topk",
                                          "attn_heads",
                                          "o_low",
                                          "attn_out",
                                          "ffn_hc.post",
                                          "ffn_hc.comb",
                                          "ffn_hc.collapsed",
                                          "ffn_norm_out",
                                          "router.logits",
                                          "router.indices",
                                          "router.weights",
                                          "mlp_out",
                                          "out_streams"};
constexpr std::string_view kLast[] = {"hc_head_out", "final_norm_out", "logits"};

// Widens a [rows, width] tensor to `width` columns, new ones -inf.
void widen(TraceCollector::Tensor& tensor, std::int64_t width) {
  const std::int64_t rows = tensor.shape[0], old_width = tensor.shape[1];
  std::vector<float> wide(static_cast<std::size_t>(rows * width), -std::numeric_limits<float>::infinity());
  for (std::int64_t i = 0; i < rows; ++i)
    std::copy_n(tensor.f32.begin() + i * old_width, old_width, wide.begin() + i * width);
  tensor.f32 = std::move(wide);
  tensor.shape[1] = width;
}

}  // namespace

std::vector<std::string> port_names(std::int64_t layers) {
  std::vector<std::string> names(std::begin(kFirst), std::end(kFirst));
  for (std::int64_t i = 0; i < layers; ++i)
    for (const std::string_view port : kOfALayer) names.push_back(fmt::format("layers.{}.{}", i, port));
  names.insert(names.end(), std::begin(kLast), std::end(kLast));
  return names;
}

void TraceCollector::visit(const Port& port) {
  const std::string name(port.name);
  const auto [at, fresh] = tensors_.try_emplace(name);
  Tensor& tensor = at->second;
  const std::size_t axis = holds_rows(name) ? 1 : 0;  // which one grows
  if (fresh) {
    names_.push_back(name);
    if (axis == 1) tensor.shape.push_back(1);
    tensor.shape.insert(tensor.shape.end(), port.extents.begin(), port.extents.end());
    tensor.shape[axis] = 0;
  }
  if (name.ends_with("indexer.scores") && port.extents[1] > tensor.shape[1]) widen(tensor, port.extents[1]);
  CHECK(port.first == tensor.shape[axis]);
  std::int64_t count = 1;
  for (const std::int64_t extent : port.extents) count *= extent;
  if (port.f32 != nullptr)
    tensor.f32.insert(tensor.f32.end(), port.f32, port.f32 + count);
  else
    tensor.i32.insert(tensor.i32.end(), port.i32, port.i32 + count);
  tensor.shape[axis] += port.extents[0];
}

std::vector<float> run_prompt(Engine& engine, std::span<const std::int32_t> ids, std::int64_t chunk,
                              const Settings& settings, Observer* observer) {
  const auto count = static_cast<std::int64_t>(ids.size());
  const std::int64_t vocab = engine.config().vocab_size, step = chunk == 0 ? count : chunk;
  std::vector<float> logits(static_cast<std::size_t>(count * vocab));
  LocalSequence sequence(engine.layout());
  for (std::int64_t first = 0; first < count; first += step) {
    const std::int64_t tokens = std::min(step, count - first);
    const BatchSequence in{&sequence.reserve(first + tokens),
                           ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(tokens)), true,
                           observer};
    engine.forward({std::span(&in, 1), &settings}, {logits.data() + first * vocab, {tokens, vocab}});
  }
  return logits;
}

Result<void> write_golden(Engine& engine, std::span<const std::int32_t> ids, std::int64_t chunk,
                          const std::filesystem::path& out) {
  const ModelConfig& config = engine.config();
  if (ids.empty()) return error("golden: the prompt has no tokens; give at least one id");
  if (chunk < 0) return error("golden: chunk {} is negative; 0 means the whole prompt at once", chunk);
  if (static_cast<std::int64_t>(ids.size()) > config.max_positions)
    return error("golden: the prompt has {} tokens, the model takes at most {}; shorten it", ids.size(),
                 config.max_positions);
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= config.vocab_size)
      return error("golden: id {} at index {} is outside the vocabulary of {}", ids[i], i, config.vocab_size);
  // Before the work, not after it.
  if (const auto file = replaceable_file(out); !file) return tl::unexpected(file.error());
  TraceCollector trace;
  run_prompt(engine, ids, chunk, Settings(), &trace);
  SafetensorsWriter writer;
  std::size_t written = 0;
  // A port is first visited when it has rows, which depends on the chunks; the file must not.
  for (const std::string& name : port_names(static_cast<std::int64_t>(config.layers.size()))) {
    if (!trace.has(name)) continue;
    ++written;
    const TraceCollector::Tensor& tensor = trace.tensor(name);
    if (tensor.i32.empty())
      writer.add_f32(name, tensor.shape, tensor.f32);
    else
      writer.add_i32(name, tensor.shape, tensor.i32);
  }
  CHECK(written == trace.names().size());  // no port is missing in the order
  return writer.write(out);
}

}  // namespace plumb
