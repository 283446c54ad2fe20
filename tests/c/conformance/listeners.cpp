// Scenario listeners (SCENARIO.md section 6).

#include "world.hpp"

namespace {

/// What a dispatch tells the filters of `when`.
Json facts_of(const std::string &event, const Json &payload) {
    if (event == "session/event") {
        const Json &logged = payload.at("data");
        Json facts{{"agent", payload.at("sessionId")}, {"type", logged.at("type")}};
        for (const char *key : {"turn", "step"}) facts[key] = member(logged.at("data"), key);
        return facts;
    }
    Json facts{{"agent", member(payload, "agentId", "")}};
    if (event.compare(0, 6, "tools/") == 0) {
        facts["tool"] = payload.at("name");
        facts["callId"] = payload.at("callId");
        return facts;
    }
    for (const char *key : {"turn", "step", "status", "source"}) facts[key] = member(payload, key);
    if (payload.contains("message")) facts["id"] = payload["message"].at("id");
    return facts;
}

/// Counts the dispatch and, if it matches, records it and performs its actions; gives what else it does.
std::optional<Json> reach(World &world, size_t index, const Json &payload) {
    const Json &listener = world.scenario["on"][index];
    const std::string event = listener.at("event");
    const Json facts = facts_of(event, payload);
    const Json when = member(listener, "when", Json::object());
    for (const auto &[key, wanted] : when.items()) {
        if (key != "nth" && member(facts, key.c_str()) != wanted) return std::nullopt;
    }
    const int reached = world.count(index);
    if (when.contains("nth") && when["nth"] != reached) return std::nullopt;
    if (listener.contains("name")) world.recorder.hit(facts["agent"], listener["name"], event);
    Json then = member(listener, "do", Json::object());
    world.perform_batch(member(then, "actions"), "listener " + world.listener_name(index));
    return then;
}

Json messages(const Json &then, const char *key) {
    Json list = Json::array();
    for (const Json &spec : member(then, key, Json::array())) list.push_back(message(spec));
    return list;
}

/// A waterfall listener that was reached.
struct Decision {
    World &world;
    size_t index;
    std::string event;
    Json payload, then;

    /// What it decides without its continuation; nothing if it delegates.
    std::optional<Json> own() const {
        if (event == "agent/turn-stopping") return member(then, "return");
        if (event == "agent/pre-step") {
            if (member(then, "reject") == true) return Json{{"kind", "reject"}};
            if (then.contains("enter")) return Json{{"kind", "enter"}, {"messages", entered()}};
        }
        if (event == "agent/request" && then.contains("config")) return then["config"];
        if (event == "agent/request-error" && member(then, "retry") == true) return Json("retry");
        if (event == "tools/pre-execute" && then.contains("deny")) return Json{{"kind", "deny"}, {"reason", then["deny"]}};
        if (event != "tools/post-execute") return std::nullopt;
        const auto said = [this](const char *key) { return Json::array({{{"type", "text"}, {"text", then[key]}}}); };
        if (then.contains("block")) {
            return Json{{"kind", "block"}, {"feedback", said("block")}, {"contexts", messages(then, "contexts")}};
        }
        if (then.contains("content")) {
            return Json{{"kind", "accept"}, {"content", said("content")}, {"contexts", messages(then, "contexts")}};
        }
        return std::nullopt;
    }

    Json entered() const {
        Json list = Json::array();
        for (const Json &item : then["enter"]) {
            if (!item.is_string()) {
                list.push_back(message(item));
                continue;
            }
            const Json &offered = payload.at("messages");
            const auto found = std::find_if(offered.begin(), offered.end(), [&](const Json &one) { return one.at("id") == item; });
            if (found == offered.end()) throw Failure("message " + item.get<std::string>() + " was not offered");
            list.push_back(*found);
        }
        return list;
    }

