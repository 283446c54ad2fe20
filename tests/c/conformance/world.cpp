#include "world.hpp"

namespace {

std::string text_key(const std::string &kind, const std::string &name, const Json &agent) {
    return Json::array({kind, name, agent}).dump();
}

/// The members of `from` that are present, under the same names.
Json picked(const Json &from, std::initializer_list<const char *> keys) {
    Json to = Json::object();
    for (const char *key : keys) {
        if (from.contains(key)) to[key] = from[key];
    }
    return to;
}

/// Events in the short form of section 3.2.
Json events(const Json &list) {
    Json full = Json::array();
    for (const Json &given : list) {
        Json event{{"seq", full.size()}, {"time", 1}};
        const std::string type = given.at("type");
        if (type == "user/message" || type == "assistant/message" || type == "tool/result") event["surfaceOp"] = "append";
        event.update(given);
        full.push_back(event);
    }
    return full;
}

/// A model choice as JSON; empty without a provider.
std::string choice(const Json &declared) {
    if (!member(declared, "provider").is_string()) return "";
    Json chosen{{"provider", declared["provider"]}, {"model", text(declared, "model")}};
    if (member(declared, "reasoningEffort").is_string()) chosen["reasoningEffort"] = declared["reasoningEffort"];
    return chosen.dump();
}

} // namespace

Json message(const Json &spec) {
    return {
        {"id", spec.at("id")},
        {"role", "user"},
        {"content", member(spec, "content", Json::array({{{"type", "text"}, {"text", text(spec, "text")}}}))},
        {"source", member(spec, "source", {{"kind", "user"}})},
    };
}

std::string crossing(const Json &value) {
    constexpr std::string_view placeholder = "$lone-surrogate";
    std::string text = value.dump();
    for (size_t at = text.find(placeholder); at != std::string::npos; at = text.find(placeholder, at)) {
        text.replace(at, placeholder.size(), "\\ud800");
    }
    return text;
}

Json thrown(const Json &spec) {
    if (spec.is_string()) return spec;
    if (member(spec, "llm") == true) {
        Json failure = picked(spec, {"message", "status", "providerRetryAfterMs"});
        failure["code"] = member(spec, "code", "UNKNOWN");
        return {{"message", spec.at("message")}, {"failure", failure}};
    }
    if (!spec.contains("code")) return spec.at("message");
    return {{"message", spec.at("message")}, {"code", spec["code"]}, {"name", member(spec, "name", "HarnessError")}};
}

Json described(const Json &error) {
    Json said{{"message", error.at("message")}};
    const Json code = member(member(error, "failure", error), "code");
    // A plain error of host code has no code of its own.
    if (code.is_string() && code != "HOST_ERROR") said["code"] = code;
    return said;
}

World::World(Json given) : scenario(std::move(given)), recorder(*this) {
    for (const char *key : {"sections", "contexts", "variables", "tools", "model", "on", "record", "needs", "eventTypes"}) {
        if (!scenario.contains(key)) scenario[key] = Json::array();
    }
    for (const char *key : {"prompt", "loop"}) {
        if (!scenario.contains(key)) scenario[key] = Json::object();
    }
    if (!scenario.contains("providers")) scenario["providers"] = Json::parse(R"([{"id": "mock"}])");
    if (!scenario.contains("agents")) scenario["agents"] = Json::parse(R"([{"id": "a1"}])");
    for (Json &agent : scenario["agents"]) {
        if (!agent.contains("id")) agent["id"] = "a1";
    }
    default_agent = scenario["agents"].empty() ? "a1" : scenario["agents"][0]["id"].get<std::string>();
    const Json &model = scenario["model"];
    const Json scripts = model.is_array() ? Json{{default_agent, model}} : model;
    for (const auto &[id, script] : scripts.items()) scripts_[id].assign(script.begin(), script.end());
    for (const auto &[kind, list] : {std::pair("section", "sections"), {"context", "contexts"}, {"variable", "variables"}}) {
        for (const Json &spec : scenario[list]) {
            texts_[text_key(kind, spec.at("name"), member(spec, "agent"))] = std::make_shared<Json>(member(spec, "text"));
        }
    }
    tools.assign(scenario["tools"].begin(), scenario["tools"].end());
    counters_.resize(scenario["on"].size());
    begin_lifetime();
}

