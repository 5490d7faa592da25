//! Processes that are spawned on other nodes.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::Announced;
use super::net::{Local, Net, Order, Wires};
use crate::cluster::frame::Head;
use crate::cluster::lives::Life;
use crate::cluster::peer::PROTOCOL;
use crate::cluster::remote::RemoteProcess;
use crate::cluster::remote_spawn::{FarOptions, SpawnOrder};
use crate::counts::counts;
use crate::latch::Latch;
use crate::outcome::BoxError;
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::{
    EntryArgs, Event, Events, InitResult, Monitor, Overflow, Process, Reply, SpawnOptions, Step, StepOutput, StepResult,
};
use crate::sched::non_local::NonLocal as _;
use crate::wait::{until, wait};

/// The fate of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Fate {
    Lives,
    FactoryFails,
    FactoryPanics,
    InitFails,
    /// Its `init` waits for the gate with this number.
    InitWaits(usize),
    DoneAtOnce,
    FailsAtOnce,
}

struct Hatched(Fate);

static GATES: Mutex<Vec<(Latch<()>, Latch<()>)>> = Mutex::new(Vec::new());

/// A new gate, with its number. The first latch says that a process waits there. The second one opens it.
fn gate() -> (usize, Latch<()>, Latch<()>) {
    let mut gates = lock(&GATES);
    let (waits, opens) = (Latch::new(), Latch::new());
    gates.push((waits.clone(), opens.clone()));
    (gates.len() - 1, waits, opens)
}

impl RemoteProcess for Hatched {
    const NAME: &'static str = "test::Hatched";
    const VERSION: u32 = 1;
    type Argument = Fate;

    fn begin(fate: Fate) -> Result<Hatched, BoxError> {
        match fate {
            Fate::FactoryFails => Err("no egg".into()),
            Fate::FactoryPanics => panic!("a broken egg"),
            fate => Ok(Hatched(fate)),
        }
    }
}

impl Process for Hatched {
    type Message = Order;
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        match self.0 {
            Fate::InitFails => return Err("a cold egg".into()),
            Fate::InitWaits(gate) => {
                let (waits, opens) = lock(&GATES)[gate].clone();
                let _ = waits.set(());
                wait(&opens);
            }
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, _: &mut StepOutput) -> Result<(), BoxError> {
        if self.0 == Fate::FailsAtOnce { Err("a short life".into()) } else { Ok(()) }
    }

    fn step(&mut self, events: &mut Events<'_, Order>, _: &mut StepOutput) -> StepResult<()> {
        if self.0 == Fate::DoneAtOnce {
            return Ok(Step::Done(()));
        }
        for event in events {
            if let Event::Message(Order::Note(_)) = event {
                return Err("a note".into());
            }
        }
        Ok(Step::Idle)
    }
}

/// One that no wire has.
struct Unlisted;

impl RemoteProcess for Unlisted {
    const NAME: &'static str = "test::Unlisted";
    const VERSION: u32 = 1;
    type Argument = ();

    fn begin((): ()) -> Result<Unlisted, BoxError> {
        Ok(Unlisted)
    }
}

