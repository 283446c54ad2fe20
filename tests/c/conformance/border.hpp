// The C interface as this runner uses it: owned values that free themselves, JSON in and out, closures as callbacks. Only
// functions of include/turnwheel.h are called.

#pragma once

#include "turnwheel.h"

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using Json = nlohmann::json;

/// What failed, as JSON: of the library, or of the scenario.
struct Failure : std::runtime_error {
    Json error;

    explicit Failure(Json told) : std::runtime_error(told.value("message", "")), error(std::move(told)) {}
    explicit Failure(const std::string &message) : Failure(Json{{"message", message}}) {}
    explicit Failure(const char *message) : Failure(std::string(message)) {}
};

inline tw_str view(std::string_view text) { return {text.data(), text.size()}; }

inline std::string_view seen(tw_str text) { return {text.ptr == nullptr ? "" : text.ptr, text.len}; }

/// A call's place for an error. `check` turns an error into a [`Failure`] and gives an outcome back.
class Errors {
    tw_error *error_ = nullptr;

  public:
    Errors() = default;
    Errors(const Errors &) = delete;
    Errors &operator=(const Errors &) = delete;
    ~Errors() { tw_error_free(error_); }

    operator tw_error **() { return &error_; }

    tw_status check(tw_status status) const {
        if (status < 100) return status;
        throw Failure(error_ == nullptr ? Json{{"message", tw_status_name(status)}} : Json::parse(seen(tw_error_json(error_))));
    }
};

/// Calls a function of the interface with `error` appended; an error is thrown.
template <class Function, class... Arguments> tw_status call(Function function, Arguments... arguments) {
    Errors errors;
    return errors.check(function(arguments..., errors));
}

/// A handle that is released at its end.
template <class Type, void (*release)(Type *)> class Handle {
    Type *handle_ = nullptr;

  public:
    Handle() = default;
    explicit Handle(Type *handle) : handle_(handle) {}
    Handle(Handle &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Handle &operator=(Handle &&other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Handle() { release(handle_); }

    Type *get() const { return handle_; }
    Type **place() { return &handle_; }
    explicit operator bool() const { return handle_ != nullptr; }
};

using Runtime = Handle<tw_runtime, tw_runtime_free>;
using Context = Handle<tw_context, tw_context_release>;
using Agent = Handle<tw_agent, tw_agent_release>;
using Session = Handle<tw_session, tw_session_release>;
using Future = Handle<tw_future, tw_future_release>;
using Registration = Handle<tw_registration, tw_registration_release>;
using Selection = Handle<tw_selection, tw_selection_release>;
using Signal = Handle<tw_signal, tw_signal_release>;
using Buffer = Handle<tw_buf, tw_buf_free>;
using Next = Handle<tw_next, tw_next_release>;
using Call = Handle<tw_call, tw_call_release>;
using Reply = Handle<tw_reply, tw_reply_release>;
using Answer = Handle<tw_answer, tw_answer_release>;

/// Shares a borrowed handle beyond its callback.
template <class Owned, class Type> std::shared_ptr<Owned> keep(Type *borrowed, void (*retain)(Type *)) {
    retain(borrowed);
    return std::make_shared<Owned>(borrowed);
}

/// The JSON that a function gives away in a buffer.
template <class Function, class... Arguments> Json ask(Function function, Arguments... arguments) {
    Buffer buffer;
    call(function, arguments..., buffer.place());
    return buffer ? Json::parse(seen(tw_buf_str(buffer.get()))) : Json();
}

/// The JSON that a function shows as borrowed text.
template <class Function, class... Arguments> Json read(Function function, Arguments... arguments) {
    tw_str text{};
    call(function, arguments..., &text);
    return Json::parse(seen(text));
}

/// What escaped a callback: no exception may cross the border.
inline std::vector<std::string> &escaped() {
    static std::vector<std::string> problems;
    return problems;
}

/// Whether a lifetime is being abandoned: what it still does then is not heard (SCENARIO.md section 7).
inline bool &is_abandoning() {
    static bool is_abandoning = false;
    return is_abandoning;
}

template <class Body> void contain(Body body) {
    if (is_abandoning()) return;
    try {
        body();
    } catch (const std::exception &problem) {
        escaped().push_back(problem.what());
    }
}

/// A closure as `(function, user_data, drop)`. Each instance is owned by the one registration that it is given to.
template <class... Arguments> class Callback {
    using Body = std::function<void(Arguments...)>;

    Body *body_;

  public:
    explicit Callback(Body body) : body_(new Body(std::move(body))) {}

    static void run(void *user_data, Arguments... arguments) {
        contain([&] { (*static_cast<Body *>(user_data))(arguments...); });
    }
    static void drop(void *user_data) { delete static_cast<Body *>(user_data); }
    void *data() const { return body_; }
};

using OnNotice = Callback<const tw_notice *>;
using OnNext = Callback<tw_next *>;
using OnThen = Callback<tw_next *, tw_str, const tw_error *>;
using OnReply = Callback<tw_reply *>;
using OnSetup = Callback<tw_context *, tw_reply *>;
using OnAnswer = Callback<tw_answer *>;
using OnSignal = Callback<tw_str>;
using OnDone = Callback<tw_future *>;

/// Fails what a callback was asked, with an error of the scenario: `fail(tw_next_fail, next, why)`.
template <class Function, class Type> void fail(Function function, Type *asked, const Json &why) {
    const std::string text = why.dump();
    call(function, asked, view(text));
}

/// Answers what a callback was asked.
template <class Function, class Type> void answer(Function function, Type *asked, const Json &with) {
    const std::string text = with.dump();
    call(function, asked, view(text));
}
