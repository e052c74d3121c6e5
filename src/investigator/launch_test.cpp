#include "investigator/launch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "base/process_tree.h"
#include "base/rng.h"
#include "investigator/http_client.h"
#include "investigator/secrets.h"

namespace plumb::investigator {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = LaunchFailure::Kind;

void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Processes whose environment holds the mark; zombies have none.
std::vector<int> processes_with(const std::string& mark) {
  std::vector<int> found;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", failed)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos &&
        read_file(entry.path() / "environ").find(mark) != std::string::npos)
      found.push_back(std::stoi(name));
  }
  return found;
}

bool all_gone_within(const std::string& mark, double seconds) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (!processes_with(mark).empty()) {
    if (Clock::now() > until) return false;
    sleep_s(0.02);
  }
  return true;
}

bool ended_within(const std::set<pid_t>& pids, double seconds) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  for (const pid_t pid : pids)
    while (!process_tree(pid).empty()) {
      if (Clock::now() > until) return false;
      sleep_s(0.02);
    }
  return true;
}

const char* python() { return access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3"; }

class LaunchTest : public testing::Test {
 protected:
  LaunchTest() {
    char folder[] = "/tmp/plumb-launch-test-XXXXXX";
    folder_ = mkdtemp(folder);
    mark_ = fmt::format("PLUMB_TEST_MARK={}", folder_.filename().string());
  }
  ~LaunchTest() override {
    EXPECT_TRUE(all_gone_within(mark_, 5)) << "left: " << processes_with(mark_).size();
    std::filesystem::remove_all(folder_);
  }

  std::string server(const std::string& name, const std::string& mode, const std::string& port,
                     const std::string& rest) {
    return fmt::format(
        "[[process]]\nname = \"{}\"\ncommand = [\"{}\", \"{}/tests/fakes/fake_server.py\", \"{}\", {}]\n"
        "env = {{PLUMB_TEST_MARK = \"{}\"}}\n{}\n",
        name, python(), PLUMB_SOURCE_DIR, port, mode, folder_.filename().string(), rest);
  }

  // One process "server" in the given mode ("\"slow\", \"1\"") with an endpoint on its port.
  Deployment deployment(const std::string& mode, double timeout_s, const std::string& rest = "",
                        const std::string& port = "{port:server}") {
    const std::string text = fmt::format("[deployment]\nstart_timeout_s = {}\n", timeout_s) +
                             server("server", mode, port, rest) +
                             fmt::format("[[endpoint]]\nurl = \"http://127.0.0.1:{}\"\n", port);
    auto parsed = parse_deployment(text, "test.toml");
    EXPECT_TRUE(parsed) << parsed.error().message;
    return parsed.value_or(Deployment{});
  }

  tl::expected<std::unique_ptr<Launch>, LaunchFailure> launch(const Deployment& deployment) {
    LaunchOptions options;
    options.log_folder = folder_;
    options.launch_id = ++launches_;
    return launch_variant(deployment, as_deployed(deployment), options);
  }

  struct Case {
    Deployment deployment;
    Kind kind;
    std::vector<std::string> parts;  // of the message
  };

  // All at once: most of a case is waiting.
  void expect_failures(const std::vector<Case>& cases) {
    std::vector<std::thread> threads;
    for (const Case& one : cases)
      threads.emplace_back([&, id = ++launches_] {
        LaunchOptions options;
        options.log_folder = folder_;
        options.launch_id = id;
        const auto launched = launch_variant(one.deployment, as_deployed(one.deployment), options);
        ASSERT_FALSE(launched);
        const std::string& message = launched.error().message;
        EXPECT_EQ(launched.error().kind, one.kind) << message;
        for (const std::string& part : one.parts)
          EXPECT_NE(message.find(part), std::string::npos) << part << " is not in\n" << message;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(processes_with(mark_).empty());
  }
  void expect_failure(const Deployment& deployment, Kind kind, const std::vector<std::string>& parts) {
    expect_failures({{deployment, kind, parts}});
  }

  std::filesystem::path folder_;
  std::string mark_;
  int launches_ = 0;
};

TEST_F(LaunchTest, AGoodServerIsReadyAnswersAndIsGoneAfterStop) {
  const Deployment good = deployment("\"ok\"", 30, "ready = {http = \"/health\", log = \"^listen(ing)?$\"}");
  const auto launched = launch(good);
  ASSERT_TRUE(launched) << launched.error().message;
  EXPECT_TRUE((*launched)->alive());
  EXPECT_GT((*launched)->ready_s(), 0);
  ASSERT_EQ((*launched)->urls().size(), 1u);
  HttpClient client((*launched)->urls()[0], 5);
  const auto reply = client.get("/health");
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->status, 200);
  EXPECT_NE((*launched)->last_log(5).find("listening"), std::string::npos);
  const auto stopped = (*launched)->stop();
  EXPECT_TRUE(stopped) << stopped.error().message;
  EXPECT_TRUE(processes_with(mark_).empty());
  EXPECT_FALSE((*launched)->alive());
  EXPECT_FALSE(client.get("/health"));
  EXPECT_TRUE((*launched)->stop());
}

TEST_F(LaunchTest, NeverReadyIsNotReadyAndTheLastAnswerIsQuoted) {
  // Long enough for Python to start seven times on a busy machine.
  constexpr double kTimeoutS = 4;
  expect_failures({
      {deployment("\"never_listens\"", kTimeoutS),
       Kind::not_ready,
       {"process server", "nobody listens", "mode never_listens", "start_timeout_s"}},
      {deployment("\"hangs\"", kTimeoutS), Kind::not_ready, {"process server", "not answered"}},
      {deployment("\"error500\"", kTimeoutS), Kind::not_ready, {"answered 500", "the weights melted"}},
      {deployment("\"never_generates\"", kTimeoutS, "ready = {http = \"/health\"}"),
       Kind::not_ready,
       {"POST /v1/completions answered 503", "still loading"}},
      {deployment("\"garbage\"", kTimeoutS), Kind::not_ready, {"GET /v1/models failed", "SSH-2.0-not-a-model"}},
      {deployment("\"wrong_json\"", kTimeoutS), Kind::not_ready, {"no choice in it"}},
      {deployment("\"not_json\"", kTimeoutS), Kind::not_ready, {"no choice in it", "?{]"}},
      {deployment("\"ok\"", kTimeoutS, "ready = {log = \"no such line\"}"), Kind::not_ready, {"ready.log"}},
      {deployment("\"ok\"", kTimeoutS, "ready = {http = \"/healthy\"}"),
       Kind::not_ready,
       {"GET /healthy answered 404", "waiting does not change that: correct ready.http"}},
  });
}

TEST_F(LaunchTest, ADeadProcessIsInfeasibleWithStatusAndLog) {
  expect_failure(deployment("\"dies\"", 30), Kind::infeasible,
                 {"process server ended: exit status 3", "CUDA error: out of ?? memory", "1-server.log"});
  expect_failure(deployment("\"crashes\"", 30), Kind::infeasible, {"killed by signal 11"});
  expect_failure(deployment("\"leaves_a_child_and_dies\"", 30), Kind::infeasible, {"exit status 4"});
}

TEST_F(LaunchTest, TheLastLinesOfADeadServerAreThereAlsoThroughTheFilterOfSecrets) {
  keep_secret("mode dies");  // what the server says first
  for (int i = 0; i < 5; ++i)
    expect_failure(deployment("\"dies\"", 30), Kind::infeasible,
                   {"exit status 3", "fake server, <secret>", "CUDA error: out of"});
}

TEST_F(LaunchTest, WhatCannotBeStartedIsTheEnvironmentsFault) {
  Deployment missing = deployment("\"ok\"", 30);
  missing.processes[0].command[0] = "no-such-program-of-plumb";
  expect_failure(missing, Kind::environment, {"process server", "no-such-program-of-plumb", "PATH"});
  missing.processes[0].command[0] = PLUMB_SOURCE_DIR "/CMakeLists.txt";
  expect_failure(missing, Kind::environment, {"CMakeLists.txt", "ermission"});
  const std::filesystem::path script = folder_ / "no_interpreter";
  std::ofstream(script) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  missing.processes[0].command[0] = script.string();
  expect_failure(missing, Kind::environment, {"no_interpreter", "No such file"});
  Deployment key = deployment("\"ok\"", 30);
  key.endpoints[0].key_env = "PLUMB_TEST_NO_SUCH_KEY";
  expect_failure(key, Kind::environment, {"PLUMB_TEST_NO_SUCH_KEY"});
}

TEST_F(LaunchTest, AServerThatNeedsLongerIsWaitedFor) {
  const auto launched = launch(deployment("\"slow\", \"0.8\"", 30, "ready = {http = \"/health\"}"));
  ASSERT_TRUE(launched) << launched.error().message;
  EXPECT_GE((*launched)->ready_s(), 0.8);
}

TEST_F(LaunchTest, ALaterDeathIsSeenWithItsReason) {
  const auto launched = launch(deployment("\"dies_later\", \"2\"", 30));
  ASSERT_TRUE(launched) << launched.error().message;
  EXPECT_TRUE((*launched)->alive());
  for (int i = 0; i < 500 && (*launched)->alive(); ++i) sleep_s(0.02);
  EXPECT_FALSE((*launched)->alive());
  const std::string log = (*launched)->last_log(50);
  EXPECT_NE(log.find("exit status 7"), std::string::npos) << log;
  EXPECT_NE(log.find("assertion failed: kv_heads"), std::string::npos) << log;
}

TEST_F(LaunchTest, WhateverAServerLeavesIsGoneAfterStop) {
  for (const char* mode : {"\"leaves_a_child\"", "\"has_workers\"", "\"ignores_term\""}) {
    const auto launched = launch(deployment(mode, 30, "stop = {signal = \"TERM\", grace_s = 0.3}"));
    ASSERT_TRUE(launched) << launched.error().message;
    const auto start = Clock::now();
    const auto stopped = (*launched)->stop();
    EXPECT_TRUE(stopped) << stopped.error().message;
    EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), 5);
    EXPECT_TRUE(processes_with(mark_).empty()) << mode;
  }
}

