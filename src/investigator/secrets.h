#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "investigator/deployment.h"

namespace plumb::investigator {

/// What stands where a secret stood.
inline constexpr std::string_view kInPlaceOfSecret = "<secret>";
/// Shorter values are no secrets, and replacing them would tear words apart.
inline constexpr std::size_t kLeastSecretBytes = 6;

/// Keeps the value of an environment variable that a deployment names (key_env, {env:NAME}) in this process's memory,
/// so that without_secrets() knows it. Values shorter than kLeastSecretBytes are not kept.
void keep_secret(std::string value);
/// Keeps those of every variable that the deployment names and that is set.
void keep_secrets_of(const Deployment& deployment);
bool has_secrets();

/// The text with every kept secret, as it is or as JSON writes it, replaced. Everything that plumb writes of what
/// others said (logs, replies, messages) goes through here.
std::string without_secrets(std::string_view text);
/// Bytes at the end of the text that may be the beginning of a secret: a reader of a stream holds them back.
std::size_t secret_may_begin(std::string_view text);

/// Whether a header or variable of this name holds a secret by its name: Authorization, X-Api-Key, HF_TOKEN…
bool names_a_secret(std::string_view name);

}  // namespace plumb::investigator
