#include <array>

#include "faults/forms/forms.h"
#include "runtime/steps.h"

namespace plumb::faults {
namespace {

// Inclusive instead of exclusive: one sequence more than planned runs. Its pages and window rows are asked for like
// those of any other, so it only waits a little less.
bool admit_one_too_many(const AdmissionStep& step) { return step.running <= step.max_running; }

void plant_one_too_many(const Dose&) { replace_on_side<"batch.continuous">(&admit_one_too_many); }

constexpr std::array kPlants{
    Plant{.kind = "row-recycled",
          .form = "one-row-too-many",
          .host = "batch.continuous",
          .site = "none",
          .what = "one sequence more is admitted than there are rows planned for",
          .apply = &plant_one_too_many,
          .prior = ".....x.~",
          .note = "A decoy: what a sequence needs is reserved when it starts, whatever their number."},
};

}  // namespace

std::span<const Plant> batch_continuous_plants() { return kPlants; }

}  // namespace plumb::faults
