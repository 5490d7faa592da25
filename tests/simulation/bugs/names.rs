//! Bugs of names and groups: a PID that is old, a name that has another holder, a group that is joined too late.

use std::time::Duration;

use procession::command::TimerFired;
use procession::simulation::{Faults, Simulation, ensure};
use procession::{Address, Event, Events, Pid, Process, Reply, SpawnOptions, Step, StepOutput, StepResult, Tag};

use super::{PlantedBug, Version, start};
use crate::programs::SECOND;

/// Statement 35. A writer looks a printer up, prepares its page, and sends it to the PID. Meanwhile the printer was
/// replaced. The corrected writer asks, and looks again if there is no answer.
pub(super) const STALE_PID: PlantedBug = PlantedBug { system: stale_pid, breaks: "every page is printed", seeds: 200 };

#[test]
fn a_stale_pid_is_found() {
    STALE_PID.is_found_in_each_batch();
}

#[test]
fn no_stale_pid_is_found_if_the_answer_counts() {
    STALE_PID.is_not_found_when_corrected();
}

#[derive(Debug)]
enum PrinterMessage {
    Print(Option<Reply<()>>),
    Retire,
}

struct Printer {
    tray: Address<()>,
}

impl Process for Printer {
    type Message = PrinterMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, PrinterMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(PrinterMessage::Print(reply)) => {
                    out.send(self.tray, ());
                    reply.into_iter().for_each(|reply| out.reply(reply, ()));
                }
                Event::Message(PrinterMessage::Retire) | Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Counts pages.
#[derive(Default)]
struct Tray {
    pages: u64,
}

impl Process for Tray {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(()) => self.pages += 1,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Replaces the printer: a new one gets the name of the old one, which ends when it has printed what it has.
struct Caretaker {
    tray: Address<()>,
    printer: Address<PrinterMessage>,
    timer: Option<Tag<TimerFired>>,
}

impl Process for Caretaker {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Completed(done) if done.is(self.timer) => {
                    out.unregister("printer");
                    let next = out.spawn(Printer { tray: self.tray })?;
                    out.register("printer", next);
                    out.send(self.printer, PrinterMessage::Retire);
                    return Ok(Step::Done(()));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if self.timer.is_none() {
            self.timer = Some(out.after(Duration::from_micros(200)));
        }
        Ok(Step::Idle)
    }
}

/// Prints one page, after its content was prepared.
struct Writer {
    version: Version,
    printer: Option<Pid>,
    prepared: Option<Tag<()>>,
    asked: Option<Tag<()>>,
    timer: Option<Tag<TimerFired>>,
}

impl Process for Writer {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            let Event::Completed(done) = event else { continue };
            if done.is(self.prepared) {
                let Some(printer) = self.printer else {
                    // The name is free for a moment, between the two printers.
                    self.timer = Some(out.after(Duration::from_millis(1)));
                    continue;
                };
                if !self.version.is_corrected() {
                    out.send(printer, PrinterMessage::Print(None));
                    return Ok(Step::Done(()));
                }
                self.asked = Some(out.ask(printer.typed(), |reply| PrinterMessage::Print(Some(reply)), SECOND));
            } else if done.is(self.timer) {
                let question = |reply| PrinterMessage::Print(Some(reply));
                self.asked = Some(out.ask("printer", question, SECOND));
            } else if let Some(answer) = self.asked.and_then(|tag| done.take(tag)) {
                if answer.is_ok() {
                    return Ok(Step::Done(()));
                }
                self.timer = Some(out.after(Duration::from_millis(1)));
            }
        }
        if self.prepared.is_none() {
            self.printer = out.whereis("printer");
            self.prepared = Some(out.blocking(|| ()));
        }
        Ok(Step::Wait)
    }
}

fn stale_pid(version: Version) -> Simulation {
    Simulation::new(move |world| {
        let runtime = start(world)?;
        let tray = runtime.spawn(Tray::default())?.address();
        let printer = runtime.spawn_with(Printer { tray }, SpawnOptions::new().name("printer"))?.address();
        let writers: Vec<_> = (0..3)
            .map(|_| Writer { version, printer: None, prepared: None, asked: None, timer: None })
            .map(|writer| runtime.spawn(writer))
            .collect::<Result<_, _>>()?;
        runtime.spawn(Caretaker { tray, printer, timer: None })?;
        world.eventually("every page is printed", 10 * SECOND, move |state| {
            let pages: u64 = state.processes::<Tray>().map(|(_, tray)| tray.pages).sum();
            writers.iter().all(|writer| writer.is_finished()) && pages == 3
        });
        world.run()
    })
    .show::<PrinterMessage>()
    .show::<String>()
}

