/* The C interface from C: a program's life in both modes, and a defined result for everything that is wrong. */
#include "check.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCRIPT "{\"kind\":\"scripted\",\"replies\":[{\"calls\":[{\"id\":\"c1\",\"name\":\"add\",\"arguments\":{\"a\":2}}]}],\"otherwise\":{\"text\":\"done\"}}"

static void answer_tool(void *user_data, tw_call *call) {
    tw_str payload;
    OK(tw_call_payload(call, &payload, &error));
    CHECK(contains(payload, "\"callId\":\"c1\"") && contains(payload, "\"agentId\":\"a\""));
    OK(tw_call_answer(call, TW_STR("{\"value\":5}"), &error));
    EXPECT(TW_E_INVALID_ARGUMENT, tw_call_answer(call, TW_STR("{\"value\":6}"), &error));
    (void)user_data;
}

static void *answer_late(void *call) {
    OK(tw_call_answer(call, TW_STR("{\"content\":\"late\"}"), &error));
    tw_call_release(call);
    return NULL;
}

static void keep_tool(void *user_data, tw_call *call) {
    tw_call_retain(call);
    CHECK(pthread_create(user_data, NULL, answer_late, call) == 0);
}

static void forget_tool(void *user_data, tw_call *call) {
    (void)user_data;
    (void)call;
}

static void count_notice(void *user_data, const tw_notice *notice) {
    tw_str json, id;
    OK(tw_notice_json(notice, &json, &error));
    OK(tw_notice_session_id(notice, &id, &error));
    CHECK(strcmp(id.ptr, "a") == 0 && contains(json, "\"sessionId\":\"a\""));
    ++*(int *)user_data;
}

static void pass(void *user_data, tw_next *next) {
    OK(tw_next_pass(next, &error));
    EXPECT(TW_E_NEXT_CALLED_TWICE, tw_next_pass(next, &error));
    ++*(int *)user_data;
}

static void answer_then(void *user_data, tw_next *next, tw_str decision, const tw_error *failed) {
    CHECK(failed == NULL && contains(decision, "\"kind\":\"allow\""));
    OK(tw_next_answer(next, TW_STR("{\"kind\":\"deny\",\"reason\":\"not today\"}"), &error));
    ++*(int *)user_data;
}

static void proceed(void *user_data, tw_next *next) {
    OK(tw_next_proceed(next, TW_STR(""), answer_then, user_data, count_drop, &error));
}

static tw_agent *waits_for;
static tw_context *waits_in;

static void wait_for_self(void *user_data, const tw_notice *notice) {
    tw_future *idle = NULL;
    tw_status status = tw_agent_when_idle(waits_for, &idle, NULL);
    if (status == TW_OK) {
        tw_str result;
        EXPECT(TW_E_SELF_WAIT, tw_future_result(idle, &result, &error));
        tw_future_release(idle);
    }
    EXPECT(TW_E_SELF_WAIT, tw_runtime_close(*(tw_runtime **)user_data, &error));
    tw_future *opening = NULL;
    OK(tw_context_open(waits_in, TW_STR("b"), TW_STR(""), NULL, NULL, NULL, &opening, &error));
    tw_status waited = tw_future_wait(opening, -1, NULL);
    CHECK(waited == TW_OK || waited == TW_E_SELF_WAIT);
    tw_future_release(opening);
    (void)notice;
}

static void a_program_lives(const char *mode) {
    world w;
    int dropped = 0, statuses = 0, requests = 0;
    world_open(&w, mode);
    world_model(&w, SCRIPT);
    OK(tw_context_tool(w.context, TW_STR("{\"name\":\"add\"}"), answer_tool, NULL, &dropped, count_drop, NULL, &error));
    OK(tw_context_on(w.context, TW_STR("agent/status"), TW_STR(""), count_notice, &statuses, NULL, NULL, &error));
    OK(tw_context_decide(w.context, TW_STR("agent/request"), TW_STR(""), pass, &requests, NULL, NULL, &error));
    world_agent(&w);
    waits_for = w.agent;
    waits_in = w.context;
    OK(tw_context_on(w.context, TW_STR("agent/inbox/claimed"), TW_STR(""), wait_for_self, &w.runtime, NULL, NULL, &error));
    world_run(&w, "\"go\"", "\"text\":\"done\"");
    CHECK(statuses == 2 && requests == 2);
    tw_session *session = NULL;
    tw_buf *history = NULL;
    OK(tw_agent_session(w.agent, &session, &error));
    OK(tw_session_history(session, &history, &error));
    CHECK(contains(tw_buf_str(history), "\"text\":\"5\""));
    tw_buf_free(history);
    tw_session_release(session);
    world_close(&w);
    CHECK(dropped == 1);
    CHECK(tw_handle_count() == 0);
}

