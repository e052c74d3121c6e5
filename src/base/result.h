#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>
#include <tl/expected.hpp>

namespace plumb {

/// What went wrong in the world (a file, a configuration, a network peer): what, where, and what to do about it.
struct Error {
  std::string message;
};

/// A value, or the reason why there is none. Broken invariants of ours are not errors: they are CHECKs (check.h).
template <class T>
using Result = tl::expected<T, Error>;

/// An Error ready to be returned from any function that returns a Result.
inline tl::unexpected<Error> error(std::string message) { return tl::unexpected<Error>(Error{std::move(message)}); }

/// Same, formatted with fmt.
template <class First, class... Rest>
tl::unexpected<Error> error(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest) {
  return error(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...));
}

}  // namespace plumb
