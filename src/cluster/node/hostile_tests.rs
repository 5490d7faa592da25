//! Hostile items: what a node sends, spoilt at random. Each is taken or refused, and the node goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::net::{Local, Net, Order};
use crate::clock::Clock;
use crate::cluster::failures::{FarCommandError, FarExit, FarReason};
use crate::cluster::frame::Head;
use crate::cluster::groups::entries::{Digest, Entry, Role};
use crate::cluster::groups::table::Share;
use crate::cluster::leases::LeaseFrame;
use crate::cluster::peer::PROTOCOL;
use crate::cluster::peer::hostile_tests::{frames, seed};
use crate::cluster::remote::RemoteProcess;
use crate::cluster::remote_spawn::{FarOptions, SpawnOrder};
use crate::outcome::{BoxError, Exit, Failure};
use crate::pid::{Address, Pid};
use crate::primitives::lock;
use crate::process::{
    CommandError, Event, Events, Overflow, Process, Reply, SpawnOptions, Step, StepOutput, StepResult,
};
use crate::runtime::AskFuture;

const LONG: Duration = Duration::from_secs(3_600);

/// The limit of a question that a break answers.
const LIMIT: Duration = Duration::from_secs(60);

/// The longest time that a node may take for an item.
const MOST_TIME: Duration = Duration::from_millis(10);

/// How many items one connection gets. Then there are new nodes, because items may end all processes of a node.
const ROUND: usize = 1_000;

/// A message with parts of every kind.
#[derive(Serialize, Deserialize)]
enum Mixed {
    Text(String),
    Numbers(Vec<u64>),
    Nested(Vec<Mixed>, Option<Box<Mixed>>),
    Pids(Vec<Pid>, Address<Mixed>),
    Map(BTreeMap<String, (f64, char)>),
    Ask(Reply<Vec<Mixed>>),
    Keep(Vec<Reply<u64>>),
}

crate::remote!(Mixed, "test::Mixed", 1);

/// Answers some questions, and keeps others.
#[derive(Default)]
struct Taker(Vec<Reply<u64>>);

impl Process for Taker {
    type Message = Mixed;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Mixed>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Mixed::Ask(reply)) => out.reply(reply, vec![Mixed::Numbers(vec![1, 2])]),
                Event::Message(Mixed::Keep(replies)) => self.0 = replies,
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Ends in its first step.
struct Brief;

impl RemoteProcess for Brief {
    const NAME: &'static str = "test::Brief";
    const VERSION: u32 = 1;
    type Argument = Vec<String>;

    fn begin(_: Vec<String>) -> Result<Brief, BoxError> {
        Ok(Brief)
    }
}

impl Process for Brief {
    type Message = Order;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, Order>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Done(()))
    }
}

fn failure(text: &str) -> Failure {
    Failure::from(BoxError::from(text))
}

/// Two nodes. The first one is hostile. Between them are relations, and questions are open.
struct Round {
    net: Net,
    near: Local,
    asked: Vec<AskFuture<Vec<Mixed>>>,
    /// The items that the first node has sent. The other one did not get them yet.
    items: Vec<Vec<u8>>,
}

impl Round {
    fn new() -> Round {
        let net = Net::with(2, |wire| wire.message::<Mixed>().process::<Brief>());
        let [far, near, other] = [net.trapping(0), net.plain(1), net.trapping(1)];
        let spawn = |at: usize| net.sides[at].0.spawn(Taker::default()).unwrap().address();
        let (theirs, ours) = (spawn(0), spawn(1));
        let seen = |from: usize, address: Address<Mixed>| -> Address<Mixed> {
            let (number, pid) = (net.ends[&(from, 1 - from)].number, address.pid());
            Pid::new(number, pid.slot(), pid.generation()).unwrap().typed()
        };
        let pid = net.pid(&far, 1);
        net.does(&near, move |out| {
            out.monitor(pid);
            out.link(pid);
            out.cancel(pid, "enough");
        });
        let (theirs_far, ours_far) = (seen(1, theirs), seen(0, ours));
        let asked = (0..3).map(|_| net.sides[1].0.ask(theirs_far, Mixed::Ask, LIMIT)).collect();
        while net.step(1, 0, &mut |_| 0) {}
        net.rests();
        let mut round = Round { net, near, asked, items: Vec::new() };
        round.messages(&far, ours_far, theirs);
        round.heads(&far, &other);
        round.items = lock(&round.net.ends[&(0, 1)].wires.items).drain(..).map(|item| item.bytes).collect();
        round
    }

