/* The parts of the interface that the other tests do not touch: stored sessions, routes, doubles, types of events. */
#include "check.h"

#include <pthread.h>

/* Waits for a future and checks that its result holds a text. */
static void settle(tw_future *future, const char *part) {
    tw_str result;
    OK(tw_future_wait(future, 10000, &error));
    OK(tw_future_result(future, &result, &error));
    if (!contains(result, part)) {
        fprintf(stderr, "%s has no %s\n", result.ptr, part);
        exit(1);
    }
    tw_future_release(future);
}

static void refused(tw_future *future, tw_status wanted) {
    tw_str result;
    OK(tw_future_wait(future, 10000, &error));
    EXPECT(wanted, tw_future_result(future, &result, &error));
    tw_future_release(future);
}

static tw_str store_option(char *into, size_t size, const char *folder, const char *name) {
    snprintf(into, size, "{\"kind\":\"jsonl\",\"root\":\"%s/%s\"}", folder, name);
    return str(into);
}

static void sessions_are_listed_and_copied(const char *folder) {
    char options[512], first[256], second[256], third[256];
    tw_future *future = NULL;
    world w;
    store_option(first, sizeof first, folder, "first");
    tw_str other = store_option(second, sizeof second, folder, "second");
    tw_str last = store_option(third, sizeof third, folder, "third");
    snprintf(options, sizeof options, "{\"store\":%s}", first);
    OK(tw_runtime_new(TW_STR(""), &w.runtime, &error));
    OK(tw_context_new(w.runtime, str(options), &w.context, &error));
    world_model(&w, "{\"kind\":\"scripted\",\"otherwise\":{\"text\":\"kept\"}}");
    world_agent(&w);
    world_run(&w, "\"go\"", "kept");
    OK(tw_context_export_session(w.context, other, TW_STR("a"), &future, &error));
    settle(future, "\"tornBytes\":0");
    OK(tw_context_stored(w.context, TW_STR(""), 10, &future, &error));
    settle(future, "\"a\"");
    OK(tw_context_stored(w.context, TW_STR("a"), 10, &future, &error));
    settle(future, "[]");
    OK(tw_context_copy_session(w.context, other, last, TW_STR("a"), &future, &error));
    settle(future, "\"events\":");
    OK(tw_context_copy_session(w.context, other, last, TW_STR("a"), &future, &error));
    refused(future, TW_E_SESSION_ALREADY_EXISTS);
    OK(tw_context_import_session(w.context, other, TW_STR("nobody"), &future, &error));
    refused(future, TW_E_SESSION_NOT_FOUND);
    OK(tw_context_import_session(w.context, other, TW_STR("a"), &future, &error));
    refused(future, TW_E_SESSION_ALREADY_EXISTS);
    EXPECT(TW_E_INVALID_ARGUMENT, tw_context_import_session(w.context, TW_STR("{\"kind\":\"paper\"}"), TW_STR("a"), &future, &error));
    world_close(&w);
    CHECK(tw_handle_count() == 0);
}

static void routes_retry_and_fall_back(void) {
    const char *flaky = "{\"kind\":\"faulty\",\"faults\":[{\"kind\":\"cut\",\"after\":0}],\"inner\":{\"kind\":\"scripted\",\"otherwise\":{\"text\":\"at last\"}}}";
    world w;
    world_open(&w, "");
    OK(tw_context_retry(w.context, NULL, &error));
    OK(tw_context_route(w.context, TW_STR("fake"), str(flaky),
                        TW_STR("{\"retry\":{\"mode\":\"always\",\"initialDelayMs\":1,\"maxDelayMs\":1}}"), NULL, &error));
    world_agent(&w);
    world_run(&w, "\"go\"", "at last");
    EXPECT(TW_E_INVALID_ARGUMENT, tw_context_fallback(w.context, TW_STR("[]"), NULL, &error));
    EXPECT(TW_E_INVALID_ARGUMENT, tw_context_fallback(w.context, TW_STR("{}"), NULL, &error));
    OK(tw_context_fallback(w.context, TW_STR("[{\"provider\":\"fake\",\"model\":\"n\"}]"), NULL, &error));
    EXPECT(TW_E_INVALID_ARGUMENT, tw_context_present(w.context, TW_STR("sideways"), NULL, &error));
    OK(tw_context_present(w.context, TW_STR("native"), NULL, &error));
    EXPECT(TW_E_DUPLICATE_NAME, tw_context_present(w.context, TW_STR("both"), NULL, &error));
    world_close(&w);
    CHECK(tw_handle_count() == 0);
}

static void count_changes(void *user_data, const tw_notice *notice) {
    (void)notice;
    ++*(int *)user_data;
}

