/* turnwheel: an embeddable, durable agent runtime. The C interface, generated from the crate `ffi`.
 *
 * Every function
 *   returns a tw_status: 0 (TW_OK), an outcome (1 to 99), or an error (from 100; tw_status_name names it). Outputs are
 *   written when the status is no error. `error` is last and may be NULL; else it gets an owned tw_error on an error.
 *
 * Pointers
 *   *owned*: given by a function that says so, ended by tw_<type>_free. *shared*: counted, tw_<type>_retain and
 *   tw_<type>_release. *borrowed*: the comment says until when. Free and release accept NULL, never fail, never wait, and
 *   may be called in any order: what depends on something keeps it alive. Handles are no addresses: one that was
 *   released, is of another type or was never given out is INVALID_HANDLE, and never undefined behaviour.
 *
 * Text
 *   goes in as a tw_str, a view of UTF-8 that is copied where it is kept; TW_STR("...") makes one of a literal. It comes
 *   out as a borrowed tw_str or an owned tw_buf. Options, messages, events and results are JSON. An empty text stands
 *   for no options.
 *
 * Callbacks
 *   are a function, its `user_data`, and `drop`, which frees `user_data` exactly once, also when the registration
 *   failed. They run on the runtime's thread. Every function may be called inside one, but waiting for what runs on that
 *   thread is SELF_WAIT. They must not throw, longjmp or end their thread.
 *
 * Threads
 *   Any thread may call. A call from another thread than the runtime's is carried out there and waited for; it must not
 *   be made while holding a lock that a callback needs. Answers (tw_next_*, tw_call_*, tw_answer_*, tw_reply_*) wait for
 *   nobody. In the child of a fork every handle is FORKED; make a runtime of its own there.
 *
 * A panic of the library is the status PANIC; its runtime can then only be freed. Please report it.
 */

#ifndef TURNWHEEL_H
#define TURNWHEEL_H

#include <stdint.h>
#include <stddef.h>

/** A view of a string literal. */
#ifdef __cplusplus
#define TW_STR(literal) (tw_str{"" literal, sizeof(literal) - 1})
#else
#define TW_STR(literal) ((tw_str){"" literal, sizeof(literal) - 1})
#endif

/* The errors. The hundred names the subject: 100 usage, 200 state, 300 log, 400 registry and scope, 500 host code,
 * 600 model, 700 tool, 800 store, 900 bug. 599 stands for codes that host code brought along. */
#define TW_E_INVALID_ARGUMENT 101
#define TW_E_UNKNOWN_OPTION 102
#define TW_E_INVALID_JSON 103
#define TW_E_INVALID_MESSAGE 104
#define TW_E_UNSUPPORTED_SCHEMA 105
#define TW_E_INVALID_PROMPT 106
#define TW_E_DISPOSED 201
#define TW_E_NOT_PUBLISHED 202
#define TW_E_BUSY 203
#define TW_E_SELF_WAIT 204
#define TW_E_REENTRANT 205
#define TW_E_NEXT_CALLED_TWICE 206
#define TW_E_INACTIVE_EFFECT 207
#define TW_E_ABORTED 208
#define TW_E_NO_INITIATOR 209
#define TW_E_MESSAGE_DISCARDED 210
#define TW_E_RUNTIME_CLOSED 211
#define TW_E_PARKED 212
#define TW_E_RESERVED_EVENT 301
#define TW_E_INVALID_EVENT 302
#define TW_E_INVALID_SURFACE 303
#define TW_E_CORRUPT_LOG 304
#define TW_E_UNSUPPORTED_FORMAT 305
#define TW_E_INVALID_HEADER 306
#define TW_E_UNBALANCED_SEED 307
#define TW_E_INVARIANT 308
#define TW_E_OPEN_TURN 309
#define TW_E_INVALID_BOUNDARY 310
#define TW_E_DUPLICATE_MESSAGE 401
#define TW_E_DUPLICATE_NAME 402
#define TW_E_SESSION_ALREADY_EXISTS 403
#define TW_E_SESSION_NOT_FOUND 404
#define TW_E_SESSION_NOT_LIVE 405
#define TW_E_NO_FACTORY 406
#define TW_E_IDENTITY_MISMATCH 407
#define TW_E_SCOPE_CONFLICT 408
#define TW_E_NOT_REGISTERED 409
#define TW_E_HOST_ERROR 501
#define TW_E_WRONG_THREAD 502
#define TW_E_FORKED 503
#define TW_E_INVALID_HANDLE 504
#define TW_E_NO_ADAPTER 601
#define TW_E_DUPLICATE_ADAPTER 602
#define TW_E_NO_ROUTE 603
#define TW_E_INVALID_PREPARED_CALL 604
#define TW_E_MODEL_FAILED 605
#define TW_E_UNSUPPORTED_REASONING_EFFORT 606
#define TW_E_MALFORMED_CHUNK 607
#define TW_E_TOOL_SCHEDULER_FAILED 701
#define TW_E_UNKNOWN_TOOL 702
#define TW_E_INVALID_ARGS 703
#define TW_E_INVALID_TOOL_OUTPUT 704
#define TW_E_TOOL_TIMEOUT 705
#define TW_E_ABORTED_BEFORE_DISPATCH 706
#define TW_E_TOOL_NOT_STARTED 707
#define TW_E_TOOL_OUTCOME_UNKNOWN 708
#define TW_E_TOOL_RESULT_TOO_LARGE 709
#define TW_E_STORE_FAILED 801
#define TW_E_STORE_CONFLICT 802
#define TW_E_SESSION_LOCKED 803
#define TW_E_NO_STORE 804
#define TW_E_UNKNOWN 901
#define TW_E_PANIC 902
#define TW_E_OTHER 599


/**
 * The version of the interface: within a major, functions are only added.
 */
#define TW_ABI_VERSION 1

/**
 * An agent. Shared.
 */
typedef struct tw_agent tw_agent;

/**
 * One request to a model adapter written in C, to be answered with chunks. Shared.
 */
typedef struct tw_answer tw_answer;

/**
 * Text that the library gives away. Owned: free it with `tw_buf_free`.
 */
typedef struct tw_buf tw_buf;

/**
 * One call of a tool, to be answered. Shared.
 */
typedef struct tw_call tw_call;

/**
 * What an application registers through, and opens agents on. Shared.
 */
typedef struct tw_context tw_context;

/**
 * What went wrong: code, message, facts, causes. Owned: free it with `tw_error_free`.
 */
typedef struct tw_error tw_error;

/**
 * The result of something that takes time. Shared.
 */
typedef struct tw_future tw_future;

/**
 * One dispatch of a waterfall, to be decided. Shared.
 */
typedef struct tw_next tw_next;

/**
 * A notification. Borrowed: valid on this thread until the callback returns.
 */
typedef struct tw_notice tw_notice;

/**
 * A mounted plug-in. Shared.
 */
typedef struct tw_plugin tw_plugin;

/**
 * Something registered. Shared; releasing it changes nothing, `tw_registration_dispose` undoes the registration.
 */
typedef struct tw_registration tw_registration;

/**
 * A question to other host code: a setup, a maintenance task, a prompt text, an approval. Shared.
 */
typedef struct tw_reply tw_reply;

/**
 * A thread that agents live on. Owned: end it with `tw_runtime_close` or `tw_runtime_free`.
 */
typedef struct tw_runtime tw_runtime;

/**
 * A route that may be switched while an agent runs. Shared.
 */
typedef struct tw_selection tw_selection;

/**
 * An agent's log. Shared.
 */
typedef struct tw_session tw_session;

/**
 * Fires once, when something is cancelled. Shared.
 */
typedef struct tw_signal tw_signal;

/**
 * Events of a log, one after the other. Shared.
 */
typedef struct tw_stream tw_stream;

/**
 * 0, an outcome (1 to 99) or an error (from 100).
 */
typedef int32_t tw_status;

/**
 * A view of UTF-8 text. It owns nothing. `ptr` may be NULL when `len` is 0. Text that the library gives out has a NUL
 * byte behind its end, which `len` does not count.
 */
typedef struct tw_str {
    /**
     * The first byte.
     */
    const char *ptr;
    /**
     * How many bytes there are.
     */
    size_t len;
} tw_str;

/**
 * Answers a question: now, or later after retaining `reply`. `reply` is borrowed.
 */
typedef void (*tw_reply_fn)(void *user_data, struct tw_reply *reply);

/**
 * Ends a callback: frees its `user_data`. Called exactly once, also when the registration failed.
 */
typedef void (*tw_drop_fn)(void *user_data);

/**
 * Does something on the runtime's thread.
 */
typedef void (*tw_task_fn)(void *user_data);

/**
 * Composes an agent or a plug-in through `context`, and answers `reply` when that is done. Both are borrowed.
 */
typedef void (*tw_setup_fn)(void *user_data, struct tw_context *context, struct tw_reply *reply);

/**
 * Hears that a future is done. `future` is borrowed.
 */