World::~World() { abandon(); }

void World::abandon() {
    is_abandoning() = true;
    gates.forget_holders();
    operations.clear();
    // A handle frees what it had when its place is taken.
    context_ = Context();
    runtime_ = Runtime();
    is_abandoning() = false;
}

void World::begin_lifetime() {
    lifetime += 1;
    tool_registrations_.clear();
    selections_.clear();
    call(tw_runtime_new, TW_STR("{\"mode\": \"hosted\"}"), runtime_.place());
    Json options = picked(scenario["loop"], {"maxParallelToolCalls", "maxToolResultBytes", "turnTimeoutMs"});
    if (scenario["loop"].contains("turnBudget")) {
        options["turnBudget"] = {{"steps", nullptr}, {"toolCalls", nullptr}};
        options["turnBudget"].update(scenario["loop"]["turnBudget"]);
    }
    if (needs("store")) {
        options["store"] = store.options();
        options["durability"] = member(scenario["loop"], "durability", "effects");
    }
    const std::string given = options.dump();
    call(tw_context_new, runtime_.get(), view(given), context_.place());
    compose();
}

void World::next_lifetime() {
    recorder.freeze();
    abandon();
    begin_lifetime();
}

void World::compose() {
    tw_context *to = context_.get();
    for (const Json &provider : scenario["providers"]) register_model(*this, to, provider);
    recorder.listen(to);
    const auto add = [to](const Json &input) {
        const std::string given = input.dump();
        call(tw_context_prompt, to, view(given), nullptr, nullptr, nullptr, nullptr);
    };
    const Json &prompt = scenario["prompt"];
    if (member(prompt, "identity") == true) add({{"kind", "identity"}});
    if (!text(prompt, "persona").empty()) add({{"kind", "persona"}, {"text", prompt["persona"]}});
    if (member(prompt, "runtimeContext") == false) add({{"kind", "suppress-contexts"}});
    if (prompt.contains("toolOrder")) add({{"kind", "tool-order"}, {"names", prompt["toolOrder"]}});
    register_additions();
    for (const Json &type : scenario["eventTypes"]) {
        const std::string name = type.at("type");
        call(tw_context_event_type, to, view(name), type.at("version").get<uint32_t>());
    }
    register_inputs(to, nullptr);
    register_listeners(to, "");
}

/// What the actions of section 13 need: the check behind `refuse`, and the record of starts that failed.
void World::register_additions() {
    if (needs("event-checks")) {
        const auto check = [](void *user_data, tw_str, tw_str subject, tw_buf **why) -> int32_t {
            int32_t verdict = 0;
            contain([&] {
                const std::string type = Json::parse(seen(subject)).at("type");
                int &left = static_cast<World *>(user_data)->refusals[type];
                if (left == 0) return;
                left -= 1;
                const std::string said = Json(type + " is refused").dump();
                verdict = 1;
                call(tw_buf_new, view(said), why);
            });
            return verdict;
        };
        call(tw_context_check, context(), TW_STR("event"), check, this, nullptr, nullptr);
    }
    if (needs("config")) {
        OnNotice heard([this](const tw_notice *notice) {
            const Json told = read(tw_notice_json, notice);
            failed("start " + text(told, "sessionId"), told.at("error"));
        });
        const tw_str event = TW_STR("agent-loop/config-start-failed");
        call(tw_context_on, context(), event, tw_str{}, &OnNotice::run, heard.data(), &OnNotice::drop, nullptr);
    }
}

