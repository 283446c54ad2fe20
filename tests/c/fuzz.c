/* Plays random sequences of valid and invalid calls of the whole interface: handles of the right and of other types, live,
 * released and made up; texts that are right, wrong, cut, changed, not UTF-8 and of impossible lengths; alone on a hosted
 * runtime, from threads beside its poll, and from threads beside a runtime with a thread of its own. Every call must give a
 * defined status, and at the end of a round nothing may be left over.
 * usage: fuzz [seed] [rounds] [folder for stores] */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/* A round has this many calls, and threads if any. */
enum { CALLS = 1000, THREADS = 3, POOL = 64 };

static _Thread_local uint64_t state;

static uint64_t next_number(void) {
    if (state == 0) {
        /* The runtime's own thread begins here. */
        state = 0x9E3779B97F4A7C15u;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint32_t below(uint32_t limit) {
    return (uint32_t)(next_number() % limit);
}

typedef void (*release_fn)(void *);
static struct { void *handle; release_fn release; } pool[POOL];
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static int is_ending;

/* Whether one thread makes every call, so that a view lives until the next one. */
static int is_alone;

static void keep(void *handle, release_fn release) {
    if (handle == NULL) {
        return;
    }
    uint32_t at = below(POOL);
    pthread_mutex_lock(&pool_lock);
    void *old = pool[at].handle;
    release_fn end = pool[at].release;
    if (is_ending) {
        old = handle;
        end = release;
    } else {
        pool[at].handle = handle;
        pool[at].release = release;
    }
    pthread_mutex_unlock(&pool_lock);
    if (end != NULL) {
        end(old);
    }
}

static void end_all(void) {
    pthread_mutex_lock(&pool_lock);
    is_ending = 1;
    pthread_mutex_unlock(&pool_lock);
    for (int i = 0; i < POOL; i++) {
        pthread_mutex_lock(&pool_lock);
        void *old = pool[i].handle;
        release_fn end = pool[i].release;
        pool[i].handle = NULL;
        pool[i].release = NULL;
        pthread_mutex_unlock(&pool_lock);
        if (end != NULL) {
            end(old);
        }
    }
}

#define RELEASE(type, end) static void release_##type(void *handle) { tw_##type##_##end(handle); }
RELEASE(context, release) RELEASE(agent, release) RELEASE(session, release) RELEASE(registration, release)
RELEASE(future, release) RELEASE(stream, release) RELEASE(plugin, release) RELEASE(selection, release)
RELEASE(signal, release) RELEASE(next, release) RELEASE(call, release) RELEASE(answer, release) RELEASE(reply, release)
RELEASE(buf, free)

static void *any(void) {
    void *handle;
    switch (below(12)) {
    case 0: return NULL;
    case 1: return (void *)(uintptr_t)next_number();
    default:
        pthread_mutex_lock(&pool_lock);
        handle = pool[below(POOL)].handle;
        pthread_mutex_unlock(&pool_lock);
        return handle;
    }
}

/* Mostly a handle of the right type, if there is one. Another thread may release it before it is used. */
static void *of(release_fn wanted) {
    void *found = NULL;
    if (below(8) != 0) {
        pthread_mutex_lock(&pool_lock);
        for (uint32_t i = 0, at = below(POOL); i < POOL && found == NULL; i++) {
            if (pool[(at + i) % POOL].release == wanted) {
                found = pool[(at + i) % POOL].handle;
            }
        }
        pthread_mutex_unlock(&pool_lock);
    }
    return found != NULL ? found : any();
}

/* Stores in the folder, if there is one. */
static char stores[4][512];

static tw_str text(void) {
    static const char *texts[] = {
        "", "a", "b", "fake", "next-turn", "next-step", "\"hello\"", "{}", "[]", "{\"kind\":\"user\"}", "agent/status",
        "session/event", "agent/pre-step", "agent/request", "tools/pre-execute", "agent/turn-stopping", "{\"name\":\"t\"}",
        "{\"provider\":\"fake\",\"model\":\"m\"}", "{\"value\":1}", "{\"kind\":\"allow\"}", "{\"id\":\"m1\",\"content\":\"x\"}",
        "{\"kind\":\"scripted\",\"otherwise\":{\"calls\":[{\"id\":\"c\",\"name\":\"t\"}]}}", "null", "{", "\xff\xfe", "event",
        "{\"kind\":\"section\",\"name\":\"s\",\"text\":\"t\"}", "[{\"id\":\"m2\",\"content\":\"y\"}]", "x/y",
        "{\"type\":\"finish\",\"reason\":{\"kind\":\"stop\"}}", "{\"type\":\"text-delta\",\"index\":0,\"text\":\"t\"}",
        "m1", "m2", "t", "request", "accumulate", "{\"type\":\"x/y\",\"data\":{}}", "{\"tools\":[\"t\"]}", "{\"kind\":\"ask\"}",
        "{\"kind\":\"enter\",\"messages\":[{\"id\":\"m3\",\"content\":\"z\"}]}", "{\"callId\":\"c\",\"name\":\"t\",\"arguments\":{}}",
        "[{\"provider\":\"fake\",\"model\":\"m\"}]", "{\"code\":\"RATE_LIMITED\",\"message\":\"later\"}", "agent/request-error",
        "tools/execute", "tools/post-execute", "system-prompt/assemble", "{\"content\":\"done\"}", "\"retry\"", "1e400", "[[[[",
    };
    static _Thread_local char changed[512];
    uint32_t count = sizeof texts / sizeof *texts, at = below(count + 4);
    tw_str chosen = str(at < count ? texts[at] : stores[at - count]);
    switch (below(40)) {
    case 0: return (tw_str){"x", SIZE_MAX};
    case 1: return (tw_str){NULL, 1};
    case 2: chosen.len = below((uint32_t)chosen.len + 1); return chosen;
    case 3:
        memcpy(changed, chosen.ptr, chosen.len + 1);
        changed[below((uint32_t)chosen.len + 1)] = (char)next_number();
        chosen.ptr = changed;
        return chosen;
    default: return chosen;
    }
}

static void one_call(void);
static _Thread_local int depth;

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

static atomic_int drops, users;

static void drop(void *user_data) {
    CHECK(user_data == &drops);
    drops++;
    if (below(8) == 0) {
        nested();
    }
}

/* What one more callback gets. */
static void *user(void) {
    users++;
    return &drops;
}

/* Text that the library gives out ends with a NUL. */
static void look(tw_str view) {
    CHECK(view.len == 0 || (view.ptr != NULL && view.ptr[view.len] == '\0'));
}

static void hear(void *user_data, const tw_notice *notice) {
    tw_str view, kind;
    uint64_t seq;
    CHECK(user_data == &drops && tw_notice_json(notice, &view, NULL) == TW_OK);
    look(view);
    if (tw_notice_session_id(notice, &view, NULL) == TW_OK) {
        look(view);
    }
    if (tw_notice_log_event(notice, &seq, &kind, &view, NULL) == TW_OK) {
        /* The one place without a NUL. */
        CHECK(kind.len > 0 && kind.ptr[kind.len - 1] != '\0' && (view.len == 0 || memchr(view.ptr, 0xff, view.len) == NULL));
    }
    if (below(16) == 0) {
        tw_notice_fail(notice, text(), NULL);
    }
    keep((void *)(uintptr_t)notice, NULL);
    nested();
}

static void then(void *user_data, tw_next *next, tw_str decision, const tw_error *failed) {
    CHECK(user_data == &drops);
    look(decision);
    look(tw_error_json(failed));
    if (below(2) == 0) {
        tw_next_answer(next, text(), NULL);
    }
    nested();
}

static void decide(void *user_data, tw_next *next) {
    tw_str view;
    CHECK(user_data == &drops && tw_next_payload(next, &view, NULL) == TW_OK);
    look(view);
    if (below(4) == 0) {
        tw_next_retain(next);
        keep(next, release_next);
    } else if (below(2) == 0) {
        tw_next_pass(next, NULL);
    } else if (below(2) == 0) {
        tw_next_proceed(next, text(), then, user(), drop, NULL);
    }
    nested();
}

static void tool(void *user_data, tw_call *call) {
    tw_str view;
    CHECK(user_data == &drops && tw_call_payload(call, &view, NULL) == TW_OK);
    look(view);
    if (below(2) == 0) {
        tw_call_retain(call);
        keep(call, release_call);
    } else {
        tw_call_answer(call, text(), NULL);
    }
    nested();
}

static int32_t overlaps(void *user_data, tw_str arguments) {
    CHECK(user_data == &drops);
    look(arguments);
    nested();
    return (int32_t)below(2);
}

static int32_t check(void *user_data, tw_str session, tw_str subject, tw_buf **why) {
    CHECK(user_data == &drops);
    look(session);
    look(subject);
    nested();
    if (below(16) == 0) {
        tw_buf_new(text(), why, NULL);
        return 1;
    }
    return 0;
}

static void serve(void *user_data, tw_answer *answer) {
    tw_str view;
    CHECK(user_data == &drops && tw_answer_request(answer, &view, NULL) == TW_OK);
    look(view);
    tw_answer_retain(answer);
    keep(answer, release_answer);
    nested();
}

static void reply(void *user_data, tw_reply *asked) {
    tw_str view;
    CHECK(user_data == &drops);
    tw_reply_payload(asked, &view, NULL);
    if (below(4) == 0) {
        tw_reply_retain(asked);
        keep(asked, release_reply);
    } else {
        tw_reply_answer(asked, text(), NULL);
    }
    nested();
}

static void setup(void *user_data, tw_context *context, tw_reply *asked) {
    CHECK(user_data == &drops);
    tw_context_retain(context);
    keep(context, release_context);
    nested();
    tw_reply_answer(asked, text(), NULL);
}

static void done(void *user_data, tw_future *future) {
    CHECK(user_data == &drops);
    if (below(4) == 0) {
        tw_future_retain(future);
        keep(future, release_future);
    }
    nested();
}

static void fired(void *user_data, tw_str cause) {
    CHECK(user_data == &drops);
    look(cause);
    nested();
}

static void report(void *user_data, int32_t level, tw_str message) {
    CHECK(user_data == NULL && (level == 1 || level == 2));
    look(message);
}

static tw_runtime *runtime;

static tw_status play(tw_error **no) {
    void *out = NULL;
    tw_str view = {NULL, 0}, other = {NULL, 0};
    uint64_t number;
    int32_t small;
    tw_status status;
#define GIVES(type, call) status = (call); if (status < 100) { keep(out, release_##type); } return status
#define SHOWS(call) status = (call); if (status < 100 && is_alone) { look(view); } return status
#define OUT(type) (tw_##type **)&out, no
#define USER user(), drop
    switch (below(139)) {
    case 0: GIVES(context, tw_context_new(runtime, text(), OUT(context)));
    case 1: GIVES(future, tw_context_open(of(release_context), text(), text(), setup, USER, OUT(future)));
    case 2: GIVES(future, tw_context_open(of(release_context), text(),
        TW_STR("{\"provider\":\"fake\",\"model\":\"m\"}"), NULL, NULL, NULL, OUT(future)));
    case 3: GIVES(agent, tw_context_agent(of(release_context), text(), OUT(agent)));
    case 4: GIVES(agent, tw_context_agent(of(release_context), TW_STR("a"), OUT(agent)));
    case 5: GIVES(registration, tw_context_on(of(release_context), text(), text(), hear, USER, OUT(registration)));
    case 6: GIVES(registration, tw_context_on(of(release_context), TW_STR("session/event"), TW_STR(""), hear, USER,
        OUT(registration)));
    case 7: GIVES(registration, tw_context_decide(of(release_context), text(), text(), decide, USER, OUT(registration)));
    case 8: GIVES(registration, tw_context_tool(of(release_context), text(), tool, below(2) ? overlaps : NULL, USER,
        OUT(registration)));
    case 9: GIVES(registration, tw_context_model(of(release_context), text(), text(), OUT(registration)));
    case 10: GIVES(registration, tw_context_adapter(of(release_context), text(), text(), serve, USER, OUT(registration)));
    case 11: GIVES(registration, tw_context_prompt(of(release_context), text(), reply, USER, OUT(registration)));
    case 12: GIVES(registration, tw_context_check(of(release_context), text(), check, USER, OUT(registration)));
    case 13: GIVES(registration, tw_context_provide(of(release_context), text(), USER, OUT(registration)));
    case 14: GIVES(registration, tw_context_approve_with(of(release_context), reply, USER, OUT(registration)));
    case 15: GIVES(registration, tw_context_restrict_tools(of(release_context), text(), OUT(registration)));
    case 16: GIVES(registration, tw_context_route(of(release_context), text(), text(), text(), OUT(registration)));
    case 17: GIVES(registration, tw_context_retry(of(release_context), OUT(registration)));
    case 18: GIVES(registration, tw_context_fallback(of(release_context), text(), OUT(registration)));
    case 19: GIVES(registration, tw_context_present(of(release_context), text(), OUT(registration)));
    case 20: GIVES(plugin, tw_context_plugin(of(release_context), text(), setup, USER, OUT(plugin)));
    case 21: GIVES(context, tw_context_scope(of(release_context), OUT(context)));
    case 22: GIVES(future, tw_context_end(of(release_context), OUT(future)));
    case 23: GIVES(future, tw_context_close(of(release_context), OUT(future)));
    case 24: GIVES(selection, tw_context_selection(of(release_context), text(), OUT(selection)));
    case 25: GIVES(buf, tw_context_agents(of(release_context), OUT(buf)));
    case 26: GIVES(buf, tw_context_initiator(of(release_context), OUT(buf)));
    case 27: GIVES(buf, tw_context_providers(of(release_context), OUT(buf)));
    case 28: GIVES(buf, tw_context_tools(of(release_context), OUT(buf)));
    case 29: GIVES(future, tw_context_execute_tool(of(release_context), text(), OUT(future)));
    case 30: GIVES(future, tw_context_stored(of(release_context), text(), below(9), OUT(future)));
    case 31: GIVES(future, tw_context_import_session(of(release_context), text(), text(), OUT(future)));
    case 32: GIVES(future, tw_context_export_session(of(release_context), text(), text(), OUT(future)));
    case 33: GIVES(future, tw_context_copy_session(of(release_context), text(), text(), text(), OUT(future)));
    case 34: GIVES(session, tw_context_fork_session(of(release_context), text(), (int64_t)below(9) - 1, text(), OUT(session)));
    case 35: GIVES(session, tw_agent_session(of(release_agent), OUT(session)));
    case 36: GIVES(context, tw_agent_context(of(release_agent), OUT(context)));
    case 37: GIVES(buf, tw_agent_id(of(release_agent), OUT(buf)));
    case 38: GIVES(buf, tw_agent_send(of(release_agent), text(), text(), (int32_t)below(2), OUT(buf)));
    case 39: GIVES(buf, tw_agent_followup(of(release_agent), text(), OUT(buf)));
    case 40: GIVES(buf, tw_agent_steer(of(release_agent), text(), OUT(buf)));
    case 41: GIVES(buf, tw_agent_inject(of(release_agent), text(), OUT(buf)));
    case 42: GIVES(buf, tw_agent_state(of(release_agent), OUT(buf)));
    case 43: GIVES(buf, tw_agent_receipt(of(release_agent), text(), OUT(buf)));
    case 44: GIVES(future, tw_agent_settled(of(release_agent), text(), OUT(future)));
    case 45: GIVES(future, tw_agent_durable(of(release_agent), text(), OUT(future)));
    case 46: GIVES(future, tw_agent_flush(of(release_agent), OUT(future)));
    case 47: GIVES(future, tw_agent_run(of(release_agent), text(), OUT(future)));
    case 48: GIVES(future, tw_agent_run(of(release_agent), TW_STR("\"hello\""), OUT(future)));
    case 49: GIVES(future, tw_agent_when_idle(of(release_agent), OUT(future)));
    case 50: GIVES(future, tw_agent_run_maintenance(of(release_agent), reply, USER, OUT(future)));
    case 51: GIVES(future, tw_agent_dispose(of(release_agent), OUT(future)));
    case 52: GIVES(stream, tw_agent_stream(of(release_agent), text(), OUT(stream)));
    case 53: GIVES(future, tw_stream_next(of(release_stream), OUT(future)));
    case 54: GIVES(buf, tw_stream_take(of(release_stream), below(9), OUT(buf)));
    case 55: GIVES(stream, tw_session_follow(of(release_session), below(9), OUT(stream)));
    case 56: GIVES(buf, tw_session_export(of(release_session), OUT(buf)));
    case 57: GIVES(buf, tw_session_header(of(release_session), OUT(buf)));
    case 58: GIVES(buf, tw_session_events(of(release_session), below(9), below(9), OUT(buf)));
    case 59: GIVES(buf, tw_session_events(of(release_session), next_number(), next_number(), OUT(buf)));
    case 60: GIVES(buf, tw_session_history(of(release_session), OUT(buf)));
    case 61: GIVES(buf, tw_session_sendable_history(of(release_session), OUT(buf)));
    case 62: GIVES(buf, tw_session_work(of(release_session), OUT(buf)));
    case 63: GIVES(buf, tw_session_html(of(release_session), text(), OUT(buf)));
    case 64: GIVES(buf, tw_session_text(of(release_session), text(), OUT(buf)));
    case 65: return tw_session_length(of(release_session), &number, no);
    case 66: return tw_session_event_type_version(of(release_session), text(), &number, no);
    case 67: return tw_session_append(of(release_session), text(), text(), &number, no);
    case 68: return tw_session_append_raw(of(release_session), text(), &number, no);
    case 69: GIVES(buf, tw_inbox_splice(of(release_agent), text(), below(3), (double)below(3) - 1, text(), OUT(buf)));
    case 70: GIVES(buf, tw_inbox_splice(of(release_agent), text(), (double)next_number() - 9e18, 0.0 / below(2),
        text(), OUT(buf)));
    case 71: GIVES(buf, tw_inbox_pending(of(release_agent), text(), OUT(buf)));
    case 72: return tw_inbox_append(of(release_agent), text(), text(), no);
    case 73: return tw_inbox_prepend(of(release_agent), text(), text(), no);
    case 74: return tw_inbox_replace(of(release_agent), text(), text(), no);
    case 75: return tw_inbox_remove(of(release_agent), text(), no);
    case 76: return tw_inbox_clear(of(release_agent), no);
    case 77: GIVES(signal, tw_next_signal(of(release_next), OUT(signal)));
    case 78: GIVES(signal, tw_call_signal(of(release_call), OUT(signal)));
    case 79: GIVES(signal, tw_answer_signal(of(release_answer), OUT(signal)));
    case 80: GIVES(signal, tw_reply_signal(of(release_reply), OUT(signal)));
    case 81: GIVES(future, tw_call_tool(of(release_call), text(), text(), OUT(future)));
    case 82: return tw_call_answer(of(release_call), text(), no);
    case 83: return tw_call_fail(of(release_call), text(), no);
    case 84: return tw_call_defer_context(of(release_call), text(), no);
    case 85: return tw_call_conclude_turn(of(release_call), no);
    case 86: SHOWS(tw_call_payload(of(release_call), &view, no));
    case 87: return tw_next_answer(of(release_next), text(), no);
    case 88: return tw_next_fail(of(release_next), text(), no);
    case 89: return tw_next_pass(of(release_next), no);
    case 90: return tw_next_proceed(of(release_next), text(), then, USER, no);
    case 91: SHOWS(tw_next_payload(of(release_next), &view, no));
    case 92: return tw_answer_push(of(release_answer), text(), no);
    case 93: return tw_answer_push(of(release_answer), TW_STR("{\"type\":\"text-delta\",\"index\":0,\"text\":\"t\"}"), no);
    case 94: return tw_answer_finish(of(release_answer), no);
    case 95: return tw_answer_fail(of(release_answer), text(), no);
    case 96: SHOWS(tw_answer_request(of(release_answer), &view, no));
    case 97: return tw_reply_answer(of(release_reply), text(), no);
    case 98: return tw_reply_fail(of(release_reply), text(), no);
    case 99: SHOWS(tw_reply_payload(of(release_reply), &view, no));
    case 100: return tw_agent_cancel(of(release_agent), text(), (int32_t)below(2), no);
    case 101: return tw_agent_wake(of(release_agent), no);
    case 102: return tw_agent_emit(of(release_agent), text(), text(), no);
    case 103: return tw_future_cancel(of(release_future), no);
    case 104: SHOWS(tw_future_result(of(release_future), &view, no));
    case 105: return tw_future_wait(of(release_future), below(2), no);
    case 106: return tw_future_on_done(of(release_future), done, USER, no);
    case 107: return tw_registration_dispose(of(release_registration), no);
    case 108: SHOWS(tw_notice_json(any(), &view, no));
    case 109: return tw_notice_log_event(any(), &number, &other, &view, no);
    case 110: return tw_notice_fail(any(), text(), no);
    case 111: SHOWS(tw_signal_cause(of(release_signal), &view, no));
    case 112: return tw_signal_on_fired(of(release_signal), fired, USER, no);
    case 113: SHOWS(tw_plugin_state(of(release_plugin), &view, no));
    case 114: GIVES(future, tw_plugin_ready(of(release_plugin), OUT(future)));
    case 115: GIVES(future, tw_plugin_dispose(of(release_plugin), OUT(future)));
    case 116: return tw_selection_select(of(release_selection), text(), no);
    case 117: return tw_context_model(of(release_context), TW_STR("fake"),
        TW_STR("{\"kind\":\"scripted\",\"otherwise\":{\"text\":\"hi\"}}"), NULL, no);
    case 118: return tw_context_get(of(release_context), text(), &out, no);
    case 119: return tw_context_start_agents(of(release_context), text(), no);
    case 120: return tw_context_event_type(of(release_context), text(), below(3), no);
    case 121: return tw_context_with_initiator(of(release_context), of(release_agent), nested_task, NULL, no);
    case 122: GIVES(buf, tw_schema_of_shorthand(text(), OUT(buf)));
    case 123: GIVES(buf, tw_buf_new(text(), OUT(buf)));
    case 124: GIVES(buf, tw_texts(OUT(buf)));
    case 125: return tw_runtime_run(runtime, nested_task, NULL, NULL, no);
    case 126: return tw_runtime_fd(runtime, &small, no);
    case 127: release_context(any()); release_agent(any()); return TW_OK; /* of whatever type, live or not */
    case 128: release_future(any()); release_session(any()); release_stream(any()); return TW_OK;
    case 129: release_call(any()); release_next(any()); release_answer(any()); release_reply(any()); return TW_OK;
    case 130: tw_error_free((tw_error *)any()); release_buf(any()); release_plugin(any()); return TW_OK;
    case 131: release_registration(any()); release_signal(any()); release_selection(any()); return TW_OK;
    case 132: look(is_alone ? tw_buf_str(of(release_buf)) : view); return TW_OK;
    default: return tw_runtime_poll(runtime, 0, no);
    }
}

static atomic_uint_fast64_t played, fine;

static void one_call(void) {
    tw_error *error = NULL;
    int asks = below(2) == 0;
    tw_status status = play(asks ? &error : NULL);
    CHECK(strcmp(tw_status_name(status), "UNKNOWN") != 0 || status == TW_E_UNKNOWN);
    CHECK(status != TW_E_PANIC);
    CHECK((error != NULL) == (asks && status >= 100));
    CHECK(error == NULL || tw_error_status(error) == status);
    look(tw_error_code(error));
    look(tw_error_message(error));
    look(tw_error_json(error));
    tw_error_free(error);
    played++;
    fine += status < 100;
}

static atomic_int playing;

static void *player(void *seed) {
    state = (uintptr_t)seed | 1;
    for (int i = 0; i < CALLS / THREADS; i++) {
        one_call();
    }
    playing--;
    return NULL;
}

enum { ALONE, BESIDE_A_POLL, BESIDE_A_THREAD, MODES };

static void round_of(uint64_t seed, int mode) {
    tw_context *context = NULL;
    pthread_t threads[THREADS];
    state = seed * 0x9E3779B97F4A7C15u | 1;
    is_alone = mode == ALONE;
    is_ending = 0;
    OK(tw_runtime_new(mode == BESIDE_A_THREAD ? TW_STR("{}") : TW_STR("{\"mode\":\"hosted\"}"), &runtime, &error));
    tw_str options = str(below(3) == 0 ? stores[below(3)] : "");
    OK(tw_context_new(runtime, options, &context, &error));
    keep(context, release_context);
    if (below(4) != 0) {
        /* A world in which much is valid. */
        static const char *answers[] = {"{\"kind\":\"scripted\",\"otherwise\":{\"calls\":[{\"id\":\"c\",\"name\":\"t\"}]}}",
                                        "{\"kind\":\"scripted\",\"otherwise\":{\"text\":\"hi\"}}"};
        OK(tw_context_model(context, TW_STR("fake"), str(answers[below(2)]), NULL, &error));
        OK(tw_context_tool(context, TW_STR("{\"name\":\"t\"}"), tool, NULL, user(), drop, NULL, &error));
        for (int i = 0; i < 2; i++) {
            tw_future *opening = NULL;
            /* Its set-up plays already, and may have ended the context before the second one. */
            tw_context_open(context, str(i ? "b" : "a"), TW_STR("{\"provider\":\"fake\",\"model\":\"m\"}"), setup, user(), drop,
                            &opening, NULL);
            keep(opening, release_future);
        }
    }
    if (mode == ALONE) {
        for (int i = 0; i < CALLS; i++) {
            one_call();
        }
    } else {
        playing = THREADS;
        for (int i = 0; i < THREADS; i++) {
            CHECK(pthread_create(&threads[i], NULL, player, (void *)(uintptr_t)next_number()) == 0);
        }
        while (mode == BESIDE_A_POLL && playing > 0) {
            CHECK(tw_runtime_poll(runtime, 1, NULL) < 100);
        }
        for (int i = 0; i < THREADS; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
        }
    }
    if (mode != BESIDE_A_THREAD && below(2) == 0) {
        /* The end of all without a word, and handles that outlive it. */
        tw_runtime_free(runtime);
        end_all();
    } else {
        end_all();
        CHECK(tw_runtime_close(runtime, NULL) != TW_E_PANIC);
        tw_runtime_free(runtime);
    }
    end_all();
    CHECK(tw_handle_count() == 0);
    CHECK(drops == users);
}

int main(int count, char **arguments) {
    uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 1, rounds = count > 2 ? strtoull(arguments[2], NULL, 10) : 20;
    if (count > 3) {
        const char *folder = arguments[3];
        snprintf(stores[0], sizeof stores[0], "{\"store\":{\"kind\":\"jsonl\",\"root\":\"%s/jsonl\"}}", folder);
        snprintf(stores[1], sizeof stores[1], "{\"store\":{\"kind\":\"sqlite\",\"path\":\"%s/sessions.db\"}}", folder);
        snprintf(stores[3], sizeof stores[3], "{\"kind\":\"jsonl\",\"root\":\"%s/jsonl\"}", folder);
        snprintf(stores[2], sizeof stores[2], "{\"store\":{\"kind\":\"jsonl\",\"root\":\"%s/other\"},\"durability\":\"turn\"}", folder);
    }
    OK(tw_set_log(report, NULL, NULL, &error));
    time_t began = time(NULL);
    for (uint64_t round = 0; round < rounds; round++) {
        round_of(seed + round, (int)((seed + round) % MODES));
        if (round % 100 == 99) {
            fprintf(stderr, "%llu rounds, %llu s\n", (unsigned long long)(round + 1), (unsigned long long)(time(NULL) - began));
        }
    }
    fprintf(stderr, "%llu calls, %llu of them valid\n", (unsigned long long)played, (unsigned long long)fine);
    CHECK(fine > played / 10);
    puts("ok");
    return 0;
}