    /// Has the first node send messages, and the order for a process.
    fn messages(&self, far: &Local, to: Address<Mixed>, from: Address<Mixed>) {
        let (runtime, node) = &self.net.sides[0];
        let send = |message| runtime.send(to, message).unwrap();
        let leaf = |text: &str| Mixed::Text(text.into());
        send(Mixed::Numbers((0..40).map(|number| 1 << number).collect()));
        send(Mixed::Nested(vec![leaf("a"), Mixed::Nested(vec![leaf("b")], None)], Some(Box::new(leaf("c")))));
        send(Mixed::Pids(vec![to.pid(), from.pid(), far.handle.pid()], from));
        send(Mixed::Map([("one".to_string(), (0.5, 'x'))].into()));
        drop(runtime.ask(to, Mixed::Ask, LONG));
        drop(runtime.ask(to, |reply: Reply<u64>| Mixed::Keep(vec![reply]), LONG));
        let mut all = [to.pid(), self.net.pid(&self.near, 0)];
        all.sort_unstable();
        assert_eq!(node.broadcast(&all, &leaf("to all")), 2);
        let there = Pid::new(to.pid().node(), 0, 1).unwrap();
        self.net.does(far, move |out| {
            let options = SpawnOptions::new().name("egg").group("nest").mailbox(3, Overflow::Refuse).link().monitor();
            let options = FarOptions::of(&options, || out.new_number()).unwrap();
            let argument = vec!["begin".to_string()];
            out.ask(there.typed(), |reply| SpawnOrder::new::<Brief>(argument, options, reply), LONG);
        });
    }

    /// Has the first node send all other heads.
    fn heads(&self, far: &Local, other: &Local) {
        let (from, to, other) = (far.handle.pid(), self.net.pid(&self.near, 0), self.net.pid(other, 0));
        let failed = Exit::Failed(failure("it has failed"));
        let exit = FarExit::Terminated(FarReason::Linked(from, Box::new(FarExit::of(&failed))));
        let why = FarCommandError::of(&CommandError::Failed(failure("no answer")), PROTOCOL);
        let entry = |role| Entry { name: "group".into(), role, pid: from };
        let entries = || {
            let member = |label: u64| entry(Role::Member { label: format!("label {label}") });
            (0..5).map(member).chain([entry(Role::Claimant { since: 1 }), entry(Role::Holder { token: 1 })]).collect()
        };
        let name = || "name".to_string();
        let heads = [
            Head::NoAnswer { number: 0, from: Some(from), why },
            Head::Closed { number: 0 },
            Head::Cancel { to, number: Some(3), reason: FarReason::Other("so".into()), limit: Some(LONG) },
            Head::Terminate { to: other, number: Some(4) },
            Head::Watch { pid: to },
            Head::Unwatch { pid: to },
            Head::Ended { pid: from, exit: exit.clone() },
            Head::Link { from, to, number: 1 },
            Head::Unlink { from, to, number: 2, exit: Some(exit.clone()) },
            Head::Unlinked { from, to, number: 1 },
            Head::Recovered { from, to, exit: exit.clone(), by_itself: true },
            Head::Exit { from, to, exit },
            Head::Whereis { number: 5, name: name() },
            Head::Started { number: 0, child: from },
            Head::Share(Share::Whole { entries: entries(), is_last: false }),
            Head::Share(Share::Whole { entries: entries(), is_last: true }),
            Head::Share(Share::Changed { entry: entry(Role::Claimant { since: 7 }), is_there: true }),
            Head::Share(Share::Digest(Digest::default())),
            Head::Share(Share::Again),
            Head::Lease(LeaseFrame::Request { name: name(), number: 1, since: 1, sent: 1, token: 0 }),
            Head::Lease(LeaseFrame::Yield { name: name(), number: 1, since: 1, sent: 1 }),
            Head::Lease(LeaseFrame::Release { name: name(), number: 1, since: 1 }),
            Head::Lease(LeaseFrame::Lost { name: name(), number: 1, since: 1 }),
            Head::Lease(LeaseFrame::Granted { number: 1, sent: 1, token: 1, is_wanted: false }),
        ];
        let connection = &self.net.ends[&(0, 1)].connection;
        assert!(heads.iter().all(|head| connection.send_head(0, head)));
    }