typedef void (*tw_done_fn)(void *user_data, struct tw_future *future);

/**
 * Hears a notification. `notice` is borrowed until the callback returns.
 */
typedef void (*tw_notice_fn)(void *user_data, const struct tw_notice *notice);

/**
 * Decides a waterfall: answer `next` now, or retain it and answer later. `next` is borrowed.
 */
typedef void (*tw_next_fn)(void *user_data, struct tw_next *next);

/**
 * Hears what the continuation decided, as JSON; or its error, and then `decision` is empty. Everything is borrowed.
 */
typedef void (*tw_then_fn)(void *user_data,
                           struct tw_next *next,
                           struct tw_str decision,
                           const struct tw_error *failed);

/**
 * Refuses an event or a request, or lets it pass by returning 0. To refuse, return any other number; what is written to
 * `*why` says why. `why` takes an owned buffer from `tw_buf_new`, or stays NULL.
 */
typedef int32_t (*tw_check_fn)(void *user_data,
                               struct tw_str session_id,
                               struct tw_str subject,
                               struct tw_buf **why);

/**
 * Hears what the library reports and nobody can be told otherwise. `level` is 1 for an error, 2 for a warning.
 */
typedef void (*tw_log_fn)(void *user_data, int32_t level, struct tw_str message);

/**
 * Serves a model request: push chunks into `answer` now, or retain it and push later. `answer` is borrowed.
 */
typedef void (*tw_answer_fn)(void *user_data, struct tw_answer *answer);

/**
 * Hears that a signal fired, and why: a cause as JSON. Both are borrowed.
 */
typedef void (*tw_signal_fn)(void *user_data, struct tw_str cause);

/**
 * Runs a tool: answer `call` now, or retain it and answer later. `call` is borrowed.
 */
typedef void (*tw_call_fn)(void *user_data, struct tw_call *call);

/**
 * Says whether a call with these arguments may overlap its siblings: not 0 if so.
 */
typedef int32_t (*tw_parallel_fn)(void *user_data, struct tw_str arguments);

/**
 * The operation did what it says.
 */
#define TW_OK 0

/**
 * An outcome: there is nothing more, or no such thing.
 */
#define TW_NONE 1

/**
 * An outcome: the time was over before the operation was; it goes on.
 */
#define TW_TIMEOUT 2

/**
 * An outcome: not finished yet.
 */
#define TW_PENDING 3

/**
 * An outcome of `tw_runtime_poll`: there is more to do at once; poll again.
 */
#define TW_MORE 4

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Adds a reference.
 */
void tw_agent_retain(struct tw_agent *agent);

/**
 * Takes a reference away; the agent lives on. NULL is allowed.
 */
void tw_agent_release(struct tw_agent *agent);

/**
 * The id, which is its session's too. The caller owns `*id`.
 */
tw_status tw_agent_id(struct tw_agent *agent, struct tw_buf **id, struct tw_error **error);

/**
 * What the agent is doing: `{"phase", "turn", "step", "runningTools", "latch", "parked", "nextStep", "nextTurn",
 * "status", "disposed"}`. `status` is `idle` or `running`.
 *
 * Statuses: `DISPOSED`. The caller owns `*state`.
 */
tw_status tw_agent_state(struct tw_agent *agent,
                         struct tw_buf **state,
                         struct tw_error **error);

/**
 * The agent's own context: what is registered through it concerns this agent only and ends with it.
 *
 * Statuses: `DISPOSED`. The caller owns `*context`.
 */
tw_status tw_agent_context(struct tw_agent *agent, struct tw_context **context, struct tw_error **error);

/**
 * The agent's session. The caller owns `*session`.
 */
tw_status tw_agent_session(struct tw_agent *agent, struct tw_session **session, struct tw_error **error);

/**
 * Delivers a message to a pending list.
 *
 * `message`: a JSON string, or an object in which `id`, `role` and `source` may be missing and `content` may be a text.
 * `target`: `next-turn` or `next-step`. `wakeup`: not 0 wakes the agent, and an idle one has opened its turn when this
 * returns.
 *
 * Statuses: `DUPLICATE_MESSAGE` for an id that the session accepted before, `INVALID_MESSAGE`, `INVALID_ARGUMENT`,
 * `DISPOSED`, `NOT_PUBLISHED`.
 *
 * `*message_id` is the id, for receipts; the caller owns it. `message_id` may be NULL.
 */
tw_status tw_agent_send(struct tw_agent *agent,
                        struct tw_str message,
                        struct tw_str target,
                        int32_t wakeup,
                        struct tw_buf **message_id,
                        struct tw_error **error);

/**
 * Queues a prompt for a turn of its own, and wakes: `tw_agent_send` with `next-turn`.
 *
 * Parameters, statuses and ownership as for `tw_agent_send`.
 */
tw_status tw_agent_followup(struct tw_agent *agent,
                            struct tw_str message,
                            struct tw_buf **message_id,
                            struct tw_error **error);

/**
 * Adds input to the turn under way at its next step, and wakes: `tw_agent_send` with `next-step`.
 *
 * Parameters, statuses and ownership as for `tw_agent_send`.
 */
tw_status tw_agent_steer(struct tw_agent *agent,
                         struct tw_str message,
                         struct tw_buf **message_id,
                         struct tw_error **error);

/**
 * Adds context for the next step without waking.
 *
 * Parameters, statuses and ownership as for `tw_agent_send`.
 */
tw_status tw_agent_inject(struct tw_agent *agent,
                          struct tw_str message,
                          struct tw_buf **message_id,
                          struct tw_error **error);

/**
 * Drains what is parked without sending a message.
 *
 * Statuses: `DISPOSED`, `NOT_PUBLISHED`.
 */
tw_status tw_agent_wake(struct tw_agent *agent, struct tw_error **error);

/**
 * Cancels the activity under way; the signal has fired when this returns.
 *
 * `cause`: a kind as a JSON string, or `{"kind", …}`, for example `{"kind":"hook","reason":"…"}`; empty for `user`.
 * `keep_inbox`: 0 discards pending input, else it stays.
 *
 * Statuses: `INVALID_JSON`, `INVALID_ARGUMENT`. Cancelling an agent that is idle or disposed is no error.
 */
tw_status tw_agent_cancel(struct tw_agent *agent,
                          struct tw_str cause,
                          int32_t keep_inbox,
                          struct tw_error **error);

/**
 * Waits for quiescence: the future is done when nothing is active.
 *
 * Statuses: of the future, `SELF_WAIT` when it was asked inside the agent's own turn or maintenance (D-18).
 *
 * The caller owns `*future`; its result is `null`.
 */
tw_status tw_agent_when_idle(struct tw_agent *agent, struct tw_future **future, struct tw_error **error);

/**
 * Sends a prompt and waits until the turn that took it ended.
 *
 * Statuses: as for `tw_agent_send`, and `SELF_WAIT`; of the future `MESSAGE_DISCARDED`, `PARKED`, `ABORTED` behind
 * `tw_future_cancel`.
 *
 * The caller owns `*future`. Its result is `{"turn", "reason", "text", "messages", "usage"}`.
 */
tw_status tw_agent_run(struct tw_agent *agent,
                       struct tw_str message,
                       struct tw_future **future,
                       struct tw_error **error);

/**
 * Runs a task in the idle phase; wakes wait for its end. It starts before this returns.
 *
 * `task` gets a question whose payload is `{"agentId"}` and whose signal fires on cancellation; what it answers is the
 * future's result.
 *
 * Statuses: `BUSY` when the agent is not idle, `DISPOSED`. `drop` frees `user_data`. The caller owns `*future`.
 */
tw_status tw_agent_run_maintenance(struct tw_agent *agent,
                                   tw_reply_fn task,
                                   void *user_data,
                                   tw_drop_fn drop,
                                   struct tw_future **future,
                                   struct tw_error **error);

/**
 * What became of a message: `{"kind": "pending", "target", "parked", "why"?}`, `{"kind": "claimed", "turn", "step"?}`,
 * `{"kind": "discarded", "seq", "replacedBy"?}` or `{"kind": "ended", "turn", "reason"}`. `why` is there when it is
 * parked: `{"kind": "not-woken"}`, `"resumed"`, `"turn-ending"` or `"turn-ended"` (`turn`, `reason`). Survives restarts.
 *
 * Statuses: `TW_NONE` when the session never accepted it, and `*state` is NULL. The caller owns `*state`.
 */
tw_status tw_agent_receipt(struct tw_agent *agent,
                           struct tw_str message_id,
                           struct tw_buf **state,
                           struct tw_error **error);

/**
 * Waits until a message was discarded or the turn that took it ended.
 *
 * Statuses of the future: `NOT_REGISTERED` for a message that the session never accepted, `SELF_WAIT`, `DISPOSED`.
 *
 * The caller owns `*future`; its result is the state, as `tw_agent_receipt` gives it.
 */
