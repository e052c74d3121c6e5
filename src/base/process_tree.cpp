#include "base/process_tree.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace plumb {
namespace {

constexpr std::size_t kShownCommandBytes = 200;
constexpr char kListening[] = "0A";  // TCP_LISTEN in the st column of /proc/net/tcp

struct Entry {
  pid_t pid = 0, parent = 0;
  char state = '?';
};

std::string read_small_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  std::error_code failed;
  for (std::filesystem::directory_iterator it("/proc", failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string();
    pid_t pid = 0;
    if (const auto [rest, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
        bad == std::errc() && rest == name.data() + name.size())
      pids.push_back(pid);
  }
  return pids;
}

std::vector<Entry> all_processes() {
  std::vector<Entry> entries;
  for (const pid_t pid : all_pids()) {
    const std::string stat = read_small_file(fmt::format("/proc/{}/stat", pid));
    // The name in parentheses may itself hold parentheses and spaces: the fields begin after the last one.
    const auto fields = stat.rfind(')');
    Entry entry{pid, 0, '?'};
    if (fields != std::string::npos &&
        std::sscanf(stat.c_str() + fields + 1, " %c %d", &entry.state, &entry.parent) == 2)
      entries.push_back(entry);
  }
  return entries;
}

}  // namespace

std::set<pid_t> process_tree(pid_t root) {
  std::multimap<pid_t, Entry> children;
  std::set<pid_t> tree, seen{root};
  for (const Entry& entry : all_processes()) {
    children.emplace(entry.parent, entry);
    if (entry.pid == root && entry.state != 'Z') tree.insert(root);
  }
  std::vector<pid_t> open{root};
  while (!open.empty()) {
    const auto [begin, end] = children.equal_range(open.back());
    open.pop_back();
    for (auto it = begin; it != end; ++it)
      if (seen.insert(it->second.pid).second) {
        open.push_back(it->second.pid);  // also below zombies: a main thread may end before the others
        if (it->second.state != 'Z') tree.insert(it->second.pid);
      }
  }
  return tree;
}

std::vector<std::uint64_t> listening_sockets(int port) {
  std::vector<std::uint64_t> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);  // column titles
    while (std::getline(lines, line)) {
      std::istringstream columns(line);
      std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout;
      std::uint64_t inode = 0;
      columns >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
      const auto colon = local.rfind(':');
      if (!columns || colon == std::string::npos || state != kListening) continue;
      int local_port = 0;
      std::from_chars(local.data() + colon + 1, local.data() + local.size(), local_port, 16);
      if (local_port == port) inodes.push_back(inode);
    }
  }
  return inodes;
}

bool holds_socket(const std::set<pid_t>& processes, std::uint64_t inode) {
  const std::string wanted = fmt::format("socket:[{}]", inode);
  return std::any_of(processes.begin(), processes.end(), [&](pid_t pid) {
    std::error_code failed;
    for (std::filesystem::directory_iterator it(fmt::format("/proc/{}/fd", pid), failed), end; !failed && it != end;
         it.increment(failed)) {
      std::error_code gone;
      if (std::filesystem::read_symlink(it->path(), gone).string() == wanted) return true;
    }
    return false;
  });
}

std::string describe_holder(std::uint64_t inode) {
  for (const pid_t pid : all_pids()) {
    if (!holds_socket({pid}, inode)) continue;
    std::string command = read_small_file(fmt::format("/proc/{}/cmdline", pid)).substr(0, kShownCommandBytes);
    for (char& c : command)
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = ' ';
    while (!command.empty() && command.back() == ' ') command.pop_back();
    return fmt::format("process {} ({})", pid, command);
  }
  return "a process that we may not look at";
}

std::vector<int> free_ports(std::size_t count) {
  std::vector<int> ports, sockets;
  for (std::size_t i = 0; i < count; ++i) {
    const int opened = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (opened < 0) break;
    sockets.push_back(opened);  // held until all are chosen, so that they differ
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(opened, generic, size) != 0 || getsockname(opened, generic, &size) != 0) break;
    ports.push_back(ntohs(address.sin_port));
  }
  for (const int opened : sockets) close(opened);
  return ports;
}

}  // namespace plumb