impl Process for Unlisted {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

fn nets(count: usize) -> Net {
    Net::with(count, |wire| wire.process::<Hatched>())
}

/// Has a process spawn one on the other node.
fn spawn_within<P: RemoteProcess>(
    net: &Net,
    one: &Local,
    argument: P::Argument,
    options: impl FnOnce(SpawnOptions) -> SpawnOptions + Send + 'static,
    limit: Duration,
) {
    order::<P>(net, one, argument, options, limit);
    net.rests();
}

/// The same, while another process may be held.
fn order<P: RemoteProcess>(
    net: &Net,
    one: &Local,
    argument: P::Argument,
    options: impl FnOnce(SpawnOptions) -> SpawnOptions + Send + 'static,
    limit: Duration,
) {
    let number = net.ends[&(one.at, 1 - one.at)].number;
    let node = Pid::new(number, 0, 1).unwrap();
    let job = move |out: &mut StepOutput| {
        let far = FarOptions::of(&options(SpawnOptions::new()), || out.new_number()).unwrap();
        out.ask(node.typed::<SpawnOrder>(), |reply| SpawnOrder::new::<P>(argument, far, reply), limit);
        Ok(Step::Idle)
    };
    net.sides[one.at].0.send(one.handle.address(), Order::Do(Box::new(job))).unwrap();
}

fn spawn(net: &Net, one: &Local, fate: Fate, options: impl FnOnce(SpawnOptions) -> SpawnOptions + Send + 'static) {
    spawn_within::<Hatched>(net, one, fate, options, Duration::MAX);
}

fn living(net: &Net, at: usize) -> usize {
    net.sides[at].0.processes().len()
}

#[test]
fn a_process_is_spawned_on_another_node_and_its_address_is_the_answer() {
    let net = nets(2);
    let one = net.plain(0);
    spawn(&net, &one, Fate::Lives, |options| options.name("egg").group("nest").mailbox(3, Overflow::Refuse));
    assert_eq!(one.seen(), Vec::<String>::new(), "the other node answers");
    net.carry();
    assert_eq!(one.seen(), ["started"]);
    let egg = net.sides[1].0.whereis("egg").unwrap();
    let info = net.sides[1].0.process(egg).unwrap();
    assert!(info.type_name.ends_with("Hatched"), "{info:?}");
    assert_eq!(net.sides[1].0.group_members("nest"), [egg]);
    assert_eq!(net.ends[&(0, 1)].connection.open_questions(), (0, 0));
    // The end of its spawner means nothing to it.
    net.done(&one);
    net.carry();
    assert!(net.sides[1].0.is_alive(egg));
}

/// Fails if such an order is sent like a message, whose type does not travel.
#[test]
fn an_order_for_which_there_is_no_room_is_sent_and_holds_its_sender() {
    let net = nets(2);
    let one = net.plain(0);
    net.fill(0, 1, true);
    order::<Hatched>(&net, &one, Fate::Lives, |options| options.name("egg"), Duration::MAX);
    until("the process is held", || net.sides[0].1.waiting_counts() == (0, 1));
    assert_eq!((net.on_the_way(0, 1), one.seen()), (1, Vec::new()));
    net.fill(0, 1, false);
    net.carry();
    assert_eq!((one.seen(), living(&net, 1)), (vec!["started".into()], 1));
    assert_eq!(net.sides[0].1.waiting_counts(), (0, 0));
}

#[test]
fn a_process_whose_factory_or_init_fails_is_answered_with_the_error() {
    let net = nets(2);
    let one = net.trapping(0);
    let cases = [
        (Fate::FactoryFails, "answer failed: no egg"),
        (Fate::FactoryPanics, "answer panicked: a broken egg"),
        (Fate::InitFails, "answer failed: a cold egg"),
    ];
    for (fate, answer) in cases {
        spawn(&net, &one, fate, |options| options.link().monitor());
        net.carry();
        assert_eq!(one.seen(), [answer], "{fate:?}: and no event");
        assert_eq!(living(&net, 1), 0);
        net.nothing_is_left("not begun");
    }
    let _holder = net.sides[1].0.spawn_with(Unlisted, SpawnOptions::new().name("egg")).unwrap();
    spawn(&net, &one, Fate::Lives, |options| options.name("egg"));
    spawn(&net, &one, Fate::Lives, |options| options.mailbox(0, Overflow::Refuse));
    spawn_within::<Unlisted>(&net, &one, (), |options| options, Duration::MAX);
    net.carry();
    let seen = one.seen();
    assert_eq!(seen.len(), 3, "{seen:?}");
    for text in ["is taken by", "the mailbox's limit is 0", "register it with `Wire::process` on both nodes"] {
        assert!(seen.iter().any(|seen| seen.contains(text)), "{text}: {seen:?}");
    }
    assert_eq!(living(&net, 1), 1);
    net.nothing_is_left("refused");
    // Their places in the table are free.
    (0..50).for_each(|_| spawn(&net, &one, Fate::Lives, |options| options.mailbox(0, Overflow::Refuse)));
    spawn(&net, &one, Fate::Lives, |options| options.name("other"));
    net.carry();
    assert!(net.sides[1].0.whereis("other").unwrap().slot() < 25);
}

#[test]
fn an_end_right_after_the_start_is_told_in_any_order_of_frames() {
    let net = nets(2);
    for seed in 0..60 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let one = net.trapping(0);
        let (fate, exit) = [(Fate::DoneAtOnce, "done"), (Fate::FailsAtOnce, "failed: a short life")][seed as usize % 2];
        spawn(&net, &one, fate, |options| options.link().monitor());
        net.carry_by(&mut |count| random.random_range(0..count));
        let mut seen = one.seen();
        assert_eq!(seen.remove(0), "started and monitored", "seed {seed}");
        seen.sort();
        assert_eq!(seen, [format!("down {exit}"), format!("exit {exit}")], "seed {seed}");
        net.nothing_is_left("ended");
        net.done(&one);
    }
}

