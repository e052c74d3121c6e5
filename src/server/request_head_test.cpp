#include "server/request_head.h"

#include <string>

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <gtest/gtest.h>

namespace plumb::server {
namespace {

namespace http = boost::beast::http;

// The status with which a head is refused; 0: it is not, or the parser refuses it already.
int status_of(const std::string& lines, const std::string& version = "1.1") {
  http::request_parser<http::empty_body> parser;
  boost::system::error_code failed;
  const std::string text = "POST / HTTP/" + version + "\r\n" + lines + "\r\n";
  parser.put(boost::asio::buffer(text), failed);
  if (failed && failed != http::error::need_more && !parser.is_header_done()) return 400;
  const auto refused = refused_head(parser.get());
  return refused ? refused->status : 0;
}

std::string with_coding(const std::string& value) { return "Host: x\r\nTransfer-Encoding: " + value + "\r\n"; }

TEST(RequestHead, TakesNoTransferCodingButChunkedOnce) {
  for (const char* good : {"chunked", "Chunked", " chunked ", ", chunked"})
    EXPECT_EQ(status_of(with_coding(good)), 0) << good;
  for (const char* bad : {"", ",", "chunked, chunked", "chunked, identity", "chunked, gzip", "gzip", "identity",
                          "xchunked", "chunkedx", "chunked;q=1", "\"chunked\"", "chunked chunked",
                          "gzip, chunked, "
                          "chunked"})
    EXPECT_EQ(status_of(with_coding(bad)), 400) << bad;
  for (const char* unknown : {"gzip, chunked", "identity,chunked", "x;y=\", chunked"})
    EXPECT_EQ(status_of(with_coding(unknown)), 501) << unknown;
  EXPECT_EQ(status_of(with_coding("gzip") + "Transfer-Encoding: chunked\r\n"), 501);
  EXPECT_EQ(status_of(with_coding("chunked") + "Transfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(status_of(with_coding("xchunked") + "Content-Length: 29\r\n"), 400);
  EXPECT_EQ(status_of(with_coding("chunked") + "Content-Length: 29\r\n"), 400);
  EXPECT_EQ(status_of("Content-Length: 29\r\n" + with_coding("chunked")), 400);
  EXPECT_EQ(status_of(with_coding("chunked"), "1.0"), 400);
}

TEST(RequestHead, NeedsOneHost) {
  for (const char* good : {"Host: localhost:8000\r\n", "Host: [::1]:80\r\n", "Host:\r\n", "Host: a_b.c\r\n"})
    EXPECT_EQ(status_of(good), 0) << good;
  for (const char* bad :
       {"", "Host: a\r\nHost: a\r\n", "Host: a b\r\n", "Host: a/b\r\n", "Host: u@h\r\n", "Host: \xc3\xa9\r\n"})
    EXPECT_EQ(status_of(bad), 400) << bad;
  EXPECT_EQ(status_of("", "1.0"), 0);
  EXPECT_EQ(status_of("Host: a\r\nHost: b\r\n", "1.0"), 400);
}

TEST(RequestHead, TakesNoCodingOrExpectationThatItCannotMeet) {
  const std::string host = "Host: x\r\n";
  for (const char* good : {"Content-Encoding: identity\r\n", "Content-Encoding:\r\n", "Expect: 100-Continue\r\n"})
    EXPECT_EQ(status_of(host + good), 0) << good;
  for (const char* bad : {"gzip", "identity, gzip", "x"})
    EXPECT_EQ(status_of(host + "Content-Encoding: " + bad + "\r\n"), 415) << bad;
  for (const char* bad : {"200-ok", "100-continue, x"})
    EXPECT_EQ(status_of(host + "Expect: " + bad + "\r\n"), 417) << bad;
  EXPECT_EQ(status_of("Expect: x\r\n", "1.0"), 0);
}

TEST(RequestHead, SkipsEmptyLinesAndSeesFoldedOnes) {
  EXPECT_EQ(empty_lines_before(""), 0u);
  EXPECT_EQ(empty_lines_before("\r\n\r\nGET"), 4u);
  EXPECT_EQ(empty_lines_before("\r\n\r"), 2u);
  EXPECT_EQ(empty_lines_before("\n\r\n"), 0u);
  EXPECT_TRUE(has_folded_line("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n"));
  EXPECT_TRUE(has_folded_line("GET / HTTP/1.1\r\n\tA: b\r\n\r\n"));
  EXPECT_FALSE(has_folded_line("GET / HTTP/1.1\r\nA: b\r\n\r\n\r\n body"));
  EXPECT_FALSE(has_folded_line("GET / HTTP/1.1\r\nA: b\r\n c"));
}

TEST(RequestHead, FindsThePathInBothFormsOfATarget) {
  for (const auto& [target, path] : {std::pair("/v1/models?x=1", "/v1/models"),
                                     {"*", "*"},
                                     {"", ""},
                                     {"http://h:1/a/b?c=/d", "/a/b"},
                                     {"HTTPS://h/a", "/a"},
                                     {"http://h", "/"},
                                     {"http://h?x=/y", "/"},
                                     {"http:/a", "http:/a"},
                                     {"//a/b", "//a/b"}})
    EXPECT_EQ(path_of_target(target), path) << target;
}

}  // namespace
}  // namespace plumb::server