static void answers_come_late_and_from_other_threads(const char *mode) {
    world w;
    pthread_t thread;
    world_open(&w, mode);
    world_model(&w, SCRIPT);
    OK(tw_context_tool(w.context, TW_STR("{\"name\":\"add\"}"), keep_tool, NULL, &thread, NULL, NULL, &error));
    world_agent(&w);
    world_run(&w, "\"go\"", "\"text\":\"late\"");
    CHECK(pthread_join(thread, NULL) == 0);
    world_close(&w);
    CHECK(tw_handle_count() == 0);
}

static void a_forgotten_answer_fails_the_call_and_nothing_else(const char *mode) {
    world w;
    world_open(&w, mode);
    world_model(&w, SCRIPT);
    OK(tw_context_tool(w.context, TW_STR("{\"name\":\"add\"}"), forget_tool, NULL, NULL, NULL, NULL, &error));
    world_agent(&w);
    world_run(&w, "\"go\"", "neither answered nor retained");
    world_close(&w);
}

static void a_decision_is_taken_behind_the_continuation(const char *mode) {
    world w;
    int counted = 0;
    world_open(&w, mode);
    world_model(&w, SCRIPT);
    OK(tw_context_tool(w.context, TW_STR("{\"name\":\"add\"}"), answer_tool, NULL, NULL, NULL, NULL, &error));
    OK(tw_context_decide(w.context, TW_STR("tools/pre-execute"), TW_STR(""), proceed, &counted, NULL, NULL, &error));
    world_agent(&w);
    world_run(&w, "\"go\"", "not today");
    CHECK(counted == 2); /* the call and its drop */
    world_close(&w);
}

static void *push_chunks(void *data) {
    tw_answer *answer = data;
    OK(tw_answer_push(answer, TW_STR("{\"type\":\"text-delta\",\"index\":0,\"text\":\"from C\"}"), &error));
    EXPECT(TW_E_MALFORMED_CHUNK, tw_answer_push(answer, TW_STR("{\"type\":\"noise\"}"), &error));
    OK(tw_answer_push(answer, TW_STR("{\"type\":\"finish\",\"reason\":{\"kind\":\"stop\"}}"), &error));
    OK(tw_answer_finish(answer, &error));
    tw_answer_release(answer);
    return NULL;
}

static void serve(void *user_data, tw_answer *answer) {
    tw_str request;
    OK(tw_answer_request(answer, &request, &error));
    CHECK(contains(request, "\"model\":\"m\""));
    tw_answer_retain(answer);
    CHECK(pthread_create(user_data, NULL, push_chunks, answer) == 0);
}

static void an_adapter_in_c_pushes_from_its_own_thread(const char *mode) {
    world w;
    pthread_t thread;
    world_open(&w, mode);
    OK(tw_context_adapter(w.context, TW_STR("fake"), TW_STR(""), serve, &thread, NULL, NULL, &error));
    world_agent(&w);
    world_run(&w, "\"go\"", "\"text\":\"from C\"");
    CHECK(pthread_join(thread, NULL) == 0);
    world_close(&w);
    CHECK(tw_handle_count() == 0);
}

static void what_is_no_handle_is_found_out(void) {
    world w;
    tw_buf *buf = NULL;
    world_open(&w, "");
    EXPECT(TW_E_INVALID_HANDLE, tw_agent_wake(NULL, &error));
    EXPECT(TW_E_INVALID_HANDLE, tw_agent_wake((tw_agent *)w.context, &error));
    EXPECT(TW_E_INVALID_HANDLE, tw_agent_wake((tw_agent *)(uintptr_t)12345, &error));
    EXPECT(TW_E_INVALID_HANDLE, tw_agent_wake((tw_agent *)&w, &error));
    EXPECT(TW_E_INVALID_ARGUMENT, tw_context_agents(w.context, NULL, &error));
    OK(tw_context_agents(w.context, &buf, &error));
    CHECK(strcmp(tw_buf_str(buf).ptr, "[]") == 0);
    tw_buf_free(buf);
    tw_buf_free(buf); /* twice is once */
    CHECK(tw_buf_str(buf).len == 0);
    tw_context *context = w.context;
    tw_context_release(context);
    EXPECT(TW_E_INVALID_HANDLE, tw_context_agents(context, &buf, &error));
    tw_context_release(context);
    w.context = NULL;
    world_close(&w);
    CHECK(tw_handle_count() == 0);
}

