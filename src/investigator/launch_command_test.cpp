#include "investigator/launch_command.h"

#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "investigator/secrets.h"

namespace plumb::investigator {
namespace {

using Argv = std::vector<std::string>;

RenderedProcess render(const std::string& process, const std::string& rest = "") {
  const std::string text = "[[process]]\nname = \"s\"\ncommand = [\"engine\", \"--port\", \"{port:s}\"]\n" + process +
                           "\n[[endpoint]]\nurl = \"http://127.0.0.1:{port:s}\"\n" + rest;
  const auto deployment = parse_deployment(text, "d.toml");
  EXPECT_TRUE(deployment) << deployment.error().message;
  if (!deployment) return {};
  auto rendered = render_process(*deployment, as_deployed(*deployment), deployment->processes[0],
                                 {.ports = {{"s", 7001}}, .instance = "plumb-9-1", .source = "/tree"});
  EXPECT_TRUE(rendered) << rendered.error().message;
  return rendered.value_or(RenderedProcess{});
}

bool has_in_order(const Argv& argv, const Argv& part) {
  return std::search(argv.begin(), argv.end(), part.begin(), part.end()) != argv.end();
}

TEST(Marks, AreFilledAndWrongOnesAreErrors) {
  const auto marks = marks_of("{port:a}{x}{env:B}{source}{instance:c}");
  ASSERT_TRUE(marks);
  EXPECT_EQ(
      *marks,
      (std::vector<Mark>{
          {Mark::Kind::port, "a"}, {Mark::Kind::env, "B"}, {Mark::Kind::source, ""}, {Mark::Kind::instance, "c"}}));
  EXPECT_EQ(fill_marks("-{port:a}-{\"j\": 1}-{env:B}", written), "-{port:a}-{\"j\": 1}-{env:B}");
  EXPECT_FALSE(marks_of("{env:}"));
  EXPECT_FALSE(marks_of("{instance:x"));
}

TEST(LaunchCommand, LocalIsTheCommandItselfPinnedWhereAsked) {
  const RenderedProcess plain = render("env = {A = \"{instance:s}\"}\ngpus = [0, 2]\ncpus = \"0-3,8\"");
  EXPECT_EQ(plain.command.argv, (Argv{"taskset", "-c", "0-3,8", "engine", "--port", "7001"}));
  EXPECT_EQ(plain.command.env,
            (std::map<std::string, std::string>{{"A", "plumb-9-1-s"}, {"CUDA_VISIBLE_DEVICES", "0,2"}}));
  EXPECT_FALSE(plain.cleanup);
}

TEST(LaunchCommand, AShellGetsTheArgsOfSwitchesAsItsArguments) {
  const std::string text =
      "[[process]]\nname = \"s\"\ncommand = [\"ulimit -n 4096; exec engine {port:s} \\\"$@\\\"\"]\nshell = true\n"
      "[[endpoint]]\nurl = \"http://127.0.0.1:{port:s}\"\n[[switch]]\nname = \"a\"\nsides = {off = {}, on = {args = "
      "[\"--a b\"]}}\n";
  const auto d = parse_deployment(text, "d.toml");
  ASSERT_TRUE(d) << d.error().message;
  EXPECT_EQ(plain_command(*d, {true}, d->processes[0]).argv,
            (Argv{"sh", "-c", "ulimit -n 4096; exec engine {port:s} \"$@\"", "sh", "--a b"}));
  std::string without = text;
  without.replace(without.find(" \\\"$@\\\""), 7, "");
  EXPECT_FALSE(parse_deployment(without, "d.toml"));
}

TEST(LaunchCommand, SshQuotesForTheRemoteShellAndCanStopWhatItStarted) {
  const RenderedProcess ssh = render(
      "via = \"ssh\"\nhost = \"me@gpu1\"\nvia_args = [\"-p\", \"2222\"]\ncwd = \"/a b\"\nenv = {A = \"it's\"}\n"
      "gpus = [1]\ncpus = \"4\"\nstop = {signal = \"INT\", grace_s = 2}");
  EXPECT_EQ(
      ssh.command.argv,
      (Argv{"ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-p", "2222", "me@gpu1",
            "echo $$ > /tmp/plumb-9-1-s.pid && cd '/a b' && exec env 'A=it'\\''s' CUDA_VISIBLE_DEVICES=1 taskset -c 4 "
            "engine --port 7001"}));
  ASSERT_TRUE(ssh.cleanup);
  EXPECT_TRUE(has_in_order(ssh.cleanup->argv, {"-p", "2222", "me@gpu1"}));
  EXPECT_NE(ssh.cleanup->argv.back().find("kill -2 -- -$p"), std::string::npos);
  EXPECT_NE(ssh.cleanup->argv.back().find("kill -KILL -- -$p"), std::string::npos);
}

TEST(LaunchCommand, DockerKeepsValuesOfVariablesOutOfItsArgv) {
  const RenderedProcess docker = render(
      "via = \"docker\"\nimage = \"vllm/vllm-openai:v1\"\nvia_args = [\"--shm-size\", \"16g\"]\ngpus = [0, 1]\n"
      "cpus = \"0-3\"\nenv = {A = \"value\"}\ncwd = \"/w\"\nstop = {wait = [\"port\"]}");
  const Argv& argv = docker.command.argv;
  EXPECT_TRUE(has_in_order(argv, {"docker", "run", "--rm", "--init", "--name", "plumb-9-1-s", "--network", "host"}));
  EXPECT_TRUE(has_in_order(argv, {"--gpus", "\"device=0,1\""}));
  EXPECT_TRUE(has_in_order(argv, {"--cpuset-cpus", "0-3", "--workdir", "/w", "--env", "A", "--shm-size", "16g",
                                  "vllm/vllm-openai:v1", "engine", "--port", "7001"}));
  EXPECT_EQ(docker.command.env, (std::map<std::string, std::string>{{"A", "value"}}));
  EXPECT_NE(docker.cleanup->argv.back().find("docker rm --force plumb-9-1-s"), std::string::npos);
}

TEST(LaunchCommand, KubectlAsksForGpusByNumberAndDeletesThePod) {
  const RenderedProcess pod =
      render("via = \"kubectl\"\nimage = \"i\"\nhost = \"node1\"\ngpus = [0, 1]\nenv = {A = \"b\"}");
  const Argv& argv = pod.command.argv;
  EXPECT_TRUE(has_in_order(argv, {"kubectl", "run", "plumb-9-1-s", "--image=i", "--restart=Never"}));
  EXPECT_TRUE(has_in_order(argv, {"--command", "--", "engine", "--port", "7001"}));
  EXPECT_TRUE(has_in_order(argv, {"--env=A=b"}));
  const auto overrides =
      std::find_if(argv.begin(), argv.end(), [](const auto& a) { return a.starts_with("--overrides="); });
  ASSERT_NE(overrides, argv.end());
  EXPECT_NE(overrides->find("\"nvidia.com/gpu\":\"2\""), std::string::npos);
  EXPECT_NE(overrides->find("\"nodeName\":\"node1\""), std::string::npos);
  EXPECT_TRUE(has_in_order(pod.cleanup->argv, {"kubectl", "delete", "pod", "plumb-9-1-s", "--ignore-not-found"}));
}

TEST(LaunchCommand, SrunNamesItsJobAndCancelsIt) {
  const RenderedProcess job = render("via = \"srun\"\nhost = \"n1\"\ngpus = [0, 1]\ncpus = \"0-7\"\nenv = {A = \"b\"}");
  EXPECT_EQ(job.command.argv,
            (Argv{"srun", "--ntasks=1", "--nodes=1", "--unbuffered", "--export=ALL", "--job-name=plumb-9-1-s",
                  "--nodelist=n1", "--gpus=2", "--cpus-per-task=8", "engine", "--port", "7001"}));
  EXPECT_EQ(job.command.env, (std::map<std::string, std::string>{{"A", "b"}}));
  EXPECT_EQ(job.cleanup->argv, (Argv{"scancel", "--name=plumb-9-1-s"}));
}

TEST(LaunchCommand, SecretsAreFilledAtTheLaunchAndShownAsTheirVariable) {
  ::setenv("PLUMB_TEST_SECRET", "sk-0123456789", 1);
  const std::string text =
      "[[process]]\nname = \"s\"\ncommand = [\"engine\", \"--api-key\", "
      "\"{env:PLUMB_TEST_SECRET}\"]\n[[endpoint]]\nurl = "
      "\"http://127.0.0.1:1\"\nheaders = {Authorization = \"Bearer {env:PLUMB_TEST_SECRET}\"}\n";
  const auto d = parse_deployment(text, "d.toml");
  ASSERT_TRUE(d) << d.error().message;
  EXPECT_EQ(shell_line(render_unfilled(*d, {}, d->processes[0]).command), "engine --api-key '{env:PLUMB_TEST_SECRET}'");
  EXPECT_EQ(render_process(*d, {}, d->processes[0], {})->command.argv.back(), "sk-0123456789");
  keep_secrets_of(*d);
  EXPECT_EQ(without_secrets("key sk-0123456789 is wrong, sk-0123456789!"), "key <secret> is wrong, <secret>!");
  ::unsetenv("PLUMB_TEST_SECRET");
  const auto missing = render_process(*d, {}, d->processes[0], {});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("PLUMB_TEST_SECRET is not set"), std::string::npos);
}

TEST(Secrets, AStreamHoldsBackWhatMayBeginOne) {
  keep_secret("abcabcabd\"x");
  EXPECT_EQ(secret_may_begin("..abcabc"), 6u);
  EXPECT_EQ(secret_may_begin("..abcabx"), 0u);
  EXPECT_EQ(without_secrets("{\"k\": \"abcabcabd\\\"x\"}"), "{\"k\": \"<secret>\"}");
  EXPECT_EQ(without_secrets("short"), "short");
}

TEST(Secrets, NamesThatHoldOne) {
  for (const char* name :
       {"Authorization", "X-Api-Key", "HF_TOKEN", "cookie", "--api-key", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD"})
    EXPECT_TRUE(names_a_secret(name)) << name;
  for (const char* name : {"--max-tokens", "TOKENIZERS_PARALLELISM", "--tokenizer", "--max-num-batched-tokens",
                           "X-Tenant", "KEYBOARD", "--kv-cache-dtype"})
    EXPECT_FALSE(names_a_secret(name)) << name;
}

}  // namespace
}  // namespace plumb::investigator