tw_status tw_agent_settled(struct tw_agent *agent,
                           struct tw_str message_id,
                           struct tw_future **future,
                           struct tw_error **error);

/**
 * Waits until the insertion of a message is on stable storage; at once without a store.
 *
 * Statuses of the future: `NOT_REGISTERED` for a message that the session never accepted, `DISPOSED`, `STORE_FAILED`.
 *
 * The caller owns `*future`; its result is `null`.
 */
tw_status tw_agent_durable(struct tw_agent *agent,
                           struct tw_str message_id,
                           struct tw_future **future,
                           struct tw_error **error);

/**
 * Waits until everything logged so far is on stable storage; at once without a store.
 *
 * Statuses of the future: `STORE_FAILED`. The caller owns `*future`; its result is `null`.
 */
tw_status tw_agent_flush(struct tw_agent *agent, struct tw_future **future, struct tw_error **error);

/**
 * Stops the agent, removes it and frees its id. Inside its own turn this is a request that completes when the turn has
 * unwound (D-18).
 *
 * The caller owns `*future`; its result is `null`. `future` may be NULL: the disposal goes on all the same.
 */
tw_status tw_agent_dispose(struct tw_agent *agent,
                           struct tw_future **future,
                           struct tw_error **error);

/**
 * Delivers a notification about an agent from outside (EVT-13), to every listener that hears the agent.
 *
 * `event`: `agent/created`, `agent/disposed`, `agent/status`, `agent/error` or one of `agent/inbox/…`. `payload` has the
 * event's members: `{"message"?, "turn"?, "step"?, "status"?, "error"?}`.
 *
 * Statuses: `UNKNOWN_OPTION` for an event that does not exist, `INVALID_ARGUMENT` for one that only the library tells,
 * `INVALID_MESSAGE`, `DISPOSED`.
 */
tw_status tw_agent_emit(struct tw_agent *agent,
                        struct tw_str event,
                        struct tw_str payload,
                        struct tw_error **error);

/**
 * The version of the interface that the library has. Compare it with `TW_ABI_VERSION` of the header.
 */
uint32_t tw_abi_version(void);

/**
 * The version of the library, for example `0.1.0`. Static.
 */
const char *tw_version(void);

/**
 * How many handles are live in this process: for tests that look for leaks.
 */
uint64_t tw_handle_count(void);

/**
 * The stable name of a status, for example `DUPLICATE_MESSAGE`; `UNKNOWN` for a number that is none. Static.
 */
const char *tw_status_name(tw_status status);

/**
 * The library's own texts that reach a model, as a JSON object by key, for example `TOOL_ABORTED`: for programs that
 * recognize them in a log.
 *
 * The caller owns `*texts`.
 */
tw_status tw_texts(struct tw_buf **texts,
                   struct tw_error **error);

/**
 * Copies text into a buffer that the library owns, for outputs of callbacks.
 *
 * Statuses: `INVALID_ARGUMENT` for text that is not UTF-8. The caller owns `*buf`.
 */
tw_status tw_buf_new(struct tw_str content, struct tw_buf **buf, struct tw_error **error);

/**
 * The text of a buffer, borrowed until `tw_buf_free`. Empty for what is no buffer.
 */
struct tw_str tw_buf_str(const struct tw_buf *buf);

/**
 * Frees a buffer. NULL is allowed.
 */
void tw_buf_free(struct tw_buf *buf);

/**
 * The status of an error; 0 for what is no error.
 */
tw_status tw_error_status(const struct tw_error *error);

/**
 * The stable code, for example `DUPLICATE_MESSAGE`; for an error of host code the code that it brought along. Borrowed
 * until `tw_error_free`.
 */
struct tw_str tw_error_code(const struct tw_error *error);

/**
 * What happened, to what, and what to do. Borrowed until `tw_error_free`.
 */
struct tw_str tw_error_message(const struct tw_error *error);

/**
 * The whole error: `{"code", "number", "message", "name"?, "context"?, "failure"?, "retry"?, "cause"?}`. Borrowed until
 * `tw_error_free`.
 */
struct tw_str tw_error_json(const struct tw_error *error);

/**
 * Frees an error. NULL is allowed.
 */
void tw_error_free(struct tw_error *error);

/**
 * Makes a runtime.
 *
 * `options`: `{"mode"?}`: `threaded` (the default) gives it a thread of its own, on which callbacks run; `hosted` lets
 * it live on this thread, which calls `tw_runtime_poll` when the descriptor of `tw_runtime_fd` is readable.
 *
 * Statuses: `INVALID_JSON`, `INVALID_ARGUMENT`, `UNKNOWN_OPTION`, `STORE_FAILED` when the machine gives no thread or
 * descriptor.
 *
 * The caller owns `*runtime`: `tw_runtime_close`, then `tw_runtime_free`.
 */
tw_status tw_runtime_new(struct tw_str options,
                         struct tw_runtime **runtime,
                         struct tw_error **error);

/**
 * Disposes every agent, makes everything durable, ends the runtime and waits for its thread. Futures that are pending
 * end with `RUNTIME_CLOSED`.
 *
 * Statuses: `SELF_WAIT` inside a callback; `RUNTIME_CLOSED` when it is closed already; the store's error, when all else
 * is done, if events could not be stored; `FORKED` in the child of a fork.
 *
 * Handles of what lived there stay valid and answer `RUNTIME_CLOSED`.
 */
tw_status tw_runtime_close(struct tw_runtime *runtime,
                           struct tw_error **error);

/**
 * Ends a runtime without waiting: tasks are dropped, what is not durable yet may be lost. NULL is allowed, and so is a
 * call inside a callback: the end comes when it has returned. Never blocks, so callbacks that run now may still run.
 * Listeners may hear of what ends here (an aborted turn, a disposed agent) a last time; what they call answers
 * `RUNTIME_CLOSED`.
 */
void tw_runtime_free(struct tw_runtime *runtime);

/**
 * For hosted runtimes: does what there is to do.
 *
 * `timeout_ms`: how long to wait when there is nothing to do: 0 not at all, negative for ever.
 *
 * Statuses: `TW_OK` when nothing can proceed; `TW_MORE` when the time slice was over first (2 ms or 1,024 steps): poll
 * again, after what else is due; `SELF_WAIT` inside a callback; `WRONG_THREAD`; `INVALID_ARGUMENT` for a runtime with a
 * thread of its own; `RUNTIME_CLOSED`.
 */
tw_status tw_runtime_poll(struct tw_runtime *runtime,
                          int32_t timeout_ms,
                          struct tw_error **error);

/**
 * For hosted runtimes: a descriptor that is readable when `tw_runtime_poll` has something to do. Watch it, and neither
 * read nor close it.
 *
 * Statuses: `INVALID_ARGUMENT` for a runtime with a thread of its own.
 */
tw_status tw_runtime_fd(struct tw_runtime *runtime,
                        int32_t *fd,
                        struct tw_error **error);

/**
 * Runs `task` on the runtime's thread, in one go and between all else, and waits for it. Calls of the library inside it
 * cost no thread crossing.
 *
 * Statuses: `INVALID_ARGUMENT` for a NULL callback, `RUNTIME_CLOSED`. `drop` frees `user_data`.
 */
tw_status tw_runtime_run(struct tw_runtime *runtime,
                         tw_task_fn task,
                         void *user_data,
                         tw_drop_fn drop,
                         struct tw_error **error);

/**
 * Makes a root context on a runtime.
 *
 * `options`: `{"store"?, "durability"?, "maxParallelToolCalls"?, "maxToolResultBytes"?, "turnBudget"?, "agentBudget"?, "turnTimeoutMs"?,
 * "loop"?}`. `store` is `{"kind": "jsonl", "root", "compression"?, "packChunks"?}` or `{"kind": "sqlite", "path"}`;
 * `durability` is `effects`, `every-event`, `turn` or `relaxed`; a budget is `{"steps"?, "toolCalls"?, "tokens"?,
 * "wallMs"?}`.
 *
 * Statuses: `INVALID_JSON`, `UNKNOWN_OPTION`, `INVALID_ARGUMENT`, `RUNTIME_CLOSED`.
 *
 * The caller owns one reference of `*context`. The context lives until `tw_context_close` or its runtime's end.
 */
tw_status tw_context_new(struct tw_runtime *runtime,
                         struct tw_str options,
                         struct tw_context **context,
                         struct tw_error **error);

/**
 * Adds a reference.
 */
void tw_context_retain(struct tw_context *context);

/**
 * Takes a reference away. NULL is allowed. What was registered stays.
 */
void tw_context_release(struct tw_context *context);

/**
 * Disposes every agent of a root context, makes everything durable and undoes what was registered.
 *
 * Statuses of the future: `SELF_WAIT` inside a turn of its own agents; the store's error if events could not be stored.
 *
 * The caller owns `*future`; its result is `null`.
 */
tw_status tw_context_close(struct tw_context *context,
                           struct tw_future **future,
                           struct tw_error **error);

