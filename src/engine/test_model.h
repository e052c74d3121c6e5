#pragma once

// For tests only.

#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "tensor/safetensors.h"
#include "weights/model.h"

namespace plumb {

/// Under a sanitizer everything takes 20 times as long: tests then try fewer cases.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSlowBuild = true;
#else
inline constexpr bool kSlowBuild = false;
#endif

inline std::shared_ptr<const Model> load_test_model(const std::string& folder) {
  auto model = load_model(std::string(PLUMB_SOURCE_DIR) + "/" + folder);
  if (!model) std::fprintf(stderr, "%s\n", model.error().message.c_str());
  CHECK(model.has_value());
  return std::make_shared<const Model>(std::move(*model));
}

inline SafetensorsFile open_test_file(const std::string& path) {
  auto file = SafetensorsFile::open(std::string(PLUMB_SOURCE_DIR) + "/" + path);
  if (!file) std::fprintf(stderr, "%s\n", file.error().message.c_str());
  CHECK(file.has_value());
  return std::move(*file);
}

struct Difference {
  double relative;  // 2-norm of the difference over the 2-norm of `want`
  double max_abs;
};

template <class Got, class Want>
Difference difference(const Got& got, const Want& want) {
  CHECK(got.size() == want.size());
  double square = 0, norm = 0, max_abs = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    square += d * d;
    norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    max_abs = std::abs(d) > max_abs || std::isnan(d) ? std::abs(d) : max_abs;
  }
  return {std::sqrt(square / norm), max_abs};
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace plumb
