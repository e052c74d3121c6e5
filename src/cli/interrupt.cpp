#include "cli/interrupt.h"

#include <algorithm>
#include <array>
#include <csignal>

#include <unistd.h>

#include "base/check.h"

namespace plumb::cli {
namespace {

// What the handler needs; it may only make async-signal-safe calls.
std::array<char, kMaxInterruptMessage> text;
volatile sig_atomic_t length = 0;
volatile sig_atomic_t owner = 0;

void on_interrupt(int signal) {
  // Ctrl-C reaches the whole group: children that inherited the handler stay silent.
  if (::getpid() == owner) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), static_cast<std::size_t>(length));
  }
  ::raise(signal);  // SA_RESETHAND: with its old effect, when this handler has returned
}

}  // namespace

void say_on_interrupt(std::string_view message) {
  const std::size_t size = std::min(message.size(), text.size());
  std::copy_n(message.begin(), size, text.begin());
  length = static_cast<sig_atomic_t>(size);
  owner = ::getpid();
  struct sigaction action{};
  action.sa_handler = &on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  struct sigaction before{};
  CHECK(sigaction(SIGINT, &action, &before) == 0);
  // A background job of a shell ignores it, and goes on to.
  if (before.sa_handler == SIG_IGN) CHECK(sigaction(SIGINT, &before, nullptr) == 0);
}

}  // namespace plumb::cli
