#pragma once

#include <span>
#include <string_view>

namespace plumb::faults {

/// What was measured of one plant on the shipped phantom, written by `plumb-faulty faults --check --record`.
struct Recorded {
  std::string_view kind, form;
  std::string_view site;       // the first that differed; empty: none
  std::string_view signature;  // as signature_text
  double d_cold, d_hit, d_decode;
  int flips, passages;
  int lost_answers;
  double lost_nats;
  std::string_view word;
};

/// In the order of the table of plants.
std::span<const Recorded> recorded();

/// The entry of a kind and form, or null.
const Recorded* find_recorded(std::string_view kind, std::string_view form);

}  // namespace plumb::faults
