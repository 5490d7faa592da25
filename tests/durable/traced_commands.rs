//! Commands of durable processes that are yielded within traces: their answers are in the traces after a sleep, a
//! restart and a kill, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder};
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, DurableCommand, ErrorText, Query, Store};
use procession::{Address, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::guest::all_asleep;
use crate::places::store_in;
use crate::traces::{Span, Traces};
use crate::wait::{LIMIT, Mutex, until};
use crate::worker::{end, kill};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Its handler calls it with the span in which it is handed out.
#[derive(Serialize, Deserialize)]
enum Sign {
    /// It is answered from outside.
    Later,
    /// Each attempt lasts until the program ends.
    Lasts,
}

impl Command for Sign {
    type Output = ();
}

impl DurableCommand for Sign {
    const NAME: &str = "sign";
    type Error = ErrorText;
}

/// Whether steps that take an answer fail, of processes that may fail.
static FAILS: AtomicBool = AtomicBool::new(false);

/// Yields commands, and counts their answers.
#[derive(Default, Serialize, Deserialize)]
struct Clerk {
    answers: u64,
    may_fail: bool,
    /// Whether every step that has an answer fails.
    always_fails: bool,
}

#[derive(Serialize, Deserialize)]
enum Order {
    SetTimer,
    Sign,
    SignAndWait,
    /// A future that is never ready.
    Hang,
    Run,
    Over,
    Look(Reply<u64>),
}

impl Process for Clerk {
    type Message = Order;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Order>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Order::SetTimer) => drop(out.after(HOUR)),
                Event::Message(Order::Sign) => drop(out.command(Sign::Later)),
                Event::Message(Order::SignAndWait) => drop(out.command(Sign::Lasts)),
                Event::Message(Order::Hang) => drop(out.future(std::future::pending::<()>())),
                Event::Message(Order::Run) => drop(out.run(Clerk::default())),
                Event::Message(Order::Over) => return Ok(Step::Done(())),
                Event::Message(Order::Look(reply)) => out.reply(reply, self.answers),
                Event::Completed(_) if self.always_fails || self.may_fail && FAILS.load(Ordering::SeqCst) => {
                    return Err("no answer is taken".into());
                }
                Event::Completed(_) => self.answers += 1,
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Clerk {
    const NAME: &str = "clerk";
}

/// The calls of the handler.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    /// The spans in which it was called.
    spans: Vec<Option<usize>>,
    /// The responders of attempts that last.
    lasting: Vec<Responder<()>>,
}

impl Calls {
    fn spans(&self) -> Vec<Option<usize>> {
        self.0.lock().unwrap().spans.clone()
    }

    /// Drops the responders, as the end of the program does.
    fn forget(&self) {
        let lasting = std::mem::take(&mut self.0.lock().unwrap().lasting);
        drop(lasting);
    }
}

/// A store in this journal, whose runtime follows these traces. Processes sleep after a minute.
fn open(
    journal: impl Journal + 'static,
    (traces, calls): (Option<&Traces>, &Calls),
    clock: &ManualClock,
) -> (Store, Runtime) {
    let calls = calls.clone();
    let builder = Runtime::builder().workers(2).clock(clock.clock()).handler(move |sign: Sign, done: Responder<()>| {
        let mut calls = calls.0.lock().unwrap();
        calls.spans.push(Traces::current());
        match sign {
            Sign::Later => done.later(),
            Sign::Lasts => calls.lasting.push(done),
        }
        Ok(())
    });
    let builder = traces.into_iter().fold(builder, |builder, traces| builder.propagate(traces.clone()));
    store_in(journal).kind::<Clerk>().command::<Sign>().sleep_after(MINUTE).start(builder).unwrap()
}

fn begin(store: &Store) -> Address<Order> {
    begin_as(store, Clerk::default())
}

fn begin_as(store: &Store, clerk: Clerk) -> Address<Order> {
    let begun = store.begin("clerk", clerk).unwrap();
    begun.wait(LIMIT).unwrap();
    begun.address()
}

