//! Messages of durable processes within traces, also over a kill and a restart of the store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::TimerFired;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::observe::DeadLetterReason;
use procession::{Address, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::traces::{Span, Traces};
use crate::wait::{LIMIT, advance_until, until};
use crate::worker::{end, kill};

/// Whether the steps that take `Stuck` fail. Each test has its own.
static ARE_STUCK: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// Passes parcels on.
#[derive(Default, Serialize, Deserialize)]
struct Carrier {
    next: Option<Address<Parcel>>,
    timer: Option<Tag<TimerFired>>,
}

#[derive(Serialize, Deserialize)]
enum Parcel {
    Next(Address<Parcel>),
    Carry,
    /// As `Carry`. Fails while the carriers of this test are stuck.
    Stuck(usize),
    /// To be carried when a timer has fired.
    Later,
    Ask(Reply<u32>),
    Over,
}

impl Process for Carrier {
    type Message = Parcel;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Parcel>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Parcel::Next(next)) => self.next = Some(next),
                Event::Message(Parcel::Stuck(test)) if ARE_STUCK[test].load(Ordering::SeqCst) => {
                    return Err("stuck on purpose".into());
                }
                Event::Message(Parcel::Carry | Parcel::Stuck(_)) | Event::Completed(_) => {
                    self.next.into_iter().for_each(|next| out.send(next, Parcel::Carry));
                }
                Event::Message(Parcel::Later) => self.timer = Some(out.after(Duration::from_secs(60))),
                Event::Message(Parcel::Ask(reply)) => out.reply(reply, 7),
                Event::Message(Parcel::Over) | Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Carrier {
    const NAME: &str = "carrier";
}

/// A store in this journal, whose runtime follows these traces.
fn open(disk: &MemoryDisk, traces: Option<&Traces>, clock: &ManualClock) -> (Store, Runtime) {
    let builder = Runtime::builder().workers(2).clock(clock.clock());
    let builder = traces.into_iter().fold(builder, |builder, traces| builder.propagate(traces.clone()));
    store_in(MemoryJournal::new(disk)).kind::<Carrier>().start(builder).unwrap()
}

/// Two durable processes. The first one sends to the second one, and that one to `last`.
fn two_carriers(store: &Store, last: Option<Address<Parcel>>) -> [Address<Parcel>; 2] {
    let second = store.begin("second", Carrier { next: last, ..Carrier::default() }).unwrap().address();
    let begun = store.begin("first", Carrier { next: Some(second), ..Carrier::default() }).unwrap();
    begun.wait(LIMIT).unwrap();
    [begun.address(), second]
}

/// Waits for a span below this one that has ended in this way.
#[track_caller]
fn ended(traces: &Traces, parent: usize, end: &str) -> Span {
    let find = || traces.children(parent).into_iter().find(|span| span.end == end);
    until(end, || find().is_some());
    find().unwrap()
}

#[track_caller]
fn carried(traces: &Traces, parent: usize, (from, to): (Option<Pid>, Pid)) -> usize {
    let span = ended(traces, parent, "succeeded");
    assert_eq!((span.pid, span.from), (Some(to), from), "{span:?}");
    assert!(span.event.contains("Parcel"), "{span:?}");
    span.number
}

#[test]
fn a_trace_goes_through_durable_processes_and_their_timers() {
    let (disk, traces, clock) = (MemoryDisk::new(), Traces::new(), ManualClock::new());
    let (store, runtime) = open(&disk, Some(&traces), &clock);
    let last = runtime.spawn(Carrier::default()).unwrap();
    let [first, second] = two_carriers(&store, Some(last.address()));
    let root = traces.root(|| drop(store.send(first, Parcel::Carry).unwrap()));
    let one = carried(&traces, root, (None, first.pid()));
    let two = carried(&traces, one, (Some(first.pid()), second.pid()));
    carried(&traces, two, (Some(second.pid()), last.pid()));
    // By a timer, from the runtime, and with a key.
    let root = traces.root(|| runtime.send(first, Parcel::Later).unwrap());
    let set = carried(&traces, root, (None, first.pid()));
    runtime.wait_idle().unwrap();
    // It is set when its step is on disk.
    advance_until("the timer has fired", &clock, Duration::from_secs(60), || !traces.children(set).is_empty());
    let fired = ended(&traces, set, "succeeded");
    assert!(fired.event.starts_with("command") && fired.pid == Some(first.pid()), "{fired:?}");
    carried(&traces, fired.number, (Some(first.pid()), second.pid()));
    let root = traces.root(|| drop(store.send_once(second, "key", Parcel::Carry).unwrap()));
    carried(&traces, root, (None, second.pid()));
    // A question is not stored. Its step is in the trace all the same.
    let root = traces.root(|| assert_eq!(runtime.ask(first, Parcel::Ask, LIMIT).wait().unwrap(), 7));
    carried(&traces, root, (None, first.pid()));
    // A message outside of any trace.
    let spans = traces.spans().len();
    store.send(first, Parcel::Carry).unwrap().wait(LIMIT).unwrap();
    until("it was stepped", || runtime.stats().messages.queued == 0 && runtime.is_idle());
    // A message to a process that has ended is an event in its trace.
    store.send(second, Parcel::Over).unwrap();
    until("it has ended", || !runtime.is_alive(second));
    let root = traces.root(|| drop(store.send(first, Parcel::Carry).unwrap()));
    let one = carried(&traces, root, (None, first.pid()));
    until("it is a dead letter", || traces.dead() == [(one, DeadLetterReason::Ended)]);
    assert_eq!(traces.spans().len(), spans + 2, "{:?}", traces.spans());
    drop(last);
    end((store, runtime));
    until("all contexts are gone", || traces.contexts() == 0);
}

#[test]
fn a_trace_goes_on_after_a_failed_step_a_kill_and_a_restart() {
    let (disk, traces, clock) = (MemoryDisk::new(), Traces::new(), ManualClock::new());
    let (store, runtime) = open(&disk, Some(&traces), &clock);
    let [first, second] = two_carriers(&store, None);
    ARE_STUCK[0].store(true, Ordering::SeqCst);
    let sent = |parcel| store.send(first, parcel).unwrap().wait(LIMIT).unwrap();
    let root = traces.root(|| sent(Parcel::Stuck(0)));
    ended(&traces, root, "failed: stuck on purpose");
    // It is tried again in this run, in its trace.
    runtime.wait_idle().unwrap();
    clock.advance(Duration::from_secs(1));
    until("it has failed twice", || traces.children(root).len() == 2);
    runtime.wait_idle().unwrap();
    // This one waits behind it, and no step has taken it.
    let other = traces.root(|| sent(Parcel::Carry));
    assert_eq!(traces.children(other), []);
    kill(&disk, (store, runtime));
    until("all contexts are gone", || traces.contexts() == 0);
    let failed: Vec<String> = traces.children(root).into_iter().map(|span| span.end).collect();
    assert!(failed.iter().all(|end| end == "failed: stuck on purpose"), "{failed:?}");

    ARE_STUCK[0].store(false, Ordering::SeqCst);
    let (store, runtime) = open(&disk, Some(&traces), &clock);
    for root in [root, other] {
        let one = carried(&traces, root, (None, first.pid()));
        carried(&traces, one, (Some(first.pid()), second.pid()));
    }
    assert_eq!(traces.children(root).len(), failed.len() + 1, "{:?}", traces.spans());
    end((store, runtime));
    until("all contexts are gone", || traces.contexts() == 0);
}

/// Also if the message was stored within a trace that the program of this run does not know.
#[test]
fn a_program_without_a_propagator_steps_the_traced_mail_of_an_earlier_run() {
    for strange in [None, Some(Traces::new())] {
        let (disk, traces, clock) = (MemoryDisk::new(), Traces::new(), ManualClock::new());
        let (store, runtime) = open(&disk, Some(&traces), &clock);
        let [first, _] = two_carriers(&store, None);
        ARE_STUCK[1].store(true, Ordering::SeqCst);
        let root = traces.root(|| store.send(first, Parcel::Stuck(1)).unwrap().wait(LIMIT).unwrap());
        ended(&traces, root, "failed: stuck on purpose");
        kill(&disk, (store, runtime));
        ARE_STUCK[1].store(false, Ordering::SeqCst);
        let (store, runtime) = open(&disk, strange.as_ref(), &clock);
        until("it was stepped", || runtime.stats().messages.queued == 0 && runtime.is_idle());
        assert!(store.show(first.pid()).unwrap().mail.is_empty());
        assert_eq!(traces.children(root).len(), 1);
        assert_eq!(strange.map_or(Vec::new(), |strange| strange.spans()), []);
        end((store, runtime));
    }
}
