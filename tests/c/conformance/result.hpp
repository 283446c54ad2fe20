// Runs a scenario and describes what happened in the layout of `expect` (SCENARIO.md section 8).

#pragma once

#include "border.hpp"

struct Outcome {
    Json result;
    /// What was wrong with the scenario itself, or with the runner.
    std::vector<std::string> problems;
};

Outcome run_scenario(const Json &scenario);
