//! A durable process that notes when it is in memory.

use std::collections::HashMap;
use std::time::Duration;

use procession::command::{Command, CommandKey, Responder, TimerFired};
use procession::config::RuntimeBuilder;
use procession::durable::journal::Journal;
use procession::durable::{Durable, DurableCommand, ErrorText, Store, StoreBuilder};
use procession::sync::Latch;
use procession::{
    Address, EntryArgs, Event, Events, Monitor, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag,
};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::wait::{Mutex, until, wait};

/// The stays of the guests in memory.
static STAYS: OfGuests<Stays> = Mutex::new(None);

/// By the numbers of their tests and their own.
type OfGuests<T> = Mutex<Option<HashMap<(u64, u64), T>>>;

/// The addresses of the guests that have begun in this program.
static ADDRESSES: OfGuests<Address<GuestMessage>> = Mutex::new(None);

pub(crate) fn address(of: (u64, u64)) -> Option<Address<GuestMessage>> {
    ADDRESSES.lock().unwrap().as_ref()?.get(&of).copied()
}

/// Two latches of a guest that waits when it leaves memory, or in a step: it has come there, and it goes on.
pub(crate) type Stop = (Latch<()>, Latch<()>);

static STOPS: OfGuests<Stop> = Mutex::new(None);

/// Has a guest wait when it leaves memory the next time, or in the next step that is told to.
pub(crate) fn stop(of: (u64, u64)) -> Stop {
    let stop = (Latch::new(), Latch::new());
    STOPS.lock().unwrap().get_or_insert_default().insert(of, stop.clone());
    stop
}

fn pass_stop(of: (u64, u64)) {
    let stop = STOPS.lock().unwrap().get_or_insert_default().remove(&of);
    if let Some((arrived, goes_on)) = stop {
        arrived.set(()).unwrap();
        wait(&goes_on);
    }
}

/// How often a guest came into memory and left it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stays {
    pub(crate) inits: u64,
    pub(crate) resumes: u64,
    pub(crate) closes: u64,
    /// Since its last call of `init` or `resumed`, until it is dropped.
    pub(crate) is_here: bool,
    /// How often it came although it was there.
    twice: u64,
}

pub(crate) fn change<R>(of: (u64, u64), change: impl FnOnce(&mut Stays) -> R) -> R {
    change(STAYS.lock().unwrap().get_or_insert_default().entry(of).or_default())
}

/// The stays of all guests of a test.
pub(crate) fn stays(test: u64) -> Vec<Stays> {
    let stays = STAYS.lock().unwrap();
    stays.iter().flatten().filter(|((of, _), _)| *of == test).map(|(_, stays)| *stays).collect()
}

/// In the state of a guest while it is in memory.
struct Here(u64, u64);

impl Here {
    fn comes(test: u64, number: u64) -> Here {
        change((test, number), |stays| {
            stays.twice += u64::from(std::mem::replace(&mut stays.is_here, true));
        });
        Here(test, number)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        change((self.0, self.1), |stays| stays.is_here = false);
    }
}

/// Passes rings on, and notes what it gets.
#[derive(Serialize, Deserialize)]
pub(crate) struct Guest {
    test: u64,
    number: u64,
    next: Option<Address<GuestMessage>>,
    rings: u64,
    answers: u64,
    cancels: u64,
    notes: Vec<String>,
    timer: Option<Tag<TimerFired>>,
    command: Option<Tag<u64>>,
    monitors: Vec<Monitor>,
    waits: bool,
    #[serde(skip)]
    here: Option<Here>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum GuestMessage {
    Next(Address<GuestMessage>),
    /// Is passed on so many times.
    Ring(u64),
    /// Sets a timer of so many seconds.
    Seconds(u64),
    /// Sets a timer, and waits for it.
    SecondsAndWait(u64),
    /// Begins a future that is never ready.
    Hang,
    /// Begins a command whose answer comes later.
    Later,
    Watch(Pid),
    /// Sends a number to an ordinary process, and waits for room there if need be.
    Tell(Address<u64>),
    /// Stops in the step, if a test has said so.
    Stop,
    /// Runs a guest of this number as a child.
    Run(u64),
    /// Runs a child that is done at once, and sets a short timer.
    Work,
    Look(Reply<(u64, Vec<String>)>),
    /// Asks how many rings, answers and requests to stop it has got.
    Count(Reply<[u64; 3]>),
    Over,
}

/// Is done at once.
#[derive(Serialize, Deserialize)]
struct Brief;

impl Process for Brief {
    type Message = ();
    type Output = u64;

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<u64> {
        Ok(Step::Done(1))
    }
}

impl Durable for Brief {
    const NAME: &str = "brief";
}

/// A command that is answered from outside.
#[derive(Serialize, Deserialize)]
pub(crate) struct Decide;

impl Command for Decide {
    type Output = u64;
}

impl DurableCommand for Decide {
    const NAME: &str = "decide";
    type Error = ErrorText;
}

impl Guest {
    pub(crate) fn new(test: u64, number: u64) -> Guest {
        Guest {
            test,
            number,
            next: None,
            rings: 0,
            answers: 0,
            cancels: 0,
            notes: Vec::new(),
            timer: None,
            command: None,
            monitors: Vec::new(),
            waits: false,
            here: None,
        }
    }
}

impl Process for Guest {
    type Message = GuestMessage;
    type Output = u64;