#[test]
fn a_linked_process_ends_with_its_spawner_which_has_made_the_link() {
    let net = nets(2);
    for recovers in [false, true] {
        let one = net.spawn(0, recovers, SpawnOptions::new());
        spawn(&net, &one, Fate::Lives, SpawnOptions::link);
        net.carry();
        assert_eq!((one.seen(), living(&net, 1)), (vec!["started".to_string()], 1));
        net.tell(&one, |_| Err("a bad day".into()));
        net.carry();
        // A link that a failed state machine has made ends with it, also if the process goes on.
        assert_eq!((living(&net, 1), living(&net, 0)), (0, usize::from(recovers)));
        net.nothing_is_left("failed");
        if recovers {
            net.done(&one);
        }
    }
}

#[test]
fn a_spawner_that_waits_no_longer_leaves_no_process_and_gets_no_event() {
    let net = nets(2);
    for is_monitored in [false, true] {
        let options = move |options: SpawnOptions| if is_monitored { options.link().monitor() } else { options };
        let one = net.plain(0);
        spawn_within::<Hatched>(&net, &one, Fate::Lives, options, Duration::ZERO);
        until("the limit is over", || lock(&one.seen).len() == 1);
        assert_eq!(one.seen(), ["answer timed out"]);
        net.carry();
        assert_eq!((one.seen(), living(&net, 1)), (Vec::new(), 0), "monitored: {is_monitored}");
        assert!(net.sides[0].0.is_alive(one.handle.pid()));
        // The same if it ends before the report of the start arrives.
        spawn(&net, &one, Fate::Lives, options);
        while net.step(0, 1, &mut |_| 0) {}
        until("it has started", || net.on_the_way(1, 0) > 0);
        net.done(&one);
        net.carry();
        assert_eq!((living(&net, 0), living(&net, 1)), (0, 0), "monitored: {is_monitored}");
        net.nothing_is_left("given up");
    }
}

#[test]
fn a_spawner_that_has_ended_is_not_related() {
    let net = nets(2);
    let (one, other) = (net.plain(0), net.plain(1));
    let far = net.pid(&other, 0);
    net.done(&one);
    let core = net.sides[0].0.core();
    let pair = (one.handle.pid(), far);
    assert!(!core.relations.spawned_elsewhere(&*core.road, pair, (true, Some(Monitor::new(1, far)))));
    net.carry();
    net.nothing_is_left("ended");
}

#[test]
fn a_report_that_cannot_be_read_leaves_no_process_and_no_link() {
    let net = nets(2);
    let one = net.plain(0);
    let node = Pid::new(net.ends[&(0, 1)].number, 0, 1).unwrap();
    net.does(&one, move |out| {
        let far = FarOptions::of(&SpawnOptions::new().link().monitor(), || out.new_number()).unwrap();
        let order = |reply| {
            let order = SpawnOrder::new::<Hatched>(Fate::Lives, far, reply);
            SpawnOrder { read: |_| Err("on purpose".into()), ..order }
        };
        out.ask(node.typed::<SpawnOrder>(), order, Duration::MAX);
    });
    net.carry();
    assert_eq!((one.seen(), living(&net, 1)), (vec!["answer failed: on purpose".to_string()], 0));
    assert!(net.sides[0].0.is_alive(one.handle.pid()));
    net.nothing_is_left("unread");
}

