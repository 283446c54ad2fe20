/* An assistant with two tools that survives being killed. Offline by default; with TURNWHEEL_BASE_URL (and
 * TURNWHEEL_API_KEY, TURNWHEEL_MODEL) on any OpenAI-compatible server. Usage: assistant [store] */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <turnwheel.h>

static tw_error *error;

/* Ends the program where a call fails: an example has nobody to hand an error to. */
static tw_status check(tw_status status)
{
    if (status < 100) return status;
    fprintf(stderr, "%s: %s\n", tw_status_name(status), tw_error_message(error).ptr);
    exit(1);
}

static tw_str text(const char *chars)
{
    tw_str view = {chars, strlen(chars)};
    return view;
}

/* A number of a flat JSON object; the tool's schema has made sure that it is there. */
static double number(tw_str json, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *arguments = strstr(json.ptr, "\"arguments\":");
    const char *found = strstr(arguments == NULL ? json.ptr : arguments, quoted);
    return found == NULL ? 0 : strtod(found + strlen(quoted), NULL);
}

static void answer(tw_call *call, double value)
{
    char output[64];
    snprintf(output, sizeof output, "{\"value\": %.17g}", value);
    tw_call_answer(call, text(output), NULL);
}

static void add(void *user_data, tw_call *call)
{
    tw_str payload;
    (void)user_data;
    if (tw_call_payload(call, &payload, NULL) == TW_OK) answer(call, number(payload, "a") + number(payload, "b"));
}

static void multiply(void *user_data, tw_call *call)
{
    tw_str payload;
    (void)user_data;
    if (tw_call_payload(call, &payload, NULL) == TW_OK) answer(call, number(payload, "a") * number(payload, "b"));
}

/* Prints what the log gets, as it gets it. */
static void show(void *user_data, const tw_notice *notice)
{
    tw_str kind, said;
    (void)user_data;
    if (tw_notice_log_event(notice, NULL, &kind, &said, NULL) != TW_OK) return;
    const char *format = "%.*s";
    if (kind.len == 12 && memcmp(kind.ptr, "user/message", 12) == 0) format = "> %.*s\n";
    else if (kind.len == 8 && memcmp(kind.ptr, "turn/end", 8) == 0) format = "%.*s\n";
    else if (kind.len != 15 || memcmp(kind.ptr, "assistant/chunk", 15) != 0) return;
    printf(format, (int)said.len, said.ptr);
    fflush(stdout);
}

#define NUMBERS \
    "\"parameters\": {\"type\": \"object\", \"required\": [\"a\", \"b\"]," \
    " \"properties\": {\"a\": {\"type\": \"number\"}, \"b\": {\"type\": \"number\"}}}}"

static void compose(tw_context *context, int is_new)
{
    char adapter[1024];
    const char *url = getenv("TURNWHEEL_BASE_URL");
    if (url != NULL) {
        snprintf(adapter, sizeof adapter,
                 "{\"kind\": \"openai-chat\", \"baseUrl\": \"%s\", \"apiKeyEnv\": \"TURNWHEEL_API_KEY\"}", url);
    } else {
        snprintf(adapter, sizeof adapter, "{\"kind\": \"scripted\", \"replies\": [%s], \"otherwise\": "
                 "{\"text\": \"It is sixty-five away from one hundred.\"}}",
                 !is_new ? "" :
                 "{\"calls\": [{\"id\": \"1\", \"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": 3}}]},"
                 "{\"calls\": [{\"id\": \"2\", \"name\": \"multiply\", \"arguments\": {\"a\": 5, \"b\": 7}}]},"
                 "{\"text\": \"Two and three make five, and five times seven is thirty-five.\"}");
    }
    check(tw_context_model(context, TW_STR("llm"), text(adapter), NULL, &error));
    check(tw_context_tool(context, TW_STR("{\"name\": \"add\", \"description\": \"Add two numbers.\", " NUMBERS),
                          add, NULL, NULL, NULL, NULL, &error));
    check(tw_context_tool(context, TW_STR("{\"name\": \"multiply\", \"description\": \"Multiply two numbers.\", " NUMBERS),
                          multiply, NULL, NULL, NULL, NULL, &error));
    check(tw_context_prompt(context, TW_STR("{\"kind\": \"section\", \"name\": \"role\", \"order\": 0, \"text\": \"You are a "
                            "careful assistant. Use the tools to calculate, then answer in one sentence.\"}"),
                            NULL, NULL, NULL, NULL, &error));
    check(tw_context_on(context, TW_STR("session/event"), TW_STR(""), show, NULL, NULL, NULL, &error));
}

static void finish(tw_future *future)
{
    tw_str result;
    check(tw_future_wait(future, -1, &error));
    check(tw_future_result(future, &result, &error));
    tw_future_release(future);
}

/* What an earlier process left: says so, and lets the agent go on with what waits. Returns whether there was any. */
static int recover(tw_agent *agent)
{
    tw_buf *waiting;
    tw_session *session;
    uint64_t length;
    check(tw_agent_session(agent, &session, &error));
    check(tw_session_length(session, &length, &error));
    check(tw_inbox_pending(agent, TW_STR("next-turn"), &waiting, &error));
    const int has_waiting = tw_buf_str(waiting).len > 2;
    if (length > 1) printf("recovered %" PRIu64 " events; %s\n", length, has_waiting ? "there is work waiting" : "nothing waits");
    if (has_waiting) check(tw_agent_wake(agent, &error));
    tw_buf_free(waiting);
    tw_session_release(session);
    return has_waiting;
}

int main(int count, char **arguments)
{
    const char *store = count > 1 ? arguments[1] : "sessions";
    const char *model = getenv("TURNWHEEL_MODEL");
    struct stat found;
    const int is_new = stat(store, &found) != 0;
    char options[4096];
    tw_runtime *runtime;
    tw_context *context;
    tw_future *future;
    tw_agent *agent;

    check(tw_runtime_new(TW_STR(""), &runtime, &error));
    snprintf(options, sizeof options, "{\"store\": {\"kind\": \"jsonl\", \"root\": \"%s\"}}", store);
    check(tw_context_new(runtime, text(options), &context, &error));
    compose(context, is_new);

    snprintf(options, sizeof options, "{\"provider\": \"llm\", \"model\": \"%s\"}", model == NULL ? "default" : model);
    check(tw_context_open(context, TW_STR("assistant"), text(options), NULL, NULL, NULL, &future, &error));
    finish(future);
    check(tw_context_agent(context, TW_STR("assistant"), &agent, &error));

    if (!recover(agent)) {
        check(tw_agent_followup(agent, TW_STR("\"What is (2 + 3) * 7?\""), NULL, &error));
        check(tw_agent_followup(agent, TW_STR("\"And how far is that from 100?\""), NULL, &error));
    }
    check(tw_agent_when_idle(agent, &future, &error));
    finish(future);

    tw_agent_release(agent);
    tw_context_release(context);
    check(tw_runtime_close(runtime, &error));
    tw_runtime_free(runtime);
    return 0;
}
