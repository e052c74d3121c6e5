#include "investigator/http_client.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/process_tree.h"

namespace plumb::investigator {
namespace {

using FailureKind = HttpFailure::Kind;

std::string reply_with(const std::string& body, const std::string& headers = "") {
  return fmt::format("HTTP/1.1 200 OK\r\n{}Content-Length: {}\r\n\r\n{}", headers, body.size(), body);
}

// Answers each request of each connection, in order, with the given bytes, and then closes the connection.
class ScriptedServer {
 public:
  using Connection = std::vector<std::string>;

  explicit ScriptedServer(std::vector<Connection> connections, double hold_s = 0)
      : connections_(std::move(connections)), hold_s_(hold_s) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    CHECK(bind(listener_, generic, size) == 0 && listen(listener_, 8) == 0 &&
          getsockname(listener_, generic, &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedServer() {
    shutdown(listener_, SHUT_RDWR);  // an accept that still waits ends
    thread_.join();
    close(listener_);
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  // What came in; only after the exchange it belongs to.
  const std::vector<std::string>& requests() const { return requests_; }

 private:
  void serve() {
    for (const Connection& replies : connections_) {
      const int peer = accept(listener_, nullptr, nullptr);
      if (peer < 0) return;
      for (const std::string& reply : replies) {
        if (!read_request(peer)) break;
        send(peer, reply.data(), reply.size(), MSG_NOSIGNAL);
      }
      if (hold_s_ > 0) std::this_thread::sleep_for(std::chrono::duration<double>(hold_s_));
      close(peer);
    }
  }
  bool read_request(int peer) {
    std::string request;
    for (char byte; recv(peer, &byte, 1, 0) == 1;) {
      request += byte;
      const auto end = request.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      const auto length = request.find("Content-Length: ");
      const std::size_t body = length == std::string::npos ? 0 : std::stoul(request.substr(length + 16));
      if (request.size() < end + 4 + body) continue;
      requests_.push_back(request);
      return true;
    }
    return false;
  }

  std::vector<Connection> connections_;
  double hold_s_;
  int listener_ = -1, port_ = 0;
  std::vector<std::string> requests_;
  std::thread thread_;
};

TEST(HttpClient, OneConnectionServesManyRequests) {
  ScriptedServer server({{reply_with("one", "X-Twice: a\r\nx-twice: b\r\n"), reply_with("two")}});
  HttpClient client(server.url(), 5);
  const auto one = client.get("/first");
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->status, 200);
  EXPECT_EQ(one->body, "one");
  EXPECT_EQ(one->headers.at("x-twice"), "a, b");
  EXPECT_GT(one->seconds, 0);
  const auto two = client.post("/second", "{}", {{"Authorization", "Bearer k"}});
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_EQ(two->body, "two");
  ASSERT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(server.requests()[0].rfind("GET /first HTTP/1.1\r\nHost: 127.0.0.1:", 0), 0u);
  EXPECT_NE(server.requests()[1].find("Authorization: Bearer k\r\n"), std::string::npos);
  EXPECT_NE(server.requests()[1].find("Content-Type: application/json\r\n"), std::string::npos);
  EXPECT_EQ(server.requests()[1].substr(server.requests()[1].size() - 2), "{}");
}

TEST(HttpClient, AReusedConnectionThatWasClosedIsReplacedOnce) {
  ScriptedServer server({{reply_with("one")}, {reply_with("two")}});
  HttpClient client(server.url(), 5);
  ASSERT_TRUE(client.get("/"));
  const auto two = client.post("/", "{}");
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_EQ(two->body, "two");
}

TEST(HttpClient, ANewConnectionThatClosesIsNotTriedAgain) {
  ScriptedServer server({{""}, {reply_with("never asked for")}});
  HttpClient client(server.url(), 5);
  const auto reply = client.get("/");
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, FailureKind::connect) << reply.error().message;
}

TEST(HttpClient, AReplyThatBreaksOffIsNotTriedAgain) {
  ScriptedServer server({{reply_with("one"), "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal"}, {reply_with("two")}});
  HttpClient client(server.url(), 5);
  ASSERT_TRUE(client.get("/"));
  const auto reply = client.get("/");
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, FailureKind::connect) << reply.error().message;
  EXPECT_EQ(client.get("/").value_or(HttpReply{}).body, "two");  // and the client still works
}

TEST(HttpClient, ChunkedRepliesInterimRepliesAndErrorsAreReplies) {
  ScriptedServer server({{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
                          "HTTP/1.1 100 Continue\r\n\r\n" + reply_with("after"),
                          "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
                          "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno"},
                         {"HTTP/1.1 200 OK\r\n\r\nuntil the end"}});
  HttpClient client(server.url(), 5);
  EXPECT_EQ(client.get("/").value_or(HttpReply{}).body, "abcde");
  EXPECT_EQ(client.get("/").value_or(HttpReply{}).body, "after");
  EXPECT_EQ(client.get("/").value_or(HttpReply{}).status, 302);
  EXPECT_EQ(client.get("/").value_or(HttpReply{}).status, 500);
  EXPECT_EQ(client.get("/").value_or(HttpReply{}).body, "until the end");
}

TEST(HttpClient, WhatIsNotHttpIsAProtocolFailureThatQuotesIt) {
  for (const std::string garbage : {"SSH-2.0-x\r\n\r\n", "HTTP/9 yes\r\n\r\n", "\x01\x02\xff\n\n\n\n"}) {
    ScriptedServer server({{garbage}});
    const auto reply = HttpClient(server.url(), 5).get("/");
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().kind, FailureKind::protocol) << reply.error().message;
    EXPECT_NE(reply.error().message.find(server.url()), std::string::npos);
  }
  ScriptedServer ssh({{"SSH-2.0-x\r\n\r\n"}});
  EXPECT_NE(HttpClient(ssh.url(), 5).get("/").error().message.find("SSH-2.0-x"), std::string::npos);
}

TEST(HttpClient, BytesAfterAReplyAreNotTakenForTheNextOne) {
  ScriptedServer server({{reply_with("one") + reply_with("nobody asked")}, {reply_with("two")}});
  HttpClient client(server.url(), 5);
  EXPECT_EQ(client.get("/").value_or(HttpReply{}).body, "one");
  EXPECT_EQ(client.get("/").value_or(HttpReply{}).body, "two");
}

TEST(HttpClient, BodiesAndHeadersAreBounded) {
  ScriptedServer server({{reply_with(std::string(2000, 'x'))},
                         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'x')},
                         {"HTTP/1.1 200 OK\r\nX: " + std::string(100000, 'x')}});
  HttpClient client(server.url(), 5, 1000);
  for (int i = 0; i < 3; ++i) {
    const auto reply = client.get("/");
    ASSERT_FALSE(reply) << i;
    EXPECT_EQ(reply.error().kind, FailureKind::protocol) << reply.error().message;
  }
}

