#include "investigator/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <vector>

#include <nlohmann/json.hpp>

#include "investigator/launch_command.h"

namespace plumb::investigator {
namespace {

std::mutex mutex;
// Longest first, so that a secret inside another one is not replaced alone.
std::vector<std::string>& kept() {
  static std::vector<std::string> secrets;
  return secrets;
}

void keep_form(std::string form) {
  auto& all = kept();
  if (std::find(all.begin(), all.end(), form) != all.end()) return;
  all.push_back(std::move(form));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

}  // namespace

void keep_secret(std::string value) {
  if (value.size() < kLeastSecretBytes) return;
  const std::lock_guard lock(mutex);
  const std::string quoted = nlohmann::json(value).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  keep_form(quoted.substr(1, quoted.size() - 2));
  keep_form(std::move(value));
}

void keep_secrets_of(const Deployment& deployment) {
  const auto keep = [](const std::string& name) {
    if (const char* value = name.empty() ? nullptr : std::getenv(name.c_str())) keep_secret(value);
  };
  for (const EndpointSpec& endpoint : deployment.endpoints) keep(endpoint.key_env);
  for (const std::string& text : texts_with_marks(deployment))
    for (const Mark& mark : marks_of(text).value_or(std::vector<Mark>{}))
      if (mark.kind == Mark::Kind::env) keep(mark.name);
}

bool has_secrets() {
  const std::lock_guard lock(mutex);
  return !kept().empty();
}

std::string without_secrets(std::string_view text) {
  const std::lock_guard lock(mutex);
  std::string out(text);
  for (const std::string& secret : kept())
    for (std::size_t at = out.find(secret); at != std::string::npos;
         at = out.find(secret, at + kInPlaceOfSecret.size()))
      out.replace(at, secret.size(), kInPlaceOfSecret);
  return out;
}

std::size_t secret_may_begin(std::string_view text) {
  const std::lock_guard lock(mutex);
  std::size_t most = 0;
  for (const std::string& secret : kept())
    for (std::size_t length = std::min(secret.size() - 1, text.size()); length > most; --length)
      if (text.substr(text.size() - length) == std::string_view(secret).substr(0, length)) most = length;
  return most;
}

bool names_a_secret(std::string_view name) {
  constexpr std::array kParts{"token",         "secret", "password",   "passwd",      "api_key",   "apikey",
                              "authorization", "cookie", "credential", "private_key", "access_key"};
  std::string lower(name);
  for (char& c : lower) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  // Plain numbers of tokens are no tokens: MAX_TOKENS, TOKENS_PER_BATCH, TOKENIZERS_PARALLELISM, TOKENIZER.
  for (std::size_t at = lower.find("token"); at != std::string::npos; at = lower.find("token", at + 1))
    if (lower.substr(at, 6) == "tokens" || lower.substr(at, 9) == "tokenizer") lower.replace(at, 5, "count");
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](const char* part) { return lower.find(part) != std::string::npos; });
}

}  // namespace plumb::investigator
