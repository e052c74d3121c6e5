#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

namespace plumb {

/// The process and all its descendants as /proc shows them now, zombies left out.
std::set<pid_t> process_tree(pid_t root);

/// Inodes of the sockets that listen on this TCP port (IPv4 and IPv6) in our network namespace.
std::vector<std::uint64_t> listening_sockets(int port);

/// Whether one of the processes holds the socket open.
bool holds_socket(const std::set<pid_t>& processes, std::uint64_t inode);

/// "process 123 (python3 server.py)" for whoever holds the socket, "a process that we may not look at" if nobody
/// visible.
std::string describe_holder(std::uint64_t inode);

/// Different loopback TCP ports that nobody uses at this moment, chosen by the kernel; fewer when there are not as
/// many.
std::vector<int> free_ports(std::size_t count);

}  // namespace plumb
