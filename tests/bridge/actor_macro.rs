//! The attribute `#[actor]`: messages, calls and callbacks that it writes.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession::actor::{Actions, Actor, CALL_LIMIT, Reach, actor};
use procession::clock::ManualClock;
use procession::names::Member;
use procession::testing::{Driver, Status, question};
use procession::{AskFuture, CommandError, Exit, Rejected, Reply, SendError, SpawnOptions, StepOutput};

use crate::helpers::*;

#[path = "../../crates/macros/tests/reference/block.rs"]
mod block;
// The same code, written out. The crate `procession-macros` has the test that the two are the same.
#[path = "../../crates/macros/tests/reference/expanded.rs"]
mod expanded;

/// Drives the queue of a module through all its messages and callbacks.
macro_rules! drive_queue {
    ($queue:ident) => {{
        use $queue::{Queue, QueueCalls, QueueMessage};
        let empty = || Queue::<u32, &str, 2> {
            jobs: VecDeque::new(),
            takers: VecDeque::new(),
            label: "the queue",
            seen: Vec::new(),
        };
        assert_eq!(<Queue<u32, &str, 2> as Actor>::MESSAGES_A_STEP, 2);
        let runtime = runtime(1);
        let handle = runtime.spawn(actor(empty())).unwrap();
        let queue = &handle;
        // Answered later.
        let taken = queue.take();
        assert_eq!(queue.len().wait().unwrap(), 0);
        queue.push(7).unwrap();
        assert_eq!(taken.wait().unwrap(), 7);
        // A `Result` is an answer like any other.
        assert_eq!(queue.replace_all(vec![1], vec![2, 3]).wait().unwrap(), Err(vec![1, 2, 3]));
        assert_eq!(queue.replace_all(vec![1], vec![2]).wait().unwrap(), Ok(vec![]));
        assert_eq!(queue.first("x").wait().unwrap(), (1, "x"));
        queue.reset().unwrap();
        assert_eq!(queue.len().wait().unwrap(), 0);
        runtime.cancel(&handle, "closing time").unwrap();
        let output = output(&handle);
        assert_eq!((output.0, output.1.first(), output.1.last()), (None, Some(&"start"), Some(&"stop")));
        assert!(output.1.contains(&"group"));
        // An error ends the actor, and gives no answer.
        let handle = runtime.spawn(actor(empty())).unwrap();
        let failed = handle.first("x").wait();
        assert!(matches!(failed, Err(CommandError::Dropped)), "{failed:?}");
        assert!(matches!(join(&handle), Exit::Failed(error) if error.to_string() == "it is empty"));
        // The messages are an ordinary type.
        let mut driven = Driver::new(actor(empty()));
        let (reply, asked) = question();
        (0..3).for_each(|n| _ = driven.message(QueueMessage::Push(n)));
        driven.message(QueueMessage::Len(reply));
        assert_eq!(driven.run(), Status::Ended);
        assert!(driven.exit().unwrap().to_string().contains("the queue is full"));
        assert!(matches!(asked.answer(), Some(Err(CommandError::Dropped))));
    }};
}

#[test]
fn the_block_and_its_expansion_do_the_same() {
    drive_queue!(block);
    drive_queue!(expanded);
}

struct Counter {
    total: u64,
}

#[actor(derive(Clone, Debug))]
impl Counter {
    fn add(&mut self, n: u64) {
        self.total += n;
    }
}

/// Names that the written code uses as well.
struct Odd;

#[actor]
impl Odd {
    fn receive(&self, out: u8, message: u8, reply: u8, answer: u8, event: u8) -> [u8; 5] {
        [out, message, reply, answer, event]
    }

    fn stop(&mut self, out: &mut Actions<Self>, r#match: Option<Box<Self>>, reply: Reply<bool>) {
        let out: &mut StepOutput = out;
        out.reply(reply, r#match.is_some());
    }

    fn r#type(&mut self, itself: <Self as Actor>::Output) -> Option<Self> {
        let () = itself;
        None
    }
}

fn counter() -> Counter {
    Counter { total: 0 }
}

