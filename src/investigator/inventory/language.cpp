#include "investigator/inventory/language.h"

#include <algorithm>
#include <array>

#include "investigator/inventory/words.h"

namespace plumb::investigator::inventory {
namespace {

struct Extension {
  std::string_view suffix;
  Language language;
};

constexpr std::array kExtensions{
    Extension{".py", Language::python},  Extension{".pyi", Language::python},   Extension{".cu", Language::cuda},
    Extension{".cuh", Language::cuda},   Extension{".hip", Language::cuda},     Extension{".cpp", Language::cpp},
    Extension{".cc", Language::cpp},     Extension{".cxx", Language::cpp},      Extension{".c", Language::cpp},
    Extension{".h", Language::cpp},      Extension{".hpp", Language::cpp},      Extension{".sh", Language::shell},
    Extension{".bash", Language::shell}, Extension{".sbatch", Language::shell}, Extension{".toml", Language::toml},
    Extension{".yaml", Language::yaml},  Extension{".yml", Language::yaml},
};

constexpr std::array<std::string_view, 6> kDocs{".md", ".rst", ".txt", ".ipynb", ".adoc", ".html"};

bool ends_with_any(std::string_view path, const auto& suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view s) { return path.ends_with(s); });
}

}  // namespace

Language language_of(std::string_view path, std::string_view text) {
  for (const Extension& e : kExtensions)
    if (path.ends_with(e.suffix)) {
      const bool triton = e.language == Language::python && text.find("triton.jit") != std::string_view::npos;
      return triton ? Language::triton : e.language;
    }
  return Language::none;
}

Role role_of(std::string_view path) {
  if (ends_with_any(path, kDocs)) return Role::docs;
  for (const std::string& part : parts_of(path)) {
    if (part == "test" || part == "tests" || part == "testing" || part == "conftest" || part == "bench" ||
        part == "benchmark" || part == "benchmarks")
      return Role::test;
    if (part == "docs" || part == "doc") return Role::docs;
    if (part == "convert" || part == "converter" || part == "converters" || part == "conversion" || part == "offline")
      return Role::converter;
  }
  return Role::source;
}

std::string_view word(Language language) {
  constexpr std::array<std::string_view, 8> kWords{"python", "triton", "cuda", "c++", "shell", "toml", "yaml", "other"};
  return kWords[static_cast<std::size_t>(language)];
}

std::string_view word(Role role) {
  constexpr std::array<std::string_view, 4> kWords{"source", "test", "docs", "converter"};
  return kWords[static_cast<std::size_t>(role)];
}

bool has_braces(Language language) { return language == Language::cuda || language == Language::cpp; }

}  // namespace plumb::investigator::inventory
