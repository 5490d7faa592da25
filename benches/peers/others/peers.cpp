// The workloads in C++ with the Actor Framework (CAF): its event-based actors on its work-stealing scheduler. Written for
// versions 0.17 to 0.19.
//
// Where it differs: mailboxes are unbounded; a message is a counted tuple on the heap that is matched at run time, so the
// messages here are told apart by the types of plain numbers, which all versions know. An actor is counted, and ends when
// nobody holds it; handles are counted up and down. An actor that has more to do sends itself a message, and has to make
// room for others after 100 of them (usually: never). Questions are asked by a scoped actor on the main thread, which is
// outside of the scheduler.
#include <atomic>
#include <caf/all.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

using namespace caf;
using std::uint64_t;
using Clock = std::chrono::steady_clock;

namespace {

constexpr uint64_t ring_size = 1000, producers = 64, batch = 100, friends = 256, children = 10;
const auto limit = std::chrono::seconds(120);

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "caf: %s\n", what.c_str());
    std::_Exit(1);
}

void check(const char* what, uint64_t is, uint64_t must_be) {
    if (is != must_be) fail(std::string(what) + ": " + std::to_string(is) + ", and it must be " + std::to_string(must_be));
}

uint64_t share(uint64_t n, uint64_t one, uint64_t many) { return n / many + (one < n % many ? 1 : 0); }

// Counts down as actors report; the last one wakes who waits.
class Tally {
public:
    void expect(uint64_t reports) { left_ = static_cast<std::int64_t>(reports); }

    void strike() {
        if (left_.fetch_sub(1) == 1) {
            std::lock_guard<std::mutex> lock{mutex_};
            over_ = true;
            woken_.notify_all();
        }
    }

    void wait() {
        std::unique_lock<std::mutex> lock{mutex_};
        if (!woken_.wait_for(lock, limit, [this] { return over_; })) fail(std::to_string(left_) + " have not reported");
    }

private:
    std::atomic<std::int64_t> left_{0};
    std::mutex mutex_;
    std::condition_variable woken_;
    bool over_ = false;
};

// Who has to report before the clock stops, and who has to end after it.
Tally reports, ends;
// What the actors that end add up to.
std::atomic<uint64_t> sum_of_ends{0};

// Resident memory in bytes, now (VmRSS:) or at its peak (VmHWM:).
double memory(const std::string& which) {
    std::ifstream status{"/proc/self/status"};
    for (std::string line; std::getline(status, line);) {
        std::istringstream words{line};
        std::string name;
        double kilobytes = 0;
        if (words >> name >> kilobytes && name == which) return kilobytes * 1024;
    }
    return 0;
}

struct Result {
    double ns;
    uint64_t ops;
    double peak;
    double bytes = -1;
};

Result since(Clock::time_point began, uint64_t ops) {
    return {std::chrono::duration<double, std::nano>(Clock::now() - began).count(), ops, memory("VmHWM:")};
}

void stop(const actor& whom) { anon_send_exit(whom, exit_reason::user_shutdown); }

// A token goes round a circle; whoever gets it last says so.
struct hopper_state {
    actor next;
    uint64_t had = 0;
    ~hopper_state() {
        sum_of_ends += had;
        ends.strike();
    }
};

behavior hopper(stateful_actor<hopper_state>* self) {
    return {
        [self](uint64_t left) {
            ++self->state.had;
            if (left == 0)
                reports.strike();
            else
                self->send(self->state.next, left - 1);
        },
        [self](const actor& next) { self->state.next = next; },
    };
}

Result circle(actor_system& system, uint64_t n, uint64_t size) {
    reports.expect(1);
    ends.expect(size);
    std::vector<actor> hoppers;
    for (uint64_t one = 0; one < size; ++one) hoppers.push_back(system.spawn(hopper));
    for (uint64_t one = 0; one < size; ++one) anon_send(hoppers[one], hoppers[(one + 1) % size]);
    auto began = Clock::now();
    anon_send(hoppers[0], n - 1);
    reports.wait();
    auto result = since(began, n);
    for (auto& one : hoppers) stop(one);
    hoppers.clear();
    ends.wait();
    check("hops", sum_of_ends, n);
    return result;
}

// Adds small numbers, and tells the total if it is asked with a truth value.
struct counter_state {
    uint64_t total = 0;
};

behavior counter(stateful_actor<counter_state>* self) {
    return {
        [self](uint64_t n) { self->state.total += n; },
        [self](bool) -> uint64_t { return self->state.total; },
    };
}