TEST_F(LaunchTest, AStaleServerOnTheFixedPortIsNamedAndLeftAlone) {
  const std::string port = std::to_string(free_ports(1).at(0));
  Command command{{python(), PLUMB_SOURCE_DIR "/tests/fakes/fake_server.py", port, "ok"}, {}, ""};
  auto other = ChildProcess::start(command);
  ASSERT_TRUE(other) << other.error().message;
  for (int i = 0; i < 500 && listening_sockets(std::stoi(port)).empty(); ++i) sleep_s(0.02);
  expect_failure(deployment("\"ok\"", 5, "", port), Kind::stale,
                 {"port " + port, fmt::format("process {}", other->pid()), "before the launch"});
  EXPECT_FALSE(other->wait(0));
}

TEST_F(LaunchTest, AnotherServersAnswerIsNotTakenForOurs) {
  // Ours never listens; somebody else does on the port that was free before the launch.
  const std::string port = std::to_string(free_ports(1).at(0));
  Command command{{python(), PLUMB_SOURCE_DIR "/tests/fakes/fake_server.py", port, "ok"}, {}, ""};
  std::optional<ChildProcess> other;
  std::thread starts_later([&] {
    sleep_s(0.4);
    if (auto started = ChildProcess::start(command)) other.emplace(std::move(*started));
  });
  expect_failure(deployment("\"never_listens\"", 20, "", port), Kind::stale,
                 {"port " + port, "not a process of this launch"});
  starts_later.join();
  ASSERT_TRUE(other);
}

