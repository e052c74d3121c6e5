#include "engine/golden.h"

#include <algorithm>
#include <limits>

#include "engine/local_sequence.h"
#include "tensor/safetensors.h"

namespace plumb {
namespace {

bool holds_rows(std::string_view name) { return name.ends_with("compressed_kv") || name.ends_with("indexer.keys"); }

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
  TraceCollector trace;
  run_prompt(engine, ids, chunk, Settings(), &trace);
  SafetensorsWriter writer;
  for (const std::string& name : trace.names()) {
    const TraceCollector::Tensor& tensor = trace.tensor(name);
    if (tensor.i32.empty())
      writer.add_f32(name, tensor.shape, tensor.f32);
    else
      writer.add_i32(name, tensor.shape, tensor.i32);
  }
  return writer.write(out);
}

}  // namespace plumb
