// An assistant with two tools that survives being killed, in C++. Offline by default; with TURNWHEEL_BASE_URL (and
// TURNWHEEL_API_KEY, TURNWHEEL_MODEL) on any OpenAI-compatible server. Usage: assistant [store]

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <turnwheel.hpp>

using Json = nlohmann::json;

static Json model(bool is_new) {
    if (const char *url = std::getenv("TURNWHEEL_BASE_URL")) {
        return {{"kind", "openai-chat"}, {"baseUrl", url}, {"apiKeyEnv", "TURNWHEEL_API_KEY"}};
    }
    Json replies = Json::array();
    if (is_new) {
        replies = Json::parse(R"([
            {"calls": [{"id": "1", "name": "add", "arguments": {"a": 2, "b": 3}}]},
            {"calls": [{"id": "2", "name": "multiply", "arguments": {"a": 5, "b": 7}}]},
            {"text": "Two and three make five, and five times seven is thirty-five."}
        ])");
    }
    return {{"kind", "scripted"}, {"replies", replies}, {"otherwise", {{"text", "It is sixty-five away from one hundred."}}}};
}

static void add_tool(const tw::context &context, const char *name, const char *description, double (*compute)(double, double)) {
    const Json number{{"type", "number"}};
    const Json parameters{{"type", "object"}, {"required", {"a", "b"}}, {"properties", {{"a", number}, {"b", number}}}};
    const Json definition{{"name", name}, {"description", description}, {"parameters", parameters}};
    context.tool(definition.dump(), [compute](const tw::call &call) {
        const Json arguments = Json::parse(call.payload()).at("arguments");
        call.answer(Json{{"value", compute(arguments.at("a"), arguments.at("b"))}}.dump());
    }).value();
}

static void show(const tw::notice &notice) {
    const auto [kind, text] = notice.log_event();
    if (kind == "user/message") std::cout << "> " << text << "\n";
    if (kind == "assistant/chunk") std::cout << text << std::flush;
    if (kind == "turn/end") std::cout << "\n";
}

int main(int count, char **arguments) {
    try {
        const std::string store = count > 1 ? arguments[1] : "sessions";
        const bool is_new = !std::filesystem::exists(store);
        const char *name = std::getenv("TURNWHEEL_MODEL");

        const tw::runtime runtime = tw::runtime::make().value();
        const tw::context context = runtime.context(Json{{"store", {{"kind", "jsonl"}, {"root", store}}}}.dump()).value();
        context.model("llm", model(is_new).dump()).value();
        add_tool(context, "add", "Add two numbers.", [](double a, double b) { return a + b; });
        add_tool(context, "multiply", "Multiply two numbers.", [](double a, double b) { return a * b; });
        context.prompt(Json{{"kind", "section"}, {"name", "role"}, {"order", 0},
                            {"text", "You are a careful assistant. Use the tools to calculate, then answer in one sentence."}}.dump())
            .value();
        context.on("session/event", show).value();

        context.open("assistant", Json{{"provider", "llm"}, {"model", name == nullptr ? "default" : name}}.dump()).value().take().value();
        const tw::agent agent = context.find("assistant").value();
        if (!Json::parse(agent.pending("next-turn").value().text()).empty()) {
            std::cout << "recovered; there is work waiting\n";
            agent.wake().value();
        } else {
            agent.followup(R"("What is (2 + 3) * 7?")").value();
            agent.followup(R"("And how far is that from 100?")").value();
        }
        agent.when_idle().value().take().value();
        runtime.close().value();
        return 0;
    } catch (const std::exception &failure) {
        std::cerr << failure.what() << "\n";
        return 1;
    }
}