/**
 * Mints a scope of one's own: a context whose registrations are seen in it only, and end with `tw_context_end`.
 *
 * Statuses: `INACTIVE_EFFECT`. The caller owns `*scope`.
 */
tw_status tw_context_scope(struct tw_context *context,
                           struct tw_context **scope,
                           struct tw_error **error);

/**
 * Undoes everything that was registered through a context, newest first, for contexts that `tw_context_scope` made.
 *
 * The caller owns `*future`; its result is `null`.
 */
tw_status tw_context_end(struct tw_context *context,
                         struct tw_future **future,
                         struct tw_error **error);

/**
 * Undoes a registration; a second call does nothing. What it waits for goes on in the background.
 *
 * Statuses: `INVALID_HANDLE`, `RUNTIME_CLOSED`.
 */
tw_status tw_registration_dispose(struct tw_registration *registration, struct tw_error **error);

/**
 * Adds a reference.
 */
void tw_registration_retain(struct tw_registration *registration);

/**
 * Takes a reference away; the registration stays in force. NULL is allowed.
 */
void tw_registration_release(struct tw_registration *registration);

/**
 * Opens an agent: resumes what the store has under `id`, or creates it.
 *
 * `options`: `{"provider"?, "model"?, "maxTokens"?, "cwd"?, "mode"?, "fork"?, "seed"?, "log"?, "parentSession"?,
 * "seedLength"?, "origin"?, "delegationDepth"?, "agentPreset"?}`. `mode` is `open`, `create` or `resume`; `fork` is
 * `{"from", "at"?}`; `seed` a list of events; `log` what `tw_session_export` gives.
 * `setup` may be NULL. It composes the agent through its own context before anybody can see it, and answers its `reply`;
 * `drop` frees `user_data`.
 *
 * Statuses: `INVALID_JSON`, `UNKNOWN_OPTION`, `INVALID_ARGUMENT`, `INVALID_HEADER`, and of the future
 * `SESSION_ALREADY_EXISTS`, `SESSION_NOT_FOUND`, `SESSION_LOCKED`, what the setup failed with.
 *
 * The caller owns `*future`. Its result is `{"agentId"}`: get the handle with `tw_context_agent`.
 */
tw_status tw_context_open(struct tw_context *context,
                          struct tw_str id,
                          struct tw_str options,
                          tw_setup_fn setup,
                          void *user_data,
                          tw_drop_fn drop,
                          struct tw_future **future,
                          struct tw_error **error);

/**
 * The live agent of an id.
 *
 * Statuses: `TW_NONE` when there is none, and `*agent` is NULL. The caller owns one reference of `*agent`.
 */
tw_status tw_context_agent(struct tw_context *context,
                           struct tw_str id,
                           struct tw_agent **agent,
                           struct tw_error **error);

/**
 * The ids of the live agents as a JSON list, in order of registration. The caller owns `*ids`.
 */
tw_status tw_context_agents(struct tw_context *context, struct tw_buf **ids, struct tw_error **error);

/**
 * The agent whose turn the calling code is part of (INI), as its id.
 *
 * Statuses: `TW_NONE` outside any turn and on foreign threads. The caller owns `*id`.
 */
tw_status tw_context_initiator(struct tw_context *context, struct tw_buf **id, struct tw_error **error);

/**
 * Starts the agents of a list (CFG): `[{"id", "provider"?, "model"?, "maxTokens"?, "cwd"?, "sessionId"?,
 * "resumeSessionId"?}]`. They are owned by the context.
 *
 * Statuses: `INVALID_JSON`, `INVALID_ARGUMENT` for a list that cannot be right, before any agent exists.
 */
tw_status tw_context_start_agents(struct tw_context *context, struct tw_str entries, struct tw_error **error);

/**
 * Registers an input of the prompt.
 *
 * `input`: `{"kind", "name"?, "order"?, "text"?, "names"?}`; the kinds are `section`, `complete`, `context`, `variable`,
 * `persona`, `identity`, `suppress-contexts` and `tool-order`.
 * `compute` may be NULL. Else it stands in for `text` and is asked anew at every assembly: its payload is `{"agentId"}`,
 * and it answers with a text or, for a variable without a value, with nothing.
 *
 * Statuses: `INVALID_PROMPT`, `DUPLICATE_NAME`, `UNKNOWN_OPTION`, `INVALID_ARGUMENT`. Ownership as for `tw_context_on`;
 * `tool-order` has no registration.
 */
tw_status tw_context_prompt(struct tw_context *context,
                            struct tw_str input,
                            tw_reply_fn compute,
                            void *user_data,
                            tw_drop_fn drop,
                            struct tw_registration **registration,
                            struct tw_error **error);

/**
 * Lets a route selection rule the agent of this context (MOD): switch it with `tw_selection_select`.
 *
 * `choice`: `{"provider", "model", "reasoningEffort"?}`, or empty for none yet.
 *
 * Statuses: `INVALID_ARGUMENT`, `INACTIVE_EFFECT`. The caller owns `*selection`.
 */
tw_status tw_context_selection(struct tw_context *context,
                               struct tw_str choice,
                               struct tw_selection **selection,
                               struct tw_error **error);

/**
 * Switches the route; a step under way keeps what it was assembled with. An empty `choice` selects nothing.
 *
 * Statuses: `INVALID_JSON`, `INVALID_ARGUMENT`.
 */
tw_status tw_selection_select(struct tw_selection *selection, struct tw_str choice, struct tw_error **error);

/**
 * Adds a reference.
 */
void tw_selection_retain(struct tw_selection *selection);

/**
 * Takes a reference away; the selection stays in force. NULL is allowed.
 */
void tw_selection_release(struct tw_selection *selection);

/**
 * Forks a bare session, without an agent, from a live one (FORK).
 *
 * `at`: the last event taken over; negative for all. `id` may be empty: one is made.
 *
 * Statuses: `SESSION_NOT_FOUND`, `SESSION_ALREADY_EXISTS`, `OPEN_TURN`, `INVALID_BOUNDARY`. The caller owns `*session`.
 */
tw_status tw_context_fork_session(struct tw_context *context,
                                  struct tw_str from,
                                  int64_t at,
                                  struct tw_str id,
                                  struct tw_session **session,
                                  struct tw_error **error);

/**
 * Adds a reference.
 */
void tw_future_retain(struct tw_future *future);

/**
 * Takes a reference away. NULL is allowed. The operation goes on: only `tw_future_cancel` ends it.
 */
void tw_future_release(struct tw_future *future);

/**
 * Waits until the operation is done.
 *
 * `timeout_ms`: negative waits for ever. On the thread of a hosted runtime, outside callbacks, this polls the runtime.
 *
 * Statuses: `TW_OK` when it is done, whatever its result; `TW_TIMEOUT`; `SELF_WAIT` on the runtime's own thread, where
 * the wait would never end; `RUNTIME_CLOSED` when the runtime was freed first.
 */
tw_status tw_future_wait(struct tw_future *future,
                         int64_t timeout_ms,
                         struct tw_error **error);

/**
 * The result.
 *
 * Statuses: `TW_OK` and `*result` is the JSON that the operation promises; `TW_PENDING` and `*result` is empty; or the
 * operation's own error.
 *
 * `*result` is borrowed from the future, until its last reference is released.
 */
tw_status tw_future_result(struct tw_future *future,
                           struct tw_str *result,
                           struct tw_error **error);

/**
 * Calls `done` on the runtime's thread when the operation is done; soon, if it is already.
 *
 * Statuses: `INVALID_ARGUMENT` for a NULL callback, `RUNTIME_CLOSED`.
 *
 * `drop` frees `user_data` behind the call, or when the operation can never be done any more.
 */
tw_status tw_future_on_done(struct tw_future *future,
                            tw_done_fn done,
                            void *user_data,
                            tw_drop_fn drop,
                            struct tw_error **error);

/**
 * Cancels the operation: it ends with `ABORTED`. For a run, its prompt is withdrawn or its turn cancelled with cause
 * `user`. An operation that is done stays as it is.
 *
 * Statuses: `RUNTIME_CLOSED`.
 */
tw_status tw_future_cancel(struct tw_future *future,
                           struct tw_error **error);

/**
 * The messages pending in a list, as JSON, in order.
 *
 * `target`: `next-turn` or `next-step`. The caller owns `*messages`.
 */
tw_status tw_inbox_pending(struct tw_agent *agent,
                           struct tw_str target,
                           struct tw_buf **messages,
                           struct tw_error **error);

/**
 * Removes and inserts, with JavaScript's rules for `start` and `delete_count`. Never wakes the agent.
 *
 * `messages`: a JSON list of messages to insert; empty for none. Append with a `start` of `INFINITY`, prepend with 0.
 *
 * Statuses: `DUPLICATE_MESSAGE`, `INVALID_MESSAGE`, `REENTRANT` inside a log observer, `DISPOSED`.
 *
 * `*removed` is the JSON list of what was removed; the caller owns it. `removed` may be NULL.
 */