/// Registers an input of the prompt whose text the action `set` may change.
void World::prompt(tw_context *to, const Json &input, const std::string &kind, const Json &spec) {
    const auto cell = texts_.at(text_key(kind, spec.at("name"), member(spec, "agent")));
    OnReply compute([cell](tw_reply *reply) {
        if (cell->is_null()) {
            call(tw_reply_answer, reply, tw_str{});
        } else {
            answer(tw_reply_answer, reply, *cell);
        }
    });
    const std::string given = input.dump();
    call(tw_context_prompt, to, view(given), &OnReply::run, compute.data(), &OnReply::drop, nullptr);
}

/// Sections, contexts, variables and tools of one layer.
void World::register_inputs(tw_context *to, const Json &agent) {
    const auto own = [&](const Json &spec) { return member(spec, "agent") == agent; };
    for (const Json &spec : scenario["sections"]) {
        const char *kind = member(spec, "complete") == true ? "complete" : "section";
        if (own(spec)) prompt(to, {{"kind", kind}, {"name", spec["name"]}, {"order", spec["order"]}}, "section", spec);
    }
    for (const Json &spec : scenario["contexts"]) {
        if (own(spec)) prompt(to, {{"kind", "context"}, {"name", spec["name"]}, {"order", spec["order"]}}, "context", spec);
    }
    for (const Json &spec : scenario["variables"]) {
        if (own(spec)) prompt(to, {{"kind", "variable"}, {"name", spec["name"]}}, "variable", spec);
    }
    for (const Json &spec : scenario["tools"]) {
        if (own(spec)) register_tool(to, spec);
    }
}

/// The listeners of an agent's scope, or the global ones.
void World::register_listeners(tw_context *to, const std::string &agent) {
    size_t index = 0;
    for (const Json &listener : scenario["on"]) {
        const bool is_own = text(listener, "scope") == "agent";
        const Json owner = is_own ? member(listener, "agent", default_agent) : Json("");
        if (owner == agent) register_listener(*this, to, index);
        index += 1;
    }
}

void World::register_tool(tw_context *to, const Json &spec) {
    tool_registrations_[spec.at("name")] = register_tool_double(*this, to, spec);
}

void World::remove_tool(const std::string &name) {
    const auto found = tool_registrations_.find(name);
    if (found == tool_registrations_.end()) throw Failure("there is no tool " + name);
    call(tw_registration_dispose, found->second.get());
    tool_registrations_.erase(found);
}

void World::select(const std::string &agent, const Json &chosen) {
    const std::string given = choice(chosen);
    call(tw_selection_select, selections_.at(agent).get(), view(given));
    choices_[agent] = chosen;
}

/// An agent's own registrations, in the order of section 3.2.
void World::set_up(tw_context *to, const Json &spec) {
    const std::string id = spec.at("id");
    if (spec.contains("select")) {
        // A later lifetime starts with what was chosen last.
        const std::string given = choice(choices_.try_emplace(id, spec["select"]).first->second);
        call(tw_context_selection, to, view(given), selections_[id].place());
    }
    register_inputs(to, id);
    register_listeners(to, id);
    if (spec.contains("setup")) throw Failure(Json{{"message", ""}, {"thrown", thrown(spec["setup"].at("throw"))}});
}

std::shared_ptr<Future> World::open(const Json &spec, const Json &options, Json how) {
    how.update(options.is_null() ? member(spec, "options", {{"provider", "mock"}, {"model", "m1"}}) : options);
    // A log has its own header.
    if (!how.contains("log")) how.update(picked(spec, {"cwd", "parentSession", "seedLength", "delegationDepth"}));
    OnSetup setup([this, spec](tw_context *to, tw_reply *reply) {
        try {
            set_up(to, spec);
            call(tw_reply_answer, reply, tw_str{});
        } catch (const Failure &failure) {
            fail(tw_reply_fail, reply, member(failure.error, "thrown", failure.error));
        }
    });
    std::shared_ptr<Agent> owner;
    Context through;
    if (spec.contains("owner")) {
        owner = agent(spec["owner"]);
        call(tw_agent_context, owner->get(), through.place());
    }
    const std::string id = spec.at("id"), given = how.dump();
    auto future = std::make_shared<Future>();
    call(tw_context_open, through ? through.get() : context(), view(id), view(given), &OnSetup::run, setup.data(), &OnSetup::drop,
         future->place());
    return future;
}

