#pragma once

namespace plumb {

/// Of this program; also what --version prints.
inline constexpr const char* kPlumbVersion = "0.1.0";

}  // namespace plumb
