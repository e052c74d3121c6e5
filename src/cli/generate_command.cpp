#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "server/command_line.h"
#include "server/local_model.h"
#include "server/serve_command.h"

namespace plumb::cli {
namespace {

// Those of a request over HTTP.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;
constexpr double kMaxTemperature = 100;

struct GenerateArgs {
  std::string model;
  std::string prompt;
  std::int64_t max_tokens = 64;
  double temperature = 0;
  std::uint64_t seed = 0;
  std::string backend = "cpu";
  std::vector<std::string> sets;
  bool json = false;
};

// Prints tokens as they come, or keeps them for the JSON document.
class Printer final : public TokenSink {
 public:
  Printer(const Encoding& encoding, bool stream) : encoding_(encoding), stream_(stream) {}

  void on_prompt_scores(std::vector<TokenScore>) override {}
  void on_token(TokenScore token) override {
    ids_.push_back(token.id);
    if (encoding_.is_special(token.id)) return;
    const std::string bytes = encoding_.token_bytes(token.id);
    text_ += bytes;
    if (!stream_) return;
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    std::fflush(stdout);
  }
  void on_finish(Finish reason, Usage usage) override {
    const std::lock_guard lock(mutex_);
    reason_ = reason;
    usage_ = usage;
    finished_ = true;
    done_.notify_all();
  }

  Finish wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return finished_; });
    return reason_;
  }
  nlohmann::ordered_json json() const {
    return {{"text", text_},
            {"ids", ids_},
            {"finish_reason", reason_ == Finish::stop ? "stop" : "length"},
            {"prompt_tokens", usage_.prompt_tokens},
            {"completion_tokens", usage_.completion_tokens}};
  }

 private:
  const Encoding& encoding_;
  const bool stream_;
  std::string text_;
  std::vector<std::int32_t> ids_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool finished_ = false;
  Finish reason_ = Finish::cancelled;
  Usage usage_;
};

int run_generate(const GenerateArgs& args) {
  const auto settings = server::launch_settings(args.sets);
  if (!settings) return fail(settings.error().message);
  server::ServeOptions options;
  options.model = args.model;
  options.backend = args.backend;
  const auto model = server::load_local_model(options, *settings);
  if (!model) return fail(model.error().message);
  if (const auto known = settings->check_layers(model->info.layers); !known) return fail(known.error().message);

  GenerateRequest request;
  request.prompt = model->encoding->encode(args.prompt);
  request.max_tokens = args.max_tokens;
  request.sampling.temperature = args.temperature;
  request.sampling.seed = args.seed;
  request.stop_ids = {model->encoding->eos()};
  request.settings = *settings;
  if (request.prompt.empty()) return fail("generate: the prompt is empty; give a text with -p");
  const auto printer = std::make_shared<Printer>(*model->encoding, !args.json);
  const auto accepted = model->generator->submit(std::move(request), printer);
  if (!accepted) return fail(accepted.error().message);
  if (printer->wait() == Finish::failed)
    return fail("the model gave logits that are not finite; its weights or config are damaged");
  // Ill-formed UTF-8 (a reply may end inside a character) is replaced, not refused.
  if (args.json)
    fmt::print("{}\n", printer->json().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    fmt::print("\n");
  return kClean;
}

}  // namespace

void add_generate_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("generate", "continue a text with a checkpoint");
  auto args = std::make_shared<GenerateArgs>();
  command->add_option("MODEL", args->model, "folder of the checkpoint")->required();
  command->add_option("-p,--prompt", args->prompt, "the text; the texts of special tokens become those tokens")
      ->required();
  server::takes_whole(
      command->add_option("--max-tokens", args->max_tokens, "tokens to generate at most")->capture_default_str(), 1,
      kMaxTokens);
  server::takes_number(
      command->add_option("--temperature", args->temperature, "0: always the likeliest token")->capture_default_str(),
      0, kMaxTemperature);
  server::takes_seed(
      command->add_option("--seed", args->seed, "of the draws at a temperature above 0")->capture_default_str());
  server::takes_backend(
      command->add_option("--backend", args->backend, "who computes: cpu or ref")->capture_default_str());
  command->add_option("--set", args->sets, "a switch: NAME=on|off[@LAYERS]; may be repeated")->allow_extra_args(false);
  command->add_flag("--json", args->json, "print one JSON document");
  command->callback([args, &exit_code] { exit_code = run_generate(*args); });
}

}  // namespace plumb::cli