    /// What it makes of its continuation's decision; null keeps it.
    Json edited(Json decision) const {
        if (event == "agent/pre-step" && decision.at("kind") == "enter") {
            Json list = messages(then, "prepend");
            const Json dropped = member(then, "drop", Json::array());
            for (const Json &inner : decision["messages"]) {
                if (std::find(dropped.begin(), dropped.end(), inner.at("id")) == dropped.end()) list.push_back(inner);
            }
            for (const Json &added : messages(then, "append")) list.push_back(added);
            return {{"kind", "enter"}, {"messages", list}};
        }
        if (event == "agent/request") {
            decision.update(member(then, "set", Json::object()));
            for (const Json &key : member(then, "unset", Json::array())) decision.erase(key.get<std::string>());
            for (const Json &key : member(then, "undefined", Json::array())) decision[key.get<std::string>()] = nullptr;
            return decision;
        }
        if (event == "tools/post-execute") {
            Json contexts = member(decision, "contexts", Json::array());
            for (const Json &added : messages(then, "contexts")) contexts.push_back(added);
            decision["contexts"] = contexts;
            return decision;
        }
        return nullptr;
    }

    /// Parts 4 and 5: throws, decides or delegates.
    void decide(tw_next *next) const {
        if (then.contains("throw")) return fail(tw_next_fail, next, thrown(then["throw"]));
        try {
            if (const auto decision = own()) return answer(tw_next_answer, next, *decision);
        } catch (const Failure &failure) {
            return fail(tw_next_fail, next, failure.what());
        }
        OnThen done([own = *this](tw_next *asked, tw_str decision, const tw_error *failed) {
            // Left unanswered, so that the failure goes on as it is.
            if (failed != nullptr) return;
            if (member(own.then, "nextTwice") == true) own.delegate_again(asked);
            const Json edited = own.edited(Json::parse(seen(decision)));
            if (edited.is_null()) {
                call(tw_next_answer, asked, tw_str{});
            } else {
                answer(tw_next_answer, asked, edited);
            }
        });
        call(tw_next_proceed, next, tw_str{}, &OnThen::run, done.data(), &OnThen::drop);
    }

    void delegate_again(tw_next *next) const {
        try {
            OnThen never([](tw_next *, tw_str, const tw_error *) {});
            call(tw_next_proceed, next, tw_str{}, &OnThen::run, never.data(), &OnThen::drop);
        } catch (const Failure &failure) {
            world.failed("listener " + world.listener_name(index), failure.error);
        }
    }
};

void hear(World &world, tw_context *to, size_t index, const std::string &event) {
    OnNotice heard([&world, index](const tw_notice *notice) {
        const auto then = reach(world, index, read(tw_notice_json, notice));
        if (then && then->contains("throw")) fail(tw_notice_fail, notice, thrown((*then)["throw"]));
    });
    call(tw_context_on, to, view(event), tw_str{}, &OnNotice::run, heard.data(), &OnNotice::drop, nullptr);
}

void take_part(World &world, tw_context *to, size_t index, const std::string &event) {
    OnNext decides([&world, index, event](tw_next *next) {
        const Json payload = read(tw_next_payload, next);
        const auto then = reach(world, index, payload);
        if (!then) {
            const bool has_continuation = event != "agent/turn-stopping";
            if (has_continuation) {
                call(tw_next_pass, next);
            } else {
                call(tw_next_answer, next, tw_str{});
            }
            return;
        }
        const Decision decision{world, index, event, payload, *then};
        if (!then->contains("gate")) return decision.decide(next);
        Signal signal;
        call(tw_next_signal, next, signal.place());
        const auto kept = keep<Next>(next, tw_next_retain);
        world.gates.hold((*then)["gate"], signal.get(), member(*then, "onAbort", "ignore"),
                         [decision, kept](const std::optional<std::string> &failed) {
                             if (failed) return fail(tw_next_fail, kept->get(), *failed);
                             decision.decide(kept->get());
                         });
    });
    call(tw_context_decide, to, view(event), tw_str{}, &OnNext::run, decides.data(), &OnNext::drop, nullptr);
}

} // namespace

void register_listener(World &world, tw_context *to, size_t index) {
    const std::string event = world.scenario["on"][index].at("event");
    for (const char *decided : {"agent/pre-step", "agent/request", "agent/request-error", "system-prompt/assemble",
                                "tools/pre-execute", "tools/post-execute", "agent/turn-stopping"}) {
        if (event == decided) return take_part(world, to, index, event);
    }
    hear(world, to, index, event);
}