tw_status tw_inbox_splice(struct tw_agent *agent,
                          struct tw_str target,
                          double start,
                          double delete_count,
                          struct tw_str messages,
                          struct tw_buf **removed,
                          struct tw_error **error);

/**
 * Adds messages at the tail of a list: `tw_inbox_splice` at its end.
 */
tw_status tw_inbox_append(struct tw_agent *agent,
                          struct tw_str target,
                          struct tw_str messages,
                          struct tw_error **error);

/**
 * Adds messages at the head of a list: `tw_inbox_splice` at 0.
 */
tw_status tw_inbox_prepend(struct tw_agent *agent,
                           struct tw_str target,
                           struct tw_str messages,
                           struct tw_error **error);

/**
 * Replaces a pending message in place, perhaps by one with the same id.
 *
 * Statuses: `TW_NONE` when it is not pending; `DUPLICATE_MESSAGE`, `INVALID_MESSAGE`, `REENTRANT`.
 */
tw_status tw_inbox_replace(struct tw_agent *agent,
                           struct tw_str message_id,
                           struct tw_str message,
                           struct tw_error **error);

/**
 * Removes a pending message.
 *
 * Statuses: `TW_NONE` when it is not pending; `REENTRANT`.
 */
tw_status tw_inbox_remove(struct tw_agent *agent, struct tw_str message_id, struct tw_error **error);

/**
 * Discards everything pending.
 *
 * Statuses: `REENTRANT`, `DISPOSED`.
 */
tw_status tw_inbox_clear(struct tw_agent *agent, struct tw_error **error);

/**
 * Hears a notification: `session/created`, `session/disposed`, `session/event`, `agent/created`, `agent/disposed`,
 * `agent/status`, `agent/inbox/inserted`, `agent/inbox/claimed`, `agent/inbox/discarded`, `agent/session-start`,
 * `agent/error`, `tools/result`, `tools/changed`, `system-prompt/changed`, `models/changed`,
 * `agent-loop/config-start-failed`.
 *
 * `heard` is called at the point of delivery, before the operation that caused it goes on.
 * `options`: `{"prepend"?, "once"?, "global"?, "types"?}`; `types` names the log events that a listener of
 * `session/event` hears.
 *
 * Statuses: `UNKNOWN_OPTION` for an event that does not exist or an unknown option, `INVALID_ARGUMENT` for an event that
 * is decided, `INACTIVE_EFFECT` when the context is disposed.
 *
 * It lasts as long as the context. `*registration` is the caller's to release; `registration` may be NULL.
 */
tw_status tw_context_on(struct tw_context *context,
                        struct tw_str event,
                        struct tw_str options,
                        tw_notice_fn heard,
                        void *user_data,
                        tw_drop_fn drop,
                        struct tw_registration **registration,
                        struct tw_error **error);

/**
 * Decides a waterfall, or takes part in `agent/turn-stopping`: `agent/pre-step`, `agent/request`, `agent/request-error`,
 * `system-prompt/assemble`, `tools/pre-execute`, `tools/execute`, `tools/post-execute`, `agent/turn-stopping`.
 *
 * `decide` gets a `tw_next`: it answers with a decision, fails, passes, or delegates and answers then. The first
 * listener is the outermost. `options`: `{"prepend"?, "once"?, "global"?}`.
 *
 * Statuses and ownership as for `tw_context_on`.
 */
tw_status tw_context_decide(struct tw_context *context,
                            struct tw_str event,
                            struct tw_str options,
                            tw_next_fn decide,
                            void *user_data,
                            tw_drop_fn drop,
                            struct tw_registration **registration,
                            struct tw_error **error);

/**
 * Keeps the dispatch open behind the callback. Each retain needs a release; the last release of an unanswered dispatch
 * fails it, and nothing else.
 */
void tw_next_retain(struct tw_next *next);

/**
 * Takes a reference away. NULL is allowed.
 */
void tw_next_release(struct tw_next *next);

/**
 * What is to be decided: `{"event", "agentId"?, …}` with the members of the event.
 *
 * `*payload` is borrowed until the last reference to `next` is released.
 */
tw_status tw_next_payload(struct tw_next *next, struct tw_str *payload, struct tw_error **error);

/**
 * The signal that fires when the turn is cancelled. The caller owns `*signal`.
 */
tw_status tw_next_signal(struct tw_next *next, struct tw_signal **signal, struct tw_error **error);

/**
 * Decides, on any thread, now or later. Never waits.
 *
 * `decision` is JSON, as the continuation would give it: for `agent/pre-step` `{"kind": "enter", "messages": […]}` or
 * `{"kind": "reject"}`; for `agent/request` a call config; for `agent/request-error` `"retry"` or `"terminal"`; for
 * `system-prompt/assemble` `{"sections", "tools", "variables", "contexts"}`; for `tools/pre-execute` `{"kind": "allow"}`,
 * `{"kind": "deny", "reason"}` or `{"kind": "ask", "reason"?}`; for `tools/execute` `{"content", "isError"?, …}`; for
 * `tools/post-execute` `{"kind": "accept", "content"?, "value"?, "contexts"?}` or `{"kind": "block", "feedback"}`; for
 * `agent/turn-stopping` nothing. Empty behind `tw_next_proceed` keeps what the continuation decided.
 *
 * Statuses: `INVALID_JSON`; `INVALID_ARGUMENT` when it is answered already or nobody waits any more. A decision of the
 * wrong shape fails the dispatch.
 */
tw_status tw_next_answer(struct tw_next *next,
                         struct tw_str decision,
                         struct tw_error **error);

/**
 * Fails this listener, on any thread: `why` is a text or `{"message", "code"?, "name"?}` as JSON.
 *
 * Statuses as for `tw_next_answer`.
 */
tw_status tw_next_fail(struct tw_next *next, struct tw_str why, struct tw_error **error);

/**
 * Delegates and keeps what the continuation decides: what a listener does that has nothing to say.
 *
 * Statuses: `NEXT_CALLED_TWICE`; `INVALID_ARGUMENT` when it is answered already. For `agent/turn-stopping`, which has no
 * continuation, answer instead.
 */
tw_status tw_next_pass(struct tw_next *next,
                       struct tw_error **error);

/**
 * Delegates, and calls `then` on the runtime's thread with what the continuation decided; answer there, or later.
 *
 * `edited` is empty, or `{"messages": […]}` for `agent/pre-step`: what replaces the offered batch first.
 *
 * Statuses: `NEXT_CALLED_TWICE`, `INVALID_JSON`, `INVALID_ARGUMENT`. `drop` frees `user_data` behind the call, or when
 * the dispatch ends without it.
 */
tw_status tw_next_proceed(struct tw_next *next,
                          struct tw_str edited,
                          tw_then_fn then,
                          void *user_data,
                          tw_drop_fn drop,
                          struct tw_error **error);

/**
 * Keeps the question open behind the callback. Each retain needs a release; the last release of an unanswered question
 * fails it.
 */
void tw_reply_retain(struct tw_reply *reply);

/**
 * Takes a reference away. NULL is allowed.
 */
void tw_reply_release(struct tw_reply *reply);

/**
 * What is asked, as JSON; see the function that registered the callback. Borrowed until the last reference is released.
 */
tw_status tw_reply_payload(struct tw_reply *reply,
                           struct tw_str *payload,
                           struct tw_error **error);

/**
 * The signal that fires when the answer is not wanted any more. The caller owns `*signal`.
 */
tw_status tw_reply_signal(struct tw_reply *reply, struct tw_signal **signal, struct tw_error **error);

/**
 * Answers with JSON, or with nothing, on any thread. Never waits.
 *
 * Statuses: `INVALID_JSON`; `INVALID_ARGUMENT` when it is answered already or nobody waits any more.
 */
tw_status tw_reply_answer(struct tw_reply *reply, struct tw_str answer, struct tw_error **error);

/**
 * Answers with a failure: `why` is a text or `{"message", "code"?, "name"?}` as JSON.
 *
 * Statuses as for `tw_reply_answer`.
 */
tw_status tw_reply_fail(struct tw_reply *reply, struct tw_str why, struct tw_error **error);

/**
 * Adds checks that may refuse: an event of the log before it is committed (APP-10), or a model request before it is sent.
 *
 * `what` is `event` or `request`. `check` gets the session's id and the event or request as JSON, and returns 0 to let it
 * pass. It may read and not append.
 *
 * Statuses: `INVALID_ARGUMENT` for another `what` or a NULL callback, `INACTIVE_EFFECT`. Ownership as for `tw_context_on`.
 */
tw_status tw_context_check(struct tw_context *context,
                           struct tw_str what,
                           tw_check_fn check,
                           void *user_data,
                           tw_drop_fn drop,
                           struct tw_registration **registration,
                           struct tw_error **error);

