#include "result.hpp"

#include "world.hpp"

#include <chrono>

namespace {

/// The library's own texts that reach a model. A key stands behind the keys that it begins.
constexpr const char *text_keys[] = {
    "TOOL_ABORTED_BEFORE_DISPATCH", "TOOL_ABORTED",     "TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN", "UNKNOWN_TOOL",
    "INVALID_ARGS",                 "CONTEXT_SNAPSHOT", "CONTEXT_CLEARED",  "HARNESS_IDENTITY",
};

std::string resolve_text(const std::string &said) {
    static const Json texts = ask(tw_texts);
    for (const char *key : text_keys) {
        const std::string own = texts.at(key);
        if (said.compare(0, own.size(), own) == 0) return std::string("$text:") + key + said.substr(own.size());
    }
    return said;
}

bool is_uuid(const std::string &text) {
    if (text.size() != 36) return false;
    for (size_t at = 0; at < text.size(); at += 1) {
        const bool is_dash = at == 8 || at == 13 || at == 18 || at == 23;
        const bool is_hex = std::string_view("0123456789abcdef").find(text[at]) != std::string_view::npos;
        if (is_dash ? text[at] != '-' : !is_hex) return false;
    }
    return true;
}

/// The messages that an event carries.
Json carried(const Json &event) {
    const std::string type = event.at("type");
    if (type == "agent/inbox/spliced") return member(event.at("data"), "inserted", Json::array());
    if (type == "user/message") return Json::array({event.at("data")});
    if (type == "assistant/message" || type == "tool/result") return Json::array({event.at("data").at("message")});
    return Json::array();
}

/// What generated message ids are called: ids that the scenario's file does not have.
class Names {
  public:
    Names(const World &world, const Record &record) {
        const std::string file = world.scenario.dump();
        for (auto life = record.lives.rbegin(); life != record.lives.rend(); ++life) {
            const Json state = (*life)->state();
            for (const Json &event : state["events"]) {
                for (const Json &message : carried(event)) {
                    const std::string id = message.at("id");
                    if (is_uuid(id) && file.find(id) == std::string::npos) names_.emplace(id, "@" + event.at("seq").dump());
                }
            }
        }
    }

    /// Replaces generated ids and the library's own texts.
    Json clean(const Json &value) const {
        if (value.is_string()) {
            const auto &said = value.get_ref<const std::string &>();
            const auto found = names_.find(said);
            if (found != names_.end()) return found->second;
            return is_uuid(said) ? "@?" : resolve_text(said);
        }
        if (!value.is_structured()) return value;
        Json cleaned = value;
        for (auto &item : cleaned) item = clean(item);
        return cleaned;
    }

  private:
    std::map<std::string, std::string> names_;
};

/// The first message of each id in a log.
class Carriers {
  public:
    Carriers(const Names &names, const Json &events) : names_(names) {
        for (const Json &event : events) {
            for (const Json &message : carried(event)) first_.emplace(message.at("id"), names.clean(message));
        }
    }

    /// The ids of messages that the log carries unchanged, and the other messages in full.
    Json references(const Json &messages) const {
        Json list = Json::array();
        for (const Json &message : messages) {
            const Json full = names_.clean(message);
            const auto found = first_.find(message.at("id"));
            const bool is_unchanged = found != first_.end() && found->second == full;
            list.push_back(is_unchanged ? full.at("id") : full);
        }
        return list;
    }

