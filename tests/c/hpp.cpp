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
                   a_question_is_answered_later_from_another_thread();
#ifdef TURNWHEEL_HAS_COROUTINES
    is_good = is_good && a_coroutine_awaits_a_run();
#endif
    return is_good ? 0 : 1;
}
