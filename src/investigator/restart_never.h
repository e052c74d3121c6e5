#pragma once

#include "investigator/investigation.h"

namespace plumb::investigator {

/// With restart = "never" a launch is a new connection to a server that keeps running. States in the findings what that
/// leaves open: faults that come and go with launches, switches that need one; and calls `suspected` what fresh
/// launches would have to confirm. Nothing with restart = "allowed".
void state_what_no_restart_leaves_open(const Deployment& deployment, Findings& findings);

/// The limits of the command line and those of the endpoints together: the smaller ones.
Limits limits_of(const Deployment& deployment, Limits limits);

}  // namespace plumb::investigator