/// A node that mixes up the two kinds of answers would give a process relations that nobody ordered, or none.
#[test]
fn an_order_is_answered_by_a_report_and_a_question_is_not() {
    for is_order in [true, false] {
        let net = nets(2);
        let (one, other) = (net.plain(0), net.plain(1));
        if is_order {
            spawn(&net, &one, Fate::Lives, SpawnOptions::link);
        } else {
            let far = net.pid(&other, 0);
            net.does(&one, move |out| _ = out.terminate(far));
        }
        let child = net.plain(1).handle.pid();
        let back = &net.ends[&(1, 0)].connection;
        let sent = match is_order {
            true => back.send_head(0, &Head::Answer { number: 0, from: Some(child) }),
            false => back.send_head(0, &Head::Started { number: 0, child }),
        };
        assert!(sent);
        let frame = lock(&net.ends[&(1, 0)].wires.items).remove(0);
        assert!(net.ends[&(0, 1)].connection.receive(&frame.bytes).is_err(), "order: {is_order}");
        net.rests();
        assert_eq!(one.seen(), ["answer dropped without an answer"]);
        assert_eq!(net.sides[0].0.core().relations.len(), 0);
    }
}

#[test]
fn only_a_process_of_this_run_can_be_related_to_a_far_one() {
    let net = nets(2);
    let node = Pid::new(net.ends[&(0, 1)].number, 0, 1).unwrap();
    let far = FarOptions::of(&SpawnOptions::new().link(), || 1).unwrap();
    let order = SpawnOrder::new::<Hatched>(Fate::Lives, far, Reply::spent());
    let refused = net.sides[0].1.post(None, node, Box::new(order), None).unwrap_err().1;
    assert!(refused.to_string().contains("a durable process cannot be linked"), "{refused}");
}

#[test]
fn a_spawner_that_gives_up_ends_the_process_before_it_has_started() {
    let net = nets(2);
    let one = net.plain(0);
    let (number, waits, opens) = gate();
    spawn_within::<Hatched>(&net, &one, Fate::InitWaits(number), |options| options, Duration::ZERO);
    until("the limit is over", || lock(&one.seen).len() == 1);
    assert!(net.step(0, 1, &mut |_| 0), "the order arrives");
    wait(&waits);
    while net.step(0, 1, &mut |_| 0) {}
    let _ = opens.set(());
    until("it has ended", || living(&net, 1) == 0);
    assert_eq!(net.on_the_way(1, 0), 0, "no start is reported that a break could lose");
}

#[test]
fn a_store_that_moves_ends_the_monitors_over_the_first_connection() {
    let net = nets(2);
    let one = net.plain(0);
    let node = &net.sides[0].1;
    let list = net.sides[1].1.list().unwrap();
    let up = |life: u64| {
        let life = (Life::Node(life), 7);
        node.up(
            Announced { name: format!("{life:?}").into(), life, store: Some((5, 900)), protocol: PROTOCOL },
            &list,
            Arc::<Wires>::default(),
        )
    };
    let durable = Pid::new(900, 3, 1).unwrap();
    let first = up(77).unwrap();
    net.does(&one, move |out| _ = out.monitor(durable));
    let second = up(78).unwrap();
    net.rests();
    let down = "down terminated (the connection to its node has broken)";
    assert_eq!(one.seen(), [down]);
    net.does(&one, move |out| _ = out.monitor(durable));
    node.down(&first, []);
    net.rests();
    assert_eq!(one.seen(), [""; 0], "it is monitored over the second connection");
    node.down(&second, []);
    net.rests();
    assert_eq!(one.seen(), [down]);
}

