/* Plays random sequences of valid and invalid calls: handles of the right and of other types, live, released and made up;
 * texts that are right, wrong, not UTF-8 and of impossible lengths. Every call must give a defined status, and at the end
 * nothing may be left over. usage: fuzz [seed] [calls] */
#include "check.h"

#include <stdint.h>

static uint64_t state;

static uint64_t next_number(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint32_t below(uint32_t limit) {
    return (uint32_t)(next_number() % limit);
}

enum { POOL = 64 };
typedef void (*release_fn)(void *);
static struct { void *handle; release_fn release; } pool[POOL];

static void keep(void *handle, release_fn release) {
    if (handle == NULL) {
        return;
    }
    uint32_t at = below(POOL);
    if (pool[at].release != NULL) {
        pool[at].release(pool[at].handle);
    }
    pool[at].handle = handle;
    pool[at].release = release;
}

#define RELEASE(type, end) static void release_##type(void *handle) { tw_##type##_##end(handle); }
RELEASE(context, release) RELEASE(agent, release) RELEASE(session, release) RELEASE(registration, release)
RELEASE(future, release) RELEASE(stream, release) RELEASE(plugin, release) RELEASE(selection, release)
RELEASE(signal, release) RELEASE(next, release) RELEASE(call, release) RELEASE(answer, release) RELEASE(buf, free)

static void *any(void) {
    switch (below(12)) {
    case 0: return NULL;
    case 1: return (void *)(uintptr_t)next_number();
    default: return pool[below(POOL)].handle;
    }
}

/* Mostly a handle of the right type, if there is one. */
static void *of(release_fn wanted) {
    if (below(8) != 0) {
        for (uint32_t i = 0, at = below(POOL); i < POOL; i++) {
            if (pool[(at + i) % POOL].release == wanted) {
                return pool[(at + i) % POOL].handle;
            }
        }
    }
    return any();
}

static tw_str text(void) {
    static const char *texts[] = {
        "", "a", "b", "fake", "next-turn", "next-step", "\"hello\"", "{}", "[]", "{\"kind\":\"user\"}", "agent/status",
        "session/event", "agent/pre-step", "agent/request", "tools/pre-execute", "agent/turn-stopping", "{\"name\":\"t\"}",
        "{\"provider\":\"fake\",\"model\":\"m\"}", "{\"value\":1}", "{\"kind\":\"allow\"}", "{\"id\":\"m1\",\"content\":\"x\"}",
        "{\"kind\":\"scripted\",\"otherwise\":{\"calls\":[{\"id\":\"c\",\"name\":\"t\"}]}}", "null", "{", "\xff\xfe", "event",
        "{\"kind\":\"section\",\"name\":\"s\",\"text\":\"t\"}", "[{\"id\":\"m2\",\"content\":\"y\"}]", "x/y",
        "{\"type\":\"finish\",\"reason\":{\"kind\":\"stop\"}}", "{\"type\":\"text-delta\",\"index\":0,\"text\":\"t\"}",
    };
    switch (below(40)) {
    case 0: return (tw_str){"x", SIZE_MAX};
    case 1: return (tw_str){NULL, 1};
    default: return str(texts[below(sizeof texts / sizeof *texts)]);
    }
}

static void one_call(void);
static int depth;

static void nested(void) {
    if (depth < 3) {
        depth++;
        for (uint32_t i = below(3); i > 0; i--) {
            one_call();
        }
        depth--;
    }
}

static void nested_task(void *user_data) {
    CHECK(user_data == NULL);
    nested();
}

static int drops, users;

static void hear(void *user_data, const tw_notice *notice) {
    tw_str view;
    CHECK(tw_notice_json(notice, &view, NULL) == TW_OK && user_data == &drops);
    keep((void *)(uintptr_t)notice, NULL);
    nested();
}

static void decide(void *user_data, tw_next *next) {
    CHECK(user_data == &drops);
    if (below(4) == 0) {
        tw_next_retain(next);
        keep(next, release_next);
    } else if (below(2) == 0) {
        tw_next_pass(next, NULL);
    }
    nested();
}

static void tool(void *user_data, tw_call *call) {
    CHECK(user_data == &drops);
    if (below(2) == 0) {
        tw_call_retain(call);
        keep(call, release_call);
    } else {
        tw_call_answer(call, text(), NULL);
    }
    nested();
}

static void serve(void *user_data, tw_answer *answer) {
    CHECK(user_data == &drops);
    tw_answer_retain(answer);
    keep(answer, release_answer);
    nested();
}

static void reply(void *user_data, tw_reply *asked) {
    CHECK(user_data == &drops);
    tw_reply_answer(asked, text(), NULL);
}

static void setup(void *user_data, tw_context *context, tw_reply *asked) {
    CHECK(user_data == &drops);
    tw_context_retain(context);
    keep(context, release_context);
    tw_reply_answer(asked, text(), NULL);
}

static tw_runtime *runtime;

static tw_status play(void) {
    void *out = NULL;
    tw_str view;
    uint64_t number;
    tw_error **no = NULL;
    tw_status status;
#define GIVES(type, call) status = (call); if (status < 100) { keep(out, release_##type); } return status
#define USER (users++, &drops), count_drop
    switch (below(60)) {
    case 0: GIVES(context, tw_context_new(runtime, text(), (tw_context **)&out, no));
    case 1: GIVES(future, tw_context_open(of(release_context), text(), text(), setup, USER, (tw_future **)&out, no));
    case 2: GIVES(agent, tw_context_agent(of(release_context), text(), (tw_agent **)&out, no));
    case 3: GIVES(registration, tw_context_on(of(release_context), text(), text(), hear, USER, (tw_registration **)&out, no));
    case 4: GIVES(registration, tw_context_decide(of(release_context), text(), text(), decide, USER, (tw_registration **)&out, no));
    case 5: GIVES(registration, tw_context_tool(of(release_context), text(), tool, NULL, USER, (tw_registration **)&out, no));
    case 6: GIVES(registration, tw_context_model(of(release_context), text(), text(), (tw_registration **)&out, no));
    case 7: GIVES(registration, tw_context_adapter(of(release_context), text(), text(), serve, USER, (tw_registration **)&out, no));
    case 8: GIVES(registration, tw_context_prompt(of(release_context), text(), reply, USER, (tw_registration **)&out, no));
    case 9: GIVES(plugin, tw_context_plugin(of(release_context), text(), setup, USER, (tw_plugin **)&out, no));
    case 10: GIVES(context, tw_context_scope(of(release_context), (tw_context **)&out, no));
    case 11: GIVES(future, tw_context_end(of(release_context), (tw_future **)&out, no));
    case 12: GIVES(selection, tw_context_selection(of(release_context), text(), (tw_selection **)&out, no));
    case 13: GIVES(session, tw_agent_session(of(release_agent), (tw_session **)&out, no));
    case 14: GIVES(context, tw_agent_context(of(release_agent), (tw_context **)&out, no));
    case 15: GIVES(buf, tw_agent_send(of(release_agent), text(), text(), (int32_t)below(2), (tw_buf **)&out, no));
    case 16: GIVES(buf, tw_agent_state(of(release_agent), (tw_buf **)&out, no));
    case 17: GIVES(future, tw_agent_run(of(release_agent), text(), (tw_future **)&out, no));
    case 18: GIVES(future, tw_agent_when_idle(of(release_agent), (tw_future **)&out, no));
    case 19: GIVES(future, tw_agent_run_maintenance(of(release_agent), reply, USER, (tw_future **)&out, no));
    case 20: GIVES(future, tw_agent_dispose(of(release_agent), (tw_future **)&out, no));
    case 21: GIVES(stream, tw_agent_stream(of(release_agent), text(), (tw_stream **)&out, no));
    case 22: GIVES(future, tw_stream_next(of(release_stream), (tw_future **)&out, no));
    case 23: GIVES(buf, tw_stream_take(of(release_stream), below(9), (tw_buf **)&out, no));
    case 24: GIVES(stream, tw_session_follow(of(release_session), below(9), (tw_stream **)&out, no));
    case 25: GIVES(buf, tw_session_export(of(release_session), (tw_buf **)&out, no));
    case 26: GIVES(session, tw_context_fork_session(of(release_context), text(), below(9), text(), (tw_session **)&out, no));
    case 27: GIVES(buf, tw_inbox_splice(of(release_agent), text(), below(3), below(3), text(), (tw_buf **)&out, no));
    case 28: GIVES(signal, tw_next_signal(of(release_next), (tw_signal **)&out, no));
    case 29: GIVES(future, tw_call_tool(of(release_call), text(), text(), (tw_future **)&out, no));
    case 30: return tw_agent_cancel(of(release_agent), text(), (int32_t)below(2), no);
    case 31: return tw_future_cancel(of(release_future), no);
    case 32: return tw_future_result(of(release_future), &view, no);
    case 33: return tw_next_answer(of(release_next), text(), no);
    case 34: return tw_call_answer(of(release_call), text(), no);
    case 35: return tw_answer_push(of(release_answer), text(), no);
    case 36: return tw_answer_finish(of(release_answer), no);
    case 37: return tw_session_append(of(release_session), text(), text(), &number, no);
    case 38: return tw_registration_dispose(of(release_registration), no);
    case 39: return tw_notice_json(any(), &view, no);
    case 40: return tw_signal_cause(of(release_signal), &view, no);
    case 41: return tw_future_wait(of(release_future), 0, no);
    case 42: return tw_context_model(of(release_context), TW_STR("fake"), TW_STR("{\"kind\":\"scripted\",\"otherwise\":{\"text\":\"hi\"}}"), NULL, no);
    case 43: GIVES(registration, tw_context_route(of(release_context), text(), text(), text(), (tw_registration **)&out, no));
    case 44: GIVES(registration, tw_context_retry(of(release_context), (tw_registration **)&out, no));
    case 45: GIVES(registration, tw_context_fallback(of(release_context), text(), (tw_registration **)&out, no));
    case 46: GIVES(registration, tw_context_present(of(release_context), text(), (tw_registration **)&out, no));
    case 47: GIVES(future, tw_context_stored(of(release_context), text(), below(9), (tw_future **)&out, no));
    case 48: GIVES(future, tw_context_export_session(of(release_context), text(), text(), (tw_future **)&out, no));
    case 49: GIVES(buf, tw_session_sendable_history(of(release_session), (tw_buf **)&out, no));
    case 50: GIVES(buf, tw_schema_of_shorthand(text(), (tw_buf **)&out, no));
    case 51: return tw_context_event_type(of(release_context), text(), below(3), no);
    case 52: return tw_context_with_initiator(of(release_context), of(release_agent), nested_task, NULL, no);
    case 53: return tw_runtime_run(runtime, nested_task, NULL, NULL, no);
    case 54: release_context(any()); release_agent(any()); return TW_OK; /* of whatever type, live or not */
    case 55: release_future(any()); release_session(any()); return TW_OK;
    case 56: release_call(any()); release_next(any()); release_answer(any()); return TW_OK;
    case 57: tw_error_free((tw_error *)any()); release_buf(any()); return TW_OK;
    default: return tw_runtime_poll(runtime, 0, no);
    }
}

static uint64_t played, fine;

static void one_call(void) {
    tw_status status = play();
    CHECK(strcmp(tw_status_name(status), "UNKNOWN") != 0 || status == TW_E_UNKNOWN);
    CHECK(status != TW_E_PANIC);
    played++;
    fine += status < 100;
}

int main(int count, char **arguments) {
    uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 1, rounds = count > 2 ? strtoull(arguments[2], NULL, 10) : 20;
    for (uint64_t round = 0; round < rounds; round++) {
        state = (seed + round) * 0x9E3779B97F4A7C15u | 1;
        tw_context *context = NULL;
        OK(tw_runtime_new(TW_STR("{\"mode\":\"hosted\"}"), &runtime, &error));
        OK(tw_context_new(runtime, TW_STR(""), &context, &error));
        keep(context, release_context);
        for (int i = 0; i < 1000; i++) {
            one_call();
        }
        tw_runtime_free(runtime);
        for (int i = 0; i < POOL; i++) {
            if (pool[i].release != NULL) {
                pool[i].release(pool[i].handle);
            }
            pool[i].handle = NULL;
            pool[i].release = NULL;
        }
        CHECK(tw_handle_count() == 0);
        CHECK(drops == users);
    }
    fprintf(stderr, "%llu calls, %llu of them valid\n", (unsigned long long)played, (unsigned long long)fine);
    CHECK(fine > played / 10);
    puts("ok");
    return 0;
}
