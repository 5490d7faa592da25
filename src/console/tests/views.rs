//! The answers to questions about many processes.

use super::*;
use crate::clock::ManualClock;
use crate::config::Watchdog;
use crate::primitives::{AtomicU64, Ordering};
use crate::process::Reply;
use crate::runtime::{By, Filter, MetricsOptions};
use crate::supervisor::{ChildSpec, Strategy, Supervisor};
use crate::wait::advance_until;

/// All processes of the answer that `top` must give, in their order.
fn sorted(runtime: &Runtime, by: By, filter: &Filter) -> Vec<Pid> {
    let mut all: Vec<_> = runtime.processes();
    all.retain(|one| filter.type_name.as_ref().is_none_or(|part| one.type_name.contains(&**part)));
    all.retain(|one| filter.name.as_ref().is_none_or(|part| one.names.iter().any(|name| name.contains(&**part))));
    all.retain(|one| filter.state.is_none_or(|state| state == one.state));
    all.retain(|one| by != By::InStep || one.in_step.is_some());
    all.sort_by_key(|one| {
        let value = match by {
            By::Mailbox => one.mailbox as u128,
            By::Steps => one.steps.into(),
            By::Age => one.age.as_micros(),
            By::InStep => one.in_step.unwrap_or_default().as_nanos(),
        };
        (std::cmp::Reverse(value), one.pid)
    });
    all.into_iter().map(|one| one.pid).collect()
}

/// Waits at this latch in each step that has an event.
struct BlocksLater(Latch<()>);

impl Process for BlocksLater {
    type Message = ();
    type Output = ();

    fn type_name() -> &'static str {
        "blocks later"
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        events.for_each(|_| _ = self.0.wait_timeout(Duration::MAX));
        Ok(Step::Idle)
    }
}

/// Sets a latch at the end of a test, or when it fails.
struct SetsAtEnd(Latch<()>);

impl Drop for SetsAtEnd {
    fn drop(&mut self) {
        _ = self.0.set(());
    }
}

#[test]
fn the_top_is_that_of_a_sort_of_all() {
    let processes = 100_000;
    let manual = ManualClock::new();
    // Each step reads the clock, so that the times of steps are exact.
    let metrics = MetricsOptions::new().time_one_in(1);
    let runtime = Runtime::builder().workers(3).clock(manual.clock()).metrics(metrics).start().unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let spawn = |number: u64| {
        manual.advance(Duration::from_millis(number % 3));
        runtime.spawn(Idler).unwrap()
    };
    let mut handles: Vec<_> = (0..processes).map(spawn).collect();
    // Later ones have the slots of earlier ones, so the order of the PIDs is not that of the ages.
    for number in 0..500 {
        runtime.terminate(handles[number * 2].pid()).unwrap();
        handles[number * 2].join_timeout(LIMIT).unwrap();
        handles[number * 2] = spawn(1);
    }
    for number in 0..1_000 {
        runtime.register(format!("name {number}"), handles[number * 7].pid()).unwrap();
    }
    for _ in 0..5_000 {
        runtime.send(handles[random.random_range(0..handles.len())].address(), 1).unwrap();
        if random.random_bool(0.01) {
            runtime.wait_idle().unwrap();
        }
    }
    runtime.wait_idle().unwrap();
    // The three processes hold up all workers, so nothing moves. The last one begins its step first, so the order of
    // the times is not that of the PIDs.
    let latch = Latch::new();
    let _at_end = SetsAtEnd(latch.clone());
    let blocked = [(); 3].map(|()| runtime.spawn(BlocksLater(latch.clone())).unwrap());
    runtime.wait_idle().unwrap();
    for blocks in blocked.iter().rev() {
        runtime.send(blocks.address(), ()).unwrap();
        until("it runs", || runtime.process(blocks.pid()).is_some_and(|info| info.state == ProcessState::Running));
        manual.advance(Duration::from_millis(1_700));
    }
    for _ in 0..processes / 5 {
        runtime.send(handles[random.random_range(0..handles.len())].address(), 1).unwrap();
    }
    let filters = [
        Filter::default(),
        Filter { type_name: Some("idl".into()), ..Filter::default() },
        Filter { name: Some("me 1".into()), ..Filter::default() },
        Filter { state: Some(ProcessState::Ready), ..Filter::default() },
        Filter { state: Some(ProcessState::Running), name: None, type_name: Some("block".into()) },
        Filter { name: Some("nobody".into()), ..Filter::default() },
    ];
    for filter in &filters {
        for by in [By::Mailbox, By::Steps, By::Age, By::InStep] {
            let sorted = sorted(&runtime, by, filter);
            for limit in [0, 1, 20, 1_000] {
                let (of, top) = runtime.core().top(by, limit, filter);
                let top: Vec<Pid> = top.iter().map(|info| info.pid).collect();
                assert_eq!(of, sorted.len(), "{by:?} {limit} {filter:?}");
                assert!(top == sorted[..limit.min(of)], "{by:?} {limit} {filter:?}");
            }
        }
    }
    let (_, in_step) = runtime.core().top(By::InStep, 10, &Filter::default());
    let in_step: Vec<_> = in_step.iter().map(|info| (info.pid, info.in_step.map(|time| time.as_secs()))).collect();
    let [first, second, third] = blocked.map(|blocks| blocks.pid());
    assert_eq!(in_step, [(third, Some(5)), (second, Some(3)), (first, Some(1))]);
    let (_, oldest) = runtime.core().top(By::Age, 1_000, &Filter::default());
    assert!(oldest[0].age > oldest[999].age && oldest.iter().all(|info| info.pid != handles[0].pid()));
}

