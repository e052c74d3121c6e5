#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "model/encoding.h"
#include "runtime/generator.h"
#include "server/test_call_parser.h"

namespace plumb::server::testing_support {

using std::chrono::milliseconds;

/// Bytes are their own ids; a few words and specials follow.
class ByteEncoding : public Encoding {
 public:
  static constexpr std::int32_t kBos = 256, kEos = 257, kUser = 258, kAssistant = 259, kHello = 260, kCode = 261;

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < text.size();) {
      std::int32_t id = static_cast<unsigned char>(text[i]);
      for (std::size_t w = 0; w < words_.size(); ++w)
        if (text.substr(i).starts_with(words_[w])) id = static_cast<std::int32_t>(256 + w);
      ids.push_back(id);
      i += token_bytes(id).size();
    }
    return ids;
  }
  std::string token_bytes(std::int32_t id) const override {
    CHECK(0 <= id && id < vocab_size());
    return id < 256 ? std::string(1, static_cast<char>(id)) : words_[static_cast<std::size_t>(id) - 256];
  }
  bool is_special(std::int32_t id) const override { return kBos <= id && id <= kAssistant; }
  Result<std::unique_ptr<ChatPrompt>> lay_out(Conversation conversation) const override {
    for (const ChatMessage& message : conversation.messages)
      if (message.role != "user" && message.role != "assistant")
        return error("role '{}' is unknown; there are user and assistant", message.role);
    return std::make_unique<Prompt>(*this, std::move(conversation));
  }
  std::int32_t bos() const override { return kBos; }
  std::int32_t eos() const override { return kEos; }
  std::int64_t vocab_size() const override { return 256 + static_cast<std::int64_t>(words_.size()); }

 private:
  class Prompt final : public ChatPrompt {
   public:
    Prompt(const ByteEncoding& encoding, Conversation conversation)
        : encoding_(encoding), conversation_(std::move(conversation)) {}
    std::size_t stretch_count() const override { return conversation_.messages.size() + 1; }
    std::string key(std::size_t i) const override {
      std::string text = i == 0 ? "<bos>" : "";
      if (i == conversation_.messages.size()) return text + "<assistant>";
      const ChatMessage& message = conversation_.messages[i];
      return text + "<" + message.role + "> " + message.content + (message.role == "assistant" ? "<eos>" : "");
    }
    void append_ids(std::size_t i, std::vector<std::int32_t>& ids) const override {
      for (const std::int32_t id : encoding_.encode(key(i))) ids.push_back(id);
    }
    std::string role(std::size_t) const override { return "any"; }
    std::unique_ptr<ReplyParser> reply_parser(ReplyOptions asked) const override {
      asked.tools = conversation_.tools;
      asked.tools_active = !asked.tools.empty();
      return std::make_unique<CallParser>(std::move(asked));
    }

   private:
    const ByteEncoding& encoding_;
    const Conversation conversation_;
  };

  std::vector<std::string> words_{"<bos>", "<eos>", "<user>", "<assistant>", " hello", " K7-42-QX"};
};

/// Answers every request with a scripted list of tokens, one at a time from each request in turn, on its own thread.
/// Finish is stop after a stop id, else length when max_tokens are out; a script that ends otherwise leaves the request
/// running until it is cancelled.
class ScriptedGenerator final : public Generator {
 public:
  using Script = std::function<std::vector<std::int32_t>(const GenerateRequest&)>;

