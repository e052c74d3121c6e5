#pragma once

#include <string_view>

namespace plumb::cli {

/// From now on SIGINT (Ctrl-C) writes `message` to stderr, once and from this process only, before it ends the process
/// as it would have. What is beyond kMaxInterruptMessage bytes is cut.
void say_on_interrupt(std::string_view message);

inline constexpr int kMaxInterruptMessage = 4096;

}  // namespace plumb::cli