#[test]
fn names_of_the_written_code_hide_no_names_of_the_block() {
    let runtime = runtime(1);
    let odd = runtime.spawn(actor(Odd)).unwrap();
    assert_eq!(odd.receive(1, 2, 3, 4, 5).wait().unwrap(), [1, 2, 3, 4, 5]);
    assert!(odd.stop(Some(Box::new(Odd))).wait().unwrap());
    assert!(odd.r#type(()).wait().unwrap().is_none());
}

#[test]
fn derived_messages_can_be_broadcast() {
    let runtime = runtime(2);
    let group = || SpawnOptions::new().group("counters");
    let all: Vec<_> = (0..3).map(|_| runtime.spawn_with(actor(counter()), group()).unwrap()).collect();
    assert_eq!(runtime.broadcast("counters", CounterMessage::Add(2)), 3);
    runtime.process_ref::<CounterMessage>(Member("counters")).add(1).unwrap();
    until("all are stepped", || runtime.stats().messages.stepped == 4);
    for counter in &all {
        runtime.cancel(counter, "closing time").unwrap();
        assert_eq!(*output(counter), ());
    }
    assert_eq!(format!("{:?}", CounterMessage::Add(2).clone()), "Add(2)");
}

/// No suite runs under the model checker.
struct Twins {
    log: Vec<&'static str>,
}

#[actor]
impl Twins {
    #[cfg(loom)]
    fn add(&mut self, from_nowhere: Nowhere, out: &mut Actions<Self>) {}

    #[cfg(not(loom))]
    fn add(&mut self, word: &'static str) -> usize {
        self.log.push(word);
        self.log.len()
    }

    #[cfg(not(loom))]
    #[on(stop)]
    fn stop(&mut self, out: &mut Actions<Self>) {
        self.log.push("stopped");
        out.stop();
    }

    #[cfg(loom)]
    #[on(stop)]
    fn stop_nowhere(&mut self, out: &mut Actions<Self>) {}

    #[on(finish)]
    fn log(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.log)
    }
}

/// A method that a condition leaves out has no message, no call and no callback.
#[test]
fn methods_whose_conditions_exclude_each_other_may_be_twins() {
    let runtime = runtime(1);
    let twins = runtime.spawn(actor(Twins { log: Vec::new() })).unwrap();
    assert_eq!(twins.add("added").timeout(LIMIT).wait().unwrap(), 1);
    runtime.cancel(&twins, "closing time").unwrap();
    assert_eq!(*output(&twins), ["added", "stopped"]);
}

/// One of its methods finishes, under a condition.
struct Lone;

#[actor]
impl Lone {
    #[cfg(loom)]
    #[on(finish)]
    fn finish(&self) -> Nowhere {}
}

/// Two of its methods finish, with outputs of different types.
struct Finishes;

#[actor]
impl Finishes {
    #[cfg(loom)]
    #[cfg(not(loom))]
    #[on(finish)]
    fn nowhere(&self) -> Nowhere {}

    #[cfg(not(loom))]
    #[on(finish)]
    fn here(&self) -> &'static str {
        "finished"
    }
}

#[test]
fn a_condition_on_the_method_that_finishes_decides_the_output() {
    let runtime = runtime(1);
    let (lone, finishes) = (runtime.spawn(actor(Lone)).unwrap(), runtime.spawn(actor(Finishes)).unwrap());
    runtime.cancel(&lone, "closing time").unwrap();
    runtime.cancel(&finishes, "closing time").unwrap();
    assert_eq!((*output(&lone), *output(&finishes)), ((), "finished"));
}

mod elsewhere {
    //! A public actor in a module of its own.

    use procession::actor::{Actions, actor};
    use procession::{BoxError, Reply};

    pub struct Keeper {
        pub kept: Vec<Reply<&'static str>>,
    }

    #[actor]
    impl Keeper {
        /// Is never answered.
        pub fn keep(&mut self, reply: Reply<&'static str>) {
            self.kept.push(reply);
        }

        #[fails]
        pub fn hand_out(&mut self, out: &mut Actions<Self>) -> Result<usize, BoxError> {
            let given = self.kept.len();
            if given == 0 {
                return Err("there is nothing".into());
            }
            self.kept.drain(..).for_each(|reply| out.reply(reply, "here"));
            Ok(given)
        }

        #[on(finish)]
        fn left(&self) -> usize {
            self.kept.len()
        }
    }
}

/// An actor that has no messages can be as visible as it likes, and names of the program hide nothing.
mod without_messages {
    use procession::actor::{Actions, actor};

    #[allow(dead_code)]
    enum Status {
        Ok,
        Err,
    }
    #[allow(unused_imports)]
    use Status::*;

    pub struct Once;

    #[actor]
    impl Once {
        #[on(start)]
        fn begin(&mut self, out: &mut Actions<Self>) {
            out.stop();
        }
    }
}

#[test]
fn an_actor_may_have_no_messages() {
    assert_eq!(*output(&runtime(1).spawn(actor(without_messages::Once)).unwrap()), ());
}

use elsewhere::{Keeper, KeeperCalls as _, KeeperMessage};

