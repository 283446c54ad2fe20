// The model and tool doubles (SCENARIO.md sections 4 and 5).

#include "world.hpp"

namespace {

/// How a response ends the stream, as a finish chunk; null where it has none.
Json finish(const Json &response) {
    if (response.contains("throw")) return nullptr;
    Json reason{{"kind", member(response, "calls", Json::array()).empty() ? "stop" : "tool-calls"}};
    if (response.contains("error")) {
        reason = {{"kind", "error"}, {"failure", response["error"]}};
    } else if (response.contains("aborted")) {
        reason = {{"kind", "aborted"}, {"failure", response["aborted"]}};
    } else if (response.contains("finish")) {
        if (response["finish"].is_null()) return nullptr;
        reason = {{"kind", response["finish"]}};
    }
    Json chunk{{"type", "finish"}, {"reason", reason}};
    if (response.contains("replayState")) chunk["replayState"] = response["replayState"];
    return chunk;
}

/// The chunks that a response stands for.
Json expand(const Json &response) {
    if (response.contains("chunks")) return response["chunks"];
    struct Block {
        std::string kind;
        Json delta, whole;
    };
    std::vector<Block> blocks;
    for (const char *kind : {"reasoning", "text"}) {
        if (!response.contains(kind)) continue;
        const Json said{{"text", response[kind]}};
        blocks.push_back({kind, said, said});
    }
    for (const Json &call : member(response, "calls", Json::array())) {
        Json whole = call;
        whole["arguments"] = member(call, "arguments", "{}");
        Json delta = call;
        delta.erase("arguments");
        delta["argumentsDelta"] = whole["arguments"];
        blocks.push_back({"tool-call", delta, whole});
    }
    const bool is_broken = response.contains("error") || response.contains("aborted") || response.contains("throw");
    Json chunks = Json::array();
    for (size_t index = 0; index < blocks.size(); index += 1) {
        Block &block = blocks[index];
        chunks.push_back({{"type", "block-start"}, {"index", index}, {"blockType", block.kind}});
        block.delta["type"] = block.kind + "-delta";
        block.delta["index"] = index;
        chunks.push_back(block.delta);
        block.whole["type"] = block.kind;
        const bool is_open = is_broken && index + 1 == blocks.size();
        if (!is_open) chunks.push_back({{"type", "block-end"}, {"index", index}, {"block", block.whole}});
    }
    if (response.contains("usage")) chunks.push_back({{"type", "usage"}, {"usage", response["usage"]}});
    if (const Json last = finish(response); !last.is_null()) chunks.push_back(last);
    return chunks;
}

/// One response as it is being played.
struct Playback {
    World &world;
    Json response, chunks;
    std::shared_ptr<Answer> into;
    Signal signal;
    size_t position = 0;

    /// Whether the answer goes on: nobody reads a stream whose turn was given up.
    bool push() {
        const std::string chunk = crossing(chunks[position++]);
        Errors errors;
        const tw_status status = tw_answer_push(into->get(), view(chunk), errors);
        return status != TW_E_ABORTED && errors.check(status) == TW_OK;
    }

    void end() {
        if (response.contains("throw")) {
            fail(tw_answer_fail, into->get(), thrown(response["throw"]));
        } else {
            call(tw_answer_finish, into->get());
        }
    }

    /// Whether the chunk at `position` may be produced; else the rest follows when its gate opens.
    static bool pass(const std::shared_ptr<Playback> &own) {
        const Json gate = member(member(own->response, "gates", Json::object()), std::to_string(own->position).c_str());
        if (gate.is_null()) return true;
        own->response["gates"].erase(std::to_string(own->position));
        const std::string on_abort = member(own->response, "onAbort", "fail");
        own->world.gates.hold(gate, own->signal.get(), on_abort, [own](const std::optional<std::string> &failed) {
            if (failed) {
                fail(tw_answer_fail, own->into->get(), *failed);
            } else {
                play(own);
            }
        });
        return false;
    }