// Sends without waiting for anything, a batch for each message to itself.
behavior producer(event_based_actor* self, const actor& to, uint64_t left) {
    self->send(self, left);
    return {
        [self, to](uint64_t left) {
            auto now = std::min(left, batch);
            for (uint64_t one = 0; one < now; ++one) self->send(to, uint64_t{1});
            if (left > now) {
                self->send(self, left - now);
            } else {
                reports.strike();
                self->quit();
            }
        },
    };
}

template <class T, class Question>
T ask(scoped_actor& self, const actor& whom, Question question) {
    T answer{};
    self->request(whom, limit, question)
        .receive([&](T it) { answer = it; }, [&](const error& problem) { fail(to_string(problem)); });
    return answer;
}

Result flow(actor_system& system, uint64_t n, uint64_t many) {
    reports.expect(many);
    auto total_is = system.spawn(counter);
    scoped_actor self{system};
    auto began = Clock::now();
    for (uint64_t one = 0; one < many; ++one) system.spawn(producer, total_is, share(n, one, many));
    reports.wait();
    auto total = ask<uint64_t>(self, total_is, true);
    auto result = since(began, n);
    check("messages counted", total, n);
    return result;
}

// That it has ended is seen by that its state is destroyed.
struct mayfly_state {
    ~mayfly_state() { reports.strike(); }
};

behavior mayfly(stateful_actor<mayfly_state>* self) {
    return {[self](bool) { self->quit(); }};
}

struct waiter_state {
    ~waiter_state() { ends.strike(); }
};

behavior waiter(stateful_actor<waiter_state>*) {
    return {[](bool) { reports.strike(); }};
}

// Spawns actors, and sends each a message; keeps them if there is somewhere to.
template <class F>
behavior spawner(event_based_actor* self, F child, uint64_t left, std::vector<actor>* kept) {
    self->send(self, left);
    return {
        [self, child, kept](uint64_t left) {
            auto now = std::min(left, batch);
            for (uint64_t one = 0; one < now; ++one) {
                auto spawned = self->spawn(child);
                self->send(spawned, true);
                if (kept) kept->push_back(std::move(spawned));
            }
            if (left > now) {
                self->send(self, left - now);
            } else {
                reports.strike();
                self->quit();
            }
        },
    };
}

Result spawn(actor_system& system, uint64_t n) {
    reports.expect(n + 1);
    auto began = Clock::now();
    system.spawn(spawner<decltype(&mayfly)>, &mayfly, n, nullptr);
    reports.wait();
    return since(began, n);
}

Result idle(actor_system& system, uint64_t n) {
    reports.expect(n + 1);
    ends.expect(n);
    auto before = memory("VmRSS:");
    std::vector<actor> kept;
    auto began = Clock::now();
    kept.reserve(n);
    system.spawn(spawner<decltype(&waiter)>, &waiter, n, &kept);
    reports.wait();
    auto result = since(began, n);
    result.bytes = (memory("VmRSS:") - before) / static_cast<double>(n);
    check("actors that wait", kept.size(), n);
    kept.clear();
    ends.wait();
    return result;
}

// An actor of the tree. It stands for so many numbers from `first` on, and tells its parent their sum.
struct node_state {
    actor parent;
    uint64_t to_come = children;
    uint64_t sum = 0;
};

behavior node(stateful_actor<node_state>* self, const actor& parent, uint64_t first, uint64_t leaves) {
    if (leaves == 1) {
        self->send(parent, first);
        return {};
    }
    self->state.parent = parent;
    leaves /= children;
    for (uint64_t child = 0; child < children; ++child)
        self->spawn(node, actor_cast<actor>(self), first + child * leaves, leaves);
    return {
        [self](uint64_t sum) {
            self->state.sum += sum;
            if (--self->state.to_come == 0) {
                self->send(self->state.parent, self->state.sum);
                self->quit();
            }
        },
    };
}

Result skynet(actor_system& system, uint64_t n) {
    scoped_actor self{system};
    auto began = Clock::now();
    system.spawn(node, actor_cast<actor>(self), uint64_t{0}, n);
    uint64_t sum = 0;
    self->receive([&](uint64_t it) { sum = it; });
    auto result = since(began, (n * children - 1) / (children - 1));
    check("the sum", sum, n * (n - 1) / 2);
    return result;
}

