/* An agent on a loop of one's own: the runtime lives on this thread, and libuv says when it has something to do. Every
 * callback runs inside tw_runtime_poll, so nothing here needs a lock. */

#include <stdio.h>
#include <stdlib.h>
#include <turnwheel.h>
#include <uv.h>

static tw_error *error;
static int is_done;

static tw_status check(tw_status status)
{
    if (status < 100) return status;
    fprintf(stderr, "%s: %s\n", tw_status_name(status), tw_error_message(error).ptr);
    exit(1);
}

static void ended(void *user_data, tw_future *future)
{
    tw_str result;
    (void)user_data;
    check(tw_future_result(future, &result, &error));
    printf("%s\n", result.ptr);
    is_done = 1;
}

static void opened(void *user_data, tw_future *future)
{
    tw_context *context = user_data;
    tw_agent *agent;
    tw_future *running;
    tw_str result;
    check(tw_future_result(future, &result, &error));
    check(tw_context_agent(context, TW_STR("assistant"), &agent, &error));
    check(tw_agent_run(agent, TW_STR("\"Hello?\""), &running, &error));
    check(tw_future_on_done(running, ended, NULL, NULL, &error));
    tw_future_release(running);
    tw_agent_release(agent);
}

static void readable(uv_poll_t *watcher, int status, int events)
{
    (void)status;
    (void)events;
    check(tw_runtime_poll(watcher->data, 0, &error));
    if (is_done) uv_close((uv_handle_t *)watcher, NULL);
}

int main(void)
{
    tw_runtime *runtime;
    tw_context *context;
    tw_future *future;
    int32_t fd;

    check(tw_runtime_new(TW_STR("{\"mode\": \"hosted\"}"), &runtime, &error));
    check(tw_runtime_fd(runtime, &fd, &error));
    check(tw_context_new(runtime, TW_STR(""), &context, &error));
    check(tw_context_model(context, TW_STR("llm"), TW_STR("{\"kind\": \"scripted\", \"otherwise\": {\"text\": \"Hello.\"}}"),
                           NULL, &error));
    check(tw_context_open(context, TW_STR("assistant"), TW_STR("{\"provider\": \"llm\", \"model\": \"m\"}"), NULL, NULL, NULL,
                          &future, &error));
    check(tw_future_on_done(future, opened, context, NULL, &error));
    tw_future_release(future);

    uv_poll_t watcher;
    watcher.data = runtime;
    if (uv_poll_init(uv_default_loop(), &watcher, fd) != 0 || uv_poll_start(&watcher, UV_READABLE, readable) != 0) return 1;
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    uv_loop_close(uv_default_loop());

    tw_context_release(context);
    check(tw_runtime_close(runtime, &error));
    tw_runtime_free(runtime);
    return 0;
}