    static void play(const std::shared_ptr<Playback> &own) {
        while (pass(own)) {
            if (own->position == own->chunks.size()) return own->end();
            if (!own->push()) return;
        }
    }
};

void serve(World &world, tw_answer *answer) {
    const Json request = read(tw_answer_request, answer);
    const std::string agent = text(request, "sessionId");
    world.recorder.request(request);
    const auto response = world.next_response(agent);
    if (!response) {
        world.problems.push_back("the script of " + agent + " has no response left");
        return fail(tw_answer_fail, answer, "the script has no response left");
    }
    Signal signal;
    call(tw_answer_signal, answer, signal.place());
    const auto into = keep<Answer>(answer, tw_answer_retain);
    Playback::play(std::make_shared<Playback>(Playback{world, *response, expand(*response), into, std::move(signal)}));
}

/// A tool double: what its two callbacks share.
struct Tool {
    World &world;
    Json spec;
};

void finish_run(const Json &own, tw_call *call_, const std::optional<std::string> &aborted) {
    // Contexts and the mark come before a throw, too.
    for (const Json &context : member(own, "contexts", Json::array())) answer(tw_call_defer_context, call_, message(context));
    if (member(own, "concludesTurn") == true) call(tw_call_conclude_turn, call_);
    if (aborted) return fail(tw_call_fail, call_, *aborted);
    const Json given = member(own, "result", "");
    const Json result = given.is_string() ? Json{{"text", given}} : given;
    if (result.contains("error")) return fail(tw_call_fail, call_, thrown(result["error"]));
    Json output{{"content", member(result, "content", Json::array({{{"type", "text"}, {"text", text(result, "text")}}}))}};
    if (own.contains("meta")) output["meta"] = own["meta"];
    const std::string given_back = crossing(output);
    call(tw_call_answer, call_, view(given_back));
}

void run(const Tool &tool, tw_call *asked) {
    const Json payload = read(tw_call_payload, asked);
    const std::string id = payload.at("callId");
    Json own = tool.spec;
    own.update(member(member(tool.spec, "calls", Json::object()), id.c_str(), Json::object()));
    tool.world.recorder.run(payload);
    tool.world.perform_batch(member(own, "actions"), "tool " + id);
    if (!own.contains("gate")) return finish_run(own, asked, std::nullopt);
    Signal signal;
    call(tw_call_signal, asked, signal.place());
    const auto kept = keep<Call>(asked, tw_call_retain);
    tool.world.gates.hold(own["gate"], signal.get(), member(own, "onAbort", "ignore"),
                          [own, kept](const std::optional<std::string> &aborted) { finish_run(own, kept->get(), aborted); });
}

} // namespace

void register_model(World &world, tw_context *to, const Json &provider) {
    const Json known = member(provider, "models", Json::object());
    Json models = Json::object();
    for (const auto &[name, spec] : known.items()) {
        Json &info = models[name] = Json::object();
        for (const auto &[from, to_key] : {std::pair("contextWindow", "contextWindow"), {"maxTokens", "defaultMaxTokens"},
                                           {"efforts", "efforts"}, {"effort", "defaultEffort"}}) {
            if (spec.contains(from)) info[to_key] = spec[from];
        }
    }
    OnAnswer serves([&world](tw_answer *answer) { serve(world, answer); });
    const std::string id = provider.at("id"), given = models.dump();
    call(tw_context_adapter, to, view(id), view(given), &OnAnswer::run, serves.data(), &OnAnswer::drop, nullptr);
}

Registration register_tool_double(World &world, tw_context *to, const Json &spec) {
    Json definition{{"name", spec.at("name")}, {"description", text(spec, "description")}};
    if (spec.contains("parameters")) definition["parameters"] = spec["parameters"];
    definition["checked"] = member(spec, "validate", false);
    const Json parallel = member(spec, "parallel", false);
    if (parallel.is_boolean()) definition["parallel"] = parallel;
    if (spec.contains("timeoutMs")) definition["timeoutMs"] = spec["timeoutMs"];
    const auto body = [](void *user_data, tw_call *asked) { contain([&] { run(*static_cast<Tool *>(user_data), asked); }); };
    const auto overlaps = [](void *user_data, tw_str arguments) -> int32_t {
        bool may = false;
        contain([&] {
            const Json rule = static_cast<Tool *>(user_data)->spec.at("parallel");
            const Json given = Json::parse(seen(arguments));
            may = given.is_object() && member(given, text(rule, "argument").c_str()) == rule.at("equals");
        });
        return may;
    };
    const auto drop = [](void *user_data) { delete static_cast<Tool *>(user_data); };
    const std::string given = definition.dump();
    Registration registration;
    call(tw_context_tool, to, view(given), body, parallel.is_object() ? +overlaps : nullptr, new Tool{world, spec}, drop,
         registration.place());
    return registration;
}
