#include "investigator/sealed_deal.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include "base/durable_file.h"
#include "base/process.h"
#include "base/sha256.h"

namespace plumb::investigator {
namespace {

constexpr double kSealTimeoutS = 20;  // a dealer of a killed demo may need ten seconds to go
constexpr double kEndTimeoutS = 5;
constexpr double kDeathNoticeS = 0.1;  // its socket closes a moment before its end shows
constexpr std::size_t kMaxAnnouncementBytes = 4096;
constexpr std::size_t kMaxEnvelopeBytes = 8192;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void reset(int fd) {
    close();
    fd_ = fd;
  }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

// The first line the dealer prints; empty when it ended or took too long.
std::string read_announcement(int fd) {
  using Clock = std::chrono::steady_clock;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kSealTimeoutS));
  std::string line;
  while (line.size() < kMaxAnnouncementBytes) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{fd, POLLIN, 0};
    if (left <= 0 || (::poll(&wait, 1, static_cast<int>(left)) < 0 && errno != EINTR)) return {};
    if (wait.revents == 0) continue;
    char c = 0;
    if (::read(fd, &c, 1) != 1) return {};
    if (c == '\n') return line;
    line += c;
  }
  return {};
}

}  // namespace

struct SealedDeal::Process {
  Descriptor input;
  std::optional<ChildProcess> child;
};

SealedDeal::SealedDeal() : process_(std::make_unique<Process>()) {}
SealedDeal::SealedDeal(SealedDeal&& other) noexcept = default;
SealedDeal::~SealedDeal() {
  if (process_) (void)end();
}

Result<SealedDeal> SealedDeal::start(const DealerRequest& request) {
  Command command{.argv = {request.executable.string(), "deal", "--envelope", request.envelope.string(), "--stratum",
                           request.stratum}};
  if (request.all_kinds) command.argv.emplace_back("--all-kinds");
  if (request.resume) command.argv.emplace_back("--resume");
  if (request.resume && !request.commitment.empty()) {
    command.argv.emplace_back("--commitment");
    command.argv.push_back(request.commitment);
  } else if (request.resume) {
    command.argv.emplace_back("--uncommitted");
  }
  // Close-on-exec: a server that kept the writing end would keep the dealer alive after us.
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0) return error("no pipe to the dealer: {}", std::strerror(errno));
  const Descriptor child_in(in[0]);
  SealedDeal deal;
  deal.process_->input.reset(in[1]);
  if (::pipe2(out.data(), O_CLOEXEC) != 0) return error("no pipe from the dealer: {}", std::strerror(errno));
  const Descriptor announcement(out[0]);
  Descriptor child_out(out[1]);

  auto child = ChildProcess::start(command, {.in = child_in.get(), .out = child_out.get(), .err = STDERR_FILENO});
  if (!child) return tl::unexpected(child.error());
  deal.process_->child.emplace(std::move(*child));
  child_out.close();

  // The seed goes through the pipe: an argument could be read by every process of this user.
  const std::string line = (request.seed ? std::to_string(*request.seed) : "") + "\n";
  if (::write(in[1], line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return error("the dealer ended before it got its seed");
  const std::string text = read_announcement(announcement.get());
  if (text.empty()) return error("the dealer did not seal a plant in {}", request.envelope.string());
  try {
    const auto json = nlohmann::json::parse(text);
    json.at("commitment").get_to(deal.commitment_);
    json.at("probe_seed").get_to(deal.probe_seed_);
    json.at("socket").get_to(deal.socket_);
    json.at("deployed_off").get_to(deal.deployed_off_);
  } catch (const nlohmann::json::exception& e) {
    return error("the dealer said '{}': {}", text, e.what());
  }
  return deal;
}

Result<void> SealedDeal::alive() {
  if (!process_->child) return error("the dealer has ended");
  const auto status = process_->child->wait(kDeathNoticeS);
  if (status) return error("the dealer has ended ({})", describe_exit_status(*status));
  return {};
}

Result<void> SealedDeal::end() {
  process_->input.close();
  if (!process_->child) return {};
  const auto status = process_->child->wait(kEndTimeoutS);
  process_->child.reset();
  if (!status) return error("the dealer did not end {} s after its input closed; it was killed", kEndTimeoutS);
  if (*status != 0) return error("the dealer ended with {}", describe_exit_status(*status));
  return {};
}

Result<Planted> open_envelope(const std::filesystem::path& envelope, const std::string& commitment) {
  const auto text = read_file(envelope, kMaxEnvelopeBytes);
  if (!text) return tl::unexpected(text.error());
  if (const std::string hash = sha256_hex(*text); hash != commitment)
    return error("{}: SHA-256 is {}, the commitment was {}: the envelope was changed", envelope.string(), hash,
                 commitment);
  try {
    const auto json = nlohmann::json::parse(*text);
    Planted planted{.stratum = json.at("stratum"),
                    .rate = json.at("rate"),
                    .masked_by = json.at("masked_by"),
                    .seed = json.at("seed")};
    for (const auto& entry : json.at("plants"))
      planted.faults.push_back({.kind = entry.at("kind"),
                                .form = entry.at("form"),
                                .host = entry.at("host"),
                                .layers = entry.at("layers"),
                                .severity = entry.at("severity")});
    return planted;
  } catch (const nlohmann::json::exception& e) {
    return error("{}: not an envelope: {}", envelope.string(), e.what());
  }
}

}  // namespace plumb::investigator