#[test]
fn no_answer_has_more_than_a_thousand_processes() {
    let folder = Folder::new("thousand");
    let runtime = runtime();
    let keeps = runtime.spawn(Keeps(Vec::new())).unwrap();
    (0..1_500).for_each(|_| drop(runtime.spawn(Asks(keeps.address())).unwrap()));
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::new(&console);
    until("all wait", || client.get(json!({ "get": "waits" }))["of"] == 1_500);
    let mut count = |question: Value, list: &str| client.get(question)[list].as_array().map(Vec::len);
    assert_eq!(count(json!({ "get": "waits" }), "waits"), Some(1_000));
    for limit in [1_001, 5_000, u64::MAX] {
        assert_eq!(count(json!({ "get": "top", "limit": limit }), "processes"), Some(1_000));
    }
    assert_eq!(client.get(json!({ "get": "top", "limit": 5_000 }))["of"], 1_501);
}

/// A supervisor that is stuck in a step until the latch is set.
fn stuck_supervisor(runtime: &Runtime) -> (Handle<Supervisor>, Latch<()>) {
    let (latch, entered) = (Latch::new(), Latch::new());
    let (held, enters) = (latch.clone(), entered.clone());
    let never = ChildSpec::new("never", move || {
        _ = enters.set(());
        _ = held.wait_timeout(LIMIT);
        Idler
    });
    let stuck = runtime.spawn(Supervisor::builder().child(never).build().unwrap()).unwrap();
    entered.wait_timeout(LIMIT).unwrap();
    (stuck, latch)
}

/// Fails in its step if this is `false`, and rests otherwise.
struct FailsOnce(bool);

impl Process for FailsOnce {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        if self.0 { Ok(Step::Idle) } else { Err("the first time".into()) }
    }
}

