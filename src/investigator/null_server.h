#pragma once

// A server that answers every request with the same reply as fast as it can, for measurements of the client. Tests
// only.

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

namespace plumb::investigator::testing {

/// One thread, one epoll set, keep-alive connections, no parsing beyond Content-Length.
class NullServer {
 public:
  explicit NullServer(const std::string& body)
      : reply_(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listener_, 128) == 0);
    CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    watch(listener_);
    thread_ = std::thread([this] { serve(); });
  }
  ~NullServer() {
    stop_ = true;
    thread_.join();
    for (const auto& [fd, text] : pending_) close(fd);
    close(listener_);
    close(epoll_);
  }

  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  int requests() const { return requests_; }
  int most_at_once() const { return most_at_once_; }

 private:
  void watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    CHECK(epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0);
  }

  void serve() {
    constexpr int kPollMs = 20;
    std::array<epoll_event, 64> events;
    while (!stop_) {
      const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), kPollMs);
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == listener_)
          accept_one();
        else
          answer(fd);
      }
    }
  }

  void accept_one() {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    pending_[fd];
    most_at_once_ = std::max(most_at_once_.load(), static_cast<int>(pending_.size()));
    watch(fd);
  }

  // Requests come one after another on a connection: what is there is the beginning of one, or a whole one.
  void answer(int fd) {
    char buffer[65536];
    const ssize_t size = read(fd, buffer, sizeof buffer);
    std::string& text = pending_[fd];
    if (size <= 0) {
      pending_.erase(fd);
      close(fd);
      return;
    }
    text.append(buffer, static_cast<std::size_t>(size));
    const std::size_t end = text.find("\r\n\r\n");
    if (end == std::string::npos) return;
    const std::size_t length = text.find("Content-Length: ");
    const std::size_t body =
        length < end ? static_cast<std::size_t>(std::strtoul(text.c_str() + length + 16, nullptr, 10)) : 0;
    if (text.size() < end + 4 + body) return;
    text.clear();
    ++requests_;
    CHECK(write(fd, reply_.data(), reply_.size()) == static_cast<ssize_t>(reply_.size()));
  }

  std::string reply_;
  int listener_ = -1, epoll_ = -1, port_ = 0;
  std::map<int, std::string> pending_;  // by connection
  std::atomic<int> requests_{0}, most_at_once_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace plumb::investigator::testing
