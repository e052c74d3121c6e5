#include "investigator/report_redaction.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "investigator/operator_conversation.h"
#include "investigator/report_facts.h"

namespace plumb::investigator {
namespace {

constexpr std::string_view kWithheld = "<withheld: ";

// Verbatim replays on a variant that say so. One prompt: each launch tells something, each trial of a launch the same.
Counts denials(const Case& c, const Variant& variant) {
  Counts counts;
  for (const LaunchRecord& l : c.outcome.history.launches)
    for (const TrialRecord& t : l.trials)
      for (const StepRecord& s : t.steps)
        if (l.variant == variant && t.item.cell == kConversationCell && !s.graded && s.grade == Grade::right)
          counts += {s.detail == kDenies ? 1 : 0, 1};
  return counts;
}

}  // namespace

std::string withheld(std::string_view text) {
  if (is_withheld(text)) return std::string(text);
  return fmt::format("{}{} bytes, xxh3 {}>", kWithheld, text.size(), hash_text(text).substr(0, 16));
}

bool is_withheld(std::string_view text) { return text.starts_with(kWithheld) && text.ends_with(">"); }

bool is_withheld_in(const Case& c, std::string_view cell) {
  return c.plan.deployment.given.redact || cell == kConversationCell;
}

std::string shown_reply(const Case& c, std::string_view cell, const std::string& text) {
  return is_withheld_in(c, cell) ? withheld(text) : text;
}

Blocks report_conversation(const Case& c) {
  const auto& conversation = c.plan.deployment.given.conversation;
  if (conversation == nullptr) return {};
  std::vector<std::string> parts;
  for (const Column& k : columns(c)) {
    const Counts counts = denials(c, k.variant);
    parts.push_back(fmt::format("{} {}/{}", k.name, counts.failures, counts.trials));
  }
  return {
      Heading{3, {text("The operator's conversation")}},
      Paragraph{{text(fmt::format("{}. Its text is in the case folder alone. Replayed as it is, replies that say that "
                                  "they do not remember (shown, not graded): {}.",
                                  conversation->described(), fmt::join(parts, ", ")))}}};
}

}  // namespace plumb::investigator