std::shared_ptr<Future> World::open_declared(const Json &spec) {
    Json how{{"mode", "create"}};
    if (spec.contains("seed")) how["seed"] = events(spec["seed"]);
    if (spec.contains("stored")) {
        Json header{{"version", 0}, {"id", spec.at("id")}, {"createdAt", 1}};
        header.update(member(spec["stored"], "header", Json::object()));
        how = {{"mode", "resume"}, {"log", {{"header", header}, {"events", events(spec["stored"].at("events"))}}}};
    }
    return open(spec, nullptr, how);
}

void World::settle() {
    for (int idle = 0; idle < 2;) {
        idle = call(tw_runtime_poll, runtime_.get(), 0) == TW_OK ? idle + 1 : 0;
    }
}

void World::wait_a_little() const { call(tw_runtime_poll, runtime_.get(), 5); }

std::shared_ptr<Agent> World::live(const std::string &id) const {
    auto agent = std::make_shared<Agent>();
    return call(tw_context_agent, context(), view(id), agent->place()) == TW_OK ? agent : nullptr;
}

std::shared_ptr<Agent> World::agent(const std::string &id) {
    if (auto agent = live(id)) return agent;
    const Record *known = recorder.find(id);
    if (known == nullptr || known->lifetime != lifetime) throw Failure("there is no agent " + id);
    return known->latest().agent;
}

Json World::declared(const std::string &id) const {
    for (const Json &agent : scenario["agents"]) {
        if (agent["id"] == id) return agent;
    }
    return {{"id", id}};
}

void World::set_text(const std::string &kind, const std::string &name, const Json &agent, const Json &text) {
    *texts_.at(text_key(kind, name, agent)) = text;
}

std::optional<Json> World::next_response(const std::string &agent) {
    auto &script = scripts_[agent];
    if (script.empty()) return std::nullopt;
    Json response = std::move(script.front());
    script.pop_front();
    return response;
}

size_t World::responses_left() const {
    size_t left = 0;
    for (const auto &script : scripts_) left += script.second.size();
    return left;
}

std::string World::listener_name(size_t index) const {
    return member(scenario["on"][index], "name", "on[" + std::to_string(index) + "]");
}

bool World::records(const char *what) const {
    const Json &wanted = scenario["record"];
    return std::find(wanted.begin(), wanted.end(), what) != wanted.end();
}

bool World::needs(const char *tag) const {
    const Json &tags = scenario["needs"];
    return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

void World::failed(const std::string &place, const Json &error) {
    Json said = described(error);
    said["where"] = place;
    if (error.contains("cause")) said["cause"] = error["cause"].at("message");
    errors.push_back(said);
}

void World::perform_batch(const Json &actions, const std::string &place) {
    if (actions.is_null()) return;
    size_t index = 0;
    for (const Json &action : actions) perform(*this, action, place + "[" + std::to_string(index++) + "]");
}

void World::report(const std::string &name, tw_future *future) {
    OnDone done([this, name](tw_future *finished) {
        try {
            tw_str result{};
            call(tw_future_result, finished, &result);
            settled[name] = "ok";
        } catch (const Failure &failure) {
            settled[name] = std::string("failed: ") + failure.what();
        }
    });
    call(tw_future_on_done, future, &OnDone::run, done.data(), &OnDone::drop);
}
