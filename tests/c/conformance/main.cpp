// `conformance [--pending FILE] [--decisions DIR] [--ran FILE] [--show NAME] DIR`: runs the scenarios of a folder through the C
// interface and judges each. `tests/conformance/SCENARIO.md` defines the format; the Rust runner there checks the files
// themselves.

#include "compare.hpp"
#include "result.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

namespace fs = std::filesystem;

namespace {

constexpr const char *usage = "usage: conformance [--pending FILE] [--decisions DIR] [--ran FILE] [--show NAME] DIR";
constexpr size_t shown_differences = 14;

struct Options {
    fs::path folder, pending, decisions, ran;
    std::string show;
};

Options parse(int count, char **given) {
    Options options;
    for (int at = 1; at < count; at += 1) {
        const std::string argument = given[at];
        const bool has_value = argument == "--pending" || argument == "--decisions" || argument == "--ran" || argument == "--show";
        if (has_value && at + 1 < count) {
            const std::string value = given[++at];
            if (argument == "--pending") options.pending = value;
            else if (argument == "--decisions") options.decisions = value;
            else if (argument == "--ran") options.ran = value;
            else options.show = value;
        } else if (argument[0] == '-' || !options.folder.empty()) {
            throw std::runtime_error(usage);
        } else {
            options.folder = argument;
        }
    }
    if (options.folder.empty()) throw std::runtime_error(usage);
    return options;
}

Json read_json(const fs::path &path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path.string());
    return Json::parse(file);
}

std::vector<std::string> names_in(const fs::path &folder) {
    std::vector<std::string> names;
    for (const auto &entry : fs::directory_iterator(folder)) {
        if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    }
    std::sort(names.begin(), names.end());
    if (names.empty()) throw std::runtime_error(folder.string() + " holds no scenario");
    return names;
}

std::set<std::string> read_pending(const fs::path &path) {
    std::set<std::string> names;
    if (path.empty()) return names;
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path.string());
    for (std::string line; std::getline(file, line);) {
        line = line.substr(0, line.find('#'));
        line.erase(std::remove_if(line.begin(), line.end(), [](unsigned char letter) { return std::isspace(letter); }), line.end());
        if (!line.empty()) names.insert(line);
    }
    return names;
}

/// A scenario as it is to be run; its `expect` is the decision's where there is one.
Json read(const Options &options, const std::string &name) {
    Json scenario = read_json(options.folder / (name + ".json"));
    if (scenario.at("name") != name) throw std::runtime_error("the scenario is called " + scenario.at("name").dump());
    const fs::path path = options.decisions / (name + ".json");
    if (options.decisions.empty() || !fs::exists(path)) return scenario;
    const Json decision = read_json(path);
    scenario["expect"] = decision.at("expect");
    if (decision.contains("model")) scenario["model"] = decision["model"];
    return scenario;
}

std::vector<std::string> judge(const Options &options, const std::string &name) {
    std::vector<std::string> lines;
    try {
        const Json scenario = read(options, name);
        const Outcome outcome = run_scenario(scenario);
        for (const std::string &problem : outcome.problems) lines.push_back("  " + problem);
        for (const std::string &difference : differences(scenario.at("expect"), outcome.result)) lines.push_back(difference);
    } catch (const std::exception &problem) {
        lines.push_back(std::string("  ") + problem.what());
    }
    if (lines.size() > shown_differences) {
        const size_t more = lines.size() - shown_differences;
        lines.resize(shown_differences);
        lines.push_back("  and " + std::to_string(more) + " more");
    }
    return lines;
}

bool run_folder(const Options &options) {
    const auto pending = read_pending(options.pending);
    std::vector<std::string> passed;
    size_t failed = 0;
    for (const std::string &name : names_in(options.folder)) {
        auto lines = judge(options, name);
        if (pending.count(name) != 0) {
            if (!lines.empty()) {
                std::cout << "pending " << name << "\n";
                continue;
            }
            lines.push_back("  listed as pending but passes");
        }
        if (lines.empty()) passed.push_back(name);
        else failed += 1;
        if (!lines.empty()) std::cout << "FAIL " << name << "\n";
        for (const std::string &line : lines) std::cout << line << "\n";
    }
    if (!options.ran.empty()) {
        fs::create_directories(options.ran.parent_path());
        std::ofstream noted(options.ran);
        for (const std::string &name : passed) noted << name << "\n";
    }
    std::cout << passed.size() << " passed, " << failed << " failed\n";
    return failed == 0;
}

} // namespace

int main(int count, char **given) {
    try {
        // What listeners fail with is reported here; each scenario says itself what must be seen of it.
        const auto ignore = [](void *, int32_t, tw_str) {};
        call(tw_set_log, ignore, nullptr, nullptr);
        const Options options = parse(count, given);
        if (options.show.empty()) return run_folder(options) ? 0 : 1;
        std::cout << run_scenario(read(options, options.show)).result.dump(2) << "\n";
        return 0;
    } catch (const std::exception &problem) {
        std::cerr << problem.what() << "\n";
        return 2;
    }
}