#[test]
fn the_tree_has_children_and_supervisors_that_do_not_answer() {
    let folder = Folder::new("tree");
    let runtime = Runtime::builder().workers(3).start().unwrap();
    let below = || Supervisor::builder().child(ChildSpec::new("leaf", || Idler)).build().unwrap();
    let starts = AtomicU64::new(0);
    let top = Supervisor::builder()
        .strategy(Strategy::RestForOne)
        .child(ChildSpec::new("worker", || Idler))
        .child(ChildSpec::supervisor("inner", below))
        .child(ChildSpec::new("fails once", move || FailsOnce(starts.fetch_add(1, Ordering::Relaxed) > 0)))
        .build()
        .unwrap();
    let top = runtime.spawn(top).unwrap();
    let (stuck, latch) = stuck_supervisor(&runtime);
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::new(&console);
    let mut tree = Value::Null;
    until("all but one have answered, and are up", || {
        tree = client.get(json!({ "get": "tree" }));
        let text = tree["supervisors"].to_string();
        let are_up =
            text.contains("\"leaf\"") && !["starting", "delayed", "waiting"].iter().any(|at| text.contains(at));
        are_up && text.contains("no_answer") && text.contains("\"restarts\":1")
    });
    let supervisors = tree["supervisors"].as_array().unwrap();
    assert_eq!(supervisors.len(), 2, "{tree}");
    let of = |pid: Pid| supervisors.iter().find(|one| one["pid"] == pid.to_string()).unwrap();
    assert_eq!((&of(stuck.pid())["no_answer"], &of(stuck.pid())["children"]), (&json!(true), &Value::Null));
    let top = of(top.pid());
    assert_eq!((&top["strategy"], &top["children"][0]["id"]), (&json!("rest_for_one"), &json!("worker")));
    let [worker, inner, fails] = [0, 1, 2].map(|child| &top["children"][child]);
    assert_eq!((&worker["state"], &worker["restarts"]), (&json!("running"), &json!(0)));
    assert_eq!((&worker["process"]["type"], &worker["children"]), (&json!("idler"), &Value::Null));
    assert_eq!((&inner["strategy"], &inner["children"][0]["id"]), (&json!("one_for_one"), &json!("leaf")));
    assert_eq!((&fails["id"], &fails["restarts"], &inner["restarts"]), (&json!("fails once"), &json!(1), &json!(0)));
    latch.set(()).unwrap();
}

#[test]
fn a_supervisor_that_does_not_answer_is_asked_once() {
    let folder = Folder::new("asked-once");
    let runtime = runtime();
    let (stuck, latch) = stuck_supervisor(&runtime);
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::new(&console);
    for _ in 0..5 {
        assert_eq!(client.get(json!({ "get": "tree" }))["supervisors"][0]["no_answer"], true);
    }
    assert_eq!(runtime.process(stuck.pid()).unwrap().mailbox, 1);
    latch.set(()).unwrap();
    until("it answers", || client.get(json!({ "get": "tree" }))["supervisors"][0]["children"].is_array());
}

#[test]
fn a_very_deep_tree_can_be_read() {
    let folder = Folder::new("deep");
    let runtime = runtime();
    fn nested(depth: u32) -> Supervisor {
        let child = match depth {
            0 => ChildSpec::new("leaf", || Idler),
            _ => ChildSpec::supervisor("below", move || nested(depth - 1)),
        };
        Supervisor::builder().child(child).build().unwrap()
    }
    runtime.spawn(nested(80)).unwrap();
    until("all are up", || runtime.stats().processes == 82);
    runtime.wait_idle().unwrap();
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::new(&console);
    let mut tree = Value::Null;
    until("all answer in time", || {
        tree = client.get(json!({ "get": "tree" }));
        !tree.to_string().contains("no_answer")
    });
    assert_eq!((tree.to_string().matches("strategy").count(), tree["left_out"].as_u64()), (50, Some(1)));
}

#[test]
fn a_tree_has_at_most_a_thousand_processes() {
    let folder = Folder::new("large-tree");
    let runtime = runtime();
    let children = (0..1_500).map(|number| ChildSpec::new(format!("child {number}"), || Idler));
    let supervisor = children.fold(Supervisor::builder().limit(2_000), |builder, child| builder.child(child));
    runtime.spawn(supervisor.build().unwrap()).unwrap();
    until("all are up", || runtime.stats().processes == 1_501);
    runtime.wait_idle().unwrap();
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::new(&console);
    let mut tree = Value::Null;
    until("the supervisor answers in time", || {
        tree = client.get(json!({ "get": "tree" }));
        tree["supervisors"][0]["children"].is_array()
    });
    assert_eq!(tree["supervisors"][0]["children"].as_array().unwrap().len(), 999);
    assert_eq!(tree["left_out"], 501);
}

/// Asks another process, and waits for the answer.
struct Asks(crate::Address<Reply<()>>);

