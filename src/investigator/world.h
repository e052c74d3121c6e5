#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <tl/expected.hpp>

#include "investigator/deployment.h"
#include "investigator/grade.h"
#include "investigator/http_client.h"
#include "investigator/launch.h"
#include "investigator/scores.h"

namespace plumb::investigator {

/// What an investigation needs of the outside world: one variant running at a time, asked one request at a time, and a
/// clock. Tests put a simulated one in its place.
class World {
 public:
  virtual ~World() = default;
  /// Starts a variant and waits until it generates; returns the seconds that took. The one before is stopped already.
  virtual tl::expected<double, LaunchFailure> launch(const Variant& variant, std::int64_t launch_id) = 0;
  /// Asks the running processes as this variant from here on, which same_processes() must allow.
  virtual void turn(const Variant& variant) = 0;
  /// Asks one request; an infrastructure failure when no reply came within timeout_s.
  virtual Reply ask(const Ask& ask, double timeout_s) = 0;
  /// Asks for the log-probabilities of a text; a world that has none does not offer them.
  virtual Scores score(const ScoreAsk&, double) {
    return {.status = Scores::Status::not_offered, .message = "no log-probabilities here"};
  }
  /// False when a process of the running variant has ended; `why` then holds its last log lines.
  virtual bool alive(std::string& why) = 0;
  virtual Result<void> stop() = 0;
  /// What the server last said of its model; both empty when it said nothing.
  struct ServedModel {
    std::string name;
    std::string hash;
  };
  virtual ServedModel served_model() { return {}; }
  /// Seconds on a clock that never goes back.
  virtual double now_s() = 0;
};

/// Asks an OpenAI-compatible endpoint: prompts go to /v1/completions, messages to /v1/chat/completions.
class EndpointClient {
 public:
  /// `bodies`: JSON objects merged into each request, later ones win; empty ones are skipped.
  EndpointClient(const EndpointSpec& endpoint, const std::string& url, const RequestSpec& request,
                 const std::vector<std::string>& bodies);
  Reply ask(const Ask& ask, double timeout_s);
  Scores score(const ScoreAsk& ask, double timeout_s);
  /// The model's name by /v1/models and its hash by /server_info, where the server has these.
  World::ServedModel served_model();

 private:
  std::string model(double timeout_s);
  // `body` writes the request for the model of this name. The error: why there is no reply.
  tl::expected<HttpReply, std::string> post(bool chat, const std::function<std::string(const std::string&)>& body,
                                            double timeout_s);

  EndpointSpec endpoint_;
  RequestSpec request_;
  std::string merged_body_;
  std::map<std::string, std::string> headers_;
  HttpClient client_;
  std::string model_;
};

/// The real world: processes of the deployment, HTTP.
class LaunchedWorld final : public World {
 public:
  /// `surroundings`, if there: what the launches need besides their own processes; a launch that fails while it has an
  /// error is an environment failure.
  LaunchedWorld(const Deployment& deployment, std::filesystem::path log_folder,
                std::function<void(const std::string&)> log, std::function<Result<void>()> surroundings = {});
  ~LaunchedWorld() override;
  tl::expected<double, LaunchFailure> launch(const Variant& variant, std::int64_t launch_id) override;
  void turn(const Variant& variant) override;
  Reply ask(const Ask& ask, double timeout_s) override;
  Scores score(const ScoreAsk& ask, double timeout_s) override;
  bool alive(std::string& why) override;
  Result<void> stop() override;
  ServedModel served_model() override { return served_model_; }
  double now_s() override;

 private:
  const Deployment& deployment_;
  std::filesystem::path log_folder_;
  std::function<void(const std::string&)> log_;
  std::function<Result<void>()> surroundings_;
  std::unique_ptr<Launch> launch_;
  std::unique_ptr<EndpointClient> client_;
  ServedModel served_model_;
};

/// The JSON objects that a variant merges into each request: the deployment's own, then those of the sides.
std::vector<std::string> request_bodies(const Deployment& deployment, const Variant& variant);
/// One object of them, later ones win; "" when nothing is in them.
std::string merge_bodies(const std::vector<std::string>& bodies);

/// The body of a request as it is sent, for reproduction scripts and tests.
std::string request_body(const Ask& ask, const std::string& model, const RequestSpec& request,
                         const std::string& merged_body);
/// The same of a text whose log-probabilities are asked for.
std::string score_body(const ScoreAsk& ask, const std::string& model, const RequestSpec& request,
                       const std::string& merged_body);
/// Reads a reply of either API.
Reply parse_reply(int status, const std::string& body, bool chat);

inline constexpr double kAskTimeoutS = 120;
inline constexpr double kLeastAskTimeoutS = 1;

}  // namespace plumb::investigator