#[test]
fn a_break_at_any_moment_is_told_and_leaves_no_linked_process() {
    for moment in 0..5 {
        let net = nets(2);
        let one = net.trapping(0);
        let (number, waits, opens) = gate();
        spawn(&net, &one, Fate::InitWaits(number), |options| options.link().monitor());
        if moment >= 1 {
            assert!(net.step(0, 1, &mut |_| 0), "the order arrives");
            wait(&waits);
        }
        if moment >= 2 {
            let _ = opens.set(());
            until("it has started", || net.on_the_way(1, 0) > 0);
        }
        if moment >= 3 {
            assert!(net.step(1, 0, &mut |_| 0), "the report arrives");
        }
        if moment >= 4 {
            net.carry();
        }
        net.cut(0, 1);
        let _ = opens.set(());
        net.rests();
        let mut seen = one.seen();
        seen.sort();
        match moment {
            0..=2 => assert!(seen.len() == 1 && seen[0].ends_with("its node is down"), "{moment}: {seen:?}"),
            _ => {
                let down = "terminated (the connection to its node has broken)";
                assert_eq!(seen, [format!("down {down}"), format!("exit {down}"), "started and monitored".into()]);
            }
        }
        until("no process is left", || living(&net, 1) == 0);
        net.nothing_is_left("broken");
    }
}

#[test]
fn an_unlinked_process_whose_start_was_not_reported_is_ended_by_a_break() {
    let mut net = nets(2);
    let one = net.plain(0);
    let (number, waits, opens) = gate();
    spawn(&net, &one, Fate::InitWaits(number), |options| options);
    assert!(net.step(0, 1, &mut |_| 0));
    wait(&waits);
    net.cut(0, 1);
    until("it is told", || !lock(&one.seen).is_empty());
    // A question of the next connection has the same number.
    net.connect(0, 1);
    let (second, its_waits, its_opens) = gate();
    order::<Hatched>(&net, &one, Fate::InitWaits(second), |options| options.name("second"), Duration::MAX);
    until("it is ordered", || net.on_the_way(0, 1) > 0);
    assert!(net.step(0, 1, &mut |_| 0));
    let _ = opens.set(());
    wait(&its_waits);
    let _ = its_opens.set(());
    net.carry();
    let seen = one.seen();
    assert!(seen.len() == 2 && seen[0].ends_with("its node is down") && seen[1] == "started", "{seen:?}");
    let second = net.sides[1].0.whereis("second").unwrap();
    assert_eq!(net.sides[1].0.processes().iter().map(|info| info.pid).collect::<Vec<_>>(), [second]);
}

#[test]
fn spawns_in_any_order_with_ends_and_breaks_leave_nothing() {
    let seeds = counts(200, 20_000);
    for seed in 0..seeds {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut net = nets(2);
        let spawners: Vec<Local> = (0..3).map(|at| net.trapping(at % 2)).collect();
        let mut breaks = false;
        for _ in 0..random.random_range(1..12) {
            let one = &spawners[random.random_range(0..spawners.len())];
            let fates = [Fate::Lives, Fate::Lives, Fate::FactoryFails, Fate::DoneAtOnce, Fate::FailsAtOnce];
            let fate = fates[random.random_range(0..fates.len())];
            let [link, monitor] = [(); 2].map(|()| random.random_range(0..2) == 0);
            let options = move |options: SpawnOptions| {
                let options = if link { options.link() } else { options };
                if monitor { options.monitor() } else { options }
            };
            if net.sides[one.at].0.is_alive(one.handle.pid()) {
                let limit = if random.random_range(0..8) == 0 { Duration::ZERO } else { Duration::MAX };
                spawn_within::<Hatched>(&net, one, fate, options, limit);
            }
            for _ in 0..random.random_range(0..6) {
                let from = random.random_range(0..2);
                net.step(from, 1 - from, &mut |count| random.random_range(0..count));
            }
            match random.random_range(0..24) {
                0 => net.done(one),
                1 => {
                    breaks = true;
                    net.cut(0, 1);
                    net.connect(0, 1);
                }
                _ => {}
            }
        }
        net.carry_by(&mut |count| random.random_range(0..count));
        let mut started = 0;
        for one in &spawners {
            started += one.seen().iter().filter(|seen| seen.starts_with("started")).count();
            net.done(one);
        }
        net.carry();
        // Without a break each process that lives is known to its spawner.
        let left = living(&net, 0) + living(&net, 1);
        assert!(breaks || left <= started, "seed {seed}: {left} of {started}");
        net.nothing_is_left(&format!("seed {seed}"));
    }
}
