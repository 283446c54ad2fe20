#include "compare.hpp"

#include <algorithm>

namespace {

constexpr std::string_view free_text = "$message";
constexpr std::string_view keyed_text = "$text:";

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

bool matches_text(std::string_view expected, std::string_view got) {
    if (expected.size() >= free_text.size() && expected.substr(expected.size() - free_text.size()) == free_text) {
        const auto before = expected.substr(0, expected.size() - free_text.size());
        return starts_with(got, before) && got.size() > before.size();
    }
    if (!starts_with(expected, keyed_text)) return expected == got;
    const auto key = expected.substr(keyed_text.size());
    // A bare key also stands for more text behind it.
    const bool is_bare = std::all_of(key.begin(), key.end(), [](char letter) { return letter == '_' || (letter >= 'A' && letter <= 'Z'); });
    if (!is_bare) return got == expected;
    return starts_with(got, expected) && !starts_with(got.substr(expected.size()), "_");
}

std::string shown(const Json *value) {
    if (value == nullptr) return "nothing";
    const std::string text = value->dump();
    return text.size() > 220 ? text.substr(0, 220) + "…" : text;
}

class Comparison {
  public:
    std::vector<std::string> found;

    void compare(const std::string &path, const Json &expected, const Json &got) {
        if (expected.is_object() && got.is_object()) {
            compare_objects(path, expected, got);
        } else if (expected.is_array() && got.is_array()) {
            for (size_t index = 0; index < std::max(expected.size(), got.size()); index += 1) {
                const std::string at = path + "[" + std::to_string(index) + "]";
                if (index >= got.size()) differ(at, &expected[index], nullptr);
                else if (index >= expected.size()) differ(at, nullptr, &got[index]);
                else compare(at, expected[index], got[index]);
            }
        } else if (expected.is_string() && got.is_string()) {
            if (!matches_text(expected.get_ref<const std::string &>(), got.get_ref<const std::string &>())) differ(path, &expected, &got);
        } else if (expected != got) {
            differ(path, &expected, &got);
        }
    }

  private:
    void differ(const std::string &path, const Json *expected, const Json *got) {
        found.push_back("  " + path + ": expected " + shown(expected) + ", got " + shown(got));
    }

    void compare_objects(const std::string &path, const Json &expected, const Json &got) {
        const auto at = [&](const std::string &key) { return path.empty() ? key : path + "." + key; };
        for (const auto &[key, wanted] : expected.items()) {
            if (got.contains(key)) compare(at(key), wanted, got[key]);
            else differ(at(key), &wanted, nullptr);
        }
        const auto message = expected.find("message");
        const bool is_uncoded = message != expected.end() && *message == free_text && !expected.contains("code");
        for (const auto &[key, given] : got.items()) {
            const bool is_ours = is_uncoded && (key == "code" || key == "cause");
            if (!expected.contains(key) && !is_ours) differ(at(key), nullptr, &given);
        }
    }
};

} // namespace

std::vector<std::string> differences(const Json &expected, const Json &got) {
    Comparison comparison;
    comparison.compare("", expected, got);
    return comparison.found;
}
