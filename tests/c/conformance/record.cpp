#include "record.hpp"

#include "world.hpp"

namespace {

Json ids(const Json &messages) {
    Json list = Json::array();
    for (const auto &message : messages) list.push_back(message.at("id"));
    return list;
}

bool starts_with(const std::string &text, std::string_view prefix) { return text.compare(0, prefix.size(), prefix) == 0; }

/// What a notice says beside its event.
Json told(const std::string &event, const Json &notice) {
    Json said{{"event", event}};
    for (const char *key : {"source", "status", "turn", "step"}) {
        if (notice.contains(key)) said[key] = notice[key];
    }
    if (notice.contains("message")) said["id"] = notice["message"].at("id");
    if (notice.contains("error")) said["error"] = described(notice["error"]);
    return said;
}

/// What a waterfall offers.
Json offered(const std::string &event, const Json &payload) {
    Json said{{"event", event}, {"turn", payload.at("turn")}};
    if (event == "agent/turn-stopping") return said;
    said["step"] = payload.at("step");
    if (event == "agent/pre-step") said["messages"] = ids(payload.at("messages"));
    if (event == "agent/request-error") {
        said["provider"] = payload.at("provider");
        said["failure"] = payload.at("failure");
    }
    return said;
}

Json result(const std::string &event, const Json &decision) {
    if (event != "agent/pre-step" || decision.at("kind") != "enter") return decision;
    return {{"kind", "enter"}, {"messages", ids(decision.at("messages"))}};
}

} // namespace

Json Life::read_state() const {
    Session session;
    call(tw_agent_session, agent->get(), session.place());
    Json status = "idle";
    try {
        status = ask(tw_agent_state, agent->get()).at("status");
    } catch (const Failure &failure) {
        // An agent that is gone does nothing.
        if (failure.error.value("code", "") != "DISPOSED") throw;
    }
    return {
        {"status", status},
        {"events", ask(tw_session_events, session.get(), uint64_t{0}, UINT64_MAX)},
        {"header", ask(tw_session_header, session.get())},
        {"history", ask(tw_session_history, session.get())},
        {"work", ask(tw_session_work, session.get())},
        {"pending", pending()},
    };
}

uint64_t Life::length() const {
    Session session;
    uint64_t length = 0;
    call(tw_agent_session, agent->get(), session.place());
    call(tw_session_length, session.get(), &length);
    return length;
}

Json Life::pending() const {
    return {
        {"nextTurn", ids(ask(tw_inbox_pending, agent->get(), TW_STR("next-turn")))},
        {"nextStep", ids(ask(tw_inbox_pending, agent->get(), TW_STR("next-step")))},
    };
}

Record *Recorder::find(const std::string &id) const {
    for (const auto &record : agents_) {
        if (record->id == id) return record.get();
    }
    return nullptr;
}

Record &Recorder::record(const std::string &id) {
    Record *known = find(id);
    const bool is_current = known != nullptr && known->lifetime == world_.lifetime && !known->latest().is_over;
    if (is_current) return *known;
    const auto agent = world_.live(id);
    if (agent == nullptr) {
        if (known == nullptr) throw Failure("a notification names " + id + ", and there is no such agent");
        return *known;
    }
    if (known == nullptr) {
        agents_.push_back(std::make_unique<Record>());
        known = agents_.back().get();
        known->id = id;
    }
    known->lifetime = world_.lifetime;
    known->lives.push_back(std::make_shared<Life>(agent));
    return *known;
}

std::shared_ptr<Json> Recorder::push(const std::string &agent, Json notice) {
    Record &known = record(agent);
    notice["at"] = known.latest().length();
    const std::string event = text(notice, "event");
    if (world_.records("inbox") && starts_with(event, "agent/inbox/")) notice["pending"] = known.latest().pending();
    const auto kept = std::make_shared<Json>(std::move(notice));
    known.notices.push_back(kept);
    return kept;
}

void Recorder::begin_lifetime(const std::string &agent, int number, size_t at) {
    find(agent)->notices.push_back(std::make_shared<Json>(Json{{"at", at}, {"event", "lifetime"}, {"number", number}}));
}

void Recorder::hit(const std::string &agent, const std::string &listener, const std::string &event) {
    if (find(agent) != nullptr) push(agent, {{"listener", listener}, {"event", event}});
}

Json Recorder::initiator() const {
    Buffer id;
    if (!world_.records("initiator") || call(tw_context_initiator, world_.context(), id.place()) != TW_OK) return nullptr;
    return seen(tw_buf_str(id.get()));
}

void Recorder::request(const Json &request) {
    const std::string agent = text(request, "sessionId");
    if (find(agent) == nullptr) return world_.problems.push_back("a request of an unknown agent");
    Record &known = record(agent);
    known.requests.push_back({known.lives.back(), request, initiator()});
}

void Recorder::run(const Json &call) {
    Json run{{"callId", call.at("callId")}, {"name", call.at("name")}, {"arguments", call.at("arguments")}};
    if (const Json by = initiator(); !by.is_null()) run["initiator"] = by;
    record(call.at("agentId")).runs.push_back(run);
}

void Recorder::freeze() {
    for (const auto &record : agents_) {
        for (const auto &life : record->lives) life->freeze();
    }
}

void Recorder::hear(tw_context *to, const std::string &event) {
    OnNotice heard([this, event](const tw_notice *notice) {
        const Json payload = read(tw_notice_json, notice);
        if (event == "session/event") {
            const Json type = payload.at("data").at("type");
            if (type != "agent/inbox/spliced" || !payload.contains("agentId")) return;
            const std::string agent = payload["agentId"];
            const auto kept = push(agent, {{"event", event}, {"type", type}});
            (*kept)["pending"] = find(agent)->latest().pending();
            return;
        }
        push(payload.at("agentId"), told(event, payload));
        if (event != "agent/disposed") return;
        // An emitted announcement is none.
        if (world_.live(payload["agentId"]) == nullptr) find(payload["agentId"])->latest().is_over = true;
    });
    call(tw_context_on, to, view(event), tw_str{}, &OnNotice::run, heard.data(), &OnNotice::drop, nullptr);
}

void Recorder::decide(tw_context *to, const std::string &event) {
    OnNext decides([this, event](tw_next *next) {
        const Json payload = read(tw_next_payload, next);
        const auto kept = push(payload.at("agentId"), offered(event, payload));
        if (event == "agent/turn-stopping") {
            call(tw_next_answer, next, tw_str{});
            return;
        }
        OnThen then([kept, event](tw_next *asked, tw_str decision, const tw_error *failed) {
            if (failed != nullptr) {
                // Left unanswered, so that the failure goes on as it is.
                (*kept)["threw"] = seen(tw_error_message(failed));
                return;
            }
            (*kept)["result"] = result(event, Json::parse(seen(decision)));
            call(tw_next_answer, asked, tw_str{});
        });
        call(tw_next_proceed, next, tw_str{}, &OnThen::run, then.data(), &OnThen::drop);
    });
    call(tw_context_decide, to, view(event), tw_str{}, &OnNext::run, decides.data(), &OnNext::drop, nullptr);
}

void Recorder::listen(tw_context *to) {
    for (const char *event : {"agent/created", "agent/disposed", "agent/session-start", "agent/status", "agent/inbox/inserted",
                              "agent/inbox/claimed", "agent/inbox/discarded", "agent/error"}) {
        hear(to, event);
    }
    if (world_.records("inbox")) hear(to, "session/event");
    for (const char *event : {"agent/pre-step", "agent/request", "agent/request-error", "agent/turn-stopping"}) {
        decide(to, event);
    }
}
