#pragma once

#include <map>

#include "base/result.h"
#include "investigator/deployment.h"

namespace plumb::investigator {

/// MiB in use by GPU number, for the GPUs of a process, as nvidia-smi says on the machine it runs on. Errors: no
/// nvidia-smi, an answer that is not understood, a GPU that it does not list.
Result<std::map<int, std::int64_t>> gpu_memory_used(const ProcessSpec& process);

/// What other processes may take or free meanwhile without being mistaken for ours.
inline constexpr std::int64_t kGpuMemorySlackMib = 64;

/// Waits until each GPU of the process holds no more than before the launch (kGpuMemorySlackMib apart), at most
/// process.stop_wait_s. The error names the GPU and what it still holds.
Result<void> wait_for_gpu_memory(const ProcessSpec& process, const std::map<int, std::int64_t>& before);

}  // namespace plumb::investigator
