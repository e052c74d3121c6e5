#include "faults/recorded.h"

#include <array>

namespace plumb::faults {
namespace {

// Written by `plumb-faulty faults --check --record`; do not edit the rows.
constexpr std::array kRecorded{
#include "faults/recorded.inc"
};

}  // namespace

std::span<const Recorded> recorded() { return kRecorded; }

const Recorded* find_recorded(std::string_view kind, std::string_view form) {
  for (const Recorded& entry : kRecorded)
    if (entry.kind == kind && entry.form == form) return &entry;
  return nullptr;
}

}  // namespace plumb::faults
