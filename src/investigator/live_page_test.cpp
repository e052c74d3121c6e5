#include "investigator/live_page.h"

#include <thread>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "investigator/http_client.h"
#include "investigator/report.h"
#include "investigator/simulated_worlds.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::json;

// A connection that says what a browser would not.
class RawConnection {
 public:
  explicit RawConnection(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~RawConnection() { ::close(fd_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // Sends, then reads until the server closes.
  std::string ask(const std::string& bytes) {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    ::shutdown(fd_, SHUT_WR);
    std::string reply;
    char chunk[4096];
    for (ssize_t n = 0; (n = ::recv(fd_, chunk, sizeof chunk, 0)) > 0;)
      reply.append(chunk, static_cast<std::size_t>(n));
    return reply;
  }

 private:
  int fd_;
};

struct Fixture {
  Plan plan = testing::plan_of(testing::switches_all_on(4), 11);
  testing::Played played;
  std::unique_ptr<LivePage> page = std::move(LivePage::start({})).value();
  HttpClient client{fmt::format("http://127.0.0.1:{}", page->port())};

  Fixture() {
    testing::SimulatedWorld world{.faults = {{.literals = {{2, true}}}}};
    played = testing::play(plan, world);
  }
  std::string get(const std::string& path) { return client.get(path).value().body; }
  Json state() { return Json::parse(get("/version")); }
  History first(std::size_t launches) const {
    History h = played.history;
    h.launches.resize(launches);
    return h;
  }
  Case whole() const { return Case{plan, {}, {played.findings, played.history, plan.seed}, true}; }
};

TEST(LiveAddress, IsAPortOrAHostWithOne) {
  EXPECT_EQ(parse_live_address("8090")->host, "127.0.0.1");
  EXPECT_EQ(parse_live_address("8090")->port, 8090);
  EXPECT_EQ(parse_live_address("localhost:1")->host, "127.0.0.1");
  EXPECT_EQ(parse_live_address("[::1]:8090")->host, "::1");
  EXPECT_TRUE(parse_live_address("[::1]:8090")->is_loopback());
  EXPECT_FALSE(parse_live_address("0.0.0.0:8090")->is_loopback());
  for (const char* bad : {"", ":", "x", "8090x", "65536", "-1", "127.0.0.1:", "example.org:80", "[::1:80", "::1"})
    EXPECT_FALSE(parse_live_address(bad)) << bad;
}

TEST(LivePage, ShowsWhatIsKnownAndEndsWithTheReport) {
  Fixture f;
  EXPECT_NE(f.get("/").find("The investigation begins"), std::string::npos);
  f.page->observe(f.plan, f.first(2));
  f.page->tell(
      {.kind = Progress::Kind::trial, .text = "does turning <s2> off cure?", .right = 3, .done = 4, .total = 8});
  // Pages are made rarely enough not to disturb what is measured.
  while (f.get("/").find("is not finished") == std::string::npos) std::this_thread::yield();
  const Json running = f.state();
  EXPECT_EQ(running["ended"], false);
  EXPECT_NE(running["now"].get<std::string>().find("4 of 8 asked, 3 right"), std::string::npos);
  const std::string page = f.get("/");
  EXPECT_NE(page.find("does turning &lt;s2&gt; off cure?"), std::string::npos);
  EXPECT_EQ(page, f.get("/")) << "a reload shows the same";
  EXPECT_EQ(Json::parse(f.get("/report.json"))["report"]["launch_log"].size(), 2u);

  const Case c = f.whole();
  std::thread reader([&] {
    while (f.state()["ended"] == false) std::this_thread::yield();
    EXPECT_EQ(f.get("/"), html_page(make_report(c), {}, {}));
  });
  f.page->finish(c);  // waits for the reader
  reader.join();
  EXPECT_NE(f.state()["version"], running["version"]);
}

TEST(LivePage, TheEndWaitsForNobodyWhoIsNotThere) {
  Fixture f;
  const auto begin = std::chrono::steady_clock::now();
  f.page->finish(f.whole());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, LivePage::kLastLook);
}

TEST(LivePage, CanOnlyBeReadAndOnlyUnderALoopbackName) {
  Fixture f;
  const auto ask = [&](const std::string& bytes) { return RawConnection(f.page->port()).ask(bytes); };
  EXPECT_TRUE(ask("GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(ask("GET /?a=b HTTP/1.1\r\nHost: [::1]\r\n\r\n").starts_with("HTTP/1.1 200"));
  for (const char* host : {"evil.example", "127.evil.example.", "", "localhost.evil"})
    EXPECT_TRUE(ask(fmt::format("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", host)).starts_with("HTTP/1.1 403")) << host;
  EXPECT_TRUE(ask("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 405"));
  EXPECT_TRUE(ask("GET /journal.sqlite HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(ask("GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 404"));
  const std::string head = ask("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n")) << head;
  EXPECT_NE(head.find("Content-Security-Policy: default-src 'none'"), std::string::npos);
}

TEST(LivePage, GarbageAndSilenceDisturbNobody) {
  Fixture f;
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<RawConnection>(f.page->port()));
  for (const std::string& bytes : {std::string("\x16\x03\x01\xff\x00garbage\r\n\r\n", 15),
                                   std::string("GET / HTTP/1.1\r\nA: ") + std::string(50'000, 'x'),
                                   std::string("GET / HTTP/1.1\r\nContent-Length: 5\r\nHost: localhost\r\n\r\nhello"),
                                   std::string("\r\n\r\n\r\n")}) {
    const std::string reply = RawConnection(f.page->port()).ask(bytes);
    EXPECT_TRUE(reply.empty() || reply.starts_with("HTTP/1.1 400")) << reply;
  }
  EXPECT_EQ(f.state()["ended"], false);
}

TEST(LivePage, AnAddressInUseIsAnError) {
  Fixture f;
  const auto second = LivePage::start({.host = "127.0.0.1", .port = f.page->port()});
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("--listen"), std::string::npos);
}

}  // namespace
}  // namespace plumb::investigator
