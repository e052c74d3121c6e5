#include <fmt/format.h>

#include "base/check.h"
#include "investigator/markdown.h"
#include "investigator/markup.h"
#include "investigator/report.h"
#include "investigator/report_svg.h"

namespace plumb::investigator {
namespace {

// Nothing is loaded from anywhere, and a script that slipped through would not run.
constexpr const char* kPolicy =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'\">\n";

constexpr const char* kStyle = R"(
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1rem 1rem 3rem}
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0 1rem;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.2rem 0 .6rem;padding-top:.6rem;border-top:1px solid var(--edge)}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
p,ul,pre{margin:.6rem 0}
ul{padding-left:1.2rem}
li{margin:.2rem 0;overflow-wrap:anywhere}
p{overflow-wrap:anywhere}
code,pre{font:.9em/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{background:var(--panel);border:1px solid var(--edge);border-radius:4px;padding:0 .25em;white-space:pre-wrap}
pre{background:var(--panel);border:1px solid var(--edge);border-radius:6px;padding:.7rem;white-space:pre-wrap;overflow-wrap:anywhere}
.badge{display:inline-block;margin:0;padding:.15rem .7rem;border-radius:1rem;border:2px solid;font-weight:700}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
.words>p:first-child{font-size:1.1rem}
.small{color:var(--muted);font-size:.85rem}
.scroll{overflow-x:auto;margin:.6rem 0}
.scroll:focus-visible,summary:focus-visible{outline:3px solid var(--pass);outline-offset:2px}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
th,td{border:1px solid var(--edge);padding:.3rem .55rem;text-align:left;vertical-align:top}
thead th{background:var(--panel)}
tbody th{font-weight:600}
tbody tr:nth-child(even){background:var(--panel)}
figure{margin:1rem 0}
figcaption{font-weight:600;margin-bottom:.3rem}
.maps{display:flex;flex-wrap:wrap;gap:1rem 2rem}
.maps figure{margin:.4rem 0;max-width:100%}
.maps svg{max-width:100%;height:auto}
svg{display:block}
svg text{fill:var(--fg);font:12px system-ui,sans-serif}
svg .mid,svg .num,svg .none{text-anchor:middle}
svg .none{fill:var(--muted)}
svg .halo{paint-order:stroke;stroke:var(--bg);stroke-width:3px}svg .before{text-anchor:end}
svg .num{font-weight:600}
svg rect.pass{fill:var(--pass)}svg rect.fail{fill:var(--fail)}
svg rect.none{fill:var(--bg);stroke:var(--muted)}
svg rect.hatch{fill:url(#hatch)}svg .stripe{fill:var(--bg);opacity:.55}
svg circle.pass{fill:var(--pass)}svg circle.fail{fill:var(--fail)}
svg .line{fill:none;stroke:var(--muted);stroke-width:1.5}svg .line.first{stroke:var(--fail);stroke-width:2.5}
svg .grid{stroke:var(--edge)}
.key{display:flex;flex-wrap:wrap;gap:.3rem 1rem;padding:0;list-style:none;font-size:.85rem}
.key span{display:inline-block;width:1.1em;height:1.1em;border-radius:3px;margin-right:.35em;vertical-align:-.15em;border:1px solid var(--edge)}
.key .hatched{background:repeating-linear-gradient(45deg,var(--fail) 0 4px,var(--bg) 4px 6px)}
details{margin-top:2.2rem;border-top:1px solid var(--edge);padding-top:.6rem}
summary{cursor:pointer;font-size:1.2rem;font-weight:700}
.live{background:var(--panel);border:1px solid var(--edge);border-radius:6px;padding:.5rem .8rem;margin-bottom:1rem}
@media print{details{display:block}.scroll{overflow:visible}}
)";

std::string colours() {
  std::string light;
  std::string dark;
  for (const Colour& c : kColours) {
    light += fmt::format("--{}:{};", c.name, c.light);
    dark += fmt::format("--{}:{};", c.name, c.dark);
  }
  return fmt::format(":root{{color-scheme:light dark;{}}}\n@media(prefers-color-scheme:dark){{:root{{{}}}}}", light,
                     dark);
}

std::string inline_of(const Line& line) {
  std::string out;
  for (const Run& run : line) switch (run.kind) {
      case Run::Kind::text:
        out += escape_markup(run.text);
        break;
      case Run::Kind::foreign:
        out += escape_markup(in_one_line(run.text));
        break;
      case Run::Kind::code: {
        const std::string shown = in_one_line(run.text);
        out += shown.empty() ? "(empty)" : "<code>" + escape_markup(shown) + "</code>";
        break;
      }
      case Run::Kind::strong:
        out += "<strong>" + escape_markup(run.text) + "</strong>";
        break;
    }
  return out;
}

struct BlockWriter {
  std::string operator()(const Heading& h) const {
    return fmt::format("<h{0}>{1}</h{0}>\n", h.level, inline_of(h.line));
  }
  std::string operator()(const Paragraph& p) const {
    return fmt::format("<p{}>{}</p>\n", p.small ? " class=\"small\"" : "", inline_of(p.line));
  }
  std::string operator()(const Items& items) const {
    std::string out = "<ul>\n";
    for (const Line& line : items.lines) out += "<li>" + inline_of(line) + "</li>\n";
    return out + "</ul>\n";
  }
  std::string operator()(const CodeBlock& block) const { return "<pre>" + escape_markup(block.text) + "</pre>\n"; }
  // The first cell of a row names it.
  std::string operator()(const Table& table) const {
    const std::string caption = escape_markup(table.caption);
    std::string out = fmt::format(
        "<div class=\"scroll\" role=\"region\" aria-label=\"{0}\" tabindex=\"0\"><table><caption>{0}</caption>\n"
        "<thead><tr>",
        caption);
    for (const std::string& name : table.head) out += fmt::format("<th scope=\"col\">{}</th>", escape_markup(name));
    out += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows) {
      CHECK(row.size() == table.head.size());
      out += "<tr>";
      for (std::size_t i = 0; i < row.size(); ++i)
        out += i == 0 ? fmt::format("<th scope=\"row\">{}</th>", inline_of(row[i]))
                      : fmt::format("<td>{}</td>", inline_of(row[i]));
      out += "</tr>\n";
    }
    return out + "</tbody></table></div>\n";
  }
};

std::string blocks_of(const Blocks& blocks) {
  std::string out;
  for (const Block& block : blocks) out += std::visit(BlockWriter{}, block);
  return out;
}

std::string plain_of(const Line& line) {
  std::string out;
  for (const Run& run : line)
    out +=
        escape_markup(run.kind == Run::Kind::foreign || run.kind == Run::Kind::code ? in_one_line(run.text) : run.text);
  return out;
}

std::string recall_section(const HeatMap& map) {
  if (map.lengths.empty()) return {};
  std::string out =
      "<h2>Recall by prompt length</h2>\n<p>Right answers of the questions asked, by probe (rows) and prompt tokens "
      "(columns: more than the column before, at most the number).</p>\n<div class=\"maps\">\n";
  for (std::size_t v = 0; v < map.variants.size(); ++v)
    out += fmt::format("<figure><figcaption>{}</figcaption>{}</figure>\n", escape_markup(map.variants[v]),
                       heat_map_svg(map, v));
  out += "</div>\n<ul class=\"key\">";
  for (const Shade& s : kShades) out += fmt::format("<li><span style=\"background:{}\"></span>{}</li>", s.fill, s.says);
  return out + "<li>– not asked</li></ul>\n";
}

std::string timeline_section(const Report& report) {
  if (report.launches.empty()) return {};
  return fmt::format(
      "<h2>Launches over time</h2>\n<div class=\"scroll\" role=\"region\" aria-label=\"Launches over time\" "
      "tabindex=\"0\">{}</div>\n<ul class=\"key\"><li><span style=\"background:var(--pass)\"></span>every answer "
      "right</li><li><span class=\"hatched\"></span>a wrong answer</li><li><span></span>no answer: did not launch</li>"
      "</ul>\n<p class=\"small\">The table of launches below has the same numbers.</p>\n",
      timeline_svg(report));
}

std::string suspicion_section(const std::vector<PosteriorTrace>& traces) {
  std::string out;
  for (std::size_t i = 0; i < traces.size(); ++i)
    out += fmt::format(
        "<h2>Suspicion after each launch (probe {})</h2>\n<p>Probability that the switch, at its side in the failing "
        "variant, is among the culprits. A dot is a launch, with its number.</p>\n<div class=\"scroll\" "
        "role=\"region\" "
        "aria-label=\"Suspicion after each launch\" tabindex=\"0\">{}</div>\n<ul class=\"key\"><li><span "
        "style=\"background:var(--pass)\"></span>the launch passes</li><li><span "
        "style=\"background:var(--fail)\"></span>it fails</li></ul>\n",
        escape_markup(traces[i].cell), posterior_svg(traces[i], i));
  return out;
}

const char* tone_of(const std::string& verdict) {
  if (verdict == "clean") return "good";
  return verdict == "inconclusive" || verdict == "not finished" ? "warn" : "bad";
}

}  // namespace

std::string html_page(const Report& r, const std::string& head, const std::string& banner) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n{}<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n"
      "<main>\n{}",
      head, plain_of(r.title), colours(), kStyle, banner);
  out += fmt::format("<header><p class=\"badge {}\">{}</p>\n<h1>{}</h1></header>\n<div class=\"words\">\n{}</div>\n",
                     tone_of(r.verdict), escape_markup(r.verdict), inline_of(r.title), blocks_of(r.head));
  out += recall_section(r.recall) + suspicion_section(r.suspicion) + timeline_section(r) + blocks_of(r.body) +
         blocks_of(r.environment);
  out += "<details><summary>Status of the investigation</summary>\n" + blocks_of(r.status) + "</details>\n";
  return out + "</main>\n</body>\n</html>\n";
}

std::string report_html(const Report& r) { return html_page(r, kPolicy, {}); }

}  // namespace plumb::investigator
