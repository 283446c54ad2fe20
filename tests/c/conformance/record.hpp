// The runner's own recorder: the outermost listener of everything, and what the doubles were asked.

#pragma once

#include "border.hpp"

class World;

/// An agent of a lifetime, whose state can still be read when its runtime is gone.
class Life {
  public:
    explicit Life(std::shared_ptr<Agent> agent) : agent(std::move(agent)) {}

    /// `{"status", "events", "header", "history", "work", "pending"}`.
    Json state() const { return frozen_.is_null() ? read_state() : frozen_; }
    void freeze() {
        if (frozen_.is_null()) frozen_ = read_state();
    }
    uint64_t length() const;
    Json pending() const;

    const std::shared_ptr<Agent> agent;
    /// Whether its disposal was announced.
    bool is_over = false;

  private:
    Json read_state() const;

    Json frozen_;
};

struct Request {
    std::shared_ptr<Life> life;
    Json asked;
    Json initiator;
};

/// What happened to one agent over all lifetimes.
struct Record {
    std::string id;
    int lifetime = 0;
    std::vector<std::shared_ptr<Life>> lives;
    std::vector<std::shared_ptr<Json>> notices;
    std::vector<Request> requests;
    Json runs = Json::array();

    Life &latest() const { return *lives.back(); }
};

class Recorder {
  public:
    explicit Recorder(World &world) : world_(world) {}

    /// Registers the recorder: first, so that it is outermost.
    void listen(tw_context *to);
    const std::vector<std::unique_ptr<Record>> &agents() const { return agents_; }
    /// What is known of an agent; null if no notification named it.
    Record *find(const std::string &id) const;
    std::shared_ptr<Json> push(const std::string &agent, Json notice);
    /// Marks the begin of a later lifetime.
    void begin_lifetime(const std::string &agent, int number, size_t at);
    /// A named listener fired.
    void hit(const std::string &agent, const std::string &listener, const std::string &event);
    /// A request reached the adapter.
    void request(const Json &request);
    /// A tool body started.
    void run(const Json &call);
    /// Keeps the states of a lifetime that is about to end.
    void freeze();

  private:
    Record &record(const std::string &id);
    void hear(tw_context *to, const std::string &event);
    void decide(tw_context *to, const std::string &event);
    Json initiator() const;

    World &world_;
    std::vector<std::unique_ptr<Record>> agents_;
};