  explicit ScriptedGenerator(Script script = {}) : script_(std::move(script)), thread_([this] { run(); }) {}
  ~ScriptedGenerator() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void set_script(Script script) {
    const std::lock_guard lock(mutex_);
    script_ = std::move(script);
  }
  void set_delay(milliseconds delay) {
    const std::lock_guard lock(mutex_);
    delay_ = delay;
  }
  /// While held, submitted requests wait.
  void hold(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }
  void reject_with(std::optional<Rejection> rejection) {
    const std::lock_guard lock(mutex_);
    rejection_ = std::move(rejection);
  }
  void set_cached_tokens(std::int64_t cached) {
    const std::lock_guard lock(mutex_);
    cached_ = cached;
  }
  std::vector<GenerateRequest> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  bool wait_until_cancelled(std::uint64_t count, milliseconds timeout = milliseconds(5000)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return stats_.cancelled >= count; });
  }
  bool wait_until_submitted(std::size_t count, milliseconds timeout = milliseconds(5000)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return seen_.size() >= count; });
  }

  tl::expected<std::uint64_t, Rejection> submit(GenerateRequest request, std::shared_ptr<TokenSink> sink) override {
    std::uint64_t id = 0;
    {
      const std::lock_guard lock(mutex_);
      if (rejection_) return tl::unexpected(*rejection_);
      seen_.push_back(request);
      id = next_id_++;
      running_.push_back({.id = id,
                          .tokens = script_ ? script_(request) : std::vector<std::int32_t>(),
                          .request = std::move(request),
                          .sink = std::move(sink)});
    }
    changed_.notify_all();
    return id;
  }
  void cancel(std::uint64_t id) override {
    {
      const std::lock_guard lock(mutex_);
      for (Job& job : running_)
        if (job.id == id) job.cancelled = true;
    }
    changed_.notify_all();
  }
  GeneratorStats stats() const override {
    const std::lock_guard lock(mutex_);
    GeneratorStats stats = stats_;
    stats.running = static_cast<std::int64_t>(running_.size());
    return stats;
  }
  std::int64_t max_context_tokens() const override { return 1000; }

  /// The scores it gives: exact in f32, not in f16; `top` counts ids up from 0.
  static TokenScore score(std::int32_t id, std::size_t position, int k) {
    TokenScore out{.id = id, .logprob = -0.1f * static_cast<float>(position + 1), .top = {}};
    for (int i = 0; i < k; ++i) out.top.emplace_back(i, -0.3f - 0.7f * static_cast<float>(i));
    return out;
  }

 private:
  struct Job {
    std::uint64_t id;
    std::vector<std::int32_t> tokens;
    GenerateRequest request;
    std::shared_ptr<TokenSink> sink;
    std::size_t done = 0;
    bool begun = false;
    bool cancelled = false;
  };

  // One step of a job without the lock held; true when it has finished.
  bool step(Job& job, bool cancelled) {
    const auto limit = static_cast<std::size_t>(job.request.max_tokens);
    if (!std::exchange(job.begun, true) && job.request.prompt_logprobs && !cancelled) {
      std::vector<TokenScore> scores;
      for (std::size_t i = 1; i < job.request.prompt.size(); ++i)
        scores.push_back(score(job.request.prompt[i], i, job.request.top_logprobs));
      job.sink->on_prompt_scores(std::move(scores));
    }
    if (cancelled) return finish(job, Finish::cancelled);
    if (job.done >= limit) return finish(job, Finish::length);
    if (job.done == job.tokens.size()) return false;
    const std::int32_t id = job.tokens[job.done];
    job.sink->on_token(score(id, job.done++, job.request.top_logprobs));
    const auto& stops = job.request.stop_ids;
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) return finish(job, Finish::stop);
    return job.done >= limit && finish(job, Finish::length);
  }

  bool finish(Job& job, Finish reason) {
    {
      const std::lock_guard lock(mutex_);
      ++(reason == Finish::cancelled ? stats_.cancelled : stats_.finished);
      stats_.generated_tokens += job.done;
      stats_.prompt_tokens += job.request.prompt.size();
    }
    job.sink->on_finish(reason, {.prompt_tokens = static_cast<std::int64_t>(job.request.prompt.size()),
                                 .cached_tokens = cached_,
                                 .completion_tokens = static_cast<std::int64_t>(job.done)});
    changed_.notify_all();
    return true;
  }

  void run() {
    std::unique_lock lock(mutex_);
    const auto stalled = [](const Job& job) {
      return !job.cancelled && job.begun && job.done == job.tokens.size() &&
             job.done < static_cast<std::size_t>(job.request.max_tokens);
    };
    while (true) {
      changed_.wait(lock, [&] {
        return ending_ || std::any_of(running_.begin(), running_.end(),
                                      [&](const Job& job) { return job.cancelled || (!held_ && !stalled(job)); });
      });
      if (ending_) return;
      for (auto it = running_.begin(); it != running_.end();) {
        const bool cancelled = it->cancelled;
        if (!cancelled && (held_ || stalled(*it))) {
          ++it;
          continue;
        }
        lock.unlock();
        const bool done = step(*it, cancelled);
        lock.lock();
        if (delay_.count() > 0) changed_.wait_for(lock, delay_, [this] { return ending_; });
        it = done ? running_.erase(it) : std::next(it);
      }
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Script script_;
  milliseconds delay_{0};
  bool held_ = false;
  bool ending_ = false;
  std::optional<Rejection> rejection_;
  std::atomic<std::int64_t> cached_{0};
  std::uint64_t next_id_ = 0;
  std::list<Job> running_;
  std::vector<GenerateRequest> seen_;
  GeneratorStats stats_;
  std::thread thread_;
};

struct Answer {
  int status = 0;                              // 0: the connection closed without an answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

/// A client on a plain socket with a time-out of 10 s on everything.
class Client {
 public:
  explicit Client(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval timeout{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    const int one = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { close(); }

  bool connected() const { return connected_; }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void half_close() { ::shutdown(socket_, SHUT_WR); }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  static std::string request_text(const std::string& method, const std::string& path, const std::string& body,
                                  const std::string& headers = "") {
    return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n" + headers + "\r\n" + body;
  }
  Answer request(const std::string& method, const std::string& path, const std::string& body = "",
                 const std::string& headers = "") {
    send(request_text(method, path, body, headers));
    return receive(method == "HEAD");
  }

  /// Reads until `text` has come; false when the connection ends or the time is over first.
  bool receive_until(std::string_view text) {
    while (buffer_.find(text) == std::string::npos)
      if (!fill()) return false;
    return true;
  }
  const std::string& buffered() const { return buffer_; }
  /// True when the server closes the connection.
  bool receive_end() {
    while (fill()) {
    }
    return ended_;
  }

  Answer receive(bool without_body = false) {
    Answer answer;
    if (!receive_until("\r\n\r\n")) return answer;
    const std::size_t end = buffer_.find("\r\n\r\n");
    parse_head(buffer_.substr(0, end + 2), answer);
    buffer_.erase(0, end + 4);
    if (without_body) return answer;
    if (answer.headers.contains("transfer-encoding")) {
      receive_chunks(answer);
    } else if (answer.headers.contains("content-length")) {
      const std::size_t size = std::stoul(answer.headers["content-length"]);
      while (buffer_.size() < size && fill()) {
      }
      answer.body = buffer_.substr(0, size);
      buffer_.erase(0, size);
    } else {
      while (fill()) {
      }
      answer.body = std::exchange(buffer_, {});
    }
    return answer;
  }

 private:
  static void parse_head(const std::string& head, Answer& answer) {
    answer.status = std::stoi(head.substr(9, 3));
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t end = head.find("\r\n", at);
      const std::size_t colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      answer.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
  }
  void receive_chunks(Answer& answer) {
    while (true) {
      std::size_t line = 0;
      while ((line = buffer_.find("\r\n")) == std::string::npos)
        if (!fill()) return;
      const std::size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2)
        if (!fill()) return;
      answer.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 2 + size + 2);
      if (size == 0) return;
    }
  }
  bool fill() {
    char bytes[16384];
    const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
    if (n > 0) buffer_.append(bytes, static_cast<std::size_t>(n));
    if (n == 0 || (n < 0 && errno == ECONNRESET)) ended_ = true;
    return n > 0;
  }

  int socket_;
  bool connected_ = false;
  bool ended_ = false;
  std::string buffer_;
};

}  // namespace plumb::server::testing_support