    /// Checks that the node goes on: it takes an honest message, and a break leaves nothing.
    fn end(self, what: &str) {
        let Round { net, near: _, asked, .. } = self;
        net.rests();
        let fresh = net.plain(1);
        net.sides[0].0.send(net.pid(&fresh, 0).typed(), Order::Note(1)).unwrap();
        let honest = lock(&net.ends[&(0, 1)].wires.items).pop().unwrap();
        net.ends[&(1, 0)].connection.receive(&honest.bytes).unwrap();
        net.rests();
        assert_eq!(fresh.seen(), ["note 1"], "{what}");
        let groups = net.sides[1].1.groups();
        assert_eq!(groups.nodes(), 2, "{what}");
        net.cut(0, 1);
        // Any answer will do: an item may have said that the time is over.
        assert!(asked.iter().all(|asked| format!("{asked:?}").contains("answered: true")), "{what}: {asked:?}");
        net.rests();
        let victim = &net.sides[1].0;
        let connection = &net.ends[&(1, 0)].connection;
        assert_eq!((connection.relations(), connection.open_questions()), ((0, 0, 0), (0, 0)), "{what}");
        assert_eq!((victim.core().relations.len(), connection.starting(), groups.nodes()), (0, 0, 1), "{what}");
        let messages = victim.stats().messages;
        let dead: u64 = messages.dead_by_reason.values().sum();
        assert_eq!(messages.accepted, messages.stepped + dead + messages.queued, "{what}");
    }
}

/// Spoils an item as a stranger might. It may be left as it was.
fn spoil(bytes: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Xoshiro256PlusPlus) {
    for _ in 0..random.random_range(0..4) {
        let at = random.random_range(0..=bytes.len());
        // Most heads are short, so most faults are near the beginning.
        let at = if random.random() { at } else { at.min(random.random_range(0..12)) };
        match random.random_range(0..12) {
            0 | 1 if at < bytes.len() => bytes[at] = random.random(),
            2 | 3 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            4 if at < bytes.len() => _ = bytes.remove(at),
            5 => bytes.insert(at, random.random()),
            6 => bytes.truncate(at),
            // A length of three billion, or a number that does not end.
            7 => _ = bytes.splice(at..at, [0x80, 0xbc, 0xc1, 0x96, 0x0b]),
            8 => _ = bytes.splice(at..at, [0xff; 12]),
            // Lists in lists.
            9 => {
                let levels = if random.random_range(0..1_000) == 0 { 1_000_000 } else { random.random_range(0..300) };
                let level = random.random_range(0..4);
                bytes.splice(at..at, std::iter::repeat_n(level, levels));
            }
            // The end of another item.
            10 => {
                let other = &others[random.random_range(0..others.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.random_range(0..=other.len())..]);
            }
            // Other tables behind the value.
            _ => {
                let tables = bytes.len().saturating_sub(4);
                bytes.truncate(tables);
                bytes.extend((0..4).map(|_| if random.random() { 0 } else { random.random_range(0..3) }));
            }
        }
    }
}

#[test]
fn items_that_are_spoilt_are_taken_or_refused_and_the_node_goes_on() {
    let (count, seed, clock) = (frames(20_000), seed(5), Clock::system());
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut taken, mut refused, mut slowest, mut slow) = (0_usize, 0_usize, Duration::ZERO, Vec::new());
    for from in (0..count).step_by(ROUND) {
        let round = Round::new();
        let answers = &round.net.ends[&(1, 0)].wires.items;
        for _ in 0..ROUND.min(count - from) {
            let whole = &round.items[random.random_range(0..round.items.len())];
            let mut bytes = whole.clone();
            spoil(&mut bytes, &round.items, &mut random);
            let began = clock.now();
            match round.net.ends[&(1, 0)].connection.receive(&bytes) {
                // Items that were not spoilt do not count.
                Ok(()) => taken += usize::from(bytes != *whole),
                Err(_) => refused += 1,
            }
            let time = clock.now().saturating_duration_since(began);
            slowest = slowest.max(time);
            if time > MOST_TIME {
                slow.push(bytes);
            }
            lock(answers).clear();
        }
        round.end(&format!("the seed {seed}, after {from} items"));
    }
    println!("{count} items with the seed {seed}: {taken} taken, {refused} refused; the slowest took {slowest:?}");
    assert!(taken > count / 10 && refused > count / 10, "{taken} were taken, {refused} refused");
    // An item that takes a second is one without a bound, also if it is slow only in its round.
    assert!(cfg!(debug_assertions) || slowest < Duration::from_secs(1), "an item took {slowest:?}");
    // A slow item may have waited for a processor, but not each time.
    println!("{} items took longer than {MOST_TIME:?}, and are taken again", slow.len());
    for bytes in slow {
        let time = (0..20).map(|_| time_of(&bytes, &clock)).find(|time| *time <= MOST_TIME);
        assert!(cfg!(debug_assertions) || time.is_some(), "an item of {} bytes is slow each time", bytes.len());
    }
}

/// How long a node takes for an item.
fn time_of(item: &[u8], clock: &Clock) -> Duration {
    let round = Round::new();
    let began = clock.now();
    let _ = round.net.ends[&(1, 0)].connection.receive(item);
    let time = clock.now().saturating_duration_since(began);
    round.end("an item that was slow");
    time
}