/// Sends a message within a trace. Returns the span of its step.
fn stepped_in(store: &Store, traces: &Traces, (clerk, order): (Address<Order>, Order)) -> usize {
    let root = traces.root(|| store.send(clerk, order).unwrap().wait(LIMIT).unwrap());
    answered(traces, root, clerk.pid()).number
}

/// Waits for the only span below this one, until it has succeeded.
#[track_caller]
fn answered(traces: &Traces, parent: usize, pid: Pid) -> Span {
    let find = || traces.children(parent).into_iter().find(|span| span.end == "succeeded");
    until("its step is over", || find().is_some());
    let span = find().unwrap();
    assert_eq!((span.pid, traces.children(parent).len()), (Some(pid), 1), "{span:?}");
    span
}

/// As `answered`, of the answer to a command.
#[track_caller]
fn answer_of(traces: &Traces, yielded: usize, clerk: Address<Order>) {
    let span = answered(traces, yielded, clerk.pid());
    assert!(span.event.starts_with("command "), "{span:?}");
}

fn answers(runtime: &Runtime, clerk: Address<Order>) -> u64 {
    runtime.ask(clerk, Order::Look, LIMIT).wait().unwrap()
}

/// Answers the command `Sign::Later`, and ends the child.
fn complete(store: &Store, clerk: Address<Order>) {
    let commands = store.show(clerk.pid()).unwrap().commands;
    let later = commands.iter().find(|command| command.phase == "later").unwrap();
    store.answer::<Sign>(later.key.parse().unwrap(), Ok(())).unwrap();
    let all = store.list(&Query::all()).unwrap();
    let child = all.into_iter().find(|listed| listed.id.is_none()).unwrap();
    store.send(child.pid.typed::<Order>(), Order::Over).unwrap();
}

#[test]
fn timers_commands_and_children_keep_their_traces_over_a_sleep() {
    let (traces, calls, clock) = (Traces::new(), Calls::default(), ManualClock::new());
    let (store, runtime) = open(MemoryJournal::new(&MemoryDisk::new()), (Some(&traces), &calls), &clock);
    let clerk = begin(&store);
    let yielded = [Order::SetTimer, Order::Sign, Order::Run].map(|order| stepped_in(&store, &traces, (clerk, order)));
    until("the handler was called", || calls.spans() == [Some(yielded[1])]);
    until("the answer is to come later", || {
        store.show(clerk.pid()).unwrap().commands.iter().any(|command| command.phase == "later")
    });
    all_asleep(&runtime, || clock.advance(MINUTE));
    until("no context is in memory", || traces.contexts() == 0);
    complete(&store, clerk);
    clock.advance(HOUR);
    yielded.iter().for_each(|yielded| answer_of(&traces, *yielded, clerk));
    assert_eq!(answers(&runtime, clerk), 3);
    until("nothing is left", || traces.contexts() == 0);
    end((store, runtime));
}

/// One of the commands is answered with `CommandError::Interrupted`.
#[test]
fn commands_keep_their_traces_over_a_kill_and_a_restart() {
    let (disk, traces, calls, clock) = (MemoryDisk::new(), Traces::new(), Calls::default(), ManualClock::new());
    let run = || open(MemoryJournal::new(&disk), (Some(&traces), &calls), &clock);
    let (store, runtime) = run();
    let clerk = begin_as(&store, Clerk { may_fail: true, ..Clerk::default() });
    let orders = [Order::SetTimer, Order::Sign, Order::Run, Order::Hang, Order::SignAndWait];
    let yielded = orders.map(|order| stepped_in(&store, &traces, (clerk, order)));
    until("both are handed out", || calls.spans() == [Some(yielded[1]), Some(yielded[4])]);
    until("the answer is to come later", || {
        store.show(clerk.pid()).unwrap().commands.iter().any(|command| command.phase == "later")
    });
    // The answer to this question comes when all steps before it are on disk.
    answers(&runtime, clerk);
    kill(&disk, (store, runtime));
    calls.forget();
    until("no context is in memory", || traces.contexts() == 0);

    let (store, runtime) = run();
    answer_of(&traces, yielded[3], clerk);
    until("one is handed out again", || calls.spans().len() == 3);
    assert_eq!(calls.spans()[2], Some(yielded[4]));
    complete(&store, clerk);
    answer_of(&traces, yielded[1], clerk);
    answer_of(&traces, yielded[2], clerk);
    // The step that takes the answer of the timer fails, and the program is killed.
    answers(&runtime, clerk);
    FAILS.store(true, Ordering::SeqCst);
    clock.advance(HOUR);
    until("it has failed", || traces.children(yielded[0]).len() == 1);
    kill(&disk, (store, runtime));
    calls.forget();

    let (store, runtime) = run();
    until("it has failed again", || traces.children(yielded[0]).len() > 1);
    FAILS.store(false, Ordering::SeqCst);
    until("it was taken", || {
        clock.advance(Duration::from_secs(1));
        traces.children(yielded[0]).iter().any(|span| span.end == "succeeded")
    });
    assert_eq!(answers(&runtime, clerk), 4);
    end((store, runtime));
    calls.forget();
    until("all contexts are gone", || traces.contexts() == 0);
}

