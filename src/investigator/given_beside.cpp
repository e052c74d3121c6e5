#include "investigator/given_beside.h"

#include "base/durable_file.h"
#include "investigator/operator_conversation.h"
#include "investigator/ranked_switches.h"
#include "investigator/report.h"

namespace plumb::investigator {
namespace {

constexpr const char* kConversation = "conversation.json";
constexpr const char* kRanks = "ranks.json";
constexpr const char* kRedact = "redact";  // a file that is there: texts are withheld from now on

Result<void> keep_or_remove(const std::filesystem::path& file, const std::string* text) {
  std::error_code failed;
  if (text == nullptr) {
    std::filesystem::remove(file, failed);
    if (failed) return error("{}: cannot be removed: {}", file.string(), failed.message());
    return {};
  }
  if (const auto there = read_file(file); there && *there == *text) return {};
  if (auto done = write_atomically(file, *text); !done) return done;
  std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, failed);
  if (failed) return error("{}: its permissions cannot be set: {}", file.string(), failed.message());
  return {};
}

bool is_there(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::exists(file, ignored);
}

}  // namespace

Result<void> take_given(Deployment& deployment, const std::string& conversation_file, const std::string& ranks_file) {
  if (!conversation_file.empty()) {
    auto text = read_file(conversation_file);
    if (!text) return tl::unexpected(text.error());
    auto conversation = OperatorConversation::parse(std::move(*text), conversation_file);
    if (!conversation) return tl::unexpected(conversation.error());
    deployment.given.conversation = *conversation;
  }
  if (!ranks_file.empty()) {
    auto text = read_file(ranks_file);
    if (!text) return tl::unexpected(text.error());
    auto ranks = rank_switches(std::move(*text), ranks_file, deployment);
    if (!ranks) return tl::unexpected(ranks.error());
    deployment.given.ranks = *ranks;
  }
  return {};
}

Result<void> keep_given(const std::filesystem::path& case_dir, const Deployment& deployment) {
  const GivenBeside& given = deployment.given;
  const auto& conversation = given.conversation;
  const auto& ranks = given.ranks;
  if (auto done = keep_or_remove(case_dir / kConversation, conversation ? &conversation->text() : nullptr); !done)
    return done;
  if (auto done = keep_or_remove(case_dir / kRanks, ranks ? &ranks->text : nullptr); !done) return done;
  return given.redact ? redact_case(case_dir) : keep_or_remove(case_dir / kRedact, nullptr);
}

Result<void> redact_case(const std::filesystem::path& case_dir) {
  return write_atomically(case_dir / kRedact, "prompts and replies are shown by length and hash alone\n");
}

Result<void> read_given(const std::filesystem::path& case_dir, Deployment& deployment) {
  GivenBeside& given = deployment.given;
  given.redact |= is_there(case_dir / kRedact);
  const auto file_of = [&](const char* name, bool known) {
    return !known && is_there(case_dir / name) ? (case_dir / name).string() : std::string();
  };
  return take_given(deployment, file_of(kConversation, given.conversation != nullptr),
                    file_of(kRanks, given.ranks != nullptr));
}

}  // namespace plumb::investigator