impl Process for Asks {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if events.next().is_some() {
            return Ok(Step::Idle);
        }
        out.ask(self.0, |reply| reply, Duration::MAX);
        Ok(Step::Wait)
    }
}

/// Keeps the replies.
struct Keeps(Vec<Reply<()>>);

impl Process for Keeps {
    type Message = Reply<()>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<()>>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(reply) = event {
                self.0.push(reply);
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn waits_show_who_waits_for_whose_answer() {
    let folder = Folder::new("waits");
    let runtime = runtime();
    let keeps = runtime.spawn_with(Keeps(Vec::new()), SpawnOptions::new()).unwrap();
    let asks = runtime.spawn(Asks(keeps.address())).unwrap();
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::new(&console);
    let wait = json!({ "asker": asks.pid().to_string(), "asked": keeps.pid().to_string() });
    until("it waits", || client.get(json!({ "get": "waits" })) == json!({ "of": 1, "waits": [wait.clone()] }));
}

#[test]
fn a_program_whose_workers_are_stuck_answers() {
    let folder = Folder::new("stuck");
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let latch = Latch::new();
    let blocks = runtime.spawn(Blocks(latch.clone())).unwrap();
    until("it runs", || runtime.process(blocks.pid()).is_some_and(|info| info.state == ProcessState::Running));
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::new(&console);
    for question in ["overview", "snapshot", "types", "top", "tree", "waits", "stuck"] {
        client.get(json!({ "get": question }));
    }
    let top = client.get(json!({ "get": "top", "by": "in_step" }));
    assert_eq!((&top["of"], &top["processes"][0]["type"]), (&json!(1), &json!("blocks")));
    assert!(top["processes"][0]["in_step"].as_f64().unwrap() > 0.0);
    latch.set(()).unwrap();
}

#[test]
fn stuck_steps_are_shown_with_their_process_and_place() {
    let (folder, clock) = (Folder::new("stuck-steps"), ManualClock::new());
    let watchdog = Watchdog::after(Duration::from_secs(1));
    let runtime = Runtime::builder().workers(1).clock(clock.clock()).watchdog(watchdog).start().unwrap();
    let latch = Latch::new();
    let options = SpawnOptions::new().name("till");
    let blocks = runtime.spawn_with(Blocks(latch.clone()), options).unwrap();
    until("it runs", || runtime.process(blocks.pid()).is_some_and(|info| info.state == ProcessState::Running));
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::new(&console);
    advance_until("it is stuck", &clock, Duration::from_secs(1), || runtime.stuck_steps().len() == 1);
    let mut stuck = client.get(json!({ "get": "stuck" }));
    let mut one = stuck["stuck"][0].take();
    assert_eq!(stuck["stuck"].as_array().map(Vec::len), Some(1));
    assert!(one["running_for"].take()["secs"].as_u64() >= Some(1));
    let expected = json!({
        "pid": blocks.pid().to_string(),
        "name": "till",
        "type_name": "blocks",
        "doing": "in a step, before the first event",
        "running_for": null,
    });
    assert_eq!(one, expected);
    assert_eq!(client.get(json!({ "get": "overview" }))["stuck"], 1);
    latch.set(()).unwrap();
    until("it is not stuck any longer", || client.get(json!({ "get": "stuck" }))["stuck"] == json!([]));
}

#[test]
fn a_process_describes_itself_and_a_stuck_one_does_not() {
    let folder = Folder::new("describe");
    let runtime = runtime();
    let (idler, latch) = (runtime.spawn(Idler).unwrap(), Latch::new());
    let blocks = runtime.spawn(Blocks(latch.clone())).unwrap();
    until("it runs", || runtime.process(blocks.pid()).is_some_and(|info| info.state == ProcessState::Running));
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::new(&console);
    let describe = |pid: Pid| json!({ "get": "describe", "pid": pid.to_string() });
    until("it is asked within a second", || {
        client.ask(&describe(idler.pid()))["describe"] == json!({ "text": "it has taken nothing" })
    });
    assert_eq!(client.error(&describe(blocks.pid())), "no_answer");
    assert_eq!(client.error(&json!({ "get": "describe", "pid": "<0.999.1>" })), "not_found");
    runtime.terminate(idler.pid()).unwrap();
    idler.join_timeout(LIMIT).unwrap();
    assert_eq!(client.error(&describe(idler.pid())), "not_found");
    latch.set(()).unwrap();
}

#[test]
fn the_events_of_a_trace_come_between_the_answers() {
    let folder = Folder::new("trace");
    // The clock of the runtime stands still, so no trace reaches the time limit that the process has.
    let runtime = Runtime::builder().workers(2).clock(ManualClock::new().clock()).start().unwrap();
    let (idler, other) = (runtime.spawn(Idler).unwrap(), runtime.spawn(Idler).unwrap());
    runtime.wait_idle().unwrap();
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::new(&console);
    let trace = |id: u32, pid: Pid| json!({ "id": id, "get": "trace", "pid": pid.to_string(), "seconds": 600 });
    assert_eq!(client.error(&json!({ "get": "trace", "pid": "<0.999.1>" })), "not_found");
    assert_eq!(client.ask(&trace(1, other.pid())), json!({ "id": 1, "trace": { "for": 60 } }));
    // The second ends the first.
    assert!(client.say(&trace(2, idler.pid()).to_string()));
    assert_eq!(client.hear().unwrap(), json!({ "id": 1, "traced": { "events": 0, "left_out": 0 } }));
    assert_eq!(client.hear().unwrap(), json!({ "id": 2, "trace": { "for": 60 } }));
    runtime.wait_idle().unwrap();
    for number in 0..3 {
        runtime.send(idler.address(), number).unwrap();
        runtime.send(other.address(), number).unwrap();
    }
    runtime.wait_idle().unwrap();
    assert!(client.say("{\"id\":3,\"get\":\"waits\"}"));
    let (mut words, mut answers) = (Vec::new(), 0);
    let last = loop {
        let line = client.hear().unwrap();
        if line["id"] == 3 {
            runtime.terminate(idler.pid()).unwrap();
        }
        match line["event"]["what"].as_str() {
            Some(what) => {
                assert!(line["id"] == 2 && line["event"]["at"].as_f64().is_some(), "{line}");
                words.push(what.to_string());
            }
            None if line["id"] == 3 => answers += 1,
            None => break line,
        }
    };
    assert_eq!((answers, words.iter().filter(|word| *word == "message").count()), (1, 3), "{words:?}");
    assert_eq!((words.last().map(|word| &**word), &last["id"]), (Some("ended"), &json!(2)));
    assert_eq!(last["traced"], json!({ "events": words.len(), "left_out": 0 }));
    // A client that goes ends its trace.
    assert!(!is_traced(&runtime, other.pid()));
    assert_eq!(client.ask(&trace(4, other.pid()))["id"], 4);
    until("it is traced", || is_traced(&runtime, other.pid()));
    drop(client);
    until("its trace is over", || !is_traced(&runtime, other.pid()));
    until("it has gone", || console.server.clients.count() == 0);
}

/// Whether a process that does nothing else is traced.
fn is_traced(runtime: &Runtime, pid: Pid) -> bool {
    let road = &runtime.core().road;
    let mut is_traced = false;
    // The end of a trace may have taken it out.
    until("it rests", || {
        runtime.wait_idle().unwrap();
        let resting = road.table.cell(pid).and_then(|cell| cell.take_resting());
        resting
            .map(|body| {
                is_traced = body.head.rare.is_some();
                road.inject(body);
            })
            .is_some()
    });
    is_traced
}

#[cfg(feature = "cluster")]
#[test]
fn the_peers_of_a_node_are_shown() {
    use crate::cluster::{MemoryNetwork, Wire};
    let (folder, network) = (Folder::new("nodes"), MemoryNetwork::new());
    let start = |name: &str| {
        let runtime = runtime();
        let node = Cluster::named(name, Wire::new()).memory(&network).start(&runtime).unwrap();
        (runtime, node)
    };
    let ((here, a), (there, _b)) = (start("a"), start("b"));
    a.wait_for("b", LIMIT).unwrap();
    let console = Console::named("shop").folder(&folder.0).cluster(&a).serve(&here).unwrap();
    let mut client = Client::new(&console);
    let nodes = client.get(json!({ "get": "nodes" }));
    assert_eq!((&nodes["name"], &nodes["up"], &nodes["held_processes"]), (&json!("a"), &json!(1), &json!(0)));
    assert_eq!((&nodes["peers"][0]["name"], &nodes["peers"][0]["state"]), (&json!("b"), &json!("up")));
    assert_eq!(client.get(json!({ "get": "overview" }))["node"], json!({ "name": "a", "peers": 1 }));
    assert_eq!(client.get(json!({ "get": "snapshot" }))["cluster"]["peers"][0]["name"], "b");
    there.shutdown(LIMIT).unwrap();
    until("it is down", || client.get(json!({ "get": "nodes" }))["peers"][0]["state"] == "down");
}

#[cfg(feature = "durable")]
mod parked {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::durable::Durable;
    use crate::durable::journal::{MemoryDisk, MemoryJournal};

    /// Fails at each message.
    #[derive(Serialize, Deserialize)]
    struct Fails;

    impl Process for Fails {
        type Message = ();
        type Output = ();

        fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            match events.next() {
                Some(Event::Message(())) => Err("the bank is closed".into()),
                _ => Ok(Step::Idle),
            }
        }
    }

    impl Durable for Fails {
        const NAME: &str = "fails";
    }

    #[test]
    fn the_parked_processes_of_a_store_are_shown() {
        let (folder, manual) = (Folder::new("parked"), ManualClock::new());
        let builder = Runtime::builder().workers(2).clock(manual.clock());
        let journal = MemoryJournal::new(&MemoryDisk::new());
        let (store, runtime) = Store::with_journal(journal).kind::<Fails>().start(builder).unwrap();
        let begun = store.begin("order 7", Fails).unwrap();
        begun.wait(LIMIT).unwrap();
        let console = Console::named("shop").folder(&folder.0).store(&store).serve(&runtime).unwrap();
        let mut client = Client::new(&console);
        assert_eq!(client.get(json!({ "get": "parked" })), json!({ "of": 0, "parked": [] }));
        store.send(begun.address(), ()).unwrap();
        let mut parked = Value::Null;
        until("it is parked", || {
            manual.advance(Duration::from_secs(20));
            parked = client.get(json!({ "get": "parked" }));
            parked["of"] == 1
        });
        let one = &parked["parked"][0];
        assert_eq!((&one["pid"], &one["key"]), (&json!(begun.pid().to_string()), &json!("order 7")));
        assert_eq!((&one["kind"], &one["reason"]), (&json!("fails"), &json!("the bank is closed")));
        assert_eq!(client.get(json!({ "get": "overview" }))["store"], json!({ "parked": 1 }));
        assert_eq!(client.get(json!({ "get": "snapshot" }))["store"]["parked"], 1);
        assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
        store.close().unwrap();
    }

    #[test]
    fn no_answer_has_more_than_a_thousand_parked_processes() {
        let (folder, manual) = (Folder::new("many-parked"), ManualClock::new());
        let builder = Runtime::builder().workers(2).clock(manual.clock());
        let journal = MemoryJournal::new(&MemoryDisk::new());
        let (store, runtime) = Store::with_journal(journal).kind::<Fails>().start(builder).unwrap();
        let begun: Vec<_> = (0..1_100).map(|n| store.begin(&format!("order {n}"), Fails).unwrap()).collect();
        begun.iter().for_each(|one| drop(store.send(one.address(), ()).unwrap()));
        let console = Console::named("shop").folder(&folder.0).store(&store).serve(&runtime).unwrap();
        let mut client = Client::new(&console);
        until("all are parked", || {
            manual.advance(Duration::from_secs(20));
            client.get(json!({ "get": "parked" }))["of"] == 1_100
        });
        // The list of an answer is read before its processes are counted.
        let parked = client.get(json!({ "get": "parked" }));
        assert_eq!(parked["parked"].as_array().map(Vec::len), Some(1_000));
        assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
        store.close().unwrap();
    }
}