/// Contexts that another propagator has written are ignored, too.
#[test]
fn a_program_without_a_propagator_takes_the_answers_of_traced_commands() {
    for strange in [None, Some(Traces::new())] {
        let (disk, traces, calls, clock) = (MemoryDisk::new(), Traces::new(), Calls::default(), ManualClock::new());
        let run = |traces| open(MemoryJournal::new(&disk), (traces, &calls), &clock);
        let (store, runtime) = run(Some(&traces));
        let clerk = begin(&store);
        let set = stepped_in(&store, &traces, (clerk, Order::SetTimer));
        end((store, runtime));
        let (store, runtime) = run(strange.as_ref());
        answers(&runtime, clerk);
        clock.advance(HOUR);
        until("it has fired", || answers(&runtime, clerk) == 1);
        end((store, runtime));
        assert_eq!(traces.children(set), []);
        assert_eq!(strange.as_ref().map_or(Vec::new(), |strange| strange.spans()), []);
        // Its entry has gone with the answer.
        let (store, runtime) = run(Some(&traces));
        assert_eq!(answers(&runtime, clerk), 1);
        until("it has no trace", || traces.contexts() == 0);
        end((store, runtime));
    }
}

#[cfg(feature = "sqlite")]
mod in_files {
    use procession::durable::journal::SqliteJournal;
    use procession::observe::{DeadLetter, Propagator, StepSpan, TraceContext, TracedStep};

    use super::*;
    use crate::places::Directory;

