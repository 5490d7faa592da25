//! Messages of durable processes within traces, also over a kill and a restart of the store.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::TimerFired;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::observe::DeadLetterReason;
use procession::{Address, BoxError, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::store_calls::fail_all;
use crate::traces::{Span, Traces};
use crate::wait::{LIMIT, advance_until, until};
use crate::worker::{end, kill};

/// The behaviour of the next steps of the carriers, for each test: one of the values below.
static TROUBLES: [AtomicU8; 6] = [const { AtomicU8::new(0) }; 6];

const GOES_ON: u8 = 0;
const FAILS: u8 = 1;
const PANICS: u8 = 2;
/// The step waits for `GOES_ON`. Meanwhile the value is `WAITS`.
const IS_TO_WAIT: u8 = 3;
const WAITS: u8 = 4;

fn set_trouble(test: usize, trouble: u8) {
    TROUBLES[test].store(trouble, Ordering::SeqCst);
}

/// Has a step fail, panic or wait, if it is to.
fn meet_trouble(test: usize) -> Result<(), BoxError> {
    let trouble = &TROUBLES[test];
    match trouble.load(Ordering::SeqCst) {
        FAILS => Err("stuck on purpose".into()),
        PANICS => panic!("a panic on purpose"),
        IS_TO_WAIT => {
            trouble.store(WAITS, Ordering::SeqCst);
            until("the step is to go on", || trouble.load(Ordering::SeqCst) == GOES_ON);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Passes parcels on.
#[derive(Default, Serialize, Deserialize)]
struct Carrier {
    next: Option<Address<Parcel>>,
    timer: Option<Tag<TimerFired>>,
    /// The test whose trouble the next answer meets.
    test: Option<usize>,
}

#[derive(Serialize, Deserialize)]
enum Parcel {
    Next(Address<Parcel>),
    Carry,
    /// As `Carry`, with the trouble of this test.
    Stuck(usize),
    /// To be carried when a timer has fired.
    Later,
    /// To be carried when a timer has fired, and when a closure has returned, both with the trouble of this test.
    StuckLater(usize),
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
                Event::Message(Parcel::Later) => self.timer = Some(out.after(Duration::from_secs(60))),
                Event::Message(Parcel::StuckLater(test)) => {
                    self.timer = Some(out.after(Duration::from_secs(60)));
                    out.blocking(|| ());
                    self.test = Some(test);
                }
                Event::Message(Parcel::Carry | Parcel::Stuck(_)) | Event::Completed(_) => {
                    let test = if let Event::Message(Parcel::Stuck(test)) = event { Some(test) } else { self.test };
                    test.map_or(Ok(()), meet_trouble)?;
                    self.next.into_iter().for_each(|next| out.send(next, Parcel::Carry));
                }
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

/// Takes another type.
#[derive(Serialize, Deserialize)]
struct Other;

#[derive(Serialize, Deserialize)]
struct OtherParcel;

impl Process for Other {
    type Message = OtherParcel;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, OtherParcel>, _: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        Ok(Step::Idle)
    }
}

impl Durable for Other {
    const NAME: &str = "other";
}

/// A store in this journal, whose runtime follows these traces.
fn open(disk: &MemoryDisk, traces: Option<&Traces>, clock: &ManualClock) -> (Store, Runtime) {
    let builder = Runtime::builder().workers(2).clock(clock.clock());
    let builder = traces.into_iter().fold(builder, |builder, traces| builder.propagate(traces.clone()));
    store_in(MemoryJournal::new(disk)).kind::<Carrier>().kind::<Other>().start(builder).unwrap()
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
    set_trouble(0, FAILS);
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

    set_trouble(0, GOES_ON);
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
        set_trouble(1, FAILS);
        let root = traces.root(|| store.send(first, Parcel::Stuck(1)).unwrap().wait(LIMIT).unwrap());
        ended(&traces, root, "failed: stuck on purpose");
        kill(&disk, (store, runtime));
        set_trouble(1, GOES_ON);
        let (store, runtime) = open(&disk, strange.as_ref(), &clock);
        until("the record of its step is on disk", || store.show(first.pid()).unwrap().mail.is_empty());
        until("it was stepped", || runtime.stats().messages.queued == 0 && runtime.is_idle());
        assert_eq!(traces.children(root).len(), 1);
        assert_eq!(strange.map_or(Vec::new(), |strange| strange.spans()), []);
        end((store, runtime));
    }
}

/// The answer of a closure is not stored, and that of a timer is.
#[test]
fn an_answer_of_a_failed_step_is_offered_again_in_its_trace() {
    let (disk, traces, clock) = (MemoryDisk::new(), Traces::new(), ManualClock::new());
    let (store, runtime) = open(&disk, Some(&traces), &clock);
    let [first, second] = two_carriers(&store, None);
    let set = Cell::new(None);
    let answers = || set.get().map_or(Vec::new(), |set| traces.children(set));
    let fails = |attempts: usize| {
        until("the step has failed", || answers().get(attempts - 1).is_some_and(|span| !span.end.is_empty()));
        runtime.wait_idle().unwrap();
    };
    set_trouble(2, FAILS);
    let root = traces.root(|| drop(store.send(first, Parcel::StuckLater(2)).unwrap()));
    set.set(Some(carried(&traces, root, (None, first.pid()))));
    fails(1);
    clock.advance(Duration::from_secs(1));
    fails(2);
    set_trouble(2, GOES_ON);
    clock.advance(Duration::from_secs(2));
    until("its answer was taken", || answers().len() == 3);
    runtime.wait_idle().unwrap();
    set_trouble(2, FAILS);
    // No further than to the timer, so that the pause behind its failed step lasts.
    clock.advance(Duration::from_secs(57));
    fails(4);
    set_trouble(2, GOES_ON);
    clock.advance(Duration::from_secs(1));
    until("the timer was taken", || answers().len() == 5);
    for (attempt, span) in answers().into_iter().enumerate() {
        assert!(span.event.starts_with("command") && span.pid == Some(first.pid()), "{span:?}");
        if attempt == 2 || attempt == 4 {
            carried(&traces, span.number, (Some(first.pid()), second.pid()));
        } else {
            assert_eq!((span.end.as_str(), traces.children(span.number)), ("failed: stuck on purpose", vec![]));
        }
    }
    end((store, runtime));
    until("all contexts are gone", || traces.contexts() == 0);
}

#[test]
fn the_span_of_a_durable_step_that_panics_says_so() {
    let (disk, traces, clock) = (MemoryDisk::new(), Traces::new(), ManualClock::new());
    let (store, runtime) = open(&disk, Some(&traces), &clock);
    let [first, _] = two_carriers(&store, None);
    set_trouble(3, PANICS);
    let root = traces.root(|| drop(store.send(first, Parcel::Stuck(3)).unwrap()));
    ended(&traces, root, "panicked: a panic on purpose");
    end((store, runtime));
    until("all contexts are gone", || traces.contexts() == 0);
}

/// The files are opened again meanwhile, so the step is undone. Its message is on disk, and is stepped again.
#[test]
fn the_span_of_a_step_that_is_not_stored_has_failed() {
    let (disk, traces, clock) = (MemoryDisk::new(), Traces::new(), ManualClock::new());
    let (store, runtime) = open(&disk, Some(&traces), &clock);
    let [first, second] = two_carriers(&store, None);
    set_trouble(4, IS_TO_WAIT);
    let root = traces.root(|| store.send(first, Parcel::Stuck(4)).unwrap().wait(LIMIT).unwrap());
    until("the step waits", || TROUBLES[4].load(Ordering::SeqCst) == WAITS);
    fail_all(&disk, Fault::Full);
    until("the store opens its files again", || store.send(first, Parcel::Carry).is_err());
    set_trouble(4, GOES_ON);
    ended(&traces, root, "failed: the store has not taken its record, so the step is undone");
    disk.heal();
    let is_again = || traces.children(root).len() == 2;
    advance_until("the step is tried again", &clock, Duration::from_secs(1), is_again);
    let again = carried(&traces, root, (None, first.pid()));
    carried(&traces, again, (Some(first.pid()), second.pid()));
    assert_eq!(traces.children(root).len(), 2, "{:?}", traces.spans());
    end((store, runtime));
    until("all contexts are gone", || traces.contexts() == 0);
}

#[test]
fn a_dead_letter_that_is_read_from_the_disk_is_in_its_trace() {
    let (disk, traces, clock) = (MemoryDisk::new(), Traces::new(), ManualClock::new());
    let (store, runtime) = open(&disk, Some(&traces), &clock);
    let [first, _] = two_carriers(&store, None);
    runtime.wait_idle().unwrap();
    end((store, runtime));
    // The process is not in memory, so the sender is not told that it takes no such message.
    let (store, runtime) = open(&disk, Some(&traces), &clock);
    let wrong = traces.root(|| drop(store.send(first.pid().typed(), OtherParcel).unwrap()));
    until("it is a dead letter", || traces.dead() == [(wrong, DeadLetterReason::WrongType)]);
    // An operator skips the message of a step that fails each time.
    set_trouble(5, FAILS);
    let skipped = traces.root(|| drop(store.send(first, Parcel::Stuck(5)).unwrap()));
    until("it is parked and skipped", || {
        clock.advance(Duration::from_secs(1));
        store.skip(first.pid()).is_ok()
    });
    until("it is a dead letter", || traces.dead().last() == Some(&(skipped, DeadLetterReason::StepFailed)));
    end((store, runtime));
    until("all contexts are gone", || traces.contexts() == 0);
}
