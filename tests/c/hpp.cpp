// turnwheel.hpp: ownership, results and exceptions, callbacks, coroutines. Compiled as C++17 and C++20, with and without
// exceptions.

#include <cstdio>
#include <future>
#include <string>
#include <turnwheel.hpp>

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);  \
            return false;                                                         \
        }                                                                         \
    } while (false)

static const char *scripted = R"({"kind": "scripted", "replies": [
    {"calls": [{"id": "1", "name": "double", "arguments": {"n": 21}}]}, {"text": "Forty-two."}], "otherwise": {"text": "Done."}})";

struct Setup {
    tw::runtime runtime;
    tw::context context;
    tw::agent agent;
};

static bool begin(Setup &to) {
    auto runtime = tw::runtime::make();
    CHECK(runtime.ok());
    to.runtime = std::move(runtime).value();
    to.context = to.runtime.context().value();
    CHECK(to.context.model("llm", scripted).ok());
    CHECK(to.context.open("a", R"({"provider": "llm", "model": "m"})").value().take().ok());
    to.agent = to.context.find("a").value();
    CHECK(static_cast<bool>(to.agent));
    return true;
}

static bool a_tool_and_a_listener_are_closures_that_are_freed() {
    const auto alive = std::make_shared<int>(0);
    std::string said;
    {
        Setup setup;
        CHECK(begin(setup));
        const auto tool = setup.context.tool(R"({"name": "double"})", [alive](const tw::call &call) {
            call.answer(call.payload().find("21") == std::string_view::npos ? R"({"value": 0})" : R"({"value": 42})");
        });
        CHECK(tool.ok());
        CHECK(setup.context.on("session/event", [alive, &said](const tw::notice &notice) {
            if (notice.log_event().first == "tool/result") said = notice.json();
        }).ok());
        CHECK(alive.use_count() == 3);
        const auto ran = setup.agent.run(R"("Double 21.")").value().take();
        CHECK(ran.ok());
        CHECK(setup.runtime.close().ok());
    }
    CHECK(said.find("\"42\"") != std::string::npos);
    CHECK(alive.use_count() == 1);
    return true;
}

static bool an_error_says_what_happened() {
    Setup setup;
    CHECK(begin(setup));
    const auto refused = setup.context.on("no/such/event", [](const tw::notice &) {});
    CHECK(!refused.ok());
    CHECK(refused.error().status() == TW_E_UNKNOWN_OPTION);
    CHECK(refused.error().code() == "UNKNOWN_OPTION");
    CHECK(refused.error().message().find("no/such/event") != std::string_view::npos);
#ifndef TURNWHEEL_NO_EXCEPTIONS
    try {
        setup.context.on("no/such/event", [](const tw::notice &) {}).value();
        CHECK(false && "a failed result has no value");
    } catch (const tw::failure &failure) {
        CHECK(failure.error.code() == "UNKNOWN_OPTION");
    }
#endif
    return true;
}

static bool a_question_is_answered_later_from_another_thread() {
    Setup setup;
    CHECK(begin(setup));
    std::promise<tw::next> asked;
    CHECK(setup.context.decide("tools/pre-execute", [&asked](tw::next next) { asked.set_value(std::move(next)); }).ok());
    CHECK(setup.context.tool(R"({"name": "double"})", [](const tw::call &call) { call.answer(R"({"value": 1})"); }).ok());
    const auto running = setup.agent.run(R"("Go.")").value();
    CHECK(asked.get_future().get().answer(R"({"kind": "deny", "reason": "not now"})").ok());
    CHECK(running.take().ok());
    const tw::session session = setup.agent.session().value();
    tw_buf *raw = nullptr;
    CHECK(tw_session_history(session.get(), &raw, nullptr) == TW_OK);
    const tw::buffer history(raw);
    CHECK(history.text().find("not now") != std::string_view::npos);
    return true;
}

static bool an_adapter_in_cpp_streams_and_the_log_is_followed() {
    auto runtime = tw::runtime::make().value();
    const auto context = runtime.context().value();
    CHECK(context.adapter("own", [](const tw::answer &asked) {
        if (asked.request().find("\"model\":\"m\"") == std::string_view::npos || !asked.signal().ok()) return;
        asked.push(R"({"type": "text-delta", "index": 0, "text": "from C++"})");
        asked.push(R"({"type": "finish", "reason": {"kind": "stop"}})");
        asked.finish();
    }).ok());
    CHECK(context.providers().value().text().find("own") != std::string_view::npos);
    int composed = 0;
    CHECK(context.open("a", R"({"provider": "own", "model": "m"})", [&composed](const tw::context &own, const tw::reply &done) {
        composed += own.tools().ok() ? 1 : 0;
        done.answer("");
    }).value().take().ok());
    CHECK(composed == 1);
    const tw::agent agent = context.find("a").value();
    const tw::agent again = agent; // a second reference
    CHECK(again.id().value().text() == "a");
    const tw::stream stream = agent.stream(R"("Go.")").value();
    std::string told;
    for (;;) {
        const std::string event = stream.next().value().take().value();
        if (event == "null") break;
        told += event;
    }
    CHECK(told.find("from C++") != std::string::npos);
    const tw::session session = agent.session().value();
    CHECK(session.length().value() > 0 && session.history().value().text().find("from C++") != std::string_view::npos);
    CHECK(session.append("notes/added", R"({"note": 1})").value() == session.length().value() - 1);
    CHECK(session.follow(0).value().take(1).second.text().find("\"seq\":0") != std::string_view::npos);
    CHECK(!agent.receipt("nobody").value());
    CHECK(!session.append("turn/start", "{}").ok());
    return runtime.close().ok();
}