TEST(HttpClient, ATimeoutBoundsTheWholeExchange) {
  for (const std::string begin : {"", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal"}) {
    ScriptedServer server({{begin}}, 0.5);
    const auto start = std::chrono::steady_clock::now();
    const auto reply = HttpClient(server.url(), 0.1).get("/");
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().kind, FailureKind::timeout) << reply.error().message;
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 0.45);
  }
}

TEST(HttpClient, WhatCannotBeReachedIsAConnectFailure) {
  const auto closed = HttpClient(fmt::format("http://localhost:{}", free_ports(1).at(0)), 5).get("/");
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().kind, FailureKind::connect);
  EXPECT_NE(closed.error().message.find("refused"), std::string::npos) << closed.error().message;
  for (const std::string url : {"https://127.0.0.1:1", "127.0.0.1:1", "http://", "http://127.0.0.1:x", "http://a b"}) {
    const auto reply = HttpClient(url, 5).get("/");
    ASSERT_FALSE(reply) << url;
    EXPECT_EQ(reply.error().kind, FailureKind::connect) << url;
  }
  EXPECT_NE(HttpClient("https://127.0.0.1:1").get("/").error().message.find("https is not supported yet"),
            std::string::npos);
}

TEST(HttpClient, NothingOfACallCanForgeARequest) {
  ScriptedServer server({{reply_with("one")}});
  HttpClient client(server.url(), 5);
  EXPECT_FALSE(client.get("/a b"));
  EXPECT_FALSE(client.get("no-slash"));
  EXPECT_FALSE(client.post("/", "{}", {{"A", "x\r\nB: y"}}));
  EXPECT_FALSE(client.post("/", "{}", {{"A: b\r\nC", "x"}}));
  EXPECT_TRUE(client.get("/"));
}

TEST(HttpClient, ThePathOfTheBaseUrlIsKept) {
  ScriptedServer server({{reply_with("one")}});
  EXPECT_TRUE(HttpClient(server.url() + "/model/", 5).get("/v1/models"));
  EXPECT_EQ(server.requests().at(0).rfind("GET /model/v1/models HTTP/1.1\r\n", 0), 0u);
}

}  // namespace
}  // namespace plumb::investigator
