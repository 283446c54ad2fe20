// Actions of our own (SCENARIO.md section 13).

#include "world.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>

namespace fs = std::filesystem;

namespace {

/// How long real time may take to bring an event.
constexpr auto patience = std::chrono::seconds(10);

Json code_of(const Json &error) { return {{"failed", member(member(error, "failure", error), "code", "UNKNOWN")}}; }

/// What a future gave; messages are told by their roles.
Json outcome(tw_future *future, const std::string &act) {
    tw_str result{};
    call(tw_future_result, future, &result);
    if (act == "durable") return "ok";
    Json brought = Json::parse(seen(result));
    if (act != "run") return brought;
    Json roles = Json::array();
    for (const Json &message : brought.at("messages")) roles.push_back(message.at("role"));
    brought["messages"] = roles;
    return brought;
}

Json answer_to(World &world, const std::string &what, const std::string &id, tw_agent *agent, const std::string &own_id) {
    if (what == "state") {
        Json state = ask(tw_agent_state, agent);
        // The handle's own members stand beside those of every host.
        state.erase("status");
        state.erase("disposed");
        return state;
    }
    if (what == "receipt") return ask(tw_agent_receipt, agent, view(id));
    if (what == "agent") {
        const auto found = world.live(id);
        return found == nullptr ? Json() : Json{{"id", id}, {"status", ask(tw_agent_state, found->get()).at("status")}};
    }
    if (what == "stored") return world.store.length(own_id);
    throw Failure("the scenario is wrong: nobody knows " + what);
}

} // namespace

StoreDouble::~StoreDouble() {
    if (root_.empty()) return;
    refuse(false);
    std::error_code ignored;
    fs::remove_all(root_, ignored);
}

Json StoreDouble::options() {
    if (root_.empty()) {
        std::string name = (fs::temp_directory_path() / "turnwheel.XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw Failure("there is no folder for the store");
        root_ = name;
        // Too large a file is an error of the write, and not the end of the process.
        std::signal(SIGXFSZ, SIG_IGN);
    }
    return {{"kind", "jsonl"}, {"root", root_}, {"compression", "none"}, {"packChunks", false}};
}

void StoreDouble::refuse(bool refuses) {
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = refuses ? 0 : limit.rlim_max;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) throw Failure("files cannot be bounded");
}

size_t StoreDouble::length(const std::string &id) const {
    for (const auto &entry : fs::recursive_directory_iterator(root_)) {
        if (!entry.is_regular_file()) continue;
        std::ifstream file(entry.path());
        std::string line;
        if (!std::getline(file, line)) continue;
        const Json header = Json::parse(line, nullptr, false);
        if (!header.is_object() || text(header, "id") != id) continue;
        size_t events = 0;
        while (std::getline(file, line)) events += 1;
        return events;
    }
    return 0;
}

void ask_agent(World &world, const Json &action, const std::string &id) {
    const auto agent = world.agent(id);
    const std::string what = action.at("what");
    Json notice{{"event", "ask"}, {"what", what}, {"answer", answer_to(world, what, text(action, "id"), agent->get(), id)}};
    if (action.contains("id")) notice["id"] = action["id"];
    world.recorder.push(id, notice);
}

void wait_for(World &world, const Json &action, const std::string &id) {
    const auto agent = world.agent(id);
    const std::string act = action.at("act"), name = action.at("name"), message_id = text(action, "id");
    auto operation = std::make_shared<Operation>();
    operation->is_detached = member(action, "detached") == true;
    world.operations[name] = operation;
    try {
        if (act == "settled") {
            call(tw_agent_settled, agent->get(), view(message_id), operation->future.place());
        } else if (act == "durable") {
            call(tw_agent_durable, agent->get(), view(message_id), operation->future.place());
        } else {
            const std::string given = crossing(message(action));
            call(tw_agent_run, agent->get(), view(given), operation->future.place());
        }
    } catch (const Failure &failure) {
        world.settled[name] = code_of(failure.error);
        return;
    }
    OnDone done([&world, operation, name, act](tw_future *finished) {
        if (operation->is_withdrawn) return;
        try {
            world.settled[name] = outcome(finished, act);
        } catch (const Failure &failure) {
            world.settled[name] = code_of(failure.error);
        }
    });
    call(tw_future_on_done, operation->future.get(), &OnDone::run, done.data(), &OnDone::drop);
}

void withdraw(World &world, const Json &action) {
    const std::string name = action.at("name");
    const auto operation = world.operations.at(name);
    operation->is_withdrawn = true;
    world.settled[name] = "withdrawn";
    world.operations.erase(name);
    // An operation that nobody cancels goes on when its handle is gone.
    if (!operation->is_detached) call(tw_future_cancel, operation->future.get());
}

void await_store(const World &world, const std::string &id) {
    const Record *known = world.recorder.find(id);
    if (known == nullptr) return;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (world.store.length(id) < known->latest().length() && std::chrono::steady_clock::now() < deadline) {
        world.wait_a_little();
    }
}

void elapse(World &world, const Json &action) {
    const std::string event = action.at("event");
    const auto agent = world.agent(member(action, "agent", world.default_agent));
    const int count = member(action, "count", 1);
    Session session;
    call(tw_agent_session, agent->get(), session.place());
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
        int found = 0;
        for (const Json &logged : ask(tw_session_events, session.get(), uint64_t{0}, UINT64_MAX)) found += logged.at("type") == event;
        if (found >= count) return;
        if (std::chrono::steady_clock::now() > deadline) throw Failure("no " + event + " came");
        world.wait_a_little();
    }
}
