// Compares an expected with a got result (SCENARIO.md section 9). Key order never matters, list order always does, absent
// and `null` differ. An error that was recorded without a code and in words of the reference's own is compared as "there
// is an error": ours is coded on purpose.

#pragma once

#include "border.hpp"

/// The differences, one line each.
std::vector<std::string> differences(const Json &expected, const Json &got);
