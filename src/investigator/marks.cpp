#include "investigator/marks.h"

#include <array>
#include <optional>

namespace plumb::investigator {
namespace {

struct Form {
  std::string_view begin;  // of the mark; it ends at the next brace unless it is closed already
  Mark::Kind kind;
};
constexpr std::array kForms{Form{"{port:", Mark::Kind::port}, Form{"{instance:", Mark::Kind::instance},
                            Form{"{env:", Mark::Kind::env}, Form{"{source}", Mark::Kind::source}};

struct Place {
  std::size_t begin, end;  // of the whole mark; end is npos where it is never closed
  const Form* form;
};

std::optional<Place> next_mark(std::string_view text, std::size_t from) {
  for (std::size_t at = text.find('{', from); at != std::string_view::npos; at = text.find('{', at + 1))
    for (const Form& form : kForms) {
      if (!text.substr(at).starts_with(form.begin)) continue;
      if (form.kind == Mark::Kind::source) return Place{at, at + form.begin.size(), &form};
      const std::size_t close = text.find('}', at);
      return Place{at, close == std::string_view::npos ? close : close + 1, &form};
    }
  return std::nullopt;
}

Mark mark_at(std::string_view text, const Place& place) {
  if (place.form->kind == Mark::Kind::source) return {Mark::Kind::source, ""};
  const std::size_t begin = place.begin + place.form->begin.size();
  return {place.form->kind, std::string(text.substr(begin, place.end - 1 - begin))};
}

}  // namespace

Result<std::vector<Mark>> marks_of(std::string_view text) {
  std::vector<Mark> marks;
  for (auto place = next_mark(text, 0); place; place = next_mark(text, place->begin + 1)) {
    const bool closed = place->end != std::string_view::npos;
    if (closed && (place->form->kind == Mark::Kind::source || !mark_at(text, *place).name.empty())) {
      marks.push_back(mark_at(text, *place));
      continue;
    }
    const bool process = place->form->kind != Mark::Kind::env;
    return error("\"{}\": {}NAME}} needs the name of {} and a closing brace", text, place->form->begin,
                 process ? "a process" : "an environment variable");
  }
  return marks;
}

std::string fill_marks(std::string_view text, const std::function<std::string(const Mark&)>& fill) {
  std::string filled;
  std::size_t done = 0;
  for (auto place = next_mark(text, 0); place && place->end != std::string_view::npos;
       place = next_mark(text, place->end)) {
    filled.append(text.substr(done, place->begin - done));
    filled += fill(mark_at(text, *place));
    done = place->end;
  }
  return filled.append(text.substr(done));
}

Result<std::vector<std::string>> port_names(std::string_view text) {
  const auto marks = marks_of(text);
  if (!marks) return tl::unexpected(marks.error());
  std::vector<std::string> names;
  for (const Mark& mark : *marks)
    if (mark.kind == Mark::Kind::port) names.push_back(mark.name);
  return names;
}

std::string written(const Mark& mark) {
  for (const Form& form : kForms)
    if (form.kind == mark.kind)
      return std::string(form.begin) + (mark.kind == Mark::Kind::source ? "" : mark.name + "}");
  return "";
}

std::string fill_ports(std::string_view text, const std::function<std::string(const std::string&)>& port) {
  return fill_marks(text,
                    [&](const Mark& mark) { return mark.kind == Mark::Kind::port ? port(mark.name) : written(mark); });
}

}  // namespace plumb::investigator
