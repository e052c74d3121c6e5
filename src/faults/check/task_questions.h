#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "faults/check/questions.h"
#include "model/encoding.h"

namespace plumb::faults {

/// One conversation of a task, asked one answer after the other; the earlier answers in a prompt are the right ones.
struct TaskConversation {
  std::string task;
  std::vector<Question> questions;  // at least one
};

/// The conversations of one length, in groups that are asked together: group n is those from n * group on.
struct TaskLength {
  std::int64_t tokens = 0;  // the most that one has
  std::size_t group = 0;
  std::vector<TaskConversation> conversations;

  std::size_t groups() const { return conversations.size() / group; }
  std::span<const TaskConversation> of_group(std::size_t number) const {
    return std::span(conversations).subspan(number * group, group);
  }
};

/// Reads what phantom/write_questions.py wrote: lengths ascending. Prompts are rendered as the server renders them.
/// Errors: no such file, or one that is not of this form, or a request that the chat form refuses.
Result<std::vector<TaskLength>> read_task_questions(const std::filesystem::path& file, const Encoding& encoding);

/// The file in the repository at `home`.
std::filesystem::path task_questions_file(const std::filesystem::path& home);

}  // namespace plumb::faults