  private:
    const Names &names_;
    std::map<std::string, Json> first_;
};

Json describe_request(const World &world, const Names &names, const Request &request) {
    const Json &asked = request.asked;
    Json said{{"config", asked.at("config")}};
    if (!request.initiator.is_null()) said["initiator"] = request.initiator;
    if (asked.contains("system")) said["system"] = asked["system"];
    for (const Json &tool : member(asked, "tools", Json::array())) {
        const auto is_declared = [&tool](const Json &spec) {
            const Json parameters = member(spec, "parameters", {{"type", "object"}, {"properties", Json::object()}});
            return tool == Json{{"name", spec.at("name")}, {"description", text(spec, "description")}, {"parameters", parameters}};
        };
        const bool is_known = std::any_of(world.tools.begin(), world.tools.end(), is_declared);
        said["tools"].push_back(is_known ? tool.at("name") : tool);
    }
    Json cleaned = names.clean(said);
    const Json state = request.life->state();
    cleaned["messages"] = Carriers(names, state["events"]).references(asked.at("messages"));
    return cleaned;
}

Json describe_agent(const World &world, const Record &record) {
    const Json state = record.latest().state();
    const Names names(world, record);
    Json log = Json::array(), notices = Json::array(), requests = Json::array();
    for (Json event : state["events"]) {
        event.erase("seq");
        event.erase("time");
        log.push_back(names.clean(event));
    }
    for (const auto &notice : record.notices) notices.push_back(names.clean(*notice));
    for (const Request &request : record.requests) requests.push_back(describe_request(world, names, request));
    Json header = state["header"];
    header.erase("createdAt");
    Json said{
        {"status", state["status"]},
        {"header", header},
        {"pending", names.clean(state["pending"])},
        {"work", state["work"]},
        {"history", Carriers(names, state["events"]).references(state["history"])},
        {"log", log},
        {"notices", notices},
        {"requests", requests},
    };
    if (!record.runs.empty()) said["tools"] = record.runs;
    return said;
}

Json mark(World &world, const Done &done) {
    Json agents = Json::object();
    for (const auto &record : world.recorder.agents()) {
        const Json state = record->latest().state();
        agents[record->id] = {{"log", state["events"].size()},
                              {"notices", record->notices.size()},
                              {"requests", record->requests.size()},
                              {"status", state["status"]}};
    }
    Json made{{"agents", agents}};
    if (const Json held = world.gates.held(); !held.empty()) made["blocked"] = held;
    if (const Json settled = std::exchange(world.settled, Json::object()); !settled.empty()) made["settled"] = settled;
    if (done.returned) made["returned"] = *done.returned;
    if (done.failed) made["failed"] = true;
    return made;
}

/// Fails where an operation that a step waits for has failed, or has not settled within it.
void settled(const std::shared_ptr<Future> &operation) {
    tw_str result{};
    if (call(tw_future_result, operation->get(), &result) == TW_PENDING) {
        throw Failure("the operation did not settle within its step");
    }
}

/// Whether everything that a mark counts is as it should be.
bool is_at(const World &world, const Json &expected) {
    Json agents = Json::object();
    for (const auto &record : world.recorder.agents()) {
        const Json state = record->latest().state();
        agents[record->id] = {{"log", state["events"].size()},
                              {"notices", record->notices.size()},
                              {"requests", record->requests.size()},
                              {"status", state["status"]}};
    }
    return agents == expected.at("agents") && world.gates.held() == member(expected, "blocked", Json::array()) &&
           world.settled == member(expected, "settled", Json::object());
}

/// Settles. What a store does is not seen from here, so that scenarios with one wait for their marks (section 2).
void settle(World &world, size_t mark) {
    world.settle();
    if (!world.needs("store")) return;
    const Json &marks = world.scenario.at("expect").at("steps");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (mark < marks.size() && !is_at(world, marks[mark]) && std::chrono::steady_clock::now() < deadline) {
        world.wait_a_little();
        world.settle();
    }
}

void create(World &world, const Json &spec) {
    try {
        const auto opened = world.open_declared(spec);
        settle(world, 0);
        settled(opened);
    } catch (const Failure &failure) {
        world.failed("create " + spec.at("id").get<std::string>(), failure.error);
    }
}

Json step(World &world, const Json &action, size_t index) {
    const std::string place = "step " + std::to_string(index);
    const bool asks_store = action.at("act") == "ask" && action.at("what") == "stored";
    if (asks_store) await_store(world, member(action, "agent", world.default_agent));
    Done done = action.at("act") == "resume" ? resume(world, action, place) : perform(world, action, place);
    settle(world, index + 1);
    if (done.awaited) {
        try {
            settled(done.awaited);
        } catch (const Failure &failure) {
            world.failed(place, failure.error);
            done.failed = true;
        }
    }
    return mark(world, done);
}

} // namespace

Outcome run_scenario(const Json &scenario) {
    escaped().clear();
    const uint64_t before = tw_handle_count();
    Outcome outcome;
    {
        World world(scenario);
        for (const Json &spec : world.scenario["agents"]) {
            if (member(spec, "create") != false) create(world, spec);
        }
        Json marks = Json::array({mark(world, {})});
        size_t index = 0;
        for (const Json &action : world.scenario["steps"]) {
            marks.push_back(step(world, action, index++));
        }
        Json agents = Json::object();
        for (const auto &record : world.recorder.agents()) agents[record->id] = describe_agent(world, *record);
        outcome.result = {{"live", ask(tw_context_agents, world.context())}, {"agents", agents}, {"errors", world.errors}, {"steps", marks}};
        outcome.problems = world.problems;
        if (const size_t left = world.responses_left(); left > 0) {
            outcome.problems.push_back(std::to_string(left) + " scripted responses were not asked for");
        }
    }
    for (const std::string &problem : escaped()) outcome.problems.push_back("a callback failed: " + problem);
    if (const uint64_t after = tw_handle_count(); after != before) {
        outcome.problems.push_back(std::to_string(after - before) + " handles are left over");
    }
    return outcome;
}
