#include "investigator/inventory/source.h"

#include <gtest/gtest.h>

namespace plumb::investigator::inventory {
namespace {

std::string joined(std::string_view text, Language language) {
  std::string out;
  for (const Token& t : lex(text, language)) out += t.kind == TokenKind::end ? "|" : std::string(t.text) + " ";
  return out;
}

TEST(Lex, LeavesOutCommentsAndDocstrings) {
  EXPECT_EQ(joined("# bfloat16\nx = a.to(f)  # to bfloat16\n", Language::python), "x = a . to ( f ) |");
  EXPECT_EQ(joined("def f():\n  \"\"\"In bfloat16.\n  Two lines.\"\"\"\n  return 1\n", Language::python),
            "def f ( ) : |return 1 |");
  EXPECT_EQ(joined("x = 1; // half\n/* half\n half */ y = 2;", Language::cpp), "x = 1 ; y = 2 ; |");
  EXPECT_EQ(joined("export A=1 # --fp8\n", Language::shell), "export A = 1 |");
  EXPECT_EQ(joined("a: 1 # x\n", Language::yaml), "a : 1 |");
}

TEST(Lex, KeepsStringsNumbersAndLongOperators) {
  const auto tokens = lex(R"(x = rf"a\"b" + 1.5e-6 // 0x1p-9)", Language::python);
  ASSERT_EQ(tokens.size(), 8U);
  EXPECT_EQ(tokens[2].kind, TokenKind::string);
  EXPECT_EQ(tokens[2].text, R"(a\"b)");
  EXPECT_EQ(tokens[4].text, "1.5e-6");
  EXPECT_EQ(tokens[5].text, "//");
  EXPECT_EQ(tokens[6].text, "0x1p-9");
  EXPECT_EQ(joined("auto s = R\"x(// no comment)x\";", Language::cpp), "auto s = // no comment ; |");
  EXPECT_EQ(joined("a <<= b >= c->d::e", Language::cuda), "a <<= b >= c -> d :: e |");
}

TEST(Lex, EndsWithTheTextWhateverIsOpen) {
  for (const std::string_view text : {"\"\"\"", "'", "/*", "R\"(", "(", "\\", "\"a\\", "R\"", "0x", "#", "'''a", ""})
    for (const Language language : {Language::python, Language::cpp, Language::shell, Language::toml})
      lex(text, language);
}

TEST(SourceOf, FindsTheEnclosingFunction) {
  const std::string python = "class A:\n  def f(self,\n        x):\n    if x:\n      return 1\ny = 2\n";
  const Source a(python, Language::python);
  ASSERT_EQ(a.statements().size(), 5U);
  EXPECT_EQ(a.function_of(a.statements()[3]), "A.f");
  EXPECT_EQ(a.function_of(a.statements()[4]), "");
  const std::string cuda =
      "namespace n {\ntemplate <class T>\n__global__ void __launch_bounds__(128) k(const T* a, int n) {\n  for (int i "
      "= 0; i < n; ++i) {\n    f(a[i]);\n  }\n}\n"
      "struct S { int x = 1; };\n}";
  const Source b(cuda, Language::cuda);
  const auto call = b.in_lines(5, 5);
  ASSERT_EQ(call.size(), 1U);
  EXPECT_EQ(b.function_of(b.statements()[static_cast<std::size_t>(call[0])]), "k");
  const auto member = b.in_lines(8, 8);
  ASSERT_EQ(member.size(), 2U);
  EXPECT_EQ(b.function_of(b.statements()[static_cast<std::size_t>(member[1])]), "");
}

TEST(SourceOf, AStatementOverSeveralLinesIsOne) {
  const Source s("y = f(\n    a,\n    b=1,\n)\nz = 2\n", Language::python);
  ASSERT_EQ(s.statements().size(), 2U);
  EXPECT_EQ(s.statements()[0].first_line, 1);
  EXPECT_EQ(s.statements()[0].last_line, 4);
  EXPECT_EQ(s.in_lines(3, 3), std::vector<int>{0});
}

TEST(RoleOf, TellsTestsDocsAndConvertersApart) {
  EXPECT_EQ(role_of("tests/test_moe.py"), Role::test);
  EXPECT_EQ(role_of("src/moe_test.cpp"), Role::test);
  EXPECT_EQ(role_of("docs/moe.md"), Role::docs);
  EXPECT_EQ(role_of("tools/convert_hf_weights.py"), Role::converter);
  EXPECT_EQ(role_of("srt/layers/moe/topk.py"), Role::source);
  EXPECT_EQ(language_of("a.py", "@triton.jit\ndef f(): pass"), Language::triton);
}

}  // namespace
}  // namespace plumb::investigator::inventory