    /// The bodies of the entries that have traces of commands.
    fn stored(place: &Directory) -> Vec<Vec<u8>> {
        // An opening brings the tables up to the log.
        end(open(SqliteJournal::new(place.path()), (None, &Calls::default()), &ManualClock::new()));
        let file = rusqlite::Connection::open(place.path().join("tables.db")).unwrap();
        let mut query = file.prepare("SELECT body FROM entries WHERE class = 26 ORDER BY number").unwrap();
        query.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn the_entry_of_a_trace_is_there_from_the_command_to_its_answer() {
        let (place, traces, calls, clock) = (Directory::new(), Traces::new(), Calls::default(), ManualClock::new());
        let run = |traces| open(SqliteJournal::new(place.path()), (traces, &calls), &clock);
        let (store, runtime) = run(None);
        let clerk = begin(&store);
        traces.root(|| store.send(clerk, Order::SetTimer).unwrap().wait(LIMIT).unwrap());
        answers(&runtime, clerk);
        end((store, runtime));
        assert_eq!(stored(&place), [[0; 0]; 0], "nothing without a propagator");
        let (store, runtime) = run(Some(&traces));
        store.send(clerk, Order::SetTimer).unwrap().wait(LIMIT).unwrap();
        answers(&runtime, clerk);
        end((store, runtime));
        assert_eq!(stored(&place), [[0; 0]; 0], "nothing outside of a trace");
        let (store, runtime) = run(Some(&traces));
        let set = stepped_in(&store, &traces, (clerk, Order::SetTimer));
        end((store, runtime));
        assert_eq!(stored(&place), [format!("span {set}").into_bytes()]);
        let (store, runtime) = run(Some(&traces));
        answers(&runtime, clerk);
        clock.advance(HOUR);
        answer_of(&traces, set, clerk);
        until("all have fired", || answers(&runtime, clerk) == 3);
        end((store, runtime));
        assert_eq!(stored(&place), [[0; 0]; 0], "the context is removed with the answer");
        let (store, runtime) = run(Some(&traces));
        stepped_in(&store, &traces, (clerk, Order::SetTimer));
        stepped_in(&store, &traces, (clerk, Order::Over));
        until("it has ended", || !runtime.is_alive(clerk));
        end((store, runtime));
        assert_eq!(stored(&place), [[0; 0]; 0], "nothing is left of an ended process");
        until("all contexts are gone", || traces.contexts() == 0);
    }

    #[test]
    fn an_answer_that_an_operator_skips_leaves_no_trace_behind() {
        let (place, traces, calls, clock) = (Directory::new(), Traces::new(), Calls::default(), ManualClock::new());
        let (store, runtime) = open(SqliteJournal::new(place.path()), (Some(&traces), &calls), &clock);
        let clerk = begin_as(&store, Clerk { always_fails: true, ..Clerk::default() });
        let set = stepped_in(&store, &traces, (clerk, Order::SetTimer));
        answers(&runtime, clerk);
        clock.advance(HOUR);
        until("it is parked", || {
            clock.advance(Duration::from_secs(1));
            !store.list(&Query::all().parked()).unwrap().is_empty()
        });
        let attempts = traces.children(set);
        assert!(
            attempts.len() > 1 && attempts.iter().all(|span| span.end.contains("no answer is taken")),
            "{attempts:?}"
        );
        store.skip(clerk.pid()).unwrap();
        assert_eq!(answers(&runtime, clerk), 0);
        until("no context is in memory", || traces.contexts() == 0);
        end((store, runtime));
        assert_eq!(stored(&place), [[0; 0]; 0]);
        assert_eq!(traces.children(set).len(), attempts.len());
    }

    /// Each message is in a trace whose context has so many bytes.
    struct Sized(usize);

    impl Propagator for Sized {
        fn current(&self) -> Option<Arc<dyn TraceContext>> {
            Some(Arc::new(Sized(self.0)))
        }
    }

    impl TraceContext for Sized {
        fn begin_step(&self, _: &TracedStep<'_>) -> Box<dyn StepSpan> {
            struct Span;

            impl StepSpan for Span {
                fn end(self: Box<Self>, _: procession::observe::StepEnd<'_>) {}
            }

            Box::new(Span)
        }

        fn enter(&self) -> Box<dyn std::any::Any> {
            Box::new(())
        }

        fn dead_letter(&self, _: &DeadLetter<'_>) {}

        fn encode(&self) -> Option<Vec<u8>> {
            if self.0 == 7 { panic!("a panic on purpose") } else { Some(vec![1; self.0]) }
        }
    }

    #[test]
    fn a_context_of_a_command_that_is_too_long_or_empty_is_not_stored() {
        for (bytes, is_stored) in [(1, true), (1_024, true), (1_025, false), (0, false), (7, false)] {
            let place = Directory::new();
            let builder = Runtime::builder().workers(2).clock(ManualClock::new().clock()).propagate(Sized(bytes));
            let store = store_in(SqliteJournal::new(place.path())).kind::<Clerk>();
            let (store, runtime) = store.start(builder).unwrap();
            let clerk = begin(&store);
            store.send(clerk, Order::SetTimer).unwrap().wait(LIMIT).unwrap();
            assert_eq!(answers(&runtime, clerk), 0);
            end((store, runtime));
            let entries: Vec<usize> = stored(&place).iter().map(Vec::len).collect();
            assert_eq!(entries, if is_stored { vec![bytes] } else { vec![] });
        }
    }
}