// The port on the command line of the first process with the mark, 0 while there is none.
int port_given_to(const std::string& mark) {
  for (const int pid : processes_with(mark)) {
    const std::string command = read_file(fmt::format("/proc/{}/cmdline", pid));
    const auto script = command.find("fake_server.py");
    if (script != std::string::npos) return std::atoi(command.c_str() + script + sizeof "fake_server.py");
  }
  return 0;
}

TEST_F(LaunchTest, WhenSomebodyTakesAChosenPortAnotherOneIsTried) {
  const Deployment late = deployment("\"listens_late\", \"1\"", 30);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int taken = 0;
  std::thread takes_it([&] {
    for (int i = 0; i < 1000 && taken == 0; ++i) {
      sleep_s(0.005);
      taken = port_given_to(mark_);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(taken));
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener, 1), 0);
  });
  std::vector<std::string> progress;
  LaunchOptions options;
  options.log_folder = folder_;
  options.progress = [&](const std::string& line) { progress.push_back(line); };
  const auto launched = launch_variant(late, {}, options);
  takes_it.join();
  close(listener);
  ASSERT_TRUE(launched) << launched.error().message;
  EXPECT_EQ((*launched)->urls()[0].find(std::to_string(taken)), std::string::npos);
  EXPECT_NE(std::find(progress.begin(), progress.end(), "somebody took a port of ours, trying others"), progress.end());
}

TEST_F(LaunchTest, AFixedPortOfOursIsAccepted) {
  const auto launched = launch(deployment("\"ok\"", 30, "", std::to_string(free_ports(1).at(0))));
  ASSERT_TRUE(launched) << launched.error().message;
}

