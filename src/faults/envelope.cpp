#include "faults/envelope.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rng.h"
#include "base/sha256.h"

namespace plumb::faults {
namespace {

constexpr std::size_t kMaxEnvelopeBytes = 4096;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

void random_bytes(void* data, std::size_t size) { CHECK(::getrandom(data, size, 0) == static_cast<ssize_t>(size)); }

}  // namespace

std::uint64_t half_seed(std::uint64_t seed, std::string_view label) {
  return std::stoull(sha256_hex(fmt::format("plumb {} {}", label, seed)).substr(0, 16), nullptr, 16);
}

Result<Deal> draw(std::uint64_t seed, int faults, std::span<const Plant> table) {
  if (faults != 0 && faults != 1) return error("--faults {}: this version plants at most one fault", faults);
  Deal deal{.seed = seed};
  if (faults == 0) return deal;
  if (table.empty()) return error("there are no plants to draw from");
  Rng rng(half_seed(seed, "plant"));
  const Plant& plant = table[rng.below(table.size())];
  deal.kind = plant.kind;
  deal.form = plant.form;
  deal.host = plant.host;
  deal.dose = {.severity = plant.severity, .layers = std::string(plant.layers), .seed = half_seed(seed, "dose")};
  return deal;
}

std::string envelope_text(const Deal& deal) {
  const nlohmann::ordered_json json{{"kind", deal.kind},          {"form", deal.form},
                                    {"host", deal.host},          {"severity", deal.dose.severity},
                                    {"layers", deal.dose.layers}, {"dose_seed", deal.dose.seed},
                                    {"seed", deal.seed},          {"nonce", deal.nonce}};
  return json.dump(2) + "\n";
}

Result<Deal> parse_envelope(std::string_view text) try {
  const auto json = nlohmann::json::parse(text);
  Deal deal;
  json.at("kind").get_to(deal.kind);
  json.at("form").get_to(deal.form);
  json.at("host").get_to(deal.host);
  json.at("severity").get_to(deal.dose.severity);
  json.at("layers").get_to(deal.dose.layers);
  json.at("dose_seed").get_to(deal.dose.seed);
  json.at("seed").get_to(deal.seed);
  json.at("nonce").get_to(deal.nonce);
  return deal;
} catch (const nlohmann::json::exception& e) {
  return error("not an envelope: {}", e.what());
}

Result<void> write_envelope(const std::filesystem::path& path, std::string_view text) {
  // Complete before it has its name: link() fails when the name is taken, and a killed dealer leaves no half envelope.
  const std::filesystem::path partial = path.string() + fmt::format(".{}.partial", ::getpid());
  {
    const Descriptor file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) return error("{}: cannot be created: {}", partial.string(), std::strerror(errno));
    if (!write_all(file.get(), text) || ::fsync(file.get()) != 0)
      return error("{}: cannot be written: {}", partial.string(), std::strerror(errno));
  }
  const int linked = ::link(partial.c_str(), path.c_str());
  const int reason = errno;
  ::unlink(partial.c_str());
  if (linked != 0 && reason == EEXIST)
    return error("{}: exists already; continue its case with --resume, or choose another --case", path.string());
  if (linked != 0) return error("{}: cannot be created: {}", path.string(), std::strerror(reason));
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || ::fsync(directory.get()) != 0)
    return error("{}: cannot be flushed: {}", folder.string(), std::strerror(errno));
  return {};
}

Result<std::string> read_envelope(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return error("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  std::string text(kMaxEnvelopeBytes + 1, '\0');
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0) return error("{}: cannot be read: {}", path.string(), std::strerror(errno));
  if (static_cast<std::size_t>(count) > kMaxEnvelopeBytes) return error("{}: too long for an envelope", path.string());
  text.resize(static_cast<std::size_t>(count));
  return text;
}

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  random_bytes(&seed, sizeof seed);
  return seed;
}

std::string random_nonce() { return fmt::format("{:016x}{:016x}", random_seed(), random_seed()); }

}  // namespace plumb::faults
