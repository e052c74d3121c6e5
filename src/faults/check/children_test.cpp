#include "faults/check/children.h"

#include <chrono>
#include <cstdlib>

#include <gtest/gtest.h>
#include <unistd.h>

namespace plumb::faults {
namespace {

TEST(Children, GiveTheirTextsInTheOrderOfTheJobs) {
  std::vector<Job> jobs;
  for (int i = 0; i < 7; ++i)
    jobs.emplace_back([i] {
      ::usleep(static_cast<useconds_t>(20'000 * (7 - i)));
      return std::string(static_cast<std::size_t>(i) * 100'000, static_cast<char>('a' + i));
    });
  std::size_t done = 0;
  const auto results = run_in_children(jobs, 3, 60, [&](std::size_t) { ++done; });
  EXPECT_EQ(done, jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(results[i]) << results[i].error().message;
    EXPECT_EQ(*results[i], std::string(i * 100'000, static_cast<char>('a' + i)));
  }
}

TEST(Children, DoNotChangeTheirParent) {
  int value = 1;
  const auto results = run_in_children({[&] { return std::to_string(++value); }}, 1, 60, [](std::size_t) {});
  EXPECT_EQ(*results[0], "2");
  EXPECT_EQ(value, 1);
}

TEST(Children, TellACrashAnExceptionAndATimeOut) {
  const auto began = std::chrono::steady_clock::now();
  const auto results = run_in_children(
      {[]() -> std::string { std::_Exit(4); }, []() -> std::string { throw std::runtime_error("on purpose"); },
       []() -> std::string {
         ::sleep(600);
         return "late";
       },
       []() -> std::string { return "fine"; }},
      2, 2, [](std::size_t) {});
  EXPECT_FALSE(results[0]);
  EXPECT_FALSE(results[1]);
  ASSERT_FALSE(results[2]);
  EXPECT_EQ(results[2].error().message, "not done in time");
  EXPECT_EQ(*results[3], "fine");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
}

}  // namespace
}  // namespace plumb::faults
