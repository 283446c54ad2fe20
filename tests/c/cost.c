/* What the border costs: a call on the runtime's thread, a synchronous callback, a call from another thread, and a turn of
 * 64 chunks with a listener on every chunk and without. Figures in nanoseconds, the best of seven rounds. */
#include "check.h"

#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static double best(double (*round)(void *), void *data) {
    double least = 1e18;
    for (int i = 0; i < 7; i++) {
        double took = round(data);
        least = took < least ? took : least;
    }
    return least;
}

#define CALLS 20000

static double calls(void *session) {
    uint64_t length;
    double start = now();
    for (int i = 0; i < CALLS; i++) {
        tw_session_length(session, &length, NULL);
    }
    return (now() - start) / CALLS;
}

static void read_chunk(void *user_data, const tw_notice *notice) {
    tw_str text;
    tw_notice_log_event(notice, NULL, NULL, &text, NULL);
    *(size_t *)user_data += text.len;
}

#define TURNS 200

static double turns(void *data) {
    world *w = data;
    double start = now();
    for (int i = 0; i < TURNS; i++) {
        tw_future *run = NULL;
        OK(tw_agent_run(w->agent, TW_STR("\"go\""), &run, &error));
        OK(tw_future_wait(run, 10000, &error));
        tw_future_release(run);
    }
    return (now() - start) / TURNS;
}

static double appends(void *session) {
    double start = now();
    for (int i = 0; i < CALLS; i++) {
        tw_session_append(session, TW_STR("cost/event"), TW_STR("{}"), NULL, NULL);
    }
    return (now() - start) / CALLS;
}

/* A world whose agent is told 64 chunks a turn. */
static void open_chunks(world *w, int listeners, size_t *seen) {
    world_open(w, "{\"mode\":\"hosted\"}");
    char script[512];
    snprintf(script, sizeof script,
             "{\"kind\":\"scripted\",\"otherwise\":{\"chunkSize\":1,\"text\":\"%060d\"}}", 0);
    world_model(w, script);
    for (int i = 0; i < listeners; i++) {
        OK(tw_context_on(w->context, TW_STR("session/event"), TW_STR("{\"types\":[\"assistant/chunk\"]}"), read_chunk, seen,
                         NULL, NULL, &error));
    }
    world_agent(w);
}

static double measure_turns(int listeners, size_t *seen) {
    world w;
    open_chunks(&w, listeners, seen);
    double took = best(turns, &w);
    world_close(&w);
    return took;
}

/* `cost turns N LISTENERS` runs N turns and nothing else, for tools that count instructions. */
static int count_turns(int count, int listeners) {
    world w;
    size_t seen = 0;
    open_chunks(&w, listeners, &seen);
    for (int i = 0; i < count; i++) {
        world_run(&w, "\"go\"", "0");
    }
    world_close(&w);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 4 && strcmp(arguments[1], "turns") == 0) {
        return count_turns(atoi(arguments[2]), atoi(arguments[3]));
    }
    const char *modes[] = {"{\"mode\":\"hosted\"}", ""};
    for (int i = 0; i < 2; i++) {
        world w;
        world_open(&w, modes[i]);
        world_model(&w, "{\"kind\":\"scripted\"}");
        world_agent(&w);
        tw_session *session = NULL;
        OK(tw_agent_session(w.agent, &session, &error));
        printf("%s call: %.0f ns\n", i == 0 ? "same-thread" : "cross-thread", best(calls, session));
        if (i == 0) {
            size_t seen = 0;
            double plain = best(appends, session);
            OK(tw_context_on(w.context, TW_STR("session/event"), TW_STR(""), read_chunk, &seen, NULL, NULL, &error));
            printf("synchronous callback: %.0f ns\n", best(appends, session) - plain);
        }
        tw_session_release(session);
        world_close(&w);
    }
    size_t seen = 0;
    double without = measure_turns(0, &seen), with = measure_turns(1, &seen);
    CHECK(seen > 0);
    printf("turn of 64 chunks: %.0f ns without a listener, %.0f ns with one (%+.1f %%)\n", without, with,
           100 * (with - without) / without);
    return 0;
}
