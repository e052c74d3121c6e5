#include "faults/dealer.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "faults/recorded.h"

namespace plumb::faults {
namespace {

constexpr std::size_t kReplyBytes = kEnvelopeBytes;  // every reply, padded
constexpr std::size_t kMaxSeedBytes = 32;
constexpr int kLockAttempts = 200;  // of 50 ms: how long a dealer that is ending may take
constexpr int kReplyTimeoutS = 5;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// One line without its end; empty at once when `in` is closed before any byte.
Result<std::string> read_line(int in) {
  std::string line;
  for (char c = 0; line.size() <= kMaxSeedBytes;) {
    const ssize_t count = ::read(in, &c, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return error("standard input closed before the seed's line");
    if (c == '\n') return line;
    line += c;
  }
  return error("the seed's line is longer than {} bytes", kMaxSeedBytes);
}

Result<std::uint64_t> parse_seed(const std::string& line) {
  if (line.empty()) return random_seed();
  std::uint64_t seed = 0;
  const auto [rest, code] = std::from_chars(line.data(), line.data() + line.size(), seed);
  if (code != std::errc{} || rest != line.data() + line.size())
    return error("seed '{}' is not a number from 0 to 2^64-1", line);
  return seed;
}

// As std::filesystem looks for it.
std::string named_temporary_folder() {
  for (const char* name : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"})
    if (const char* folder = std::getenv(name)) return folder;
  return "/tmp";
}

// A folder of this user alone, one for each envelope so that a resumed case finds the same path, locked by one dealer.
class SocketFolder {
 public:
  static Result<SocketFolder> lock(const std::filesystem::path& envelope) {
    const std::string id = sha256_hex(std::filesystem::absolute(envelope).lexically_normal().string()).substr(0, 12);
    const std::string name = fmt::format("plumb-{}-{}", ::getuid(), id);
    std::error_code failed;
    const auto temporary = std::filesystem::temp_directory_path(failed);
    if (failed) return error("TMPDIR is {}, which is no folder: set it to one", named_temporary_folder());
    SocketFolder folder(temporary / name);
    if (folder.socket().size() >= sizeof(sockaddr_un::sun_path)) folder.path_ = std::filesystem::path("/tmp") / name;
    for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
      if (auto made = folder.make(); !made) return tl::unexpected(made.error());
      Descriptor lock(::open(folder.lock_file().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (lock.get() < 0 && errno != ENOENT)
        return error("{}: cannot be opened: {}", folder.lock_file(), std::strerror(errno));
      // The one before us may have removed file and folder between our open and our lock; then the name is gone.
      struct stat opened{};
      struct stat named{};
      if (lock.get() >= 0 && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 && ::fstat(lock.get(), &opened) == 0 &&
          ::stat(folder.lock_file().c_str(), &named) == 0 && opened.st_ino == named.st_ino) {
        folder.lock_ = std::move(lock);
        ::unlink(folder.socket().c_str());
        return folder;
      }
      ::usleep(50'000);
    }
    return error("{}: another dealer still serves this envelope", folder.path_.string());
  }
  ~SocketFolder() {
    if (lock_.get() < 0) return;
    ::unlink(socket().c_str());
    ::unlink(lock_file().c_str());
    ::rmdir(path_.c_str());
  }
  SocketFolder(SocketFolder&&) = default;
  SocketFolder& operator=(SocketFolder&&) = delete;

  std::string socket() const { return path_ / "s"; }

 private:
  explicit SocketFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::string lock_file() const { return path_ / "lock"; }
  Result<void> make() const {
    if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST)
      return error("{}: cannot be created: {}", path_.string(), std::strerror(errno));
    struct stat info{};
    if (::lstat(path_.c_str(), &info) == 0 &&
        (!S_ISDIR(info.st_mode) || info.st_uid != ::getuid() || (info.st_mode & 077) != 0))
      return error("{}: is not a folder of this user alone; remove it", path_.string());
    return {};
  }

  std::filesystem::path path_;
  Descriptor lock_;
};

sockaddr_un socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  CHECK(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<Descriptor> listen_on(const std::string& path) {
  Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = socket_address(path);
  if (listener.get() < 0 || ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(listener.get(), 16) != 0)
    return error("{}: cannot listen: {}", path, std::strerror(errno));
  return listener;
}

// Only another process of this executable is told: the investigator, which shares the user, gets an empty reply.
bool is_our_executable(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  std::error_code failed;
  const auto theirs = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", peer.pid), failed);
  if (failed) return false;
  const auto ours = std::filesystem::read_symlink("/proc/self/exe", failed);
  return !failed && theirs == ours;
}

void serve_until_closed(int in, const Descriptor& listener, const std::string& reply) {
  for (;;) {
    std::array<pollfd, 2> wait{pollfd{in, POLLIN, 0}, pollfd{listener.get(), POLLIN, 0}};
    if (::poll(wait.data(), wait.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (wait[0].revents != 0) {
      std::array<char, 64> ignored{};
      if (::read(in, ignored.data(), ignored.size()) <= 0) return;
    }
    if (wait[1].revents == 0) continue;
    const Descriptor connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // A fresh stream socket buffers a whole reply, so this send does not block on a peer that does not read.
    if (connection.get() >= 0 && is_our_executable(connection.get()))
      (void)!::send(connection.get(), reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

// What was dealt, without the seed and the nonce: those who know them could compute the draw.
std::string reply_text(Deal deal) {
  deal.seed = 0;
  deal.nonce.clear();
  return envelope_text(deal);
}

struct Sealed {
  Deal deal;
  std::string text;
};

Result<Sealed> seal(const DealerOptions& options, std::span<const Plant> table, const std::string& seed_line) {
  const bool sealed_before = std::filesystem::exists(options.envelope);
  if (options.resume && !sealed_before && !options.uncommitted)
    return error("{}: no envelope, so there is nothing to resume; deal anew without --resume",
                 options.envelope.string());
  if (options.resume && sealed_before) {
    auto text = read_envelope(options.envelope);
    if (!text) return tl::unexpected(text.error());
    if (!options.commitment.empty() && sha256_hex(*text) != options.commitment)
      return error("{}: SHA-256 {} is not the commitment {}: the envelope was changed", options.envelope.string(),
                   sha256_hex(*text), options.commitment);
    auto deal = parse_envelope(*text);
    if (!deal) return error("{}: {}", options.envelope.string(), deal.error().message);
    const auto given = parse_seed(seed_line);
    if (!given) return tl::unexpected(given.error());
    if (!seed_line.empty() && *given != deal->seed)
      return error("{}: sealed with another seed than {}; resume it without --seed", options.envelope.string(), *given);
    return Sealed{*deal, *text};
  }
  const auto seed = parse_seed(seed_line);
  if (!seed) return tl::unexpected(seed.error());
  auto deal = draw(*seed, options.stratum, table);
  if (!deal) return tl::unexpected(deal.error());
  deal->nonce = random_nonce();
  std::string text = envelope_text(*deal);
  if (auto written = write_envelope(options.envelope, text); !written) return tl::unexpected(written.error());
  return Sealed{*deal, std::move(text)};
}

}  // namespace

std::vector<Plant> dealt_plants(bool all_kinds) {
  std::vector<Plant> list;
  for (const Plant& plant : plants()) {
    const Recorded* seen = find_recorded(plant.kind, plant.form);
    const bool damages = seen != nullptr && seen->word == "damage";
    // Under no switch, a plant that loses short prompts, too, is no loss of context: there is nothing left to probe.
    const bool short_is_right = seen != nullptr && seen->signature.starts_with("S 0/");
    const bool fit = plant.side == PlantSide::on ? all_kinds : short_is_right;
    if (plant.demo || (damages && fit)) list.push_back(plant);
  }
  return list;
}

Result<void> run_dealer(const DealerOptions& options, std::span<const Plant> table, int in, int out) {
  // An interrupt from the terminal is for who started us; we end when our input closes.
  (void)std::signal(SIGINT, SIG_IGN);
  auto line = read_line(in);
  if (!line) return tl::unexpected(line.error());
  auto folder = SocketFolder::lock(options.envelope);
  if (!folder) return tl::unexpected(folder.error());
  auto sealed = seal(options, table, *line);
  if (!sealed) return tl::unexpected(sealed.error());
  auto listener = listen_on(folder->socket());
  if (!listener) return tl::unexpected(listener.error());

  const nlohmann::ordered_json announcement{{"commitment", sha256_hex(sealed->text)},
                                            {"probe_seed", half_seed(sealed->deal.seed, "probe")},
                                            {"socket", folder->socket()},
                                            {"deployed_off", sealed->deal.deployed_off}};
  const std::string text = announcement.dump() + "\n";
  if (::write(out, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return error("cannot write the commitment: {}", std::strerror(errno));
  serve_until_closed(in, *listener, reply_text(sealed->deal));
  return {};
}

Result<Deal> ask_dealer(const std::string& socket_path) {
  if (socket_path.size() >= sizeof(sockaddr_un::sun_path)) return error("{}: too long for a socket", socket_path);
  const Descriptor connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout{kReplyTimeoutS, 0};
  const sockaddr_un address = socket_address(socket_path);
  if (connection.get() < 0 || ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0 ||
      ::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return error("no dealer at {}: {}", socket_path, std::strerror(errno));
  std::string text(kReplyBytes, '\0');
  std::size_t size = 0;
  while (size < kReplyBytes) {
    const ssize_t count = ::recv(connection.get(), text.data() + size, kReplyBytes - size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return error("the dealer at {} did not answer", socket_path);
    size += static_cast<std::size_t>(count);
  }
  return parse_envelope(text);
}

Result<void> plant(const Deal& deal, std::span<const Plant> table, Backend backend, const Settings& settings) {
  const std::uint64_t launch = random_seed();
  if (deal.rate < 1 && Rng(launch).uniform() >= deal.rate) return {};
  for (std::size_t i = 0; i < kSwitchCount; ++i)
    if (kSwitches[i].name == deal.masked_by && settings.describe(i) != "off") return {};
  for (const Dealt& dealt : deal.plants) {
    const Plant* found = find_plant(table, dealt.kind, dealt.form);
    if (found == nullptr) return error("this build cannot apply what was dealt");
    Dose dose = dealt.dose;
    dose.launch = launch;
    dose.backend = backend;
    apply(*found, dose);
  }
  return {};
}

}  // namespace plumb::faults