    fn init(&mut self, _: EntryArgs) -> Result<(), procession::BoxError> {
        change((self.test, self.number), |stays| stays.inits += 1);
        self.here = Some(Here::comes(self.test, self.number));
        Ok(())
    }

    fn start(&mut self, out: &mut StepOutput) -> Result<(), procession::BoxError> {
        let address = out.pid().typed();
        ADDRESSES.lock().unwrap().get_or_insert_default().insert((self.test, self.number), address);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, GuestMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(GuestMessage::Next(next)) => self.next = Some(next),
                Event::Message(GuestMessage::Ring(left)) => {
                    self.rings += 1;
                    if let (Some(next), 1..) = (self.next, left) {
                        out.send(next, GuestMessage::Ring(left - 1));
                    }
                }
                Event::Message(GuestMessage::Seconds(seconds)) => {
                    self.timer = Some(out.after(Duration::from_secs(seconds)));
                }
                Event::Message(GuestMessage::SecondsAndWait(seconds)) => {
                    self.timer = Some(out.after(Duration::from_secs(seconds)));
                    self.waits = true;
                }
                Event::Message(GuestMessage::Hang) => drop(out.future(std::future::pending::<()>())),
                Event::Message(GuestMessage::Later) => self.command = Some(out.command(Decide)),
                Event::Message(GuestMessage::Tell(to)) => drop(out.send_timeout(to, 1, Duration::MAX)),
                Event::Message(GuestMessage::Stop) => pass_stop((self.test, self.number)),
                Event::Message(GuestMessage::Watch(pid)) => self.monitors.push(out.monitor(pid)),
                Event::Message(GuestMessage::Run(number)) => {
                    out.run(Guest::new(self.test, number));
                }
                Event::Message(GuestMessage::Work) => {
                    out.run(Brief);
                    out.after(Duration::from_micros(500));
                }
                Event::Message(GuestMessage::Count(reply)) => {
                    out.reply(reply, [self.rings, self.answers, self.cancels]);
                }
                Event::Message(GuestMessage::Look(reply)) => out.reply(reply, (self.rings, self.notes.clone())),
                Event::Message(GuestMessage::Over) => return Ok(Step::Done(self.number)),
                Event::Completed(_) => {
                    self.waits = false;
                    self.answers += 1;
                    self.notes.push("answer".into());
                }
                Event::Down(down) => self.notes.push(format!("down: {}", down.exit)),
                Event::Cancel(request) => {
                    self.cancels += 1;
                    self.notes.push(format!("cancel: {}", request.reason));
                }
                _ => self.notes.push("something else".into()),
            }
        }
        Ok(if self.waits { Step::Wait } else { Step::Idle })
    }

    fn close(&mut self) {
        pass_stop((self.test, self.number));
        change((self.test, self.number), |stays| stays.closes += 1);
    }
}

impl Durable for Guest {
    const NAME: &str = "guest";

    fn resumed(&mut self) {
        change((self.test, self.number), |stays| stays.resumes += 1);
        self.here = Some(Here::comes(self.test, self.number));
    }
}

/// Starts a store of guests. Keys of commands that are to be answered from outside are added to `keys`.
pub(crate) fn start(
    journal: impl Journal + 'static,
    builder: RuntimeBuilder,
    options: impl FnOnce(StoreBuilder) -> StoreBuilder,
    keys: &'static Mutex<Vec<CommandKey>>,
) -> (Store, Runtime) {
    let builder = builder.workers(2).handler(move |_: Decide, done: Responder<u64>| {
        keys.lock().unwrap().extend(done.key());
        done.later();
        Ok(())
    });
    options(store_in(journal).kind::<Guest>().kind::<Brief>().command::<Decide>()).start(builder).unwrap()
}

/// Checks that each guest of a test has begun once and was in memory once. Returns how often they have left memory.
pub(crate) fn departures(test: u64) -> u64 {
    let all = stays(test);
    for stays in &all {
        assert_eq!((stays.inits, stays.twice), (1, 0), "{stays:?}");
    }
    all.iter().map(|stays| stays.closes).sum()
}

/// Waits until no process is in memory. The clock moves on until then. A million processes may take longer than one
/// limit. So a new limit begins whenever fewer processes are left.
pub(crate) fn all_asleep(runtime: &Runtime, mut pass: impl FnMut()) {
    // A list of a million places takes long, so the count is looked at.
    let (mut looks, mut left) = (0, u64::MAX);
    while left > 0 {
        let most = left - 1 - (left - 1) / 8;
        until(&format!("some fall asleep of {left}"), || {
            looks += 1;
            if looks % 20 == 1 && runtime.is_idle() {
                pass();
            }
            left = runtime.stats().processes;
            left <= most
        });
    }
    until("none is in the list", || runtime.processes().is_empty());
}
