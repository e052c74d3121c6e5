#pragma once

#include <string_view>

namespace plumb::investigator::inventory {

/// What a file is written in, by its name. `triton` is told from `python` by the text (see language_of).
enum class Language { python, triton, cuda, cpp, shell, toml, yaml, none };

/// What a file is for. Only `source` runs while serving; the others are told apart and counted.
enum class Role { source, test, docs, converter };

/// Language by extension; a Python file that imports triton is `triton`. `none`: not a language that is read.
Language language_of(std::string_view path, std::string_view text);

/// Role by path: folders and name parts that say test, docs or offline conversion.
Role role_of(std::string_view path);

std::string_view word(Language language);
std::string_view word(Role role);

/// Whether blocks are by braces (C++, CUDA); the others are by indentation or have none.
bool has_braces(Language language);

}  // namespace plumb::investigator::inventory
