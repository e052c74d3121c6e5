// Encodes many texts in one process, for tests and timings that hold the tokenizer against another:
//   encode_records TOKENIZER_JSON parse|plain <records >ids
// A record is its length (u32, little endian) and that many bytes; the answer to each is the count of its ids (u32) and
// the ids (i32). The last line of standard error is {"load_s": …, "encode_s": …, "bytes": …, "tokens": …}, in seconds
// of processor time.
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "model/tokenizer.h"

namespace {

double seconds_since(std::clock_t start) { return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fputs("usage: encode_records TOKENIZER_JSON parse|plain\n", stderr), 3;
  const auto load_start = std::clock();
  const auto tokenizer = plumb::Tokenizer::load(argv[1]);
  if (!tokenizer) return fmt::print(stderr, "{}\n", tokenizer.error().message), 3;
  const double load_s = seconds_since(load_start);
  const auto specials = std::string_view(argv[2]) == "parse" ? plumb::Specials::parse : plumb::Specials::plain;
  std::ios::sync_with_stdio(false);
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  std::string_view rest = input;
  double encode_s = 0;
  std::size_t bytes = 0, tokens = 0;
  while (!rest.empty()) {
    std::uint32_t size = 0;
    if (rest.size() < sizeof size) return std::fputs("a record is cut off\n", stderr), 3;
    std::memcpy(&size, rest.data(), sizeof size);
    rest.remove_prefix(sizeof size);
    if (rest.size() < size) return std::fputs("a record is cut off\n", stderr), 3;
    const auto start = std::clock();
    const auto ids = tokenizer->encode(rest.substr(0, size), specials);
    encode_s += seconds_since(start);
    rest.remove_prefix(size);
    bytes += size;
    tokens += ids.size();
    const auto count = static_cast<std::uint32_t>(ids.size());
    std::fwrite(&count, sizeof count, 1, stdout);
    std::fwrite(ids.data(), sizeof ids[0], ids.size(), stdout);
  }
  fmt::print(stderr,
             R"({{"load_s": {}, "encode_s": {}, "bytes": {}, "tokens": {}}})"
             "\n",
             load_s, encode_s, bytes, tokens);
  return 0;
}
