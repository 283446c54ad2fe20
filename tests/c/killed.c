/* A process is killed in the middle of a tool call, with a message waiting; another one goes on with its session. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCRIPT "{\"kind\":\"scripted\",\"replies\":[{\"calls\":[{\"id\":\"c1\",\"name\":\"hang\"}]}],\"otherwise\":{\"text\":\"picked up\"}}"

static int told[2];

/* Says that it runs, and never answers. */
static void hang(void *user_data, tw_call *call) {
    (void)user_data;
    tw_call_retain(call);
    CHECK(write(told[1], "x", 1) == 1);
}

static void open_world(world *w, const char *folder) {
    char options[512];
    snprintf(options, sizeof options, "{\"store\":{\"kind\":\"jsonl\",\"root\":\"%s\"}}", folder);
    OK(tw_runtime_new(TW_STR(""), &w->runtime, &error));
    OK(tw_context_new(w->runtime, str(options), &w->context, &error));
    w->agent = NULL;
    OK(tw_context_tool(w->context, TW_STR("{\"name\":\"hang\"}"), hang, NULL, NULL, NULL, NULL, &error));
}

static void first_life(const char *folder) {
    world w;
    tw_future *running = NULL, *stored = NULL;
    char byte;
    open_world(&w, folder);
    world_model(&w, SCRIPT);
    world_agent(&w);
    OK(tw_agent_run(w.agent, TW_STR("{\"id\":\"first\",\"content\":\"go\"}"), &running, &error));
    CHECK(read(told[0], &byte, 1) == 1);
    OK(tw_agent_followup(w.agent, TW_STR("{\"id\":\"second\",\"content\":\"and then?\"}"), NULL, &error));
    OK(tw_agent_flush(w.agent, &stored, &error));
    OK(tw_future_wait(stored, 10000, &error));
    raise(SIGKILL);
}

static void second_life(const char *folder) {
    world w;
    tw_session *session = NULL;
    tw_buf *text = NULL;
    tw_future *settled = NULL;
    tw_str state;
    open_world(&w, folder);
    world_model(&w, "{\"kind\":\"scripted\",\"otherwise\":{\"text\":\"picked up\"}}");
    world_agent(&w);
    OK(tw_agent_receipt(w.agent, TW_STR("first"), &text, &error));
    CHECK(contains(tw_buf_str(text), "\"kind\":\"ended\""));
    tw_buf_free(text);
    OK(tw_agent_receipt(w.agent, TW_STR("second"), &text, &error));
    CHECK(contains(tw_buf_str(text), "\"kind\":\"pending\""));
    tw_buf_free(text);
    OK(tw_agent_wake(w.agent, &error));
    OK(tw_agent_settled(w.agent, TW_STR("second"), &settled, &error));
    OK(tw_future_wait(settled, 10000, &error));
    OK(tw_future_result(settled, &state, &error));
    CHECK(contains(state, "\"kind\":\"completed\""));
    tw_future_release(settled);
    OK(tw_agent_session(w.agent, &session, &error));
    OK(tw_session_history(session, &text, &error));
    /* The call has an answer that says that nobody knows what it did; it did not run again. */
    CHECK(contains(tw_buf_str(text), "\"callId\":\"c1\"") && contains(tw_buf_str(text), "picked up"));
    tw_buf_free(text);
    tw_session_release(session);
    world_close(&w);
    CHECK(tw_handle_count() == 0);
}

int main(int count, char **arguments) {
    int status = 0;
    CHECK(count == 2); /* an empty folder */
    CHECK(pipe(told) == 0);
    pid_t child = fork();
    if (child == 0) {
        first_life(arguments[1]);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    second_life(arguments[1]);
    close(told[1]);
    char byte;
    CHECK(read(told[0], &byte, 1) == 0); /* the second life ran no tool */
    puts("ok");
    return 0;
}
