#include "investigator/gpu_memory.h"

#include <chrono>
#include <cstdio>
#include <sstream>
#include <thread>

#include "investigator/log_tail.h"
#include "investigator/run_program.h"

namespace plumb::investigator {
namespace {

constexpr double kQueryTimeoutS = 30;
constexpr double kPollS = 0.25;
constexpr std::size_t kShownBytes = 200;

Command query_of(const ProcessSpec& process) {
  const std::vector<std::string> query{"nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"};
  if (process.host.empty()) return {query, {}, ""};
  Command remote{{"ssh", "-o", "BatchMode=yes"}, {}, ""};
  if (process.via == "ssh") remote.argv.insert(remote.argv.end(), process.via_args.begin(), process.via_args.end());
  remote.argv.push_back(process.host);
  remote.argv.insert(remote.argv.end(), query.begin(), query.end());
  return remote;
}

}  // namespace

Result<std::map<int, std::int64_t>> gpu_memory_used(const ProcessSpec& process) {
  const auto output = run_program(query_of(process), kQueryTimeoutS);
  const auto refused = [&](const std::string& why) {
    return error(
        "GPU memory of process {}: {}; plumb waits for it because of gpus = […]: set stop = {{wait = [\"port\"]}} "
        "where it cannot be asked",
        process.name, why);
  };
  if (!output) return refused(output.error().message);
  if (!output->ok())
    return refused(
        fmt::format("nvidia-smi: {}: {}", describe_exit_status(output->status), printable(output->text, kShownBytes)));
  std::map<int, std::int64_t> all, used;
  std::istringstream lines(output->text);
  for (std::string line; std::getline(lines, line);) {
    int index = 0;
    long long mib = 0;
    if (std::sscanf(line.c_str(), "%d , %lld", &index, &mib) == 2) all[index] = mib;
  }
  for (const int gpu : process.gpus) {
    if (all.count(gpu) == 0)
      return refused(fmt::format("nvidia-smi lists no GPU {}: {}", gpu, printable(output->text, kShownBytes)));
    used[gpu] = all[gpu];
  }
  return used;
}

Result<void> wait_for_gpu_memory(const ProcessSpec& process, const std::map<int, std::int64_t>& before) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const auto now = gpu_memory_used(process);
    if (!now) return tl::unexpected(now.error());
    int held = -1;
    for (const auto& [gpu, mib] : *now)
      if (const auto was = before.find(gpu); was != before.end() && mib > was->second + kGpuMemorySlackMib) held = gpu;
    if (held < 0) return {};
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > process.stop_wait_s)
      return error(
          "GPU {} still holds {} MiB {} s after process {} was stopped, {} before the launch: look with nvidia-smi for "
          "who holds it, or raise stop.wait_s",
          held, now->at(held), process.stop_wait_s, process.name, before.at(held));
    std::this_thread::sleep_for(std::chrono::duration<double>(kPollS));
  }
}

}  // namespace plumb::investigator
