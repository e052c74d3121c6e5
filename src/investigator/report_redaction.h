#pragma once

// What a report does not show: texts of the operator's own conversation, and with --redact every prompt and reply.

#include <string>
#include <string_view>

#include "investigator/investigate.h"
#include "investigator/report_document.h"

namespace plumb::investigator {

/// A text by its length and hash, "<withheld: 12 bytes, xxh3 …>"; one that is withheld already stays as it is.
std::string withheld(std::string_view text);
bool is_withheld(std::string_view text);

/// Whether prompts and replies of a cell are withheld in a case's report.
bool is_withheld_in(const Case& c, std::string_view cell);

/// A reply as the report of a case shows it.
std::string shown_reply(const Case& c, std::string_view cell, const std::string& text);

/// The operator's conversation by its hash and lengths, and how often its replay says that it does not remember; empty
/// without one.
Blocks report_conversation(const Case& c);

}  // namespace plumb::investigator