TEST_F(LaunchTest, SidesReachTheirProcessesAndOrderIsKept) {
  const std::string text =
      "[deployment]\nstart_timeout_s = 30\n" + server("router", "\"ok\"", "{port:router}", "after = [\"decode0\"]") +
      server("decode0", "\"ok\", \"0\"", "{port:decode0}", "role = \"decode\"") +
      "[[endpoint]]\nurl = \"http://localhost:{port:router}\"\napi = \"chat\"\n"
      "[[switch]]\nname = \"a\"\nprocesses = [\"dec*\"]\nsides = {off = {args = [\"--no-a\"]}, on = {args = [\"--a\", "
      "\"{port:router}\"], env = {A = \"1\"}}}\n"
      "[[switch]]\nname = \"b\"\nsides = {off = {env = {B = \"0\"}}, on = {env = {B = \"1\"}}}\ndeployed = \"off\"\n"
      "[[endpoint]]\nurl = \"http://127.0.0.1:{port:decode0}\"\n";
  const auto parsed = parse_deployment(text, "test.toml");
  ASSERT_TRUE(parsed) << parsed.error().message;
  std::vector<std::string> progress;
  LaunchOptions options;
  options.log_folder = folder_;
  options.progress = [&](const std::string& line) { progress.push_back(line); };
  const auto launched = launch_variant(*parsed, {true, false}, options);
  ASSERT_TRUE(launched) << launched.error().message;
  ASSERT_EQ(progress.size(), 4u);
  EXPECT_EQ(progress[0], "starting decode0");
  EXPECT_EQ(progress[2], "starting router");
  const std::string router_port = (*launched)->urls()[0].substr((*launched)->urls()[0].rfind(':') + 1);
  const auto decode = HttpClient((*launched)->urls()[1], 5).get("/environment");
  const auto router = HttpClient((*launched)->urls()[0], 5).get("/environment");
  ASSERT_TRUE(decode && router);
  EXPECT_NE(decode->body.find("\"ok\", \"0\", \"--a\", \"" + router_port + "\"]"), std::string::npos) << decode->body;
  EXPECT_NE(decode->body.find("\"B\": \"0\""), std::string::npos);
  EXPECT_EQ(router->body.find("--a"), std::string::npos);
  EXPECT_NE(router->body.find("\"B\": \"0\""), std::string::npos);
}

TEST_F(LaunchTest, RunningEndpointsAreTakenAsTheyAre) {
  const std::string port = std::to_string(free_ports(1).at(0));
  Command command{{python(), PLUMB_SOURCE_DIR "/tests/fakes/fake_server.py", port, "ok"}, {}, ""};
  auto other = ChildProcess::start(command);
  ASSERT_TRUE(other) << other.error().message;
  const auto parsed = parse_deployment(
      "[deployment]\nrestart = \"never\"\nstart_timeout_s = 20\n[[endpoint]]\nurl = "
      "\"http://127.0.0.1:" +
          port + "\"\n",
      "test.toml");
  ASSERT_TRUE(parsed) << parsed.error().message;
  const auto launched = launch(*parsed);
  ASSERT_TRUE(launched) << launched.error().message;
  EXPECT_TRUE((*launched)->alive());
  EXPECT_TRUE((*launched)->stop());
  EXPECT_FALSE(other->wait(0));
}

// An nvidia-smi that says what a file says, and counts how often it was asked.
TEST_F(LaunchTest, StoppedOnlyWhenTheGpusHoldNoMoreThanBefore) {
  std::ofstream(folder_ / "nvidia-smi") << "#!/bin/sh\ncat " << (folder_ / "used").string() << "\n";
  std::filesystem::permissions(folder_ / "nvidia-smi", std::filesystem::perms::owner_all);
  std::ofstream(folder_ / "used") << "0, 7000\n1, 100\n";
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (folder_.string() + ":" + path).c_str(), 1);
  const Deployment d = deployment("\"ok\"", 30, "gpus = [1]\nstop = {wait = [\"gpu_memory\"], wait_s = 0.5}");
  {
    auto launched = launch(d);
    ASSERT_TRUE(launched) << launched.error().message;
    std::ofstream(folder_ / "used") << "0, 9000\n1, 5100\n";
    const auto held = (*launched)->stop();
    ASSERT_FALSE(held);
    EXPECT_NE(held.error().message.find("GPU 1 still holds 5100 MiB"), std::string::npos) << held.error().message;
    EXPECT_NE(held.error().message.find("100 before the launch"), std::string::npos);
  }
  std::ofstream(folder_ / "used") << "0, 9000\n1, 100\n";
  auto launched = launch(d);
  ASSERT_TRUE(launched) << launched.error().message;
  std::ofstream(folder_ / "used") << "0, 1\n1, 150\n";
  EXPECT_TRUE((*launched)->stop()) << "within the slack";
  std::ofstream(folder_ / "used") << "0, 1\n";
  expect_failure(d, Kind::environment, {"nvidia-smi lists no GPU 1", "set stop = "});
  ::setenv("PATH", path.c_str(), 1);
}

