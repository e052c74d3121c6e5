#pragma once

#include <string>

#include "investigator/deployment.h"

namespace plumb::investigator {

/// Whether a server answered as it should, and how it answered, for a message.
struct Answer {
  bool right = false;
  std::string what;
  bool refused = false;  // by a status that waiting does not change: 4xx, but not 408, 425 or 429
};

/// GET `path` answers 200.
Answer ask_health(const std::string& url, const std::string& path, double timeout_s);

/// One real generation: a fixed prompt of one word through the endpoint's api answers 200 with a choice in it. The text
/// of the choice may be empty: a model may end at once. At the temperature of all requests, for some servers refuse 0.
Answer ask_generation(const std::string& url, const EndpointSpec& endpoint, double temperature, double timeout_s);

}  // namespace plumb::investigator