/**
 * Sends what the library reports to `log`, for this whole process and its life. It may be called on any thread at once.
 *
 * Statuses: `BUSY` when this was called before, or another library of the process took the reports; `drop` runs then.
 */
tw_status tw_set_log(tw_log_fn log,
                     void *user_data,
                     tw_drop_fn drop,
                     struct tw_error **error);

/**
 * Lets an adapter of the library serve a provider route.
 *
 * `adapter` names a `kind`. Over HTTP: `openai-chat`, `openai-responses`, `anthropic-messages`, with `{"baseUrl",
 * "apiKey"?, "apiKeyEnv"?, "headers"?, "firstByteTimeoutMs"?, "idleTimeoutMs"?, "eventIdleTimeoutMs"?, "totalTimeoutMs"?,
 * "connectTimeoutMs"?, "allowInsecureHttp"?, "caFile"?, "proxy"?, "http2"?, "imagesFolder"?, "extra"?, "models"?}`.
 * `scripted` answers from `{"replies"?: [{"text"?, "calls"?, …}], "otherwise"?}`. For tests: `{"kind": "faulty", "faults",
 * "inner"}` and `{"kind": "record", "path", "inner"}` stand around the adapter `inner`; `{"kind": "replay", "path"}` plays
 * a recording. A fault is `{"kind": "none" | "stall" | "cut" | "fail" | "crumble", "after"?, "failure"?}`.
 *
 * Statuses: `DUPLICATE_ADAPTER`, `UNKNOWN_OPTION`, `INVALID_ARGUMENT`. Ownership as for `tw_context_on`.
 */
tw_status tw_context_model(struct tw_context *context,
                           struct tw_str provider,
                           struct tw_str adapter,
                           struct tw_registration **registration,
                           struct tw_error **error);

/**
 * Lets an adapter written in C serve a provider route.
 *
 * `serve` gets a `tw_answer` for each request: push chunks, then finish or fail, now or later, on any thread.
 * `models` says what is known of models, by name: `{"<model>": {"contextWindow"?, "defaultMaxTokens"?, "efforts"?,
 * "defaultEffort"?, "inputModalities"?}}`; it may be empty.
 *
 * Statuses and ownership as for `tw_context_model`.
 */
tw_status tw_context_adapter(struct tw_context *context,
                             struct tw_str provider,
                             struct tw_str models,
                             tw_answer_fn serve,
                             void *user_data,
                             tw_drop_fn drop,
                             struct tw_registration **registration,
                             struct tw_error **error);

/**
 * Keeps the answer open behind the callback. Each retain needs a release; the last release of an answer that is not
 * finished fails it.
 */
void tw_answer_retain(struct tw_answer *answer);

/**
 * Takes a reference away. NULL is allowed.
 */
void tw_answer_release(struct tw_answer *answer);

/**
 * The request: `{"config", "system"?, "tools"?, "messages", "sessionId"?}`.
 *
 * `*request` is borrowed until the last reference to `answer` is released.
 */
tw_status tw_answer_request(struct tw_answer *answer, struct tw_str *request, struct tw_error **error);

/**
 * The signal that fires when the turn is cancelled: stop then, and finish or fail. The caller owns `*signal`.
 */
tw_status tw_answer_signal(struct tw_answer *answer, struct tw_signal **signal, struct tw_error **error);

/**
 * Adds a chunk, on any thread. Never waits.
 *
 * `chunk`: `{"type": "block-start", "index", "blockType"}`, `{"type": "text-delta", "index", "text"}`, `reasoning-delta`,
 * `tool-call-delta`, `block-end`, `usage` or `{"type": "finish", "reason": {"kind": "stop"}}`.
 *
 * Statuses: `MALFORMED_CHUNK`; `ABORTED` when nobody reads any more: stop.
 */
tw_status tw_answer_push(struct tw_answer *answer,
                         struct tw_str chunk,
                         struct tw_error **error);

/**
 * Ends the answer, behind the chunks pushed so far. Only the first end counts.
 */
tw_status tw_answer_finish(struct tw_answer *answer, struct tw_error **error);

/**
 * Ends the answer with a failure: `why` is a text, `{"message", "code"?, "name"?}`, or with a member `failure` of
 * `{"message", "code", "status"?, "providerRetryAfterMs"?}` what a provider reported.
 */
tw_status tw_answer_fail(struct tw_answer *answer,
                         struct tw_str why,
                         struct tw_error **error);

/**
 * The registered provider routes as a JSON list, sorted. The caller owns `*providers`.
 */
tw_status tw_context_providers(struct tw_context *context,
                               struct tw_buf **providers,
                               struct tw_error **error);

/**
 * The whole notification as JSON: `{"event", "agentId"?, "sessionId"?, …}`. Made on the first call.
 *
 * Statuses: `INVALID_HANDLE` behind the callback or on another thread.
 *
 * `*json` is borrowed until the callback returns.
 */
tw_status tw_notice_json(const struct tw_notice *notice, struct tw_str *json, struct tw_error **error);

/**
 * The id of the session it is about, which is its agent's too.
 *
 * Statuses: `TW_NONE` when it is about none, and `*id` is empty; `INVALID_HANDLE`.
 *
 * `*id` is borrowed until the callback returns.
 */
tw_status tw_notice_session_id(const struct tw_notice *notice, struct tw_str *id, struct tw_error **error);

/**
 * For `session/event`: the event's place in the log, its type and its text (the fragment of a text delta, the text of a
 * message, else empty), without any JSON. Outputs may be NULL.
 *
 * Statuses: `TW_NONE` for every other notification, and nothing is written; `INVALID_HANDLE`.
 *
 * Texts are borrowed until the callback returns; they have no NUL behind them.
 */
tw_status tw_notice_log_event(const struct tw_notice *notice,
                              uint64_t *seq,
                              struct tw_str *kind,
                              struct tw_str *text,
                              struct tw_error **error);

/**
 * Makes this listener fail with an error, a text or `{"message", "code"?, "name"?}`. It is reported, and on
 * `agent/created` it vetoes the creation (REG-4).
 *
 * Statuses: `INVALID_HANDLE`, `INVALID_JSON`.
 */
tw_status tw_notice_fail(const struct tw_notice *notice, struct tw_str why, struct tw_error **error);

/**
 * Mounts a plug-in. `body` runs soon, through a context of its own, while every required service is there, and again
 * when a provider changes; what it registers is undone with it.
 *
 * `required`: a JSON list of service names, or empty.
 *
 * Statuses: `INVALID_ARGUMENT`, `INACTIVE_EFFECT`. `drop` frees `user_data` when the plug-in is gone. The caller owns
 * `*plugin`.
 */
tw_status tw_context_plugin(struct tw_context *context,
                            struct tw_str required,
                            tw_setup_fn body,
                            void *user_data,
                            tw_drop_fn drop,
                            struct tw_plugin **plugin,
                            struct tw_error **error);

/**
 * Adds a reference.
 */
void tw_plugin_retain(struct tw_plugin *plugin);

/**
 * Takes a reference away; the plug-in stays mounted. NULL is allowed.
 */
void tw_plugin_release(struct tw_plugin *plugin);

/**
 * Where the plug-in is: `pending`, `loading`, `active`, `failed`, `unloading` or `disposed`. Static text.
 */
tw_status tw_plugin_state(struct tw_plugin *plugin, struct tw_str *state, struct tw_error **error);

/**
 * Waits until the plug-in is active; the future fails with what its body failed with, or `INACTIVE_EFFECT`.
 *
 * The caller owns `*future`; its result is `null`.
 */
tw_status tw_plugin_ready(struct tw_plugin *plugin, struct tw_future **future, struct tw_error **error);

/**
 * Undoes what the plug-in registered and forgets it. The caller owns `*future`; its result is `null`.
 */
tw_status tw_plugin_dispose(struct tw_plugin *plugin, struct tw_future **future, struct tw_error **error);

/**
 * Provides a service under a name that is free: `service` is handed out by `tw_context_get` and freed by `drop`.
 *
 * Statuses: `DUPLICATE_NAME`, `INACTIVE_EFFECT`. Ownership as for `tw_context_on`.
 */
tw_status tw_context_provide(struct tw_context *context,
                             struct tw_str service_name,
                             void *service,
                             tw_drop_fn drop,
                             struct tw_registration **registration,
                             struct tw_error **error);

/**
 * The service of a name, while its provider is active.
 *
 * Statuses: `TW_NONE` when there is none, and `*service` is NULL. It belongs to its provider: use it on the runtime's
 * thread, or know that the provider lives.
 */
tw_status tw_context_get(struct tw_context *context,
                         struct tw_str service_name,
                         void **service,
                         struct tw_error **error);

/**
 * As `tw_context_model`, with what belongs to the route besides its adapter.
 *
 * `options`: `{"retry"?, "requestsPerMinute"?, "tokensPerMinute"?}`; `retry` is `{"mode"?: "normal" | "always",
 * "maxRetries"?, "retryableCodes"?, "initialDelayMs"?, "maxDelayMs"?, "jitterRatio"?}`, carried out where
 * `tw_context_retry` is in force (RTY).
 *
 * Statuses and ownership as for `tw_context_model`.
 */
