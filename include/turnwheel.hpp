// turnwheel for C++17: owned handles, std::function callbacks, results or exceptions, and awaiters where C++20 is there.
// Header-only, over turnwheel.h alone: everything that the C interface can do is reached through `get()`.
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

/// What went wrong.
class error {
  public:
    error() noexcept = default;
    explicit error(tw_status status, tw_error *told = nullptr) noexcept : status_(status), told_(told, tw_error_free) {}

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

} // namespace detail

/// Text that the library gave away.
class buffer : public handle<tw_buf, tw_buf_free> {
  public:
    using handle::handle;
    std::string_view text() const noexcept { return get() == nullptr ? std::string_view() : view(tw_buf_str(get())); }
    std::string string() const { return std::string(text()); }
};

using registration = handle<tw_registration, tw_registration_release>;
using session = handle<tw_session, tw_session_release>;

/// The result of something that takes time, as JSON.
class future : public handle<tw_future, tw_future_release> {
  public:
    using handle::handle;

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

/// A question of the library: kept as long as this object lives, answered now or later, from any thread.
template <class Type, void (*retain)(Type *), void (*release)(Type *), auto payload_of, auto answer_with, auto fail_with>
class question : public handle<Type, release> {
  public:
    /// Keeps a question that a callback got.
    explicit question(Type *borrowed) noexcept : handle<Type, release>((retain(borrowed), borrowed)) {}

    /// What is asked, as JSON; lives as long as this object.
    std::string_view payload() const {
        tw_str text{};
        detail::call(payload_of, this->get(), &text);
        return view(text);
    }
    outcome answer(std::string_view json) const { return detail::call(answer_with, this->get(), view(json)); }
    /// `why` is JSON: a text, or `{"message", "code"?, "name"?}`.
    outcome fail(std::string_view why) const { return detail::call(fail_with, this->get(), view(why)); }
};

using call = question<tw_call, tw_call_retain, tw_call_release, tw_call_payload, tw_call_answer, tw_call_fail>;
using reply = question<tw_reply, tw_reply_retain, tw_reply_release, tw_reply_payload, tw_reply_answer, tw_reply_fail>;

/// A waterfall to decide.
class next : public question<tw_next, tw_next_retain, tw_next_release, tw_next_payload, tw_next_answer, tw_next_fail> {
  public:
    using question::question;
    /// Delegates, and keeps what the continuation decides.
    outcome pass() const { return detail::call(tw_next_pass, get()); }
};

/// An agent.
class agent : public handle<tw_agent, tw_agent_release> {
  public:
    using handle::handle;

    /// `message` is JSON: a string, or a message. The result is its id.
    result<buffer> followup(std::string_view message) const { return detail::make<buffer>(tw_agent_followup, get(), view(message)); }
    result<buffer> steer(std::string_view message) const { return detail::make<buffer>(tw_agent_steer, get(), view(message)); }
    result<buffer> inject(std::string_view message) const { return detail::make<buffer>(tw_agent_inject, get(), view(message)); }
    /// Sends a prompt; the future has `{"turn", "reason", "text", "messages", "usage"}`.
    result<future> run(std::string_view message) const { return detail::make<future>(tw_agent_run, get(), view(message)); }
    result<future> when_idle() const { return detail::make<future>(tw_agent_when_idle, get()); }
    result<future> flush() const { return detail::make<future>(tw_agent_flush, get()); }
    result<future> dispose() const { return detail::make<future>(tw_agent_dispose, get()); }
    /// The messages waiting in `next-turn` or `next-step`, as a JSON list.
    result<buffer> pending(std::string_view target) const { return detail::make<buffer>(tw_inbox_pending, get(), view(target)); }
    result<buffer> state() const { return detail::make<buffer>(tw_agent_state, get()); }
    result<tw::session> session() const { return detail::make<tw::session>(tw_agent_session, get()); }
    outcome wake() const { return detail::call(tw_agent_wake, get()); }
    /// `cause` is JSON; empty for `user`.
    outcome cancel(std::string_view cause = {}, bool keep_inbox = false) const {
        return detail::call(tw_agent_cancel, get(), view(cause), keep_inbox ? 1 : 0);
    }
};

/// What an application registers through. Options, definitions and decisions are JSON, as turnwheel.h describes them.
class context : public handle<tw_context, tw_context_release> {
  public:
    using handle::handle;

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
    result<registration> tool(std::string_view definition, std::function<void(call)> run) const {
        using fn = detail::closure<tw_call *>;
        void *body = fn::keep([run = std::move(run)](tw_call *raw) { run(call(raw)); });
        return detail::make<registration>(tw_context_tool, get(), view(definition), &fn::run, nullptr, body, &fn::drop);
    }
    result<registration> model(std::string_view provider, std::string_view adapter) const {
        return detail::make<registration>(tw_context_model, get(), view(provider), view(adapter));
    }
    result<registration> prompt(std::string_view input) const {
        return detail::make<registration>(tw_context_prompt, get(), view(input), nullptr, nullptr, nullptr);
    }
    /// Opens an agent: get it with `find` when the future is done.
    result<future> open(std::string_view id, std::string_view options = {}) const {
        return detail::make<future>(tw_context_open, get(), view(id), view(options), nullptr, nullptr, nullptr);
    }
    /// The live agent of an id; an empty one if there is none.
    result<agent> find(std::string_view id) const { return detail::make<agent>(tw_context_agent, get(), view(id)); }
    result<future> close() const { return detail::make<future>(tw_context_close, get()); }
};

/// A thread that agents live on. Its end is `close`, which waits and makes all durable; else nothing waits.
class runtime : public handle<tw_runtime, tw_runtime_free> {
  public:
    using handle::handle;

    static result<runtime> make(std::string_view options = {}) { return detail::make<runtime>(tw_runtime_new, view(options)); }
    result<tw::context> context(std::string_view options = {}) const {
        return detail::make<tw::context>(tw_context_new, get(), view(options));
    }
    outcome poll(int32_t timeout_ms) const { return detail::call(tw_runtime_poll, get(), timeout_ms); }
    result<int32_t> fd() const {
        int32_t descriptor = -1;
        error why = detail::call(tw_runtime_fd, get(), &descriptor);
        if (why.status() != TW_OK) return why;
        return descriptor;
    }
    outcome close() const { return detail::call(tw_runtime_close, get()); }
};

} // namespace tw
