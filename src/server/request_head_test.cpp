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

}  // namespace
}  // namespace plumb::server