static void routes_that_come_and_go_are_told(void) {
    int told = 0;
    tw_registration *route = NULL;
    world w;
    world_open(&w, "");
    OK(tw_context_on(w.context, TW_STR("models/changed"), TW_STR(""), count_changes, &told, NULL, NULL, &error));
    OK(tw_context_route(w.context, TW_STR("r"), TW_STR("{\"kind\":\"scripted\"}"), TW_STR(""), &route, &error));
    CHECK(told == 1);
    EXPECT(TW_E_DUPLICATE_ADAPTER, tw_context_route(w.context, TW_STR("r"), TW_STR("{\"kind\":\"scripted\"}"), TW_STR(""), NULL, &error));
    OK(tw_registration_dispose(route, &error));
    OK(tw_registration_dispose(route, &error));
    CHECK(told == 2);
    tw_registration_release(route);
    world_close(&w);
    CHECK(tw_handle_count() == 0);
}

static void ask_who(void *context) {
    tw_buf *id = NULL;
    OK(tw_context_initiator(context, &id, &error));
    CHECK(strcmp(tw_buf_str(id).ptr, "a") == 0);
    tw_buf_free(id);
}

static void ask_nobody(void *context) {
    tw_buf *id = NULL;
    EXPECT(TW_NONE, tw_context_initiator(context, &id, &error));
}

static void types_initiators_and_schemas(void) {
    world w;
    tw_session *session = NULL;
    tw_buf *text = NULL;
    uint64_t version = 9;
    world_open(&w, "");
    OK(tw_context_event_type(w.context, TW_STR("notes/added"), 2, &error));
    EXPECT(TW_E_RESERVED_EVENT, tw_context_event_type(w.context, TW_STR("turn/start"), 1, &error));
    world_model(&w, "{\"kind\":\"scripted\",\"otherwise\":{\"text\":\"hi\"}}");
    world_agent(&w);
    world_run(&w, "\"go\"", "hi");
    OK(tw_agent_session(w.agent, &session, &error));
    OK(tw_session_sendable_history(session, &text, &error));
    CHECK(contains(tw_buf_str(text), "\"hi\""));
    tw_buf_free(text);
    EXPECT(TW_NONE, tw_session_event_type_version(session, TW_STR("never/heard"), &version, &error));
    CHECK(version == 0);
    tw_session_release(session);
    OK(tw_context_with_initiator(w.context, w.agent, ask_who, w.context, &error));
    OK(tw_context_with_initiator(w.context, NULL, ask_nobody, w.context, &error));
    EXPECT(TW_E_INVALID_ARGUMENT, tw_context_with_initiator(w.context, w.agent, NULL, NULL, &error));
    OK(tw_schema_of_shorthand(TW_STR("{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"n\":{\"type\":\"integer\",\"required\":true}}}"), &text, &error));
    CHECK(contains(tw_buf_str(text), "\"required\":[\"n\"]"));
    tw_buf_free(text);
    EXPECT(TW_E_UNSUPPORTED_SCHEMA, tw_schema_of_shorthand(TW_STR("{\"type\":\"no such\"}"), &text, &error));
    world_close(&w);
    CHECK(tw_handle_count() == 0);
}

static void run_program(void *user_data, tw_call *call) {
    (void)user_data;
    OK(tw_call_answer(call, TW_STR("{\"value\":\"ran it\"}"), &error));
}

static void programs_are_run_by_the_tool_of_the_reserved_name(void) {
    const char *script = "{\"kind\":\"scripted\",\"replies\":[{\"calls\":[{\"id\":\"p\",\"name\":\"run_code\",\"arguments\":{}}]}],\"otherwise\":{\"text\":\"done\"}}";
    world w;
    tw_session *session = NULL;
    tw_buf *history = NULL;
    world_open(&w, "");
    OK(tw_context_tool(w.context, TW_STR("{\"name\":\"run_code\"}"), run_program, NULL, NULL, NULL, NULL, &error));
    OK(tw_context_present(w.context, TW_STR("code"), NULL, &error));
    world_model(&w, script);
    world_agent(&w);
    world_run(&w, "\"go\"", "done");
    OK(tw_agent_session(w.agent, &session, &error));
    OK(tw_session_history(session, &history, &error));
    CHECK(contains(tw_buf_str(history), "ran it"));
    tw_buf_free(history);
    tw_session_release(session);
    world_close(&w);
    CHECK(tw_handle_count() == 0);
}

static void *poll_elsewhere(void *runtime) {
    EXPECT(TW_E_WRONG_THREAD, tw_runtime_poll(runtime, 0, &error));
    return NULL;
}

static void a_hosted_runtime_is_polled_on_its_thread_only(void) {
    world w;
    pthread_t thread;
    world_open(&w, "{\"mode\":\"hosted\"}");
    CHECK(pthread_create(&thread, NULL, poll_elsewhere, w.runtime) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    world_close(&w);
}

int main(int count, char **arguments) {
    CHECK(count == 2); /* an empty folder */
    const char *folder = arguments[1];
    sessions_are_listed_and_copied(folder);
    routes_retry_and_fall_back();
    routes_that_come_and_go_are_told();
    types_initiators_and_schemas();
    programs_are_run_by_the_tool_of_the_reserved_name();
    a_hosted_runtime_is_polled_on_its_thread_only();
    puts("ok");
    return 0;
}
