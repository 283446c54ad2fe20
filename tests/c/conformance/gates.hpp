// Gates: named places where callbacks hold until the scenario opens them (SCENARIO.md section 2).

#pragma once

#include "border.hpp"

#include <optional>
#include <set>

class Gates {
  public:
    /// What a holder does then; with a failure where the signal ended the hold.
    using Then = std::function<void(std::optional<std::string> failed)>;

    /// Opens a gate for good.
    void open(const std::string &gate) {
        open_.insert(gate);
        const auto holders = holders_;
        for (const auto &holder : holders) {
            if (holder->gate == gate) end(holder, std::nullopt);
        }
    }

    /// The gates being held, sorted.
    Json held() const {
        std::set<std::string> names;
        for (const auto &holder : holders_) names.insert(holder->gate);
        return names;
    }

    /// Forgets the holders of an abandoned lifetime.
    void forget_holders() {
        for (const auto &holder : std::exchange(holders_, {})) holder->then = nullptr;
    }

    /// Holds until the gate opens, or until the signal fires when that ends the hold: `on_abort` is `fail`, `ignore` or
    /// `continue`.
    void hold(const std::string &gate, tw_signal *signal, const std::string &on_abort, Then then) {
        if (open_.count(gate) != 0) return then(std::nullopt);
        auto holder = std::make_shared<Holder>(Holder{gate, std::move(then)});
        holders_.push_back(holder);
        if (signal == nullptr || on_abort == "ignore") return;
        OnSignal fired([this, holder, on_abort](tw_str) {
            end(holder, on_abort == "fail" ? std::optional("aborted at gate " + holder->gate) : std::nullopt);
        });
        call(tw_signal_on_fired, signal, &OnSignal::run, fired.data(), &OnSignal::drop);
    }

  private:
    struct Holder {
        std::string gate;
        Then then;
    };

    void end(const std::shared_ptr<Holder> &holder, std::optional<std::string> failed) {
        if (!holder->then) return;
        const Then then = std::exchange(holder->then, nullptr);
        holders_.erase(std::find(holders_.begin(), holders_.end(), holder));
        then(std::move(failed));
    }

    std::set<std::string> open_;
    std::vector<std::shared_ptr<Holder>> holders_;
};