tw_status tw_context_route(struct tw_context *context,
                           struct tw_str provider,
                           struct tw_str adapter,
                           struct tw_str options,
                           struct tw_registration **registration,
                           struct tw_error **error);

/**
 * Carries out the retry policies of routes for the agents of this context (RTY).
 *
 * Statuses: `INACTIVE_EFFECT`. The caller owns `*registration`, which may be NULL.
 */
tw_status tw_context_retry(struct tw_context *context,
                           struct tw_registration **registration,
                           struct tw_error **error);

/**
 * Lets requests that failed fall back to other routes, in their order.
 *
 * `routes`: a list of `{"provider", "model", "reasoningEffort"?, "temperature"?, "maxTokens"?, "stop"?}`.
 *
 * Statuses: `INVALID_JSON`, `INVALID_ARGUMENT`, `UNKNOWN_OPTION`, `INACTIVE_EFFECT`. The caller owns `*registration`,
 * which may be NULL.
 */
tw_status tw_context_fallback(struct tw_context *context,
                              struct tw_str routes,
                              struct tw_registration **registration,
                              struct tw_error **error);

/**
 * Sets how the tools of this context's scope are presented to the model: `native`, `code` or `both` (DEF-09).
 *
 * What runs the programs is a tool named `run_code`, made with `tw_context_tool`; it calls others by `tw_call_tool`.
 *
 * Statuses: `INVALID_ARGUMENT`, `DUPLICATE_NAME` when the scope has declared one, `INACTIVE_EFFECT`. The caller owns
 * `*registration`, which may be NULL.
 */
tw_status tw_context_present(struct tw_context *context,
                             struct tw_str mode,
                             struct tw_registration **registration,
                             struct tw_error **error);

/**
 * Announces a type of plug-in events and the version that this program writes (D-21). It stays for the context's life.
 *
 * Statuses: `INVALID_ARGUMENT`, `RESERVED_EVENT`, `DUPLICATE_NAME`, `INACTIVE_EFFECT`.
 */
tw_status tw_context_event_type(struct tw_context *context,
                                struct tw_str kind,
                                uint32_t version,
                                struct tw_error **error);

/**
 * Runs `operation` on the runtime's thread with `agent` as the initiator of what it calls (INI); NULL for nobody.
 *
 * It returns when `operation` has. `user_data` is passed on and not kept.
 *
 * Statuses: `INVALID_ARGUMENT`, `INVALID_HANDLE`, `DISPOSED` of a context that is closed.
 */
tw_status tw_context_with_initiator(struct tw_context *context,
                                    struct tw_agent *agent,
                                    tw_drop_fn operation,
                                    void *user_data,
                                    struct tw_error **error);

/**
 * The JSON schema that a shorthand stands for, checked: a property says `required: true` itself, an object states
 * `additionalProperties`, and `type: "json"` is any JSON.
 *
 * Statuses: `INVALID_JSON`, `UNSUPPORTED_SCHEMA`. The caller owns `*schema`.
 */
tw_status tw_schema_of_shorthand(struct tw_str shorthand,
                                 struct tw_buf **schema,
                                 struct tw_error **error);

/**
 * Adds a reference.
 */
void tw_session_retain(struct tw_session *session);

/**
 * Takes a reference away. NULL is allowed.
 */
void tw_session_release(struct tw_session *session);

/**
 * The header as JSON. The caller owns `*header`.
 */
tw_status tw_session_header(struct tw_session *session, struct tw_buf **header, struct tw_error **error);

/**
 * How many events the log has: the seq of the next one.
 */
tw_status tw_session_length(struct tw_session *session, uint64_t *length, struct tw_error **error);

/**
 * The events from a seq on, as a JSON list of at most `limit`. A seq behind the end gives an empty list.
 *
 * The caller owns `*events`.
 */
tw_status tw_session_events(struct tw_session *session,
                            uint64_t from,
                            uint64_t limit,
                            struct tw_buf **events,
                            struct tw_error **error);

/**
 * The messages that the model sees, as a JSON list. The caller owns `*messages`.
 */
tw_status tw_session_history(struct tw_session *session, struct tw_buf **messages, struct tw_error **error);

/**
 * The messages as they are sent: the history with an answer for every tool call, as a JSON list.
 *
 * The caller owns `*messages`.
 */
tw_status tw_session_sendable_history(struct tw_session *session,
                                      struct tw_buf **messages,
                                      struct tw_error **error);

/**
 * The version of a registered event type that the log was written with; see `tw_context_event_type`.
 *
 * Statuses: `TW_NONE` for a type that the log knows no version of; `*version` is then 0.
 */
tw_status tw_session_event_type_version(struct tw_session *session,
                                        struct tw_str kind,
                                        uint64_t *version,
                                        struct tw_error **error);

/**
 * The whole session as `{"header", "events"}`: to keep elsewhere, and to open an agent from with the option `log`.
 *
 * The caller owns `*log`.
 */
tw_status tw_session_export(struct tw_session *session,
                            struct tw_buf **log,
                            struct tw_error **error);

/**
 * Which turn the log's consumed work accounts to: `{"end": seq or null, "droppedUnrun"}`. The caller owns `*work`.
 */
tw_status tw_session_work(struct tw_session *session,
                          struct tw_buf **work,
                          struct tw_error **error);

/**
 * Appends an event of a plug-in.
 *
 * Statuses: `RESERVED_EVENT` for a type of the runtime's own, `INVALID_EVENT`, `REENTRANT` inside a log observer,
 * `DISPOSED`. `*seq` is where it stands; `seq` may be NULL.
 */
tw_status tw_session_append(struct tw_session *session,
                            struct tw_str kind,
                            struct tw_str data,
                            uint64_t *seq,
                            struct tw_error **error);

/**
 * Appends any event that is not one of the inbox's, for importers and tests of the log's own rules:
 * `{"type", "data", "surfaceOp"?, "sourceEventSeqs"?, "ignorable"?}`.
 *
 * Statuses and outputs as for `tw_session_append`, and `INVALID_SURFACE`.
 */
tw_status tw_session_append_raw(struct tw_session *session,
                                struct tw_str event,
                                uint64_t *seq,
                                struct tw_error **error);

/**
 * Sends a prompt and reads the events of the turn that takes it, from its `turn/start` to its `turn/end`. The
 * stream reads the log, so a slow reader loses nothing. Releasing it does not cancel.
 *
 * Statuses as for `tw_agent_run`. The caller owns `*stream`.
 */
tw_status tw_agent_stream(struct tw_agent *agent,
                          struct tw_str message,
                          struct tw_stream **stream,
                          struct tw_error **error);

/**
 * Reads the events of a log from a seq on, as they are committed, until the session ends. The caller owns `*stream`.
 */
tw_status tw_session_follow(struct tw_session *session,
                            uint64_t from,
                            struct tw_stream **stream,
                            struct tw_error **error);

/**
 * Adds a reference.
 */
void tw_stream_retain(struct tw_stream *stream);

/**
 * Takes a reference away. NULL is allowed.
 */
void tw_stream_release(struct tw_stream *stream);

/**
 * The next event, to wait for: the future's result is the event as JSON, or `null` behind the last.
 *
 * Statuses of the future: `MESSAGE_DISCARDED`, `PARKED`, `DISPOSED`. The caller owns `*future`.
 */
tw_status tw_stream_next(struct tw_stream *stream, struct tw_future **future, struct tw_error **error);

/**
 * What is there now, without waiting: a JSON list of at most `limit` events.
 *
 * Statuses: `TW_PENDING` when more may come, `TW_NONE` behind the last event, with what was left; `MESSAGE_DISCARDED`,
 * `PARKED`, `DISPOSED`. The caller owns `*events`.
 */
tw_status tw_stream_take(struct tw_stream *stream,
                         uint64_t limit,
                         struct tw_buf **events,
                         struct tw_error **error);

/**
 * Adds a reference.
 */
void tw_signal_retain(struct tw_signal *signal);

/**
 * Takes a reference away. NULL is allowed.
 */
void tw_signal_release(struct tw_signal *signal);

/**
 * Why the signal fired, as JSON, for example `{"kind":"user"}`.
 *
 * Statuses: `TW_OK`; `TW_NONE` while it has not fired, and `*cause` is empty.
 *
 * `*cause` is borrowed from the signal, until its last reference is released. It may be NULL.
 */
tw_status tw_signal_cause(struct tw_signal *signal, struct tw_str *cause, struct tw_error **error);

/**
 * Calls `fired` when the signal fires: on the runtime's thread; or here and now, if it has fired.
 *
 * `drop` frees `user_data` behind the call, or when the signal can never fire any more.
 */
