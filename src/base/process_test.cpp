#include "base/process.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process_tree.h"

namespace plumb {
namespace {

// What the command writes to its standard output.
std::string output_of(const Command& command) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ChildDescriptors descriptors;
  descriptors.out = ends[1];
  auto child = ChildProcess::start(command, descriptors);
  close(ends[1]);
  EXPECT_TRUE(child) << child.error().message;
  std::string text;
  char buffer[256];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(size));
  close(ends[0]);
  EXPECT_TRUE(child && child->wait(10));
  return text;
}

TEST(Process, RunsWithArgumentsEnvironmentAndDirectory) {
  const Command command{
      {"sh", "-c", "echo \"$1|$PLUMB_TEST|$(pwd)\"", "sh", "two words"}, {{"PLUMB_TEST", "a=b"}}, "/"};
  EXPECT_EQ(output_of(command), "two words|a=b|/\n");
}

TEST(Process, PathIsThatOfTheCommandsOwnEnvironment) {
  EXPECT_FALSE(Program::prepare({{"sh", "-c", "true"}, {{"PATH", "/no/such/folder"}}, ""}));
  EXPECT_TRUE(Program::prepare({{"sh", "-c", "true"}, {{"PATH", "/no/such/folder:/bin"}}, ""}));
}

TEST(Process, WhatCannotRunIsRefusedWithTheReason) {
  const auto message = [](const Command& command) {
    const auto child = ChildProcess::start(command);
    return child ? "it runs" : child.error().message;
  };
  EXPECT_NE(message({{"plumb-no-such-program"}, {}, ""}).find("in no folder of PATH"), std::string::npos);
  EXPECT_NE(message({{"/no/such/program"}, {}, ""}).find("No such file"), std::string::npos);
  EXPECT_NE(message({{"/etc/passwd"}, {}, ""}).find("ermission"), std::string::npos);
  EXPECT_NE(message({{"/tmp"}, {}, ""}).find("not a file"), std::string::npos);
  EXPECT_NE(message({{"sh"}, {}, "/no/such/folder"}).find("not a directory"), std::string::npos);
  EXPECT_NE(message({{}, {}, ""}).find("empty"), std::string::npos);
  EXPECT_NE(message({{"sh", std::string("a\0b", 3)}, {}, ""}).find("NUL"), std::string::npos);
  EXPECT_NE(message({{"sh"}, {{"A=B", ""}}, ""}).find("environment variable"), std::string::npos);
}

TEST(Process, WaitGivesTheStatusInWords) {
  auto ends = ChildProcess::start({{"sh", "-c", "exit 3"}, {}, ""});
  ASSERT_TRUE(ends);
  const auto status = ends->wait(10);
  ASSERT_TRUE(status);
  EXPECT_EQ(describe_exit_status(*status), "exit status 3");
  EXPECT_EQ(ends->wait(0), status);

  auto sleeps = ChildProcess::start({{"sleep", "600"}, {}, ""});
  ASSERT_TRUE(sleeps);
  EXPECT_FALSE(sleeps->wait(0.02));
  sleeps->signal_group(SIGTERM);
  const auto killed = sleeps->wait(10);
  ASSERT_TRUE(killed);
  EXPECT_EQ(describe_exit_status(*killed), "killed by signal 15 (Terminated)");
}

TEST(Process, TheGroupGoesWithTheChild) {
  pid_t leader = 0;
  {
    auto child = ChildProcess::start({{"sh", "-c", "sleep 600 & sleep 600 & wait"}, {}, ""});
    ASSERT_TRUE(child);
    leader = child->pid();
    for (int i = 0; i < 500 && process_tree(leader).size() < 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(process_tree(leader).size(), 3u);
    EXPECT_EQ(getpgid(leader), leader);
  }
  for (int i = 0; i < 500 && kill(-leader, 0) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_NE(kill(-leader, 0), 0);
}

TEST(Process, TooFewDescriptorsAreCalledSo) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest = dup(0);
  ASSERT_GE(lowest, 0);
  close(lowest);
  // From none at all to enough: pipes and copies of the child run out of them one after another.
  for (int more = 0; more < 6; ++more) {
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(lowest + more);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const auto child = ChildProcess::start({{"true"}, {}, ""});
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(child || child.error().message.find("Too many open files") != std::string::npos)
        << more << ": " << child.error().message;
  }
}

TEST(Process, OnlyTheDescriptorsThatWereGivenAreInherited) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Command command{{"sh", "-c", "for n in 0 1 2 $1 $2; do [ -e /proc/self/fd/$n ] && echo $n; done", "sh",
                         std::to_string(ends[0]), std::to_string(ends[1])},
                        {},
                        ""};
  const std::string without = output_of(command);
  EXPECT_EQ(without, "0\n1\n2\n");
  ChildDescriptors descriptors;
  descriptors.inherited = {ends[1]};
  auto child = ChildProcess::start({{"sh", "-c", "[ -e /proc/self/fd/$1 ]", "sh", std::to_string(ends[1])}, {}, ""},
                                   descriptors);
  ASSERT_TRUE(child);
  const auto status = child->wait(10);
  ASSERT_TRUE(status);
  EXPECT_EQ(*status, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(ProcessTree, ListeningSocketsAreFoundWithTheirOwner) {
  const std::vector<int> ports = free_ports(3);
  ASSERT_EQ(ports.size(), 3u);
  EXPECT_EQ(std::set<int>(ports.begin(), ports.end()).size(), 3u);
  EXPECT_TRUE(listening_sockets(ports[0]).empty());
  const int opened = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(listen(opened, 1), 0);  // binds a port of the kernel's choice
  struct {
    unsigned short family, port;
    char rest[12];
  } address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(getsockname(opened, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int port = (address.port & 0xff) << 8 | address.port >> 8;
  const auto listeners = listening_sockets(port);
  ASSERT_EQ(listeners.size(), 1u);
  EXPECT_TRUE(holds_socket({getpid()}, listeners[0]));
  EXPECT_FALSE(holds_socket({1}, listeners[0]) && getpid() != 1);
  EXPECT_NE(describe_holder(listeners[0]).find("process " + std::to_string(getpid())), std::string::npos);
  close(opened);
  EXPECT_TRUE(listening_sockets(port).empty());
}

}  // namespace
}  // namespace plumb
