#include <fmt/format.h>

#include "investigator/markdown.h"
#include "investigator/report.h"

namespace plumb::investigator {
namespace {

std::string inline_of(const Line& line) {
  std::string out;
  for (const Run& run : line) switch (run.kind) {
      case Run::Kind::text:
        out += escape_markdown(run.text);
        break;
      case Run::Kind::foreign:
        out += plain_markdown(run.text);
        break;
      case Run::Kind::code:
        out += code_span(run.text);
        break;
      case Run::Kind::strong:
        out += "**" + escape_markdown(run.text) + "**";
        break;
    }
  return out;
}

struct BlockWriter {
  std::string operator()(const Heading& h) const {
    return fmt::format("{} {}\n", std::string(static_cast<std::size_t>(h.level), '#'), inline_of(h.line));
  }
  std::string operator()(const Paragraph& p) const {
    return (p.small ? "<sub>" + inline_of(p.line) + "</sub>" : inline_of(p.line)) + "\n";
  }
  std::string operator()(const Items& items) const {
    std::string out;
    for (const Line& line : items.lines) out += "- " + inline_of(line) + "\n";
    return out;
  }
  std::string operator()(const CodeBlock& block) const {
    // A fence that the text cannot end.
    std::string fence = "```";
    while (block.text.find(fence) != std::string::npos) fence += '`';
    return fmt::format("{}\n{}{}\n", fence, block.text, fence);
  }
  std::string operator()(const Table& table) const {
    std::string out = "|";
    std::string rule = "|";
    for (const std::string& name : table.head) {
      out += " " + escape_markdown(name) + " |";
      rule += "---|";
    }
    out += "\n" + rule + "\n";
    for (const auto& row : table.rows) {
      out += "|";
      for (const Line& cell : row) out += " " + inline_of(cell) + " |";
      out += "\n";
    }
    return out;
  }
};

std::string blocks_of(const Blocks& blocks) {
  std::string out;
  for (const Block& block : blocks) out += "\n" + std::visit(BlockWriter{}, block);
  return out;
}

}  // namespace

std::string report_markdown(const Report& r) {
  std::string out = fmt::format("# {}\n", inline_of(r.title)) + blocks_of(r.head) + blocks_of(r.environment) +
                    blocks_of(r.body) + "\n<details markdown=\"1\"><summary>Status of the investigation</summary>\n" +
                    blocks_of(r.status) + "\n</details>\n";
  if (out.size() > kMaxReportBytes) {
    const std::string note = "\n…\n\nCut at 50,000 characters; everything is in journal.sqlite.\n</details>\n";
    std::size_t cut = kMaxReportBytes - note.size();
    while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xC0) == 0x80) --cut;  // not inside a character
    out = out.substr(0, cut) + note;
  }
  return out;
}

}  // namespace plumb::investigator
