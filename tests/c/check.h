/* What the C tests share: a check that names its place, and short forms of what every test does. */
#ifndef CHECK_H
#define CHECK_H

#include "turnwheel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                 \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

/* The status must be this one; the message of an error is shown. */
#define EXPECT(wanted, call)                                                                \
    do {                                                                                    \
        tw_error *error = NULL;                                                             \
        tw_status status = (call);                                                          \
        if (status != (wanted)) {                                                           \
            fprintf(stderr, "%s:%d: %s gave %d %s, not %d: %s\n", __FILE__, __LINE__, #call, \
                    (int)status, tw_status_name(status), (int)(wanted), tw_error_message(error).ptr); \
            exit(1);                                                                        \
        }                                                                                   \
        CHECK((error != NULL) == (status >= 100));                                          \
        CHECK(tw_error_status(error) == (status >= 100 ? status : TW_OK));                  \
        tw_error_free(error);                                                               \
    } while (0)

#define OK(call) EXPECT(TW_OK, call)

static inline tw_str str(const char *text) {
    tw_str view = {text, text == NULL ? 0 : strlen(text)};
    return view;
}

static inline int contains(tw_str text, const char *part) {
    return text.ptr != NULL && strstr(text.ptr, part) != NULL;
}

/* Counts the calls of `drop`. */
static inline void count_drop(void *user_data) {
    ++*(int *)user_data;
}

/* A runtime, a context with a script, and an agent. */
typedef struct {
    tw_runtime *runtime;
    tw_context *context;
    tw_agent *agent;
} world;

static inline void world_open(world *w, const char *mode) {
    OK(tw_runtime_new(str(mode), &w->runtime, &error));
    OK(tw_context_new(w->runtime, str(""), &w->context, &error));
    w->agent = NULL;
}

static inline void world_model(world *w, const char *adapter) {
    OK(tw_context_model(w->context, TW_STR("fake"), str(adapter), NULL, &error));
}

static inline void world_agent(world *w) {
    tw_future *opening = NULL;
    OK(tw_context_open(w->context, TW_STR("a"), TW_STR("{\"provider\":\"fake\",\"model\":\"m\"}"), NULL, NULL, NULL,
                       &opening, &error));
    OK(tw_future_wait(opening, 10000, &error));
    tw_str result;
    OK(tw_future_result(opening, &result, &error));
    CHECK(strcmp(result.ptr, "{\"agentId\":\"a\"}") == 0);
    tw_future_release(opening);
    OK(tw_context_agent(w->context, TW_STR("a"), &w->agent, &error));
}

/* Runs a prompt and checks that the result holds a text. */
static inline void world_run(world *w, const char *prompt, const char *expected) {
    tw_future *run = NULL;
    OK(tw_agent_run(w->agent, str(prompt), &run, &error));
    OK(tw_future_wait(run, 10000, &error));
    tw_str result;
    OK(tw_future_result(run, &result, &error));
    if (!contains(result, expected)) {
        fprintf(stderr, "%s has no %s\n", result.ptr, expected);
        exit(1);
    }
    tw_future_release(run);
}

static inline void world_close(world *w) {
    tw_agent_release(w->agent);
    tw_context_release(w->context);
    OK(tw_runtime_close(w->runtime, &error));
    tw_runtime_free(w->runtime);
}

#endif
