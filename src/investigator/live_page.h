#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "investigator/investigate.h"
#include "investigator/live_server.h"

namespace plumb::investigator {

/// The running investigation as a web page: the report of what is known so far, and what runs now. It is made from the
/// history alone, so that a reload, or a resumed case, shows the same. `/` the page, which renews itself, `/version`
/// whether it has changed and whether the investigation has ended, `/report.json` the same data.
///
/// What it shows is what report.html shows: no environment variables' values, keys or paths.
class LivePage {
 public:
  static Result<std::unique_ptr<LivePage>> start(const LiveAddress& address);

  std::uint16_t port() const { return server_->port(); }

  /// What happens now; from any thread, as the next two.
  void tell(const Progress& progress);
  /// What is known; copied at most every kCopyInterval.
  void observe(const Plan& plan, const History& history);
  /// Shows the report from now on. If somebody is watching, waits until they have it, kLastLook at most.
  void finish(const Case& c);

  static constexpr std::chrono::milliseconds kCopyInterval{500};
  static constexpr std::chrono::milliseconds kLastLook{6000};

 private:
  using Clock = std::chrono::steady_clock;

  LivePage() = default;
  LiveReply answer(std::string_view path);
  void renew();
  std::string banner() const;

  mutable std::mutex mutex_;
  std::condition_variable looked_;
  std::optional<Case> case_;  // the newest copy
  bool changed_ = false;      // since the page was made
  bool ended_ = false;
  std::optional<Progress> now_;
  Clock::time_point copied_at_{};
  Clock::time_point asked_at_{};  // for the version: somebody watches
  bool last_seen_ = false;        // the page of the end was read

  // Of the server's thread.
  std::string page_;
  std::string json_;
  std::string version_;
  Clock::time_point made_at_{};
  std::chrono::nanoseconds making_{0};

  std::unique_ptr<LiveServer> server_;  // last, so that its thread ends first
};

}  // namespace plumb::investigator
