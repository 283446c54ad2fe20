// turnwheel for C++17: owned handles, std::function callbacks, results or exceptions, and awaiters where C++20 is there.
// Header-only, over turnwheel.h alone, and all of it: where turnwheel.h says what a function does, what its JSON looks like
// and which statuses it has, the member of the same name does that.
//
// A function that can fail gives a `tw::result<T>`: look at `ok()`, or call `value()`, which throws `tw::failure`. With
// TURNWHEEL_NO_EXCEPTIONS defined, or without exceptions in the compiler, `value()` of a failed result ends the program.
//
// Callbacks run on the runtime's thread and must not throw: what escapes one is std::terminate's.

#pragma once

#include "turnwheel.h"

#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#if defined(__cpp_impl_coroutine) && __has_include(<coroutine>)
#include <coroutine>
#define TURNWHEEL_HAS_COROUTINES 1
#endif

#if !defined(__cpp_exceptions) && !defined(TURNWHEEL_NO_EXCEPTIONS)
#define TURNWHEEL_NO_EXCEPTIONS 1
#endif

namespace tw {

/// A view of text as the C interface takes it.
inline tw_str view(std::string_view text) noexcept { return {text.data(), text.size()}; }
/// A view of text that the C interface gave out.
inline std::string_view view(tw_str text) noexcept { return {text.ptr == nullptr ? "" : text.ptr, text.len}; }

/// A handle that this object owns one reference of.
template <class Type, void (*release)(Type *)> class handle {
  public:
    handle() noexcept = default;
    /// Takes over a reference.
    explicit handle(Type *owned) noexcept : raw_(owned) {}
    handle(handle &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    handle &operator=(handle &&other) noexcept {
        std::swap(raw_, other.raw_);
        return *this;
    }
    ~handle() { release(raw_); }

    /// The handle, for functions of turnwheel.h. Still owned by this object.
    Type *get() const noexcept { return raw_; }
    /// A place for an output.
    Type **place() noexcept { return &raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

  private:
    Type *raw_ = nullptr;
};

/// A handle whose objects may be copied: each owns a reference of its own.
template <class Type, void (*retain)(Type *), void (*release)(Type *)> class shared : public handle<Type, release> {
  public:
    using handle<Type, release>::handle;
    shared(const shared &other) noexcept : handle<Type, release>((retain(other.get()), other.get())) {}
    shared(shared &&) noexcept = default;
    shared &operator=(const shared &other) noexcept { return *this = shared(other); }
    shared &operator=(shared &&) noexcept = default;
};

/// What went wrong.
class error {
  public:
    error() noexcept = default;
    explicit error(tw_status status, tw_error *told = nullptr) noexcept : status_(status), told_(told, tw_error_free) {}
    /// A view of an error that a callback got: valid until the callback returns.
    static error borrowed(const tw_error *told) noexcept {
        error made(tw_error_status(told));
        if (told != nullptr) made.told_ = std::shared_ptr<tw_error>(const_cast<tw_error *>(told), [](tw_error *) {});
        return made;
    }

    tw_status status() const noexcept { return status_; }
    /// The stable code, for example `DUPLICATE_MESSAGE`.
    std::string_view code() const noexcept { return told_ ? view(tw_error_code(told_.get())) : tw_status_name(status_); }
    /// What happened, to what, and what to do.
    std::string_view message() const noexcept { return told_ ? view(tw_error_message(told_.get())) : tw_status_name(status_); }
    /// The whole error as JSON.
    std::string_view json() const noexcept { return told_ ? view(tw_error_json(told_.get())) : "{}"; }

  private:
    tw_status status_ = TW_OK;
    std::shared_ptr<tw_error> told_;
};

#ifndef TURNWHEEL_NO_EXCEPTIONS
/// A result that was asked for its value and has an error.
class failure : public std::exception {
  public:
    explicit failure(tw::error why) : error(std::move(why)) {}
    const char *what() const noexcept override { return error.message().data(); }

    tw::error error;
};
#endif

/// A value, or an error.
template <class Value = std::monostate> class result;

namespace detail {

[[noreturn]] inline void fail([[maybe_unused]] const error &why) {
#ifndef TURNWHEEL_NO_EXCEPTIONS
    throw failure(why);
#else
    std::abort();
#endif
}

/// Calls a function of turnwheel.h with a place for its error.
template <class Function, class... Arguments> error call(Function function, Arguments... arguments) {
    tw_error *told = nullptr;
    const tw_status status = function(arguments..., &told);
    return error(status, told);
}

/// A closure as `user_data`, with the function that calls it and the one that frees it.
template <class... Arguments> struct closure {
    using body = std::function<void(Arguments...)>;

    static void run(void *user_data, Arguments... arguments) noexcept { (*static_cast<body *>(user_data))(arguments...); }
    static void drop(void *user_data) noexcept { delete static_cast<body *>(user_data); }
    static void *keep(body call) { return new body(std::move(call)); }
};

} // namespace detail

template <class Value> class result {
  public:
    result(Value value) : value_(std::move(value)) {}
    result(tw::error why) : error_(std::move(why)) {}

    bool ok() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return ok(); }
    /// Why there is no value; its status is TW_OK when there is one.
    const tw::error &error() const noexcept { return error_; }
    Value &value() & {
        if (!ok()) detail::fail(error_);
        return *value_;
    }
    Value value() && {
        if (!ok()) detail::fail(error_);
        return std::move(*value_);
    }

  private:
    std::optional<Value> value_;
    tw::error error_;
};

/// A result without a value: the outcome of an operation.
template <> class result<std::monostate> {
  public:
    result(tw::error why) : error_(std::move(why)) {}

    bool ok() const noexcept { return error_.status() < 100; }
    explicit operator bool() const noexcept { return ok(); }
    const tw::error &error() const noexcept { return error_; }
    /// The status, for example TW_NONE; throws an error.
    tw_status value() const {
        if (!ok()) detail::fail(error_);
        return error_.status();
    }

  private:
    tw::error error_;
};

using outcome = result<>;

namespace detail {

/// The object of type `Owner` that a function of turnwheel.h writes last.
template <class Owner, class Function, class... Arguments> result<Owner> make(Function function, Arguments... arguments) {
    Owner owner;
    error why = call(function, arguments..., owner.place());
    if (why.status() >= 100) return why;
    return owner;
}

/// The plain value that a function of turnwheel.h writes last.
template <class Value, class Function, class... Arguments> result<Value> read(Function function, Arguments... arguments) {
    Value value{};
    error why = call(function, arguments..., &value);
    if (why.status() >= 100) return why;
    return value;
}

} // namespace detail

/// Text that the library gave away.
class buffer : public handle<tw_buf, tw_buf_free> {
  public:
    using handle::handle;
    std::string_view text() const noexcept { return get() == nullptr ? std::string_view() : view(tw_buf_str(get())); }
    std::string string() const { return std::string(text()); }
};

/// The result of something that takes time, as JSON.
class future : public shared<tw_future, tw_future_retain, tw_future_release> {
  public:
    using shared::shared;

    /// Waits; TW_TIMEOUT when the time (in ms, negative for ever) was over first.
    outcome wait(int64_t timeout_ms = -1) const { return detail::call(tw_future_wait, get(), timeout_ms); }
    /// The JSON that the operation promises. An operation that is not done yet is TW_PENDING.
    result<std::string> json() const {
        tw_str text{};
        error why = detail::call(tw_future_result, get(), &text);
        if (why.status() != TW_OK) return why;
        return std::string(view(text));
    }
    /// Waits, and gives the JSON.
    result<std::string> take() const {
        if (const auto waited = wait(); !waited) return waited.error();
        return json();
    }
    /// Calls `done` on the runtime's thread.
    outcome on_done(std::function<void()> done) const {
        using fn = detail::closure<tw_future *>;
        void *body = fn::keep([done = std::move(done)](tw_future *) { done(); });
        return detail::call(tw_future_on_done, get(), &fn::run, body, &fn::drop);
    }
    outcome cancel() const { return detail::call(tw_future_cancel, get()); }

#ifdef TURNWHEEL_HAS_COROUTINES
    /// `co_await std::move(future)` resumes on the runtime's thread with a `result<std::string>`.
    auto operator co_await() && {
        struct awaiter {
            future own;
            error refused;

            bool await_ready() const { return own.json().error().status() != TW_PENDING; }
            bool await_suspend(std::coroutine_handle<> waiting) {
                const outcome heard = own.on_done([waiting] { waiting.resume(); });
                refused = heard.error();
                return heard.ok();
            }
            result<std::string> await_resume() const {
                if (refused.status() >= 100) return refused;
                return own.json();
            }
        };
        return awaiter{std::move(*this), {}};
    }
#endif
};

/// A notification; valid until its callback returns.
class notice {
  public:
    explicit notice(const tw_notice *raw) noexcept : raw_(raw) {}

    const tw_notice *get() const noexcept { return raw_; }
    std::string_view json() const {
        tw_str text{};
        detail::call(tw_notice_json, raw_, &text);
        return view(text);
    }
    std::string_view session_id() const {
        tw_str text{};
        detail::call(tw_notice_session_id, raw_, &text);
        return view(text);
    }
    /// For `session/event`: the event's place in the log.
    uint64_t seq() const {
        uint64_t seq = 0;
        detail::call(tw_notice_log_event, raw_, &seq, nullptr, nullptr);
        return seq;
    }
    /// For `session/event`: the type of the event and its text.
    std::pair<std::string_view, std::string_view> log_event() const {
        tw_str kind{}, text{};
        detail::call(tw_notice_log_event, raw_, nullptr, &kind, &text);
        return {view(kind), view(text)};
    }
    /// Makes the listener fail; `why` is JSON.
    outcome fail(std::string_view why) const { return detail::call(tw_notice_fail, raw_, view(why)); }

  private:
    const tw_notice *raw_;
};

/// Fires once, when something is cancelled.
class signal : public shared<tw_signal, tw_signal_retain, tw_signal_release> {
  public:
    using shared::shared;

    /// Why it fired, as JSON; empty while it has not.
    std::string_view cause() const {
        tw_str text{};
        detail::call(tw_signal_cause, get(), &text);
        return view(text);
    }
    outcome on_fired(std::function<void(std::string_view)> fired) const {
        using fn = detail::closure<tw_str>;
        void *body = fn::keep([fired = std::move(fired)](tw_str cause) { fired(view(cause)); });
        return detail::call(tw_signal_on_fired, get(), &fn::run, body, &fn::drop);
    }
};

/// A question of the library: kept as long as this object lives, answered now or later, from any thread.
template <class Type, void (*retain)(Type *), void (*release)(Type *), auto payload_of, auto signal_of, auto answer_with, auto fail_with>
class question : public shared<Type, retain, release> {
  public:
    /// Keeps a question that a callback got.
    explicit question(Type *borrowed) noexcept : shared<Type, retain, release>((retain(borrowed), borrowed)) {}

    /// What is asked, as JSON; lives as long as this object.
    std::string_view payload() const {
        tw_str text{};
        detail::call(payload_of, this->get(), &text);
        return view(text);
    }
    result<tw::signal> signal() const { return detail::make<tw::signal>(signal_of, this->get()); }
    outcome answer(std::string_view json) const { return detail::call(answer_with, this->get(), view(json)); }
    /// `why` is JSON: a text, or `{"message", "code"?, "name"?}`.
    outcome fail(std::string_view why) const { return detail::call(fail_with, this->get(), view(why)); }
};

using reply = question<tw_reply, tw_reply_retain, tw_reply_release, tw_reply_payload, tw_reply_signal, tw_reply_answer, tw_reply_fail>;

/// A call of a tool.
class call : public question<tw_call, tw_call_retain, tw_call_release, tw_call_payload, tw_call_signal, tw_call_answer, tw_call_fail> {
  public:
    using question::question;
    outcome defer_context(std::string_view message) const { return detail::call(tw_call_defer_context, get(), view(message)); }
    outcome conclude_turn() const { return detail::call(tw_call_conclude_turn, get()); }
    /// Calls another tool as part of this call.
    result<future> tool(std::string_view name, std::string_view arguments) const {
        return detail::make<future>(tw_call_tool, get(), view(name), view(arguments));
    }
};

/// A waterfall to decide.
class next : public question<tw_next, tw_next_retain, tw_next_release, tw_next_payload, tw_next_signal, tw_next_answer, tw_next_fail> {
  public:
    using question::question;
    /// Delegates, and keeps what the continuation decides.
    outcome pass() const { return detail::call(tw_next_pass, get()); }
    /// Delegates an edited payload (empty for the same), and hears what was decided: then answer. The error is borrowed, and
    /// its status TW_OK when there is a decision.
    outcome proceed(std::string_view edited, std::function<void(next, std::string_view, const error &)> then) const {
        using fn = detail::closure<tw_next *, tw_str, const tw_error *>;
        void *body = fn::keep([then = std::move(then)](tw_next *raw, tw_str decision, const tw_error *failed) {
            then(next(raw), view(decision), error::borrowed(failed));
        });
        return detail::call(tw_next_proceed, get(), view(edited), &fn::run, body, &fn::drop);
    }
};

/// A request to a model adapter: push chunks, then finish or fail, now or later, from any thread.
class answer : public shared<tw_answer, tw_answer_retain, tw_answer_release> {
  public:
    /// Keeps a request that a callback got.
    explicit answer(tw_answer *borrowed) noexcept : shared((tw_answer_retain(borrowed), borrowed)) {}

    std::string_view request() const {
        tw_str text{};
        detail::call(tw_answer_request, get(), &text);
        return view(text);
    }
    result<tw::signal> signal() const { return detail::make<tw::signal>(tw_answer_signal, get()); }
    outcome push(std::string_view chunk) const { return detail::call(tw_answer_push, get(), view(chunk)); }
    outcome finish() const { return detail::call(tw_answer_finish, get()); }
    outcome fail(std::string_view why) const { return detail::call(tw_answer_fail, get(), view(why)); }
};

/// Something registered; its end changes nothing, `dispose` undoes it.
class registration : public shared<tw_registration, tw_registration_retain, tw_registration_release> {
  public:
    using shared::shared;
    outcome dispose() const { return detail::call(tw_registration_dispose, get()); }
};

/// A mounted plug-in.
class plugin : public shared<tw_plugin, tw_plugin_retain, tw_plugin_release> {
  public:
    using shared::shared;
    std::string_view state() const {
        tw_str text{};
        detail::call(tw_plugin_state, get(), &text);
        return view(text);
    }
    result<future> ready() const { return detail::make<future>(tw_plugin_ready, get()); }
    result<future> dispose() const { return detail::make<future>(tw_plugin_dispose, get()); }
};

/// A route that may be switched while an agent runs.
class selection : public shared<tw_selection, tw_selection_retain, tw_selection_release> {
  public:
    using shared::shared;
    outcome select(std::string_view choice) const { return detail::call(tw_selection_select, get(), view(choice)); }
};

/// Events of a log, one after the other.
class stream : public shared<tw_stream, tw_stream_retain, tw_stream_release> {
  public:
    using shared::shared;
    /// The next event; `null` behind the last. Awaited by coroutines as every future.
    result<future> next() const { return detail::make<future>(tw_stream_next, get()); }
    /// What is there now, and whether more may come: TW_PENDING, or TW_NONE behind the last event.
    std::pair<outcome, buffer> take(uint64_t limit) const {
        buffer events;
        error why = detail::call(tw_stream_take, get(), limit, events.place());
        return {outcome(std::move(why)), std::move(events)};
    }
};

/// An agent's log.
class session : public shared<tw_session, tw_session_retain, tw_session_release> {
  public:
    using shared::shared;
    result<buffer> header() const { return detail::make<buffer>(tw_session_header, get()); }
    result<uint64_t> length() const { return detail::read<uint64_t>(tw_session_length, get()); }
    result<buffer> events(uint64_t from = 0, uint64_t limit = UINT64_MAX) const {
        return detail::make<buffer>(tw_session_events, get(), from, limit);
    }
    result<buffer> history() const { return detail::make<buffer>(tw_session_history, get()); }
    result<buffer> sendable_history() const { return detail::make<buffer>(tw_session_sendable_history, get()); }
    /// 0 for a type that the log knows no version of.
    result<uint64_t> event_type_version(std::string_view kind) const {
        return detail::read<uint64_t>(tw_session_event_type_version, get(), view(kind));
    }
    result<buffer> export_log() const { return detail::make<buffer>(tw_session_export, get()); }
    /// A timeline of the session for a terminal.
    result<buffer> text(std::string_view options = {}) const { return detail::make<buffer>(tw_session_text, get(), view(options)); }
    /// A timeline of the session as one HTML page.
    result<buffer> html(std::string_view options = {}) const { return detail::make<buffer>(tw_session_html, get(), view(options)); }
    result<buffer> work() const { return detail::make<buffer>(tw_session_work, get()); }
    result<uint64_t> append(std::string_view kind, std::string_view data) const {
        return detail::read<uint64_t>(tw_session_append, get(), view(kind), view(data));
    }
    result<uint64_t> append_raw(std::string_view event) const {
        return detail::read<uint64_t>(tw_session_append_raw, get(), view(event));
    }
    result<stream> follow(uint64_t from = 0) const { return detail::make<stream>(tw_session_follow, get(), from); }
};

class context;

/// The messages that an agent has not taken yet, in the lists `next-turn` and `next-step`. Lives no longer than its agent.
class inbox {
  public:
    explicit inbox(tw_agent *agent) noexcept : agent_(agent) {}
    result<buffer> pending(std::string_view target) const { return detail::make<buffer>(tw_inbox_pending, agent_, view(target)); }
    result<buffer> splice(std::string_view target, double start, double delete_count, std::string_view messages = {}) const {
        return detail::make<buffer>(tw_inbox_splice, agent_, view(target), start, delete_count, view(messages));
    }
    outcome append(std::string_view target, std::string_view messages) const {
        return detail::call(tw_inbox_append, agent_, view(target), view(messages));
    }
    outcome prepend(std::string_view target, std::string_view messages) const {
        return detail::call(tw_inbox_prepend, agent_, view(target), view(messages));
    }
    outcome replace(std::string_view id, std::string_view message) const {
        return detail::call(tw_inbox_replace, agent_, view(id), view(message));
    }
    outcome remove(std::string_view id) const { return detail::call(tw_inbox_remove, agent_, view(id)); }
    outcome clear() const { return detail::call(tw_inbox_clear, agent_); }

  private:
    tw_agent *agent_;
};

/// An agent.
class agent : public shared<tw_agent, tw_agent_retain, tw_agent_release> {
  public:
    using shared::shared;

    result<buffer> id() const { return detail::make<buffer>(tw_agent_id, get()); }
    result<buffer> state() const { return detail::make<buffer>(tw_agent_state, get()); }
    inline result<tw::context> context() const;
    result<tw::session> session() const { return detail::make<tw::session>(tw_agent_session, get()); }
    tw::inbox inbox() const { return tw::inbox(get()); }
    /// The messages waiting in `next-turn` or `next-step`, as a JSON list.
    result<buffer> pending(std::string_view target) const { return inbox().pending(target); }
    /// `message` is JSON: a string, or a message. The result is its id.
    result<buffer> send(std::string_view message, std::string_view target, bool wakeup) const {
        return detail::make<buffer>(tw_agent_send, get(), view(message), view(target), wakeup ? 1 : 0);
    }
    result<buffer> followup(std::string_view message) const { return detail::make<buffer>(tw_agent_followup, get(), view(message)); }
    result<buffer> steer(std::string_view message) const { return detail::make<buffer>(tw_agent_steer, get(), view(message)); }
    result<buffer> inject(std::string_view message) const { return detail::make<buffer>(tw_agent_inject, get(), view(message)); }
    outcome wake() const { return detail::call(tw_agent_wake, get()); }
    /// `cause` is JSON; empty for `user`.
    outcome cancel(std::string_view cause = {}, bool keep_inbox = false) const {
        return detail::call(tw_agent_cancel, get(), view(cause), keep_inbox ? 1 : 0);
    }
    /// Sends a prompt; the future has `{"turn", "reason", "text", "messages", "usage"}`.
    result<future> run(std::string_view message) const { return detail::make<future>(tw_agent_run, get(), view(message)); }
    result<tw::stream> stream(std::string_view message) const { return detail::make<tw::stream>(tw_agent_stream, get(), view(message)); }
    result<future> run_maintenance(std::function<void(reply)> task) const {
        using fn = detail::closure<tw_reply *>;
        void *body = fn::keep([task = std::move(task)](tw_reply *raw) { task(reply(raw)); });
        return detail::make<future>(tw_agent_run_maintenance, get(), &fn::run, body, &fn::drop);
    }
    /// What became of a message; empty when the session never accepted it.
    result<buffer> receipt(std::string_view id) const { return detail::make<buffer>(tw_agent_receipt, get(), view(id)); }
    result<future> settled(std::string_view id) const { return detail::make<future>(tw_agent_settled, get(), view(id)); }
    result<future> when_idle() const { return detail::make<future>(tw_agent_when_idle, get()); }
    result<future> durable(std::string_view id) const { return detail::make<future>(tw_agent_durable, get(), view(id)); }
    result<future> flush() const { return detail::make<future>(tw_agent_flush, get()); }
    result<future> dispose() const { return detail::make<future>(tw_agent_dispose, get()); }
    /// For loops of one's own: publishes an event of this agent.
    outcome emit(std::string_view event, std::string_view payload) const {
        return detail::call(tw_agent_emit, get(), view(event), view(payload));
    }
};

/// What an application registers through. Options, definitions and decisions are JSON, as turnwheel.h describes them.
class context : public shared<tw_context, tw_context_retain, tw_context_release> {
  public:
    using shared::shared;
    /// Composes an agent or a plug-in through a context of its own, and answers the question when that is done.
    using setup = std::function<void(context, reply)>;

    result<registration> on(std::string_view event, std::function<void(const notice &)> heard, std::string_view options = {}) const {
        using fn = detail::closure<const tw_notice *>;
        void *body = fn::keep([heard = std::move(heard)](const tw_notice *raw) { heard(notice(raw)); });
        return detail::make<registration>(tw_context_on, get(), view(event), view(options), &fn::run, body, &fn::drop);
    }
    result<registration> decide(std::string_view event, std::function<void(next)> decides, std::string_view options = {}) const {
        using fn = detail::closure<tw_next *>;
        void *body = fn::keep([decides = std::move(decides)](tw_next *raw) { decides(next(raw)); });
        return detail::make<registration>(tw_context_decide, get(), view(event), view(options), &fn::run, body, &fn::drop);
    }
    /// `refuses` gets the session's id and an event or a request, and gives the reason to refuse it, or nothing.
    result<registration> check(std::string_view what,
                               std::function<std::optional<std::string>(std::string_view, std::string_view)> refuses) const {
        using body = decltype(refuses);
        const tw_check_fn run = [](void *user_data, tw_str session_id, tw_str subject, tw_buf **why) noexcept -> int32_t {
            const std::optional<std::string> refused = (*static_cast<body *>(user_data))(view(session_id), view(subject));
            if (refused) tw_buf_new(view(*refused), why, nullptr);
            return refused ? 1 : 0;
        };
        const tw_drop_fn drop = [](void *user_data) noexcept { delete static_cast<body *>(user_data); };
        void *kept = new body(std::move(refuses));
        return detail::make<registration>(tw_context_check, get(), view(what), run, kept, drop);
    }
    /// `parallel` says of arguments whether a call may run beside others; without it the definition says so.
    result<registration> tool(std::string_view definition, std::function<void(call)> run,
                              std::function<bool(std::string_view)> parallel = {}) const {
        struct body {
            std::function<void(call)> run;
            std::function<bool(std::string_view)> parallel;
        };
        const tw_call_fn runs = [](void *user_data, tw_call *raw) noexcept { static_cast<body *>(user_data)->run(call(raw)); };
        const tw_parallel_fn asks = [](void *user_data, tw_str arguments) noexcept -> int32_t {
            return static_cast<body *>(user_data)->parallel(view(arguments)) ? 1 : 0;
        };
        const tw_drop_fn drop = [](void *user_data) noexcept { delete static_cast<body *>(user_data); };
        const bool is_asked = static_cast<bool>(parallel);
        void *kept = new body{std::move(run), std::move(parallel)};
        return detail::make<registration>(tw_context_tool, get(), view(definition), runs, is_asked ? asks : nullptr, kept, drop);
    }
    result<registration> restrict_tools(std::string_view filter) const {
        return detail::make<registration>(tw_context_restrict_tools, get(), view(filter));
    }
    result<registration> present(std::string_view mode) const { return detail::make<registration>(tw_context_present, get(), view(mode)); }
    result<buffer> tools() const { return detail::make<buffer>(tw_context_tools, get()); }
    result<registration> approve_with(std::function<void(reply)> approves) const {
        return asking(approves, tw_context_approve_with, get());
    }
    result<future> execute_tool(std::string_view call) const { return detail::make<future>(tw_context_execute_tool, get(), view(call)); }
    result<registration> model(std::string_view provider, std::string_view adapter) const {
        return detail::make<registration>(tw_context_model, get(), view(provider), view(adapter));
    }
    result<registration> route(std::string_view provider, std::string_view adapter, std::string_view options) const {
        return detail::make<registration>(tw_context_route, get(), view(provider), view(adapter), view(options));
    }
    result<registration> adapter(std::string_view provider, std::function<void(answer)> serves, std::string_view models = {}) const {
        using fn = detail::closure<tw_answer *>;
        void *body = fn::keep([serves = std::move(serves)](tw_answer *raw) { serves(answer(raw)); });
        return detail::make<registration>(tw_context_adapter, get(), view(provider), view(models), &fn::run, body, &fn::drop);
    }
    result<registration> retry() const { return detail::make<registration>(tw_context_retry, get()); }
    result<registration> fallback(std::string_view routes) const { return detail::make<registration>(tw_context_fallback, get(), view(routes)); }
    result<buffer> providers() const { return detail::make<buffer>(tw_context_providers, get()); }
    result<tw::selection> selection(std::string_view choice = {}) const {
        return detail::make<tw::selection>(tw_context_selection, get(), view(choice));
    }
    result<registration> prompt(std::string_view input) const {
        return detail::make<registration>(tw_context_prompt, get(), view(input), nullptr, nullptr, nullptr);
    }
    /// An input whose text is asked for whenever it is needed.
    result<registration> prompt(std::string_view input, std::function<void(reply)> computes) const {
        return asking(computes, tw_context_prompt, get(), view(input));
    }
    result<tw::plugin> plugin(setup body, std::string_view required = {}) const {
        return composing<tw::plugin>(std::move(body), tw_context_plugin, get(), view(required));
    }
    /// Provides a service for other plug-ins. Ask for it as the same type.
    template <class Service> result<registration> provide(std::string_view name, std::shared_ptr<Service> service) const {
        const tw_drop_fn drop = [](void *kept) noexcept { delete static_cast<std::shared_ptr<Service> *>(kept); };
        void *kept = new std::shared_ptr<Service>(std::move(service));
        return detail::make<registration>(tw_context_provide, get(), view(name), kept, drop);
    }
    /// The service of a name, on the runtime's thread; empty when there is none.
    template <class Service> result<std::shared_ptr<Service>> service(std::string_view name) const {
        auto found = detail::read<void *>(tw_context_get, get(), view(name));
        if (!found) return found.error();
        const auto *kept = static_cast<std::shared_ptr<Service> *>(found.value());
        return kept == nullptr ? std::shared_ptr<Service>() : *kept;
    }
    outcome event_type(std::string_view kind, uint32_t version) const { return detail::call(tw_context_event_type, get(), view(kind), version); }

    /// Opens an agent: get it with `find` when the future is done.
    result<future> open(std::string_view id, std::string_view options = {}, setup compose = {}) const {
        if (compose) return composing<future>(std::move(compose), tw_context_open, get(), view(id), view(options));
        return detail::make<future>(tw_context_open, get(), view(id), view(options), nullptr, nullptr, nullptr);
    }
    outcome start_agents(std::string_view entries) const { return detail::call(tw_context_start_agents, get(), view(entries)); }
    /// The live agent of an id; an empty one if there is none.
    result<agent> find(std::string_view id) const { return detail::make<agent>(tw_context_agent, get(), view(id)); }
    result<buffer> agents() const { return detail::make<buffer>(tw_context_agents, get()); }
    /// The id of the agent whose turn this is part of; empty outside any.
    result<buffer> initiator() const { return detail::make<buffer>(tw_context_initiator, get()); }
    /// Runs `operation` as the agent's; an empty agent for nobody's.
    outcome with_initiator(const agent &initiator, std::function<void()> operation) const {
        const tw_drop_fn run = [](void *body) noexcept { (*static_cast<std::function<void()> *>(body))(); };
        return detail::call(tw_context_with_initiator, get(), initiator.get(), run, static_cast<void *>(&operation));
    }
    /// `at` is the last event taken over; negative for all. An empty `id` is made up.
    result<tw::session> fork_session(std::string_view from, int64_t at = -1, std::string_view id = {}) const {
        return detail::make<tw::session>(tw_context_fork_session, get(), view(from), at, view(id));
    }
    result<future> stored(std::string_view after = {}, uint64_t limit = UINT64_MAX) const {
        return detail::make<future>(tw_context_stored, get(), view(after), limit);
    }
    result<future> import_session(std::string_view from, std::string_view id) const {
        return detail::make<future>(tw_context_import_session, get(), view(from), view(id));
    }
    result<future> export_session(std::string_view to, std::string_view id) const {
        return detail::make<future>(tw_context_export_session, get(), view(to), view(id));
    }
    result<future> copy_session(std::string_view from, std::string_view to, std::string_view id) const {
        return detail::make<future>(tw_context_copy_session, get(), view(from), view(to), view(id));
    }
    result<context> scope() const { return detail::make<context>(tw_context_scope, get()); }
    result<future> end() const { return detail::make<future>(tw_context_end, get()); }
    result<future> close() const { return detail::make<future>(tw_context_close, get()); }

  private:
    template <class Function, class... Arguments>
    static result<registration> asking(std::function<void(reply)> &asked, Function function, Arguments... arguments) {
        using fn = detail::closure<tw_reply *>;
        void *body = fn::keep([asked = std::move(asked)](tw_reply *raw) { asked(reply(raw)); });
        return detail::make<registration>(function, arguments..., &fn::run, body, &fn::drop);
    }
    template <class Owner, class Function, class... Arguments>
    static result<Owner> composing(setup compose, Function function, Arguments... arguments) {
        using fn = detail::closure<tw_context *, tw_reply *>;
        void *body = fn::keep([compose = std::move(compose)](tw_context *raw, tw_reply *asked) {
            tw_context_retain(raw);
            compose(context(raw), reply(asked));
        });
        return detail::make<Owner>(function, arguments..., &fn::run, body, &fn::drop);
    }
};

inline result<tw::context> agent::context() const { return detail::make<tw::context>(tw_agent_context, get()); }

/// A thread that agents live on. Its end is `close`, which waits and makes all durable; else nothing waits.
class runtime : public handle<tw_runtime, tw_runtime_free> {
  public:
    using handle::handle;

    static result<runtime> make(std::string_view options = {}) { return detail::make<runtime>(tw_runtime_new, view(options)); }
    result<tw::context> context(std::string_view options = {}) const {
        return detail::make<tw::context>(tw_context_new, get(), view(options));
    }
    outcome poll(int32_t timeout_ms) const { return detail::call(tw_runtime_poll, get(), timeout_ms); }
    result<int32_t> fd() const { return detail::read<int32_t>(tw_runtime_fd, get()); }
    /// Runs `task` on the runtime's thread in one go, and waits for it.
    outcome run(std::function<void()> task) const {
        using fn = detail::closure<>;
        return detail::call(tw_runtime_run, get(), &fn::run, fn::keep(std::move(task)), &fn::drop);
    }
    outcome close() const { return detail::call(tw_runtime_close, get()); }
};

/// Sends what the library reports to `log`, for this whole process; on any thread, and on several at once.
inline outcome set_log(std::function<void(int32_t, std::string_view)> log) {
    using fn = detail::closure<int32_t, tw_str>;
    void *body = fn::keep([log = std::move(log)](int32_t level, tw_str message) { log(level, view(message)); });
    return detail::call(tw_set_log, &fn::run, body, &fn::drop);
}

/// The JSON schema that a shorthand stands for.
inline result<buffer> schema_of_shorthand(std::string_view shorthand) {
    return detail::make<buffer>(tw_schema_of_shorthand, view(shorthand));
}

/// The library's fixed texts that reach a model, as JSON.
inline result<buffer> texts() { return detail::make<buffer>(tw_texts); }
/// The version of the library.
inline std::string_view version() noexcept { return tw_version(); }
/// The version of the interface that the library has; the header's is TW_ABI_VERSION.
inline uint32_t abi_version() noexcept { return tw_abi_version(); }
/// How many handles this process holds.
inline uint64_t handle_count() noexcept { return tw_handle_count(); }

} // namespace tw
