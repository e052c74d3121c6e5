#include "investigator/live_page.h"

#include <algorithm>

#include <fmt/format.h>

#include "investigator/markdown.h"
#include "investigator/markup.h"
#include "investigator/report.h"

namespace plumb::investigator {
namespace {

constexpr std::chrono::seconds kWatching{5};      // after a question for the version
constexpr std::chrono::milliseconds kGrace{500};  // for other readers, once one has the last page
// Making a page replays the history; the measured program keeps the machine nearly to itself.
constexpr int kRestOfMaking = 20;

constexpr const char* kHead =
    "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n<script src=\"/live.js\" defer></script>\n";

// Without it the page is read by reloading it. What it puts in comes escaped from this server.
constexpr const char* kScript = R"("use strict";
let version = "";
function say(text) {
  const banner = document.getElementById("live");
  if (banner) banner.textContent = text;
}
async function look() {
  let ended = false;
  try {
    const state = await (await fetch("/version", {cache: "no-store"})).json();
    if (state.version !== version) {
      const text = await (await fetch("/", {cache: "no-store"})).text();
      const next = new DOMParser().parseFromString(text, "text/html");
      const open = document.querySelector("details[open]") !== null;
      document.querySelector("main").replaceWith(next.querySelector("main"));
      if (open) document.querySelector("details").open = true;
      document.title = next.title;
      version = state.version;
    } else {
      say(state.now);
    }
    ended = state.ended;
  } catch (failed) {
    say("plumb does not answer any more; this is what it had found when it last did.");
  }
  if (!ended) setTimeout(look, 1500);
}
setTimeout(look, 1500);
)";

std::string clock(double seconds) {
  const auto whole = static_cast<long>(seconds);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char ch : text) {
    if (ch == '"' || ch == '\\') out += '\\';
    out += ch;
  }
  return out + "\"";
}

}  // namespace

Result<std::unique_ptr<LivePage>> LivePage::start(const LiveAddress& address) {
  std::unique_ptr<LivePage> page(new LivePage);
  auto server = LiveServer::start(address, [raw = page.get()](std::string_view path) { return raw->answer(path); });
  if (!server) return tl::unexpected(server.error());
  page->server_ = std::move(*server);
  return page;
}

void LivePage::tell(const Progress& progress) {
  const std::lock_guard lock(mutex_);
  now_ = progress;
}

void LivePage::observe(const Plan& plan, const History& history) {
  const std::lock_guard lock(mutex_);
  if (case_ && Clock::now() - copied_at_ < kCopyInterval) return;
  copied_at_ = Clock::now();
  case_ = Case{plan, {}, {{}, history, plan.seed}, false};
  changed_ = true;
}

void LivePage::finish(const Case& c) {
  std::unique_lock lock(mutex_);
  case_ = c;
  changed_ = true;
  ended_ = true;
  if (Clock::now() - asked_at_ > kWatching) return;
  if (looked_.wait_for(lock, kLastLook, [&] { return last_seen_; }))
    looked_.wait_for(lock, kGrace, [] { return false; });
}

// One line, of printable characters.
std::string LivePage::banner() const {
  if (!now_) return "The investigation begins.";
  std::string text = fmt::format("Running for {}, launch {}", clock(now_->elapsed_s), now_->launches);
  if (!now_->text.empty()) text += ": " + in_one_line(now_->text);
  if (now_->total > 0) text += fmt::format("; {} of {} asked, {} right", now_->done, now_->total, now_->right);
  return text;
}

// Makes the page anew when there is something new, rarely enough.
void LivePage::renew() {
  std::optional<Case> c;
  std::string now;
  {
    const std::lock_guard lock(mutex_);
    const bool rested = Clock::now() - made_at_ >= kRestOfMaking * making_;
    if (!page_.empty() && (!changed_ || !(rested || ended_))) return;
    c = case_;
    changed_ = false;
    now = ended_ ? std::string() : banner();
  }
  const auto begin = Clock::now();
  Report report;
  if (c && !now.empty()) c->outcome.findings = findings_so_far(c->plan, c->outcome.history);
  if (c) {
    report = make_report(*c);
    json_ = report_json(*c, report);
  } else {
    report.title = {text("The investigation begins")};
    report.verdict = "not finished";
    json_ = "null\n";
  }
  page_ = now.empty()
              ? html_page(report, {}, {})
              : html_page(report, kHead,
                          fmt::format("<p class=\"live\" id=\"live\" role=\"status\">{}</p>\n", escape_markup(now)));
  version_ = hash_text(json_ + (now.empty() ? "ended" : ""));
  made_at_ = Clock::now();
  making_ = made_at_ - begin;
}

LiveReply LivePage::answer(std::string_view path) {
  if (path == "/live.js") return {200, "text/javascript", kScript};
  if (path != "/" && path != "/version" && path != "/report.json")
    return {404, "text/plain", "there are / and /report.json\n"};
  renew();
  if (path == "/report.json") return {200, "application/json", json_};
  const std::lock_guard lock(mutex_);
  const bool last = ended_ && !changed_;
  if (path == "/version") {
    asked_at_ = Clock::now();
    return {200, "application/json",
            fmt::format("{{\"version\": \"{}\", \"ended\": {}, \"now\": {}}}\n", version_, last,
                        json_string(ended_ ? std::string() : banner()))};
  }
  last_seen_ = last_seen_ || last;
  looked_.notify_all();
  return {200, "text/html", page_};
}

}  // namespace plumb::investigator
