// What a scenario can do to the system (SCENARIO.md section 7).

#include "world.hpp"

namespace {

Json want(const Json &action, const char *key) {
    if (!action.contains(key)) throw Failure(std::string("the scenario is wrong: `") + key + "` is missing");
    return action[key];
}

using Send = tw_status (*)(tw_agent *, tw_str, tw_buf **, tw_error **);

void send(tw_agent *agent, Send how, const Json &action) {
    const std::string given = crossing(message(action));
    call(how, agent, view(given), nullptr);
}

using Insert = tw_status (*)(tw_agent *, tw_str, tw_str, tw_error **);

void insert(tw_agent *agent, Insert how, const Json &action) {
    const std::string target = want(action, "target"), given = crossing(Json::array({message(action)}));
    call(how, agent, view(target), view(given));
}

Json splice(tw_agent *agent, const Json &action) {
    Json inserted = Json::array();
    for (const Json &spec : member(action, "insert", Json::array())) inserted.push_back(message(spec));
    const std::string target = want(action, "target"), given = inserted.dump();
    const double start = member(action, "start", 0), count = member(action, "deleteCount", 0);
    Json removed = Json::array();
    for (const Json &message : ask(tw_inbox_splice, agent, view(target), start, count, view(given))) removed.push_back(message.at("id"));
    return removed;
}

bool replace(tw_agent *agent, const Json &action) {
    const std::string id = want(action, "replace"), given = message(action).dump();
    return call(tw_inbox_replace, agent, view(id), view(given)) == TW_OK;
}

void cancel(tw_agent *agent, const Json &action) {
    const std::string cause = action.contains("cause") ? action["cause"].dump() : "";
    call(tw_agent_cancel, agent, view(cause), member(action, "keepInbox") == true ? 1 : 0);
}

void maintenance(World &world, tw_agent *agent, const Json &action) {
    const std::string name = want(action, "name");
    OnReply task([&world, action, name](tw_reply *reply) {
        world.perform_batch(member(action, "actions"), "maintenance " + name);
        const auto finish = [action](tw_reply *asked, const std::optional<std::string> &aborted) {
            if (aborted) return fail(tw_reply_fail, asked, *aborted);
            if (action.contains("fail")) return fail(tw_reply_fail, asked, action["fail"]);
            call(tw_reply_answer, asked, tw_str{});
        };
        if (!action.contains("gate")) return finish(reply, std::nullopt);
        Signal signal;
        call(tw_reply_signal, reply, signal.place());
        const auto kept = keep<Reply>(reply, tw_reply_retain);
        world.gates.hold(action["gate"], signal.get(), member(action, "onAbort", "fail"),
                         [finish, kept](const std::optional<std::string> &aborted) { finish(kept->get(), aborted); });
    });
    Future done;
    call(tw_agent_run_maintenance, agent, &OnReply::run, task.data(), &OnReply::drop, done.place());
    world.report(name, done.get());
}

void emit(tw_agent *agent, const Json &action) {
    const Json given = member(action, "payload", Json::object());
    Json payload{{"message", message({{"id", member(given, "id", "emitted")}})},
                 {"error", {{"message", member(given, "message", "emitted")}}}};
    for (const char *key : {"turn", "step", "status"}) {
        if (given.contains(key)) payload[key] = given[key];
    }
    const std::string event = want(action, "event"), text = payload.dump();
    call(tw_agent_emit, agent, view(event), view(text));
}

uint64_t append(tw_agent *agent, const Json &action) {
    Session session;
    uint64_t seq = 0;
    const std::string event = want(action, "event").dump();
    call(tw_agent_session, agent, session.place());
    call(tw_session_append_raw, session.get(), view(event), &seq);
    return seq;
}

Json fork_session(World &world, const Json &action) {
    const std::string from = want(action, "from"), id = text(action, "id");
    // Negative means "all" at the border; a boundary below 0 lies outside every log, like one behind its end.
    const int64_t at = member(action, "at", -1), boundary = action.contains("at") && at < 0 ? INT64_MAX : at;
    Session session;
    call(tw_context_fork_session, world.context(), view(from), boundary, view(id), session.place());
    const Json header = ask(tw_session_header, session.get());
    Json types = Json::array();
    for (const Json &event : ask(tw_session_events, session.get(), uint64_t{0}, UINT64_MAX)) types.push_back(event.at("type"));
    return {{"seedLength", member(header, "seedLength")}, {"parentSession", member(header, "parentSession")}, {"types", types}};
}

Done fork(World &world, const Json &action) {
    const std::string from = want(action, "from");
    world.agent(from);
    Json fork{{"from", from}};
    if (action.contains("at")) fork["at"] = action["at"];
    return {{}, world.open(world.declared(want(action, "id")), member(action, "options"), {{"mode", "create"}, {"fork", fork}})};
}

void set(World &world, const Json &action) {
    for (const char *kind : {"section", "context", "variable"}) {
        if (action.contains(kind)) world.set_text(kind, action[kind], member(action, "agent"), member(action, "text"));
    }
}

void start(World &world, const Json &action) {
    Json entries = Json::array();
    for (const Json &id : want(action, "agents")) {
        entries.push_back({{"id", id}, {"sessionId", id}, {"provider", "mock"}, {"model", "m1"}});
    }
    const std::string given = entries.dump();
    call(tw_context_start_agents, world.context(), view(given));
}

void when_idle(World &world, tw_agent *agent, const Json &action) {
    Future idle;
    call(tw_agent_when_idle, agent, idle.place());
    world.report(want(action, "name"), idle.get());
}

void dispose(World &world, const std::string &id) {
    Future disposed;
    call(tw_agent_dispose, world.agent(id)->get(), disposed.place());
    world.report("dispose " + id, disposed.get());
}

void add_tool(World &world, const Json &action) {
    world.register_tool(world.context(), want(action, "tool"));
    world.tools.push_back(action["tool"]);
}

Done act(World &world, const Json &action) {
    const std::string id = member(action, "agent", world.default_agent), name = want(action, "act");
    const auto agent = [&] { return world.agent(id); };
    if (name == "followup") send(agent()->get(), tw_agent_followup, action);
    else if (name == "steer") send(agent()->get(), tw_agent_steer, action);
    else if (name == "inject") send(agent()->get(), tw_agent_inject, action);
    else if (name == "send") {
        const std::string target = want(action, "target"), given = crossing(message(action));
        call(tw_agent_send, agent()->get(), view(given), view(target), member(action, "wakeup") == true ? 1 : 0, nullptr);
    } else if (name == "cancel") cancel(agent()->get(), action);
    else if (name == "inbox-append") insert(agent()->get(), tw_inbox_append, action);
    else if (name == "inbox-prepend") insert(agent()->get(), tw_inbox_prepend, action);
    else if (name == "inbox-replace") return {replace(agent()->get(), action), {}};
    else if (name == "inbox-remove") {
        const std::string removed = want(action, "remove");
        return {call(tw_inbox_remove, agent()->get(), view(removed)) == TW_OK, {}};
    } else if (name == "inbox-splice") return {splice(agent()->get(), action), {}};
    else if (name == "inbox-clear") call(tw_inbox_clear, agent()->get());
    else if (name == "open") world.gates.open(want(action, "gate"));
    else if (name == "when-idle") when_idle(world, agent()->get(), action);
    else if (name == "maintenance") maintenance(world, agent()->get(), action);
    else if (name == "refuse") world.refusals[want(action, "type")] = member(action, "count", 1);
    else if (name == "start") start(world, action);
    else if (name == "wake") call(tw_agent_wake, agent()->get());
    else if (name == "ask") ask_agent(world, action, id);
    else if (name == "settled" || name == "durable" || name == "run") wait_for(world, action, id);
    else if (name == "withdraw") withdraw(world, action);
    else if (name == "elapse") elapse(world, action);
    else if (name == "store") world.store.refuse(want(action, "refuses"));
    else if (name == "set") set(world, action);
    else if (name == "select") world.select(id, action);
    else if (name == "tool-add") add_tool(world, action);
    else if (name == "tool-remove") world.remove_tool(want(action, "tool"));
    else if (name == "emit") emit(agent()->get(), action);
    else if (name == "session-append") return {append(agent()->get(), action), {}};
    else if (name == "session-fork") return {fork_session(world, action), {}};
    else if (name == "create") return {{}, world.open_declared(world.declared(id))};
    else if (name == "fork") return fork(world, action);
    else if (name == "dispose") dispose(world, id);
    else if (name != "wait-for") throw Failure("the scenario is wrong: " + name + " is no action here");
    return {};
}

} // namespace