/// Statement 37. A clerk has the lease of a file as long as it has the name `lease`. The keeper of the leases takes the
/// name from a clerk that is too slow. The file lets anybody write while the name is held, although it may be held by
/// another clerk by now. The corrected file compares the PID of the holder.
pub(super) const ABA_OF_A_NAME: PlantedBug =
    PlantedBug { system: aba_of_a_name, breaks: "no change is lost", seeds: 2_000 };

#[test]
fn an_aba_of_a_name_is_found() {
    ABA_OF_A_NAME.is_found_in_each_batch();
}

#[test]
fn no_aba_is_found_if_pids_are_compared() {
    ABA_OF_A_NAME.is_not_found_when_corrected();
}

#[derive(Debug)]
enum FileMessage {
    Read(Reply<u64>),
    Write(u64, Reply<bool>),
}

struct File {
    version: Version,
    content: u64,
    writes: u64,
}

impl Process for File {
    type Message = FileMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, FileMessage>, out: &mut StepOutput) -> StepResult<()> {
        while let Some(event) = events.next() {
            match event {
                Event::Message(FileMessage::Read(reply)) => out.reply(reply, self.content),
                Event::Message(FileMessage::Write(content, reply)) => {
                    let holder = out.whereis("lease");
                    let may = if self.version.is_corrected() { holder == events.sender() } else { holder.is_some() };
                    if may {
                        self.content = content;
                        self.writes += 1;
                    }
                    out.reply(reply, may);
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Takes the lease from a holder that still has it after a second.
#[derive(Default)]
struct LeaseKeeper {
    holder: Option<Pid>,
    timer: Option<Tag<TimerFired>>,
    looks: u32,
}

impl Process for LeaseKeeper {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Completed(done) if done.is(self.timer) => {
                    self.timer = None;
                    let holder = out.whereis("lease");
                    if holder.is_some() && holder == self.holder {
                        out.unregister("lease");
                    }
                    self.holder = holder;
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if self.timer.is_none() && self.looks < 60 {
            self.looks += 1;
            self.timer = Some(out.after(SECOND));
        }
        Ok(Step::Idle)
    }
}

#[derive(Clone, Copy)]
enum ClerkState {
    Begins,
    Takes(Tag<()>),
    Pauses(Tag<TimerFired>),
    Reads(Tag<u64>),
    Writes(Tag<bool>),
}

/// Adds one to the file, under the lease.
struct FileClerk {
    file: Address<FileMessage>,
    state: ClerkState,
}

impl Process for FileClerk {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let done = events.find_map(|event| if let Event::Completed(done) = event { Some(done) } else { None });
        let me = out.pid();
        self.state = match (self.state, done) {
            (ClerkState::Begins, _) => ClerkState::Takes(out.register("lease", me)),
            (ClerkState::Takes(tag), Some(done)) => match done.take(tag) {
                Some(Ok(())) => ClerkState::Reads(out.ask(self.file, FileMessage::Read, Duration::MAX)),
                Some(Err(_)) => ClerkState::Pauses(out.after(Duration::from_millis(100))),
                // The answer of `unregister`.
                None => return Ok(Step::Wait),
            },
            (ClerkState::Pauses(tag), Some(done)) if done.is(tag) => ClerkState::Takes(out.register("lease", me)),
            (ClerkState::Reads(tag), Some(done)) => {
                let Some(content) = done.take(tag).transpose()? else { return Ok(Step::Wait) };
                let write = |reply| FileMessage::Write(content + 1, reply);
                ClerkState::Writes(out.ask(self.file, write, Duration::MAX))
            }
            (ClerkState::Writes(tag), Some(done)) => match done.take(tag).transpose()? {
                Some(true) => {
                    if out.whereis("lease") == Some(me) {
                        out.unregister("lease");
                    }
                    return Ok(Step::Done(()));
                }
                Some(false) => ClerkState::Pauses(out.after(Duration::from_millis(100))),
                None => return Ok(Step::Wait),
            },
            (state, _) => state,
        };
        Ok(Step::Wait)
    }
}

fn aba_of_a_name(version: Version) -> Simulation {
    Simulation::new(move |world| {
        let runtime = start(world)?;
        let file = runtime.spawn(File { version, content: 0, writes: 0 })?.address();
        for _ in 0..3 {
            runtime.spawn(FileClerk { file, state: ClerkState::Begins })?;
        }
        runtime.spawn(LeaseKeeper::default())?;
        world.invariant("no change is lost", |state| {
            let lost = state.processes::<File>().find(|(_, file)| file.content != file.writes);
            ensure(lost.is_none(), || format!("{:?}", lost.map(|(_, file)| (file.content, file.writes))))
        });
        world.run()
    })
    .show::<FileMessage>()
    .show::<String>()
    .faults(Faults::none().stall::<FileClerk>(0.2, 5 * SECOND).at_most(4))
}

/// Statement 41. A reader reads a value, and then joins the group to which changes are sent. The corrected one joins
/// first, and takes the newest of what it gets.
pub(super) const JOIN_AFTER_READ: PlantedBug =
    PlantedBug { system: join_after_read, breaks: "each reader has the newest value", seeds: 1_000 };

#[test]
fn a_group_that_is_joined_too_late_is_found() {
    JOIN_AFTER_READ.is_found_in_each_batch();
}

#[test]
fn no_change_is_missed_if_the_reader_joins_first() {
    JOIN_AFTER_READ.is_not_found_when_corrected();
}

#[derive(Debug)]
enum StoreMessage {
    Change,
    Read(Reply<u64>),
}

#[derive(Default)]
struct Store {
    value: u64,
}

impl Process for Store {
    type Message = StoreMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, StoreMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(StoreMessage::Change) => {
                    self.value += 1;
                    out.broadcast("readers", Changed(self.value));
                }
                Event::Message(StoreMessage::Read(reply)) => out.reply(reply, self.value),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[derive(Clone, Debug)]
struct Changed(u64);

struct Reader {
    store: Address<StoreMessage>,
    version: Version,
    value: u64,
    read: Option<Tag<u64>>,
    joined: Option<Tag<()>>,
}

impl Process for Reader {
    type Message = Changed;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Changed>, out: &mut StepOutput) -> StepResult<()> {
        let me = out.pid();
        if self.read.is_none() && self.joined.is_none() {
            if self.version.is_corrected() {
                self.joined = Some(out.join_group("readers", me));
            } else {
                self.read = Some(out.ask(self.store, StoreMessage::Read, SECOND));
            }
        }
        for event in events {
            match event {
                Event::Message(Changed(value)) => self.value = self.value.max(value),
                Event::Completed(done) if self.version.is_corrected() && done.is(self.joined) => {
                    self.read = Some(out.ask(self.store, StoreMessage::Read, SECOND));
                }
                Event::Completed(done) => {
                    if let Some(value) = self.read.and_then(|tag| done.take(tag)) {
                        self.value = self.value.max(value?);
                        if !self.version.is_corrected() {
                            self.joined = Some(out.join_group("readers", me));
                        }
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Changes the value, in two steps.
struct Changer {
    store: Address<StoreMessage>,
    left: u32,
}

impl Process for Changer {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if self.left == 0 {
            return Ok(Step::Done(()));
        }
        self.left -= 1;
        out.send(self.store, StoreMessage::Change);
        Ok(Step::Continue)
    }
}

fn join_after_read(version: Version) -> Simulation {
    Simulation::new(move |world| {
        let runtime = start(world)?;
        let store = runtime.spawn(Store::default())?.address();
        for _ in 0..2 {
            runtime.spawn(Reader { store, version, value: 0, read: None, joined: None })?;
        }
        runtime.spawn(Changer { store, left: 3 })?;
        world.eventually("each reader has the newest value", 10 * SECOND, |state| {
            let newest = state.processes::<Store>().map(|(_, store)| store.value).max();
            newest == Some(3) && state.processes::<Reader>().all(|(_, reader)| Some(reader.value) == newest)
        });
        world.run()
    })
    .show::<StoreMessage>()
    .show::<Changed>()
    .show::<String>()
}