static void bad_text_is_refused(void) {
    world w;
    int dropped = 0;
    tw_str huge = {"x", SIZE_MAX}, null_long = {NULL, 3};
    world_open(&w, "");
    EXPECT(TW_E_INVALID_ARGUMENT, tw_context_model(w.context, TW_STR("\xff\xfe"), TW_STR("{}"), NULL, &error));
    EXPECT(TW_E_INVALID_ARGUMENT, tw_context_model(w.context, huge, TW_STR("{}"), NULL, &error));
    EXPECT(TW_E_INVALID_ARGUMENT, tw_context_model(w.context, null_long, TW_STR("{}"), NULL, &error));
    EXPECT(TW_E_INVALID_ARGUMENT, tw_context_model(w.context, TW_STR(""), TW_STR("{}"), NULL, &error));
    EXPECT(TW_E_INVALID_JSON, tw_context_model(w.context, TW_STR("x"), TW_STR("{"), NULL, &error));
    EXPECT(TW_E_UNKNOWN_OPTION, tw_context_on(w.context, TW_STR("agent/typo"), TW_STR(""), count_notice, &dropped, count_drop, NULL, &error));
    EXPECT(TW_E_INVALID_ARGUMENT, tw_context_on(w.context, TW_STR("agent/status"), TW_STR(""), NULL, &dropped, count_drop, NULL, &error));
    EXPECT(TW_E_INVALID_HANDLE, tw_context_on(NULL, TW_STR("agent/status"), TW_STR(""), count_notice, &dropped, count_drop, NULL, &error));
    CHECK(dropped == 3); /* also when the registration failed */
    world_model(&w, "{\"kind\":\"scripted\",\"otherwise\":{\"text\":\"a\\u0000b\"}}");
    world_agent(&w);
    world_run(&w, "\"x\\u0000y\"", "a\\u0000b");
    world_close(&w);
}

static void a_freed_runtime_says_so(const char *mode) {
    world w;
    tw_future *idle = NULL;
    world_open(&w, mode);
    tw_context_retain(w.context);
    world_close(&w);
    EXPECT(TW_E_RUNTIME_CLOSED, tw_context_close(w.context, &idle, &error));
    tw_context_release(w.context);
    CHECK(tw_handle_count() == 0);
}

static tw_reply *unanswered;

static void keep_reply(void *user_data, tw_reply *asked) {
    (void)user_data;
    tw_reply_retain(asked);
    unanswered = asked;
}

/* What an end without waiting gives up is freed all the same. */
static void a_runtime_freed_under_work_drops_what_it_was_given(void) {
    world w;
    tw_future *maintained = NULL;
    int drops = 0;
    world_open(&w, "{\"mode\":\"hosted\"}");
    world_model(&w, "{\"kind\":\"scripted\"}");
    world_agent(&w);
    OK(tw_context_on(w.context, TW_STR("session/event"), TW_STR(""), count_notice, &drops, count_drop, NULL, &error));
    OK(tw_agent_run_maintenance(w.agent, keep_reply, &drops, count_drop, &maintained, &error));
    tw_runtime_free(w.runtime);
    CHECK(drops == 2);
    tw_reply_release(unanswered);
    tw_future_release(maintained);
    tw_agent_release(w.agent);
    tw_context_release(w.context);
    CHECK(tw_handle_count() == 0);
}

static void free_in_callback(void *user_data, const tw_notice *notice) {
    (void)notice;
    tw_runtime_free(*(tw_runtime **)user_data);
}

static void a_runtime_may_be_freed_inside_a_callback(void) {
    world w;
    tw_future *opening = NULL;
    world_open(&w, "");
    OK(tw_context_on(w.context, TW_STR("session/created"), TW_STR(""), free_in_callback, &w.runtime, NULL, NULL, &error));
    OK(tw_context_open(w.context, TW_STR("a"), TW_STR(""), NULL, NULL, NULL, &opening, &error));
    tw_status ended = tw_future_wait(opening, 10000, NULL);
    CHECK(ended == TW_OK || ended == TW_E_RUNTIME_CLOSED);
    tw_future_release(opening);
    tw_context_release(w.context);
}

static void a_child_of_a_fork_is_told(void) {
    world w;
    world_open(&w, "");
    pid_t child = fork();
    if (child == 0) {
        tw_buf *buf = NULL;
        EXPECT(TW_E_FORKED, tw_context_agents(w.context, &buf, &error));
        tw_context_release(w.context); /* what the parent's threads held stays held here */
        tw_runtime_free(w.runtime);
        world own;
        world_open(&own, "{\"mode\":\"hosted\"}");
        world_model(&own, "{\"kind\":\"scripted\",\"otherwise\":{\"text\":\"in the child\"}}");
        world_agent(&own);
        world_run(&own, "\"go\"", "in the child");
        world_close(&own);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    world_close(&w);
}

/* `--no-fork`: for tools that do not follow children. */
int main(int count, char **arguments) {
    const char *modes[] = {"", "{\"mode\":\"hosted\"}"};
    CHECK(tw_abi_version() == TW_ABI_VERSION);
    for (int i = 0; i < 2; i++) {
        a_program_lives(modes[i]);
        answers_come_late_and_from_other_threads(modes[i]);
        a_forgotten_answer_fails_the_call_and_nothing_else(modes[i]);
        a_decision_is_taken_behind_the_continuation(modes[i]);
        an_adapter_in_c_pushes_from_its_own_thread(modes[i]);
        a_freed_runtime_says_so(modes[i]);
    }
    what_is_no_handle_is_found_out();
    bad_text_is_refused();
    a_runtime_freed_under_work_drops_what_it_was_given();
    a_runtime_may_be_freed_inside_a_callback();
    if (count < 2 || strcmp(arguments[1], "--no-fork") != 0) {
        a_child_of_a_fork_is_told();
    }
    puts("ok");
    return 0;
}
