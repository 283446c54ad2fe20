// One scenario in the making: its gates, texts, scripts, and the composition of the current lifetime.

#pragma once

#include "gates.hpp"
#include "record.hpp"

#include <deque>
#include <map>

/// What came of an action.
struct Done {
    /// What it returned.
    std::optional<Json> returned;
    /// An operation under way that the step waits for.
    std::shared_ptr<Future> awaited;
    bool failed = false;
};

/// A message in short form (section 3.1) as the runtime takes it.
Json message(const Json &spec);
/// An error to throw (section 3.5) as the runtime takes it.
Json thrown(const Json &spec);
/// Message, code and the like of an error, as `errors` records it.
Json described(const Json &error);
/// A member, or `otherwise` where it is absent.
inline Json member(const Json &object, const char *key, Json otherwise = nullptr) {
    const auto found = object.find(key);
    return found == object.end() ? std::move(otherwise) : *found;
}
/// A text member, or "" where it is absent or null.
inline std::string text(const Json &object, const char *key) {
    const Json found = member(object, key);
    return found.is_string() ? found.get<std::string>() : "";
}

/// The library's own store of files in a folder that ends with this. While it refuses, no file of this process can grow.
class StoreDouble {
  public:
    ~StoreDouble();

    /// The options of a context that keeps its sessions here.
    Json options();
    void refuse(bool refuses);
    /// How many events of a session are stored.
    size_t length(const std::string &id) const;

  private:
    std::string root_;
};

/// An operation that is waited for.
struct Operation {
    Future future;
    bool is_detached = false, is_withdrawn = false;
};

class World {
  public:
    explicit World(Json scenario);
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    ~World();

    Json scenario;
    std::string default_agent;
    Gates gates;
    Recorder recorder;
    Json errors = Json::array();
    Json settled = Json::object();
    std::vector<std::string> problems;
    /// The tools declared so far.
    std::vector<Json> tools;
    /// How many more events of a type are refused before they are committed.
    std::map<std::string, int> refusals;
    /// Operations that are waited for, by name.
    std::map<std::string, std::shared_ptr<Operation>> operations;
    StoreDouble store;
    int lifetime = 0;

    tw_context *context() const { return context_.get(); }
    void begin_lifetime();
    /// Abandons the lifetime and composes the next one.
    void next_lifetime();
    /// Polls until nothing can proceed without another stimulus.
    void settle();
    /// Polls for as long as it takes the clock of the machine to move a little.
    void wait_a_little() const;

    /// An agent of this lifetime, live or disposed.
    std::shared_ptr<Agent> agent(const std::string &id);
    /// The live agent of an id.
    std::shared_ptr<Agent> live(const std::string &id) const;
    /// A declaration, or one that says nothing but the id.
    Json declared(const std::string &id) const;
    /// Opens an agent; `how` is the options of `tw_context_open` beside the declared ones.
    std::shared_ptr<Future> open(const Json &spec, const Json &options, Json how);
    /// Creates a declared agent, or resumes it from its declared log.
    std::shared_ptr<Future> open_declared(const Json &spec);

    void register_tool(tw_context *to, const Json &spec);
    void remove_tool(const std::string &name);
    void select(const std::string &agent, const Json &choice);
    void set_text(const std::string &kind, const std::string &name, const Json &agent, const Json &text);

    /// The next scripted response of an agent.
    std::optional<Json> next_response(const std::string &agent);
    size_t responses_left() const;
    /// Counts a matching dispatch of a listener; the first is 1.
    int count(size_t listener) { return ++counters_[listener]; }
    std::string listener_name(size_t index) const;
    bool records(const char *what) const;
    bool needs(const char *tag) const;
    /// Records a failed action.
    void failed(const std::string &place, const Json &error);
    /// Performs actions in one breath.
    void perform_batch(const Json &actions, const std::string &place);
    /// Reports the settlement of a named operation.
    void report(const std::string &name, tw_future *future);

  private:
    void abandon();
    void compose();
    void register_additions();
    void register_inputs(tw_context *to, const Json &agent);
    void register_listeners(tw_context *to, const std::string &agent);
    void prompt(tw_context *to, const Json &input, const std::string &kind, const Json &spec);
    void set_up(tw_context *to, const Json &spec);

    Runtime runtime_;
    Context context_;
    std::map<std::string, std::deque<Json>> scripts_;
    std::map<std::string, std::shared_ptr<Json>> texts_;
    std::map<std::string, Registration> tool_registrations_;
    std::map<std::string, Selection> selections_;
    std::map<std::string, Json> choices_;
    std::vector<int> counters_;
};

/// JSON text as it crosses the border: what stands for a lone surrogate has become one (D-22).
std::string crossing(const Json &value);
/// Notes what an agent says of itself, as a notice.
void ask_agent(World &world, const Json &action, const std::string &agent);
/// Starts waiting: `settled`, `durable` or `run`.
void wait_for(World &world, const Json &action, const std::string &agent);
/// Gives up waiting for an operation.
void withdraw(World &world, const Json &action);
/// The store writes on a thread of its own: waits until it has everything, or for as long as it would take by far.
void await_store(const World &world, const std::string &agent);
/// The clock is the machine's: waits until the event has come. A step only.
void elapse(World &world, const Json &action);
/// Performs one action; a failure is recorded under `place`.
Done perform(World &world, const Json &action, const std::string &place);
/// Starts the next lifetime with one agent of this one (`resume`).
Done resume(World &world, const Json &action, const std::string &place);
/// Registers the scenario's listener `index`.
void register_listener(World &world, tw_context *to, size_t index);
/// Registers the double that serves a provider route.
void register_model(World &world, tw_context *to, const Json &provider);
/// Registers the double of a tool.
Registration register_tool_double(World &world, tw_context *to, const Json &spec);