// A process that launches and then waits to be killed; the child ends without running anything of the test framework.
pid_t fork_launcher(const Deployment& deployment, const std::filesystem::path& folder) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  LaunchOptions options;
  options.log_folder = folder;
  const auto launched = launch_variant(deployment, as_deployed(deployment), options);
  if (!launched) _exit(9);
  std::ofstream(folder / "ready") << "yes";
  for (;;) pause();
}

TEST_F(LaunchTest, KillingTheLauncherAtAnyMomentLeavesNothing) {
  constexpr int kMoments = 20, kAtOnce = 5;
  const Deployment worst = deployment("\"leaves_a_child\"", 30, "stop = {grace_s = 0.2}");
  Rng rng(20);
  for (int round = 0; round < kMoments / kAtOnce; ++round) {
    std::vector<std::pair<std::int64_t, pid_t>> launchers;  // moment in ms, process
    const auto start = Clock::now();
    for (int i = 0; i < kAtOnce; ++i) launchers.emplace_back(rng.between(0, 1200), fork_launcher(worst, folder_));
    std::sort(launchers.begin(), launchers.end());
    std::set<pid_t> kept;
    for (const auto& [moment_ms, launcher] : launchers) {
      std::this_thread::sleep_until(start + std::chrono::milliseconds(moment_ms));
      const auto tree = process_tree(launcher);
      kept.insert(tree.begin(), tree.end());
      ASSERT_EQ(kill(launcher, SIGKILL), 0);
      int status = 0;
      ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
      EXPECT_TRUE(WIFSIGNALED(status)) << "the launcher ended by itself: " << describe_exit_status(status);
    }
    EXPECT_TRUE(all_gone_within(mark_, 5)) << "round " << round;
    EXPECT_TRUE(ended_within(kept, 5)) << "round " << round;
  }
}

TEST_F(LaunchTest, KillingTheSupervisorLeavesNothing) {
  for (const char* victim : {"plumb-guard", "plumb-keeper"}) {
    const auto launched = launch(deployment("\"leaves_a_child\"", 30, "stop = {grace_s = 0.2}"));
    ASSERT_TRUE(launched) << launched.error().message;
    EXPECT_EQ(processes_with(mark_).size(), 2u);
    pid_t found = 0;
    for (const pid_t pid : process_tree(getpid()))
      if (read_file(fmt::format("/proc/{}/comm", pid)) == std::string(victim) + "\n") found = pid;
    ASSERT_GT(found, 0) << victim;
    ASSERT_EQ(kill(found, SIGKILL), 0);
    EXPECT_TRUE(all_gone_within(mark_, 5)) << victim;
    for (int i = 0; i < 250 && (*launched)->alive(); ++i) sleep_s(0.02);
    EXPECT_FALSE((*launched)->alive());
    EXPECT_TRUE((*launched)->stop());
  }
}

TEST_F(LaunchTest, KillingTheServerIsSeenAndItsChildrenGo) {
  const auto launched = launch(deployment("\"leaves_a_child\"", 30, "stop = {grace_s = 0.2}"));
  ASSERT_TRUE(launched) << launched.error().message;
  for (const int pid : processes_with(mark_))
    if (read_file(fmt::format("/proc/{}/cmdline", pid)).find("fake_server") != std::string::npos) kill(pid, SIGKILL);
  for (int i = 0; i < 250 && (*launched)->alive(); ++i) sleep_s(0.02);
  EXPECT_FALSE((*launched)->alive());
  EXPECT_NE((*launched)->last_log(5).find("killed by signal 9"), std::string::npos);
  EXPECT_TRUE((*launched)->stop());
  EXPECT_TRUE(processes_with(mark_).empty());
}

}  // namespace
}  // namespace plumb::investigator
