#include "server/serve_command.h"

#include <csignal>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include "server/test_support.h"

namespace plumb::server {
namespace {

using namespace testing_support;

Result<ServedModel> load_scripted(const ServeOptions&, const Settings&) {
  ServedModel model;
  model.encoding = std::make_unique<ByteEncoding>();
  model.generator = std::make_unique<ScriptedGenerator>(
      [](const GenerateRequest&) { return std::vector<std::int32_t>{ByteEncoding::kHello, ByteEncoding::kEos}; });
  model.info = {.name = "tiny", .max_context = 100, .hash = "abc"};
  return model;
}

std::string message_of(const ServeOptions& options, const ModelLoader& load = load_scripted) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_serve(options, load), 3);
  return testing::internal::GetCapturedStderr();
}

// A port that is taken while this lives, and free afterwards.
class TakenPort {
 public:
  TakenPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    CHECK(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    CHECK(::listen(socket_, 1) == 0);
    CHECK(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    number_ = ntohs(address.sin_port);
  }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  ~TakenPort() { ::close(socket_); }
  int number() const { return number_; }

 private:
  const int socket_;
  int number_ = 0;
};

TEST(ServeCommand, OptionsAreTheDesigns) {
  CLI::App app;
  ServeOptions options;
  add_serve_options(app, options);
  app.parse(
      "dir --host 127.0.0.2 --port 0 --role unified --set prefix_cache=off --set indexer.fused=off@1,2 "
      "--max-logprobs -1 --served-model-name m --threads 2 --max-context 64");
  EXPECT_EQ(options.model, "dir");
  EXPECT_EQ(options.host, "127.0.0.2");
  EXPECT_EQ(options.sets, (std::vector<std::string>{"prefix_cache=off", "indexer.fused=off@1,2"}));
  EXPECT_EQ(options.max_logprobs, -1);
  EXPECT_EQ(options.served_model_name, "m");
  EXPECT_EQ(options.threads, 2);
  EXPECT_EQ(options.max_context, 64);
}

TEST(ServeCommand, TheHelpSaysWhatZeroMeans) {
  CLI::App app;
  ServeOptions options;
  add_serve_options(app, options);
  for (const char* name :
       {"--port", "--threads", "--max-context", "--chunk-tokens", "--max-running", "--max-queue", "--pool-tokens"})
    EXPECT_NE(app.get_option(name)->get_description().find("0: "), std::string::npos) << name;
}

TEST(ServeCommand, SetsApplyInOrderOverTheDefaults) {
  const auto settings = launch_settings({"prefix_cache=off", "attention.split_k=off", "attention.split_k=on@3"});
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->describe(switch_index("prefix_cache")), "off");
  EXPECT_EQ(settings->describe(switch_index("attention.split_k")), "on@3");
  EXPECT_EQ(settings->describe(switch_index("indexer.fused")), "on");
}

TEST(ServeCommand, BadInputEndsWithThreeAndSaysWhy) {
  EXPECT_NE(message_of({.model = "m", .port = 0, .role = "prefill"}).find("not built yet"), std::string::npos);
  EXPECT_NE(message_of({.model = "m", .port = 0, .role = "chef"}).find("--role chef"), std::string::npos);
  EXPECT_NE(message_of({.model = "m", .port = 70000}).find("70000"), std::string::npos);
  EXPECT_NE(message_of({.model = "m", .port = 0, .sets = {"nope=on"}}).find("unknown switch 'nope'"),
            std::string::npos);
  EXPECT_NE(message_of({.model = "m", .port = 0, .sets = {"prefix_cache"}}).find("NAME=on"), std::string::npos);
  const TakenPort taken;
  EXPECT_NE(message_of({.model = "m", .port = taken.number()}).find("in use"), std::string::npos);
  const auto broken = [](const ServeOptions&, const Settings&) -> Result<ServedModel> {
    return error("m/config.json: no such file");
  };
  EXPECT_NE(message_of({.model = "m", .port = 0}, broken).find("m/config.json: no such file"), std::string::npos);
  const auto throws = [](const ServeOptions&, const Settings&) -> Result<ServedModel> {
    throw std::runtime_error("out of luck");
  };
  EXPECT_NE(message_of({.model = "m", .port = 0}, throws).find("out of luck"), std::string::npos);
  const auto too_large = [](const ServeOptions&, const Settings&) -> Result<ServedModel> { throw std::bad_alloc(); };
  EXPECT_NE(message_of({.model = "m", .port = 0}, too_large).find("out of memory"), std::string::npos);
}

TEST(ServeCommand, ServesUntilASignalThenFinishesAndEndsClean) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const auto port = static_cast<std::uint16_t>(TakenPort().number());
    int code = -1;
    std::thread serving([&] { code = run_serve({.model = "m", .port = port}, load_scripted); });
    Answer answer;
    for (int i = 0; i < 500 && answer.status != 200; ++i) {
      answer = Client(port).request("POST", "/v1/completions", R"({"prompt":"x"})");
      if (answer.status != 200) std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_EQ(answer.status, 200);
    ASSERT_EQ(::kill(::getpid(), signal), 0);
    serving.join();
    EXPECT_EQ(code, 0);
  }
}

}  // namespace
}  // namespace plumb::server