Done perform(World &world, const Json &action, const std::string &place) {
    if (action.at("act") == "batch") {
        world.perform_batch(action.at("actions"), place);
        return {};
    }
    try {
        return act(world, action);
    } catch (const Failure &failure) {
        world.failed(place, failure.error);
        return {{}, {}, true};
    }
}

Done resume(World &world, const Json &action, const std::string &place) {
    const std::string id = member(action, "agent", world.default_agent);
    try {
        const Record *known = world.recorder.find(id);
        if (known == nullptr) throw Failure("there is no agent to resume");
        const auto agent = known->latest().agent;
        if (want(action, "mode") == "dispose") {
            call(tw_agent_dispose, agent->get(), nullptr);
            world.settle();
        }
        Session session;
        call(tw_agent_session, agent->get(), session.place());
        Json log = ask(tw_session_export, session.get());
        const size_t length = log.at("events").size(), kept = member(action, "keep", length);
        log["events"].erase(log["events"].begin() + static_cast<long>(std::min(kept, length)), log["events"].end());
        world.next_lifetime();
        world.recorder.begin_lifetime(id, world.lifetime, log["events"].size());
        return {{}, world.open(world.declared(id), member(action, "options"), {{"mode", "resume"}, {"log", log}})};
    } catch (const Failure &failure) {
        world.failed(place, failure.error);
        return {{}, {}, true};
    }
}