tw_status tw_signal_on_fired(struct tw_signal *signal,
                             tw_signal_fn fired,
                             void *user_data,
                             tw_drop_fn drop,
                             struct tw_error **error);

/**
 * Lists the headers of up to `limit` stored sessions whose ids follow `after`, in the order of the ids' bytes.
 *
 * An empty `after` starts at the first. Only headers are read. Statuses of the future: `NO_STORE`, and the store's errors.
 *
 * The caller owns `*future`; its result is a JSON list of headers.
 */
tw_status tw_context_stored(struct tw_context *context,
                            struct tw_str after,
                            uint64_t limit,
                            struct tw_future **future,
                            struct tw_error **error);

/**
 * Copies a session from another store into the context's: id, header, lineage and the text of every event as they are.
 *
 * `from` is a store as in `tw_context_new`, or `{"kind": "reference", "path"}`, a database of the reference's. The copy appears whole or not at all.
 *
 * Statuses: `INVALID_JSON`, `INVALID_ARGUMENT`, `UNKNOWN_OPTION`; of the future `NO_STORE`, `SESSION_NOT_FOUND`,
 * `SESSION_ALREADY_EXISTS` when one of this id is stored or live here, and the stores' errors.
 *
 * The caller owns `*future`; its result is `{"header", "events", "replacedCharacters", "tornBytes"}`: the counts are of
 * events, of characters that U+FFFD replaced, and of bytes of a torn tail that were left out.
 */
tw_status tw_context_import_session(struct tw_context *context,
                                    struct tw_str from,
                                    struct tw_str id,
                                    struct tw_future **future,
                                    struct tw_error **error);

/**
 * Copies a session from the context's store into another one. What a live session has logged is made durable first.
 *
 * `to` is a store as in `tw_context_new`. Statuses, result and ownership as for `tw_context_import_session`;
 * `SESSION_ALREADY_EXISTS` when `to` has the session.
 */
tw_status tw_context_export_session(struct tw_context *context,
                                    struct tw_str to,
                                    struct tw_str id,
                                    struct tw_future **future,
                                    struct tw_error **error);

/**
 * Copies a session between two stores that are not the context's own; see `tw_context_import_session`.
 *
 * Statuses, result and ownership as there. An interrupted turn stays open in the copy.
 */
tw_status tw_context_copy_session(struct tw_context *context,
                                  struct tw_str from,
                                  struct tw_str to,
                                  struct tw_str id,
                                  struct tw_future **future,
                                  struct tw_error **error);

/**
 * Registers a tool.
 *
 * `definition`: `{"name", "description"?, "parameters"?, "output"?, "parallel"?, "timeoutMs"?, "checked"?}`.
 * `parameters` is a JSON Schema; calls that violate it never reach `body`. `checked: false` hands arguments over as they
 * come.
 * `parallel` may be NULL; else it says for which arguments a call may overlap its siblings. It shares `user_data`.
 *
 * Statuses: `UNSUPPORTED_SCHEMA`, `DUPLICATE_NAME`, `UNKNOWN_OPTION`, `INVALID_ARGUMENT`, `INACTIVE_EFFECT`. Ownership as
 * for `tw_context_on`.
 */
tw_status tw_context_tool(struct tw_context *context,
                          struct tw_str definition,
                          tw_call_fn body,
                          tw_parallel_fn parallel,
                          void *user_data,
                          tw_drop_fn drop,
                          struct tw_registration **registration,
                          struct tw_error **error);

/**
 * Keeps the call open behind the callback. Each retain needs a release; the last release of an unanswered call fails it.
 */
void tw_call_retain(struct tw_call *call);

/**
 * Takes a reference away. NULL is allowed.
 */
void tw_call_release(struct tw_call *call);

/**
 * The call: `{"agentId"?, "callId", "name", "arguments", "parentCallId"?, "rootCallId"?}`.
 *
 * `*payload` is borrowed until the last reference to `call` is released.
 */
tw_status tw_call_payload(struct tw_call *call, struct tw_str *payload, struct tw_error **error);

/**
 * The signal that fires when the turn is cancelled or the call's time is over. The caller owns `*signal`.
 */
tw_status tw_call_signal(struct tw_call *call, struct tw_signal **signal, struct tw_error **error);

/**
 * Answers, on any thread, now or later: `{"value"}` is checked and shown to the model, a string as it is and anything
 * else as JSON; `{"content"}` is a text or a list of blocks. Each may have `"meta"`. Never waits.
 *
 * Statuses: `INVALID_JSON`; `INVALID_ARGUMENT` when it is answered already or nobody waits any more. An answer of the
 * wrong shape fails the call with `INVALID_TOOL_OUTPUT`.
 */
tw_status tw_call_answer(struct tw_call *call,
                         struct tw_str output,
                         struct tw_error **error);

/**
 * Answers the model with a failure: `why` is a text or `{"message", "code"?, "name"?}` as JSON; name and code reach the
 * log.
 *
 * Statuses as for `tw_call_answer`.
 */
tw_status tw_call_fail(struct tw_call *call,
                       struct tw_str why,
                       struct tw_error **error);

/**
 * Adds a message for the next step; it counts whether the call succeeds or fails. Before the answer.
 *
 * Statuses: `INVALID_MESSAGE`; `INVALID_ARGUMENT` behind the answer.
 */
tw_status tw_call_defer_context(struct tw_call *call, struct tw_str message, struct tw_error **error);

/**
 * Ends the turn with this step if the call succeeds. Before the answer.
 *
 * Statuses: `INVALID_ARGUMENT` behind the answer.
 */
tw_status tw_call_conclude_turn(struct tw_call *call, struct tw_error **error);

/**
 * Calls another tool on this call's account (EXE-27): policy, checks and cancellation apply as to any call.
 *
 * Statuses: `INVALID_JSON`, `RUNTIME_CLOSED` behind the call's end. The caller owns `*future`; its result is
 * `{"content", "isError", "error"?, "value"?, …}`.
 */
tw_status tw_call_tool(struct tw_call *call,
                       struct tw_str tool,
                       struct tw_str arguments,
                       struct tw_future **future,
                       struct tw_error **error);

/**
 * Restricts the tools that a scope inherits: `{"allow"?: […], "deny"?: […]}` (DEF-06).
 *
 * Statuses: `INVALID_ARGUMENT` for a context without a scope or an empty filter, `NOT_REGISTERED` for a name that is no
 * inherited tool. Ownership as for `tw_context_on`.
 */
tw_status tw_context_restrict_tools(struct tw_context *context,
                                    struct tw_str filter,
                                    struct tw_registration **registration,
                                    struct tw_error **error);

/**
 * The tools that a context sees, as the model would: a JSON list of `{"name", "description", "parameters"}`.
 *
 * The caller owns `*tools`.
 */
tw_status tw_context_tools(struct tw_context *context, struct tw_buf **tools, struct tw_error **error);

/**
 * Registers who is asked when policy wants a call approved, for the calls of this context's scope (EXE-06).
 *
 * `approve` gets a question whose payload is `{"id", "callId", "name", "arguments", "reason"?}`, and answers `"allow"`,
 * `"reject"` or `"cancel"`.
 *
 * Statuses: `DUPLICATE_NAME`, `INACTIVE_EFFECT`. Ownership as for `tw_context_on`.
 */
tw_status tw_context_approve_with(struct tw_context *context,
                                  tw_reply_fn approve,
                                  void *user_data,
                                  tw_drop_fn drop,
                                  struct tw_registration **registration,
                                  struct tw_error **error);

/**
 * Runs one call through the whole pipeline, outside any turn: `call` is `{"callId", "name", "arguments"?}`.
 *
 * Statuses: `INVALID_ARGUMENT`, `UNKNOWN_OPTION`. The caller owns `*future`; its result is `{"content", "isError", …}`.
 */
tw_status tw_context_execute_tool(struct tw_context *context,
                                  struct tw_str call,
                                  struct tw_future **future,
                                  struct tw_error **error);

/**
 * The session as it is now as one HTML page, which works offline, has no script and shows what a model or tool said as
 * text. Options may be empty: `{"prices": {"provider/model": {"input", "output", "cacheRead"?, "cacheWrite"?}}?}`, each
 * the cost of a million tokens.
 *
 * Statuses: `INVALID_ARGUMENT`, `UNKNOWN_OPTION`. The caller owns `*page`.
 */
tw_status tw_session_html(struct tw_session *session,
                          struct tw_str options,
                          struct tw_buf **page,
                          struct tw_error **error);

/**
 * The session as it is now as a timeline of turns, steps and calls for a terminal; control and direction characters of
 * the log are spelled out. Options may be empty: `{"prices"?, "full"?, "color"?}`, prices as for `tw_session_html`.
 *
 * Statuses: `INVALID_ARGUMENT`, `UNKNOWN_OPTION`. The caller owns `*text`.
 */
tw_status tw_session_text(struct tw_session *session,
                          struct tw_str options,
                          struct tw_buf **text,
                          struct tw_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TURNWHEEL_H */