static bool a_decision_is_edited_behind_its_continuation_and_checks_refuse() {
    Setup setup;
    CHECK(begin(setup));
    CHECK(setup.context.tool(R"({"name": "double"})", [](const tw::call &call) { call.answer(R"({"value": 1})"); },
                             [](std::string_view) { return true; }).ok());
    CHECK(setup.context.decide("tools/pre-execute", [](const tw::next &next) {
        next.proceed("", [](const tw::next &then, std::string_view decision, const tw::error &failed) {
            const bool is_allowed = failed.status() == TW_OK && decision.find("allow") != std::string_view::npos;
            then.answer(is_allowed ? R"({"kind": "deny", "reason": "edited"})" : R"({"kind": "allow"})");
        });
    }).ok());
    CHECK(setup.context.check("event", [](std::string_view, std::string_view event) -> std::optional<std::string> {
        if (event.find("notes/bad") == std::string_view::npos) return std::nullopt;
        return "no bad notes";
    }).ok());
    CHECK(setup.agent.run(R"("Go.")").value().take().ok());
    const tw::session session = setup.agent.session().value();
    CHECK(session.history().value().text().find("edited") != std::string_view::npos);
    const auto refused = session.append("notes/bad", "{}");
    CHECK(!refused.ok() && refused.error().message().find("no bad notes") != std::string_view::npos);
    CHECK(session.append("notes/good", "{}").ok());
    return true;
}

static bool plugins_services_and_initiators() {
    Setup setup;
    CHECK(begin(setup));
    const auto counter = std::make_shared<int>(40);
    const auto provided = setup.context.provide("counter", counter);
    CHECK(provided.ok());
    const tw::plugin plugin = setup.context.plugin([](const tw::context &own, const tw::reply &done) {
        const auto found = own.service<int>("counter").value();
        if (found) *found += 2;
        done.answer("");
    }, R"(["counter"])").value();
    CHECK(plugin.ready().value().take().ok());
    CHECK(plugin.state() == "active");
    int seen = 0;
    CHECK(setup.runtime.run([&seen, &counter] { seen = *counter; }).ok());
    CHECK(seen == 42);
    std::string initiator;
    CHECK(setup.context.with_initiator(setup.agent, [&] { initiator = setup.context.initiator().value().string(); }).ok());
    CHECK(initiator == "a");
    CHECK(plugin.dispose().value().take().ok());
    CHECK(provided.ok() && setup.context.scope().value().end().value().take().ok());
    CHECK(!setup.context.service<int>("nobody").value());
    CHECK(setup.agent.send(R"({"id": "later", "content": "x"})", "next-turn", false).ok());
    CHECK(setup.agent.inbox().pending("next-turn").value().text().find("later") != std::string_view::npos);
    CHECK(setup.agent.inbox().remove("later").value() == TW_OK);
    CHECK(setup.agent.inbox().remove("later").value() == TW_NONE);
    CHECK(tw::texts().ok() && tw::abi_version() == TW_ABI_VERSION && tw::handle_count() > 0);
    return true;
}

#ifdef TURNWHEEL_HAS_COROUTINES
struct task {
    struct promise_type {
        task get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

static task run(const tw::agent &agent, std::promise<std::string> &done) {
    auto running = agent.run(R"("Go.")");
    auto ran = co_await std::move(running).value();
    done.set_value(ran.ok() ? std::move(ran).value() : std::string(ran.error().code()));
}

static bool a_coroutine_awaits_a_run() {
    Setup setup;
    CHECK(begin(setup));
    std::promise<std::string> done;
    run(setup.agent, done);
    CHECK(done.get_future().get().find("Forty-two.") != std::string::npos);
    return true;
}
#endif

int main() {
    bool is_good = a_tool_and_a_listener_are_closures_that_are_freed() && an_error_says_what_happened() &&
                   a_question_is_answered_later_from_another_thread() && an_adapter_in_cpp_streams_and_the_log_is_followed() &&
                   a_decision_is_edited_behind_its_continuation_and_checks_refuse() && plugins_services_and_initiators();
#ifdef TURNWHEEL_HAS_COROUTINES
    is_good = is_good && a_coroutine_awaits_a_run();
#endif
    return is_good ? 0 : 1;
}
