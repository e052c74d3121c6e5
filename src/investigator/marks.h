#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plumb::investigator {

/// What a text of the deployment file may hold in braces; anything else in braces stays as it is.
///   {port:PROCESS}      a free port, the same one everywhere in a launch
///   {instance:PROCESS}  a name that no other launch has: for containers, pods, jobs and served models
///   {env:NAME}          the value of a variable of plumb's own environment; never stored, replaced in logs and replies
///   {source}            the working tree of [source] that this launch runs from
struct Mark {
  enum class Kind { port, instance, env, source } kind;
  std::string name;  // "" for {source}
  bool operator==(const Mark&) const = default;
};

/// The marks of a text, in order. Errors: a mark without a name or without its closing brace.
Result<std::vector<Mark>> marks_of(std::string_view text);

/// The text with each mark replaced by what `fill` gives for it.
std::string fill_marks(std::string_view text, const std::function<std::string(const Mark&)>& fill);

/// Names in every "{port:NAME}" of the text, in order; an error on "{port:" without a name or an end.
Result<std::vector<std::string>> port_names(std::string_view text);

/// The text with each "{port:NAME}" replaced by what `port` gives for NAME; other marks stay.
std::string fill_ports(std::string_view text, const std::function<std::string(const std::string&)>& port);

/// A mark as it is written.
std::string written(const Mark& mark);

}  // namespace plumb::investigator