// Pings a random other, waits for the pong, and so on. A ping is who pings, a pong is a truth value; to begin, a number.
struct friend_state {
    uint64_t me = 0, left = 0, random = 0, answered = 0;
    const std::vector<actor>* all = nullptr;
    ~friend_state() {
        sum_of_ends += answered;
        ends.strike();
    }
};

void next(stateful_actor<friend_state>* self) {
    auto& state = self->state;
    if (state.left == 0) return reports.strike();
    --state.left;
    uint64_t other = state.me;
    while (other == state.me) {
        state.random ^= state.random << 13;
        state.random ^= state.random >> 7;
        state.random ^= state.random << 17;
        other = (state.random >> 32) % friends;
    }
    self->send((*state.all)[other], state.me);
}

behavior one_friend(stateful_actor<friend_state>* self, uint64_t me, uint64_t left, const std::vector<actor>* all) {
    self->state.me = me;
    self->state.left = left;
    self->state.random = (me + 1) * 0x9e3779b97f4a7c15;
    self->state.all = all;
    return {
        [self](uint64_t from) {
            ++self->state.answered;
            self->send((*self->state.all)[from], true);
        },
        [self](bool) { next(self); },
    };
}

Result big(actor_system& system, uint64_t n) {
    reports.expect(friends);
    ends.expect(friends);
    std::vector<actor> all;
    for (uint64_t me = 0; me < friends; ++me) all.push_back(system.spawn(one_friend, me, share(n, me, friends), &all));
    auto began = Clock::now();
    for (auto& one : all) anon_send(one, true);
    reports.wait();
    auto result = since(began, n);
    for (auto& one : all) stop(one);
    ends.wait();
    check("pings answered", sum_of_ends, n);
    return result;
}

struct numbers_state {
    uint64_t last = 0;
};

behavior numbers(stateful_actor<numbers_state>* self) {
    return {[self](bool) -> uint64_t { return ++self->state.last; }};
}

Result ask_often(actor_system& system, uint64_t n) {
    auto whom = system.spawn(numbers);
    scoped_actor self{system};
    auto began = Clock::now();
    for (uint64_t call = 1; call <= n; ++call) check("the answer", ask<uint64_t>(self, whom, true), call);
    return since(began, n);
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: peers-caf WORKLOAD COUNT WORKERS\n");
        return 2;
    }
    const std::string workload = argv[1];
    const uint64_t n = std::strtoull(argv[2], nullptr, 10), workers = std::strtoull(argv[3], nullptr, 10);
    const std::map<std::string, Result (*)(actor_system&, uint64_t)> programs{
        {"pingpong", [](actor_system& system, uint64_t n) { return circle(system, n, 2); }},
        {"ring", [](actor_system& system, uint64_t n) { return circle(system, n, ring_size); }},
        {"counting", [](actor_system& system, uint64_t n) { return flow(system, n, 1); }},
        {"fanin", [](actor_system& system, uint64_t n) { return flow(system, n, producers); }},
        {"spawn", spawn},
        {"skynet", skynet},
        {"idle", idle},
        {"big", big},
        {"ask", ask_often},
    };
    const auto program = programs.find(workload);
    if (program == programs.end() || n == 0 || workers == 0) {
        std::fprintf(stderr, "caf: no such workload, or no count\n");
        return 2;
    }
#if CAF_VERSION >= 1800
    core::init_global_meta_objects();
    const std::string scheduler = "caf.scheduler.";
#else
    const std::string scheduler = "scheduler.";
#endif
    actor_system_config config;
    config.set(scheduler + "max-threads", static_cast<std::size_t>(workers));
    // Else an actor that sends itself messages would be run until it has no more, and others would wait all the while.
    config.set(scheduler + "max-throughput", std::size_t{100});
    actor_system system{config};
    const auto result = program->second(system, n);
    char bytes[32] = "null";
    if (result.bytes >= 0) std::snprintf(bytes, sizeof bytes, "%.1f", result.bytes);
    std::printf("{\"peer\":\"caf\",\"workload\":\"%s\",\"n\":%llu,\"secs\":%.6f,\"ns_per_op\":%.1f,\"rss_mb\":%.1f,"
                "\"bytes_per_actor\":%s}\n",
                workload.c_str(), static_cast<unsigned long long>(n), result.ns / 1e9,
                result.ns / static_cast<double>(result.ops), result.peak / (1 << 20), bytes);
    return 0;
}
