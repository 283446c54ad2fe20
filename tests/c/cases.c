/* Reported faults of bindings in C, by their row of tests/coverage/cases-c.md. */
#include "check.h"

static tw_buf *history_of(tw_agent *agent) {
    tw_session *session = NULL;
    tw_buf *history = NULL;
    OK(tw_agent_session(agent, &session, &error));
    OK(tw_session_history(session, &history, &error));
    tw_session_release(session);
    return history;
}

static int occurrences(tw_str text, const char *part) {
    int count = 0;
    for (const char *at = text.ptr; (at = strstr(at, part)) != NULL; at += strlen(part)) {
        count++;
    }
    return count;
}

/* A call that was thought to have failed is made again with its id: it counts once, and the answer says so. */
static void case_079_a_steer_sent_again_is_the_same_entry(void) {
    const tw_str steer = TW_STR("{\"id\":\"steer-1\",\"content\":\"only once\"}");
    world w;
    tw_future *idle = NULL;
    tw_str result;
    tw_buf *state = NULL;
    world_open(&w, "");
    world_model(&w, "{\"kind\":\"scripted\",\"otherwise\":{\"text\":\"heard\"}}");
    world_agent(&w);
    OK(tw_agent_send(w.agent, steer, TW_STR("next-step"), 0, NULL, &error));
    EXPECT(TW_E_DUPLICATE_MESSAGE, tw_agent_send(w.agent, steer, TW_STR("next-step"), 0, NULL, &error));
    EXPECT(TW_E_DUPLICATE_MESSAGE, tw_agent_steer(w.agent, steer, NULL, &error));
    OK(tw_agent_receipt(w.agent, TW_STR("steer-1"), &state, &error));
    CHECK(contains(tw_buf_str(state), "\"kind\":\"pending\""));
    tw_buf_free(state);
    world_run(&w, "\"go\"", "heard");
    OK(tw_agent_when_idle(w.agent, &idle, &error));
    OK(tw_future_wait(idle, 10000, &error));
    OK(tw_future_result(idle, &result, &error));
    tw_future_release(idle);
    EXPECT(TW_E_DUPLICATE_MESSAGE, tw_agent_steer(w.agent, steer, NULL, &error));
    tw_buf *history = history_of(w.agent);
    CHECK(occurrences(tw_buf_str(history), "only once") == 1);
    tw_buf_free(history);
    world_close(&w);
}

static void answer_with_nul(void *user_data, tw_call *call) {
    (void)user_data;
    OK(tw_call_answer(call, TW_STR("{\"value\":{\"k\\u0000y\":\"a\\u0000b\"}}"), &error));
}

/* A NUL byte itself, not its escape, is inside this text: the length counts and not the terminator. */
static void answer_with_raw_nul(void *user_data, tw_call *call) {
    static const char raw[] = "{\"value\":\"c\0d\"}";
    (void)user_data;
    EXPECT(TW_E_INVALID_JSON, tw_call_answer(call, (tw_str){raw, sizeof raw - 1}, &error));
    OK(tw_call_answer(call, TW_STR("{\"value\":\"refused\"}"), &error));
}

static void one_life(world *w, const char *options, tw_call_fn body, int runs) {
    OK(tw_runtime_new(TW_STR(""), &w->runtime, &error));
    OK(tw_context_new(w->runtime, str(options), &w->context, &error));
    w->agent = NULL;
    world_model(w, "{\"kind\":\"scripted\",\"replies\":[{\"calls\":[{\"id\":\"c1\",\"name\":\"nul\"}]}],\"otherwise\":{\"text\":\"done\"}}");
    OK(tw_context_tool(w->context, TW_STR("{\"name\":\"nul\"}"), body, NULL, NULL, NULL, NULL, &error));
    world_agent(w);
    if (runs) {
        world_run(w, "\"go\"", "done");
    }
}

/* NUL in a string and in a key comes back as it was, through each store and a second life. */
static void case_130_nul_characters_come_back(const char *folder) {
    const char *stores[] = {"{\"store\":{\"kind\":\"jsonl\",\"root\":\"%s/nul-jsonl\"}}",
                            "{\"store\":{\"kind\":\"sqlite\",\"path\":\"%s/nul.sqlite\"}}"};
    for (int i = 0; i < 2; i++) {
        char options[512];
        world w;
        snprintf(options, sizeof options, stores[i], folder);
        for (int life = 0; life < 2; life++) {
            one_life(&w, options, answer_with_nul, life == 0);
            tw_buf *history = history_of(w.agent);
            CHECK(contains(tw_buf_str(history), "k\\\\u0000y") && contains(tw_buf_str(history), "a\\\\u0000b"));
            CHECK(tw_buf_str(history).len == strlen(tw_buf_str(history).ptr));
            tw_buf_free(history);
            world_close(&w);
        }
    }
    world w;
    one_life(&w, "", answer_with_raw_nul, 1);
    world_close(&w);
    CHECK(tw_handle_count() == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2); /* an empty folder */
    const char *folder = arguments[1];
    case_079_a_steer_sent_again_is_the_same_entry();
    case_130_nul_characters_come_back(folder);
    puts("ok");
    return 0;
}
