//! Questions between durable processes whose answers have no name in the store, so that they end with the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::RuntimeBuilder;
use procession::durable::journal::{Fault, Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::{Address, CommandError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::{goes_ahead, store_in};
use crate::wait::{LIMIT, Mutex, until};
use crate::worker::{end, stepped};

/// Asks others, and is asked.
#[derive(Default, Serialize, Deserialize)]
struct Talker {
    tag: Option<Tag<u64>>,
    /// The answers.
    notes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
enum Talk {
    /// Asks another one. That one tells an ordinary process.
    Ask(Address<Talk>, Address<u64>),
    /// As `Ask`, with a limit.
    AskFor(Address<Talk>, Address<u64>, Duration),
    /// As `Ask`. The record of the first attempt is too large.
    AskTooMuch(Address<Talk>, Address<u64>),
    Question(Reply<u64>, Address<u64>),
    Filling(String),
    /// Waits for an answer that never comes.
    Busy,
    Over,
    Look(Reply<Vec<String>>),
}

static TOO_MUCH: AtomicU32 = AtomicU32::new(1);

impl Talker {
    fn ask(&mut self, out: &mut StepOutput, (to, outside): (Address<Talk>, Address<u64>), limit: Duration) {
        self.tag = Some(out.ask(to, |reply| Talk::Question(reply, outside), limit));
    }
}

impl Process for Talker {
    type Message = Talk;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Talk>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Talk::Ask(to, outside)) => self.ask(out, (to, outside), Duration::MAX),
                Event::Message(Talk::AskFor(to, outside, limit)) => self.ask(out, (to, outside), limit),
                Event::Message(Talk::AskTooMuch(to, outside)) => {
                    self.ask(out, (to, outside), Duration::MAX);
                    let is_first =
                        TOO_MUCH.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                    let parts = if is_first.is_ok() { 9 } else { 0 };
                    (0..parts).for_each(|_| out.send(to, Talk::Filling("x".repeat(1 << 20))));
                }
                Event::Message(Talk::Question(reply, outside)) => {
                    out.send(outside, 1);
                    out.reply(reply, 7);
                }
                Event::Message(Talk::Busy) => {
                    out.future(std::future::pending::<()>());
                    return Ok(Step::Wait);
                }
                Event::Message(Talk::Over) => return Ok(Step::Done(())),
                Event::Message(Talk::Look(reply)) => out.reply(reply, self.notes.clone()),
                Event::Completed(answer) => {
                    let answer = self.tag.and_then(|tag| answer.take(tag));
                    self.notes.extend(answer.map(|answer| match answer {
                        Ok(value) => value.to_string(),
                        Err(CommandError::Full(_)) => "full".into(),
                        Err(CommandError::NoSuchProcess(_) | CommandError::Ended(_)) => "ended".into(),
                        Err(error) => error.to_string(),
                    }));
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Talker {
    const NAME: &str = "talker";
}

/// An ordinary process that notes what it gets.
pub(crate) struct Outside(pub(crate) Arc<Mutex<Vec<u64>>>);

impl Process for Outside {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(number) => self.0.lock().unwrap().push(number),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

struct Hall {
    store: Store,
    runtime: Runtime,
    clock: ManualClock,
    told: Arc<Mutex<Vec<u64>>>,
    outside: Address<u64>,
}

impl Hall {
    fn open(journal: impl Journal + 'static) -> Hall {
        let clock = ManualClock::new();
        Hall::start(journal, Runtime::builder().clock(clock.clock()), clock)
    }

    fn start(journal: impl Journal + 'static, builder: RuntimeBuilder, clock: ManualClock) -> Hall {
        let builder = builder.workers(2);
        let (store, runtime) = store_in(journal).mailbox_limit(1).kind::<Talker>().start(builder).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let outside = runtime.spawn(Outside(told.clone())).unwrap().address();
        Hall { store, runtime, clock, told, outside }
    }

    fn begin(&self, id: &str) -> Address<Talk> {
        let begun = self.store.begin(id, Talker::default()).unwrap();
        begun.wait(LIMIT).unwrap();
        begun.address()
    }

    fn tell(&self, to: Address<Talk>, message: Talk) {
        drop(self.store.send(to, message).unwrap());
        stepped(&self.runtime);
    }

    fn notes(&self, talker: Address<Talk>) -> Vec<String> {
        self.runtime.ask(talker, Talk::Look, Duration::MAX).wait().unwrap_or_default()
    }

    fn told(&self) -> Vec<u64> {
        self.told.lock().unwrap().clone()
    }

    fn end(self) {
        end((self.store, self.runtime));
    }
}

#[test]
fn a_live_question_goes_ahead_of_the_disk_and_its_effects_do_not() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let hall = Hall::open(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
    let [asker, other] = ["a", "b"].map(|id| hall.begin(id));
    stepped(&hall.runtime);
    let trace = hall.runtime.trace(other, Duration::from_secs(60)).unwrap();
    stepped(&hall.runtime);
    gate.close();
    drop(hall.store.send(asker, Talk::Ask(other, hall.outside)).unwrap());
    until("both have stepped", || trace.take().iter().any(|event| event.what == "step"));
    stepped(&hall.runtime);
    assert_eq!(hall.told(), [0; 0], "the step that has asked is not on disk");
    gate.open();
    until("it is told", || hall.told() == [1]);
    until("it is answered", || hall.notes(asker) == ["7"]);
    hall.end();
}

/// The next question has the same tag: the first draws of the disk's seed are 0, so nothing of the failed batch is on
/// disk. If another batch fails, the first question is asked again, or is interrupted.
#[test]
fn a_live_question_of_a_lost_step_answers_no_later_one() {
    let (disk, gate) = (MemoryDisk::with_seed(4), Gate::default());
    let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
    // A process that is loaded while the files are opened anew is loaded again after a pause.
    let hall = Hall::start(journal, Runtime::builder(), ManualClock::new());
    let [asker, other, busy] = ["a", "b", "c"].map(|id| hall.begin(id));
    hall.tell(busy, Talk::Busy);
    until("all is on disk", || hall.store.stats().unstored == 0);
    gate.close();
    drop(hall.store.send(asker, Talk::Ask(busy, hall.outside)).unwrap());
    gate.wait_for(1);
    disk.fail_at(disk.calls(), Fault::Error);
    gate.open();
    until("the step is undone", || hall.store.stats().rewinds == 1 && hall.store.stats().unstored == 0);
    let [interrupted, dropped] = [CommandError::Interrupted, CommandError::Dropped].map(|error| error.to_string());
    let mut drops = 0;
    let ask = || until("it is taken", || hall.store.send(asker, Talk::Ask(other, hall.outside)).is_ok());
    ask();
    until("it is answered", || {
        let notes = hall.notes(asker);
        // The other process was about to be loaded again. Then it drops a question that is in memory only.
        let more = notes.iter().filter(|note| **note == dropped).count();
        if more > drops {
            drops = more;
            ask();
        }
        notes.iter().any(|note| note == "7")
    });
    let notes = hall.notes(asker);
    assert!(notes.iter().all(|note| ["7", &interrupted, &dropped].contains(&&**note)), "{notes:?}");
    hall.end();
}

#[test]
fn a_live_question_of_a_failed_step_is_asked_once() {
    let hall = Hall::open(MemoryJournal::new(&MemoryDisk::new()));
    let [asker, other] = ["a", "b"].map(|id| hall.begin(id));
    drop(hall.store.send(asker, Talk::AskTooMuch(other, hall.outside)).unwrap());
    until("the first attempt has failed", || TOO_MUCH.load(Ordering::SeqCst) == 0 && hall.runtime.is_idle());
    assert_eq!(hall.told(), [0; 0]);
    hall.clock.advance(Duration::from_secs(1));
    until("it is answered", || hall.told() == [1]);
    until("it is told", || !hall.notes(asker).is_empty());
    assert_eq!(hall.notes(asker), ["7"]);
    hall.end();
}

#[test]
fn a_live_question_that_is_refused_or_takes_too_long_says_why() {
    let hall = Hall::open(MemoryJournal::new(&MemoryDisk::new()));
    let [asker, over, busy] = ["a", "b", "c"].map(|id| hall.begin(id));
    hall.tell(over, Talk::Over);
    hall.tell(asker, Talk::Ask(over, hall.outside));
    until("it has ended", || hall.notes(asker) == ["ended"]);
    hall.tell(busy, Talk::Busy);
    let minute = Duration::from_secs(60);
    drop(hall.store.send(asker, Talk::AskFor(busy, hall.outside, minute)).unwrap());
    until("it waits", || hall.runtime.stats().messages.queued == 1 && hall.notes(asker).len() == 1);
    hall.clock.advance(minute);
    until("it takes too long", || hall.notes(asker).len() == 2);
    drop(hall.store.send(busy, Talk::Filling("full".into())).unwrap());
    until("it is full", || hall.store.send(busy, Talk::Filling("more".into())).is_err());
    drop(hall.store.send(asker, Talk::Ask(busy, hall.outside)).unwrap());
    until("it is refused", || hall.notes(asker).len() == 3);
    assert_eq!(hall.notes(asker), ["ended".into(), CommandError::TimedOut.to_string(), "full".into()]);
    assert_eq!(hall.told(), [0; 0]);
    hall.end();
}
