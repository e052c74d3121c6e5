#include "investigator/reproduction.h"

#include <algorithm>
#include <cctype>

#include <fmt/ranges.h>

#include "investigator/launch_command.h"
#include "investigator/report_redaction.h"

namespace plumb::investigator {
namespace {

struct Failing {
  const LaunchRecord* launch;
  const TrialRecord* trial;
};

constexpr std::string_view kHttp = "HTTP ";  // how the detail of a refused request begins

const StepRecord& failing_step(const TrialRecord& trial) {
  return *std::find_if(trial.steps.begin(), trial.steps.end(),
                       [](const StepRecord& s) { return s.graded && is_failure(s.grade); });
}

// The trial to show: of the first round's failing variant and probe if there is one, a wrong answer before a refusal.
std::optional<Failing> failing_trial(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::optional<Failing> best;
  int best_rank = 0;
  for (const LaunchRecord& l : c.outcome.history.launches)
    for (const TrialRecord& t : l.trials) {
      if (!is_failure(t.grade) || t.wording != f.wording) continue;
      const bool answered = !failing_step(t).detail.starts_with(kHttp);
      const bool symptom =
          !f.rounds.empty() && l.variant == f.rounds.front().bad && t.item.cell == f.rounds.front().cell;
      const int rank = 1 + (symptom ? 2 : 0) + (answered ? 1 : 0);
      if (rank <= best_rank) continue;
      best_rank = rank;
      best = Failing{&l, &t};
    }
  return best;
}

bool is_variable(const std::string& name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

std::string commented(const std::string& lines) {
  std::string out;
  std::size_t begin = 0;
  for (std::size_t end = lines.find('\n'); end != std::string::npos; end = lines.find('\n', begin)) {
    out += "#   " + lines.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out;
}

// What the script does with a reply that is not 200. When the case's own symptom is such a refusal, that one is it.
std::string on_refusal(const StepRecord& step, std::size_t count) {
  std::string out;
  if (step.detail.starts_with(kHttp))
    out += fmt::format(
        "  if [ \"$i\" = {} ] && [ \"$status\" = {} ]; then\n"
        "    echo 'refused as in the case: the symptom shows'\n"
        "    exit 1\n"
        "  fi\n",
        count, step.detail.substr(kHttp.size()));
  return out +
         "  if [ \"$status\" != 200 ]; then\n"
         "    echo \"the server refused request $i (HTTP $status): not a reproduction\" >&2\n"
         "    exit 3\n"
         "  fi\n";
}

std::string script_of(const Case& c, const Failing& failing, const Reproduction& r, const StepRecord& step) {
  const Deployment& d = c.plan.deployment;
  std::string numbers;
  for (std::size_t i = 1; i <= r.bodies.size(); ++i) numbers += fmt::format(" {}", i);
  const std::string key_env = d.endpoints.empty() ? "" : d.endpoints.front().key_env;
  const std::string key = is_variable(key_env) ? fmt::format(" -H \"Authorization: Bearer ${{{}-}}\"", key_env) : "";
  return fmt::format(
             "#!/bin/sh\n"
             "# Shows the symptom with curl alone. Usage: ./reproduce.sh http://HOST:PORT\n"
             "# Exit code: 0 the expected answer came, 1 the symptom shows, 3 no reproduction (usage, server not\n"
             "# reachable, request refused).\n"
             "# Failing variant: {}\n{}"
             "# Probe {}, seed {}. The last request must be answered with {}.\n"
             "if [ $# != 1 ]; then\n"
             "  echo \"usage: $0 http://HOST:PORT\" >&2\n"
             "  exit 3\n"
             "fi\n"
             "url=${{1%/}}\n"
             "cd \"$(dirname \"$0\")\" || exit 3\n"
             "line_end='\n'\n",
             describe(d, failing.launch->variant), commented(launch_lines(d, failing.launch->variant)),
             failing.trial->item.cell, failing.trial->item.seed, r.expected) +
         fmt::format(
             "for i in{}; do\n"
             "  if ! reply=$(curl -sS -w '\\n%{{http_code}}' \"$url/v1/{}\" -H 'Content-Type: application/json'{} \\\n"
             "    --data-binary @prompt-$i.json); then\n"
             "    echo \"$url did not answer request $i: not a reproduction\" >&2\n"
             "    exit 3\n"
             "  fi\n"
             "  status=${{reply##*\"$line_end\"}}\n"
             "  reply=${{reply%\"$line_end\"*}}\n"
             "  printf '%s: HTTP %s %s\\n' \"$i\" \"$status\" \"$reply\"\n"
             "{}done\n"
             "case $reply in\n"
             "  *{}*) echo 'the expected answer came: the symptom does not show'; exit 0 ;;\n"
             "  *) echo 'expected {}: the symptom shows'; exit 1 ;;\n"
             "esac\n",
             numbers, r.api, key, on_refusal(step, r.bodies.size()), r.expected, r.expected);
}

}  // namespace

std::string launch_lines(const Deployment& deployment, const Variant& variant) {
  std::string out;
  for (const ProcessSpec& p : deployment.processes) {
    const Command command = render_unfilled(deployment, variant, p).command;
    std::string line;
    for (const auto& [key, value] : command.env) line += fmt::format("{}={} ", key, without_paths(value));
    std::vector<std::string> args;
    for (const std::string& a : command.argv) args.push_back(without_paths(a));
    out += fmt::format("{}: {}{}\n", p.name, line, fmt::join(args, " "));
  }
  return out;
}

std::string without_paths(const std::string& text) {
  constexpr std::string_view kBeforePath = " \t\n=:,;'\"(<[{";
  constexpr std::string_view kAfterPath = " \t\n:,;'\")>]}";
  constexpr std::string_view kFileScheme = "file://";
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool word_start = at == 0 || kBeforePath.find(text[at - 1]) != std::string_view::npos;
    const bool scheme = at + 1 < text.size() && text[at + 1] == '/' && at > 0 && text[at - 1] == ':';
    const bool after_file =
        at >= kFileScheme.size() && text.compare(at - kFileScheme.size(), kFileScheme.size(), kFileScheme) == 0;
    if (text[at] != '/' || !((word_start && !scheme) || after_file)) {
      out += text[at++];
      continue;
    }
    const std::size_t end = std::min(text.find_first_of(kAfterPath, at), text.size());
    const std::string path = text.substr(at, end - at);
    out += path.size() == 1 ? path : "<path>" + path.substr(path.rfind('/'));
    at = end;
  }
  return out;
}

Reproduction reproduction(const Case& c) {
  Reproduction r;
  const auto failing = failing_trial(c);
  if (!failing) return r;
  const TrialRecord& trial = *failing->trial;
  const Deployment& d = c.plan.deployment;
  const auto asks = asks_of(trial, shape_of(d));
  const StepRecord& step = failing_step(trial);
  const auto count = static_cast<std::size_t>(&step - trial.steps.data()) + 1;
  if (!asks || count > asks->size() || count > kMaxReproductionRequests) return r;
  r.expected = step.expected;
  r.got = shown_reply(c, trial.item.cell, step.text);
  r.probe = step.step.empty() ? trial.item.cell : trial.item.cell + ": " + step.step;
  r.item = trial.item;
  r.variant = failing->launch->variant;
  if (is_withheld_in(c, trial.item.cell)) return r;
  r.api = trial.wording == Wording::plain ? "chat/completions" : "completions";
  std::string model = d.endpoints.empty() ? "" : d.endpoints.front().model;
  if (model.empty()) model = c.environment.model;
  const std::string merged = merge_bodies(request_bodies(d, r.variant));
  for (std::size_t i = 0; i < count; ++i) r.bodies.push_back(request_body((*asks)[i], model, d.request, merged) + "\n");
  r.script = script_of(c, *failing, r, step);
  return r;
}

}  // namespace plumb::investigator