#[test]
fn a_name_and_a_handle_have_the_calls() {
    let runtime = runtime(1);
    let keeper = runtime.spawn_with(actor(Keeper { kept: Vec::new() }), SpawnOptions::new().name("keeper")).unwrap();
    let kept = runtime.process_ref::<KeeperMessage>("keeper").keep();
    assert_eq!(keeper.hand_out().wait().unwrap(), 1);
    assert_eq!(kept.wait().unwrap(), "here");
    let unknown = runtime.process_ref::<KeeperMessage>("nobody").keep().wait();
    assert!(matches!(unknown, Err(CommandError::NoSuchProcess(_))));
    let back = runtime.process_ref::<u8>(keeper.pid()).reach_send(3_u8).unwrap_err();
    assert!(matches!(back.into_parts(), (3, SendError::WrongType { .. })), "the message comes back");
    assert!(matches!(keeper.process_ref().hand_out().wait(), Err(CommandError::Dropped)));
    assert!(matches!(join(&keeper), Exit::Failed(error) if error.to_string() == "there is nothing"));
}

fn is_ready<T: Send + 'static>(future: &mut AskFuture<T>) -> Option<Result<T, CommandError>> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

#[test]
fn a_call_has_five_seconds_or_its_own_limit() {
    let clock = ManualClock::new();
    let runtime = builder().workers(1).clock(clock.clock()).start().unwrap();
    let keeper = runtime.spawn(actor(Keeper { kept: Vec::new() })).unwrap();
    let mut usual = keeper.keep();
    let mut short = keeper.keep().timeout(Duration::from_secs(1));
    let mut long = keeper.keep().timeout(Duration::from_secs(10));
    assert_eq!(CALL_LIMIT, Duration::from_secs(5));
    for call in [&mut usual, &mut short, &mut long] {
        assert!(is_ready(call).is_none());
    }
    clock.advance(Duration::from_secs(1));
    assert!(matches!(block_on(short), Err(CommandError::TimedOut)));
    clock.advance(Duration::from_secs(3));
    assert!(is_ready(&mut usual).is_none() && is_ready(&mut long).is_none());
    clock.advance(Duration::from_secs(1));
    assert!(matches!(block_on(usual), Err(CommandError::TimedOut)));
    clock.advance(Duration::from_secs(4));
    assert!(is_ready(&mut long).is_none());
    clock.advance(Duration::from_secs(1));
    assert!(matches!(block_on(long), Err(CommandError::TimedOut)));
}

/// Writes messages down instead of sending them.
struct Mock(Log<CounterMessage>);

impl Reach<CounterMessage> for Mock {
    fn reach_send(&self, message: CounterMessage) -> Result<(), Rejected<CounterMessage, SendError>> {
        self.0.push(message);
        Ok(())
    }

    fn reach_ask<T: Send + 'static>(&self, _: impl FnOnce(Reply<T>) -> CounterMessage, _: Duration) -> AskFuture<T> {
        unreachable!("a counter is not asked")
    }
}

#[test]
fn whatever_reaches_an_actor_has_its_calls() {
    fn add_twice(counter: &impl CounterCalls) {
        counter.add(1).unwrap();
        counter.add(2).unwrap();
    }
    let mock = Mock(Log::new());
    add_twice(&mock);
    assert!(matches!(mock.0.take()[..], [CounterMessage::Add(1), CounterMessage::Add(2)]));
}

/// Conditions leave all its messages out.
#[deny(warnings)]
mod left_out {
    pub struct Silent;

    #[procession::actor::actor]
    impl Silent {
        #[cfg(any())]
        pub fn add(&mut self, n: u64, _out: &mut procession::actor::Actions<Self>) -> u64 {
            n
        }

        #[on(finish)]
        fn finish(&mut self) -> u64 {
            7
        }
    }
}

#[test]
fn a_block_whose_messages_are_all_left_out_is_an_actor() {
    let runtime = runtime(1);
    let silent = runtime.spawn(actor(left_out::Silent)).unwrap();
    runtime.cancel(&silent, "enough").unwrap();
    assert_eq!(*output(&silent), 7);
}

#[test]
fn the_counter_of_the_readme_has_twelve_lines() {
    let counter = include_str!("../../README.md").lines().skip_while(|line| !line.starts_with("struct Counter"));
    let lines: Vec<_> =
        counter.take_while(|line| !line.starts_with("fn main")).filter(|line| !line.is_empty()).collect();
    assert!(lines.len() <= 12 && lines.contains(&"#[actor]") && lines.last() == Some(&"}"), "{lines:#?}");
}

/// The dependencies of a package in the lock file.
fn dependencies_of(package: &str) -> Vec<&'static str> {
    let packages = include_str!("../../Cargo.lock").split("[[package]]");
    let mut found = packages.filter(|text| text.lines().any(|line| line == format!("name = \"{package}\"")));
    let text = found.next().unwrap();
    let list = text.split("dependencies = [").nth(1).unwrap_or_default();
    list.lines().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next()).collect()
}

#[test]
fn the_attribute_adds_one_crate() {
    let there = dependencies_of("thiserror-impl");
    let needed = dependencies_of("procession-macros");
    assert_eq!(needed.len(), 3);
    assert!(needed.iter().all(|one| there.contains(one)), "{needed:?} are built without it: {there:?}");
}
