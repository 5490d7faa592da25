//! Durable processes that replace themselves: `Step::Upgrade`.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder, TimerFired};
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, DurableCommand, ErrorText, Format, Query, Store, StoreError};
use procession::{
    Address, BoxError, EntryArgs, Event, Events, InitResult, Process, Reply, Runtime, Step, StepOutput, StepResult,
    Tag, Upgrade,
};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::wait::{LIMIT, Mutex, until};
use crate::worker::{DAY, asked, end};

#[derive(Serialize, Deserialize)]
struct Sign;

impl Command for Sign {
    type Output = String;
}

impl DurableCommand for Sign {
    const NAME: &str = "sign";
    type Error = ErrorText;
}

/// A command whose handler answers when the test says so.
#[derive(Serialize, Deserialize)]
struct Fax;

impl Command for Fax {
    type Output = String;
}

impl DurableCommand for Fax {
    const NAME: &str = "fax";
    type Error = ErrorText;
}

static FAXES: Mutex<Vec<Responder<String>>> = Mutex::new(Vec::new());

/// The tags of what is outstanding. They pass from one kind to the next.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Open {
    timer: Option<Tag<TimerFired>>,
    signed: Option<Tag<String>>,
    copy: Option<Tag<u64>>,
}

#[derive(Default, Serialize, Deserialize)]
struct Draft {
    open: Open,
}

#[derive(Serialize, Deserialize)]
enum PaperMessage {
    Prepare,
    Seal,
    /// As `Seal`, in one step with a command.
    FaxAndSeal,
    /// To a process that is not durable.
    Burn,
    Copied(u64),
    Look(Reply<(u32, Vec<String>)>),
}

impl Process for Draft {
    type Message = PaperMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, PaperMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(PaperMessage::Prepare) => {
                    self.open.timer = Some(out.after(DAY));
                    self.open.signed = Some(out.command(Sign));
                    self.open.copy = Some(out.run(Draft::default()));
                    out.register("paper", out.pid());
                }
                Event::Message(message @ (PaperMessage::Seal | PaperMessage::FaxAndSeal)) => {
                    if matches!(message, PaperMessage::FaxAndSeal) {
                        self.open.signed = Some(out.command(Fax));
                    }
                    let contract = Contract { open: self.open, begun: 0, notes: Vec::new() };
                    return Ok(Step::Upgrade(Upgrade::to(contract)));
                }
                Event::Message(PaperMessage::Burn) => return Ok(Step::Upgrade(Upgrade::to(Ashes))),
                Event::Message(PaperMessage::Copied(number)) => return Ok(Step::Done(number)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Draft {
    const NAME: &str = "draft";
}

#[derive(Serialize, Deserialize)]
struct Contract {
    open: Open,
    begun: u32,
    notes: Vec<String>,
}

impl Process for Contract {
    type Message = PaperMessage;
    type Output = u64;

    fn init(&mut self, _: EntryArgs) -> InitResult {
        self.begun += 1;
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, PaperMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(PaperMessage::Look(reply)) => out.reply(reply, (self.begun, self.notes.clone())),
                Event::Message(PaperMessage::Prepare) => self.notes.push("mail".into()),
                Event::Message(PaperMessage::Copied(number)) => return Ok(Step::Done(number)),
                Event::Completed(done) => {
                    let Open { timer, signed, copy } = self.open;
                    if timer.is_some_and(|timer| done.is(timer)) {
                        self.notes.push("timer".into());
                    } else if let Some(answer) = signed.and_then(|signed| done.take(signed)) {
                        self.notes.push(answer?);
                    } else if let Some(answer) = copy.and_then(|copy| done.take(copy)) {
                        self.notes.push(format!("copy {}", answer?));
                    }
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Contract {
    const NAME: &str = "contract";
    const VERSION: u32 = 3;
}

/// Not durable.
struct Ashes;

impl Process for Ashes {
    type Message = PaperMessage;
    type Output = u64;

    fn step(&mut self, _: &mut Events<'_, PaperMessage>, _: &mut StepOutput) -> StepResult<u64> {
        Ok(Step::Idle)
    }
}

fn open(disk: &MemoryDisk, clock: &ManualClock) -> (Store, Runtime) {
    let builder = Runtime::builder().workers(2).clock(clock.clock());
    let builder = builder.handler(|_: Sign, done: Responder<String>| {
        done.later();
        Ok(())
    });
    let builder = builder.handler(|_: Fax, done: Responder<String>| {
        FAXES.lock().unwrap().push(done);
        Ok(())
    });
    let store = store_in(MemoryJournal::new(disk)).kind::<Draft>().kind::<Contract>();
    store.command::<Sign>().command::<Fax>().start(builder).unwrap()
}

/// A question that waits behind an upgrade gets an error, and is asked again.
fn look(runtime: &Runtime, paper: Address<PaperMessage>) -> (u32, Vec<String>) {
    asked(|| runtime.ask(paper, PaperMessage::Look, LIMIT).wait().ok())
}

#[test]
fn an_upgraded_process_keeps_everything_that_is_its_own() -> Result<(), BoxError> {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&disk, &clock);
    let draft = store.begin("paper 1", Draft::default())?.address();
    store.send(draft, PaperMessage::Prepare)?.wait(LIMIT)?;
    until("the command is left for later", || {
        store.show(draft.pid()).unwrap().commands.iter().any(|command| command.phase == "later")
    });
    // The message after the upgrade is for the new kind.
    store.send(draft, PaperMessage::Seal)?;
    store.send(draft, PaperMessage::Prepare)?.wait(LIMIT)?;
    let look = |runtime: &Runtime| look(runtime, draft);
    assert_eq!(look(&runtime), (1, vec!["mail".to_owned()]));
    assert_eq!(store.find::<Contract>("paper 1")?.pid(), draft.pid());
    assert!(matches!(store.find::<Draft>("paper 1"), Err(StoreError::OtherKind { .. })));
    assert_eq!(runtime.whereis("paper"), Some(draft.pid()));
    end((store, runtime));

    let (store, runtime) = open(&disk, &clock);
    assert_eq!(store.find::<Contract>("paper 1")?.pid(), draft.pid());
    let shown = store.show(draft.pid())?;
    assert_eq!((&*shown.listed.kind, shown.listed.version), ("contract", 3));
    assert_eq!((shown.timers.len(), shown.commands.len()), (1, 1), "{shown:?}");
    store.answer::<Sign>(shown.commands[0].key.parse()?, Ok("signed".into()))?;
    let copy = store.list(&Query::all().kind("draft"))?[0].pid;
    store.send(copy.typed::<PaperMessage>(), PaperMessage::Copied(4))?;
    let mut notes = Vec::new();
    until("both answers have come", || {
        notes = look(&runtime).1;
        notes.len() == 3
    });
    notes.sort();
    assert_eq!(notes, ["copy 4", "mail", "signed"]);
    clock.advance(DAY);
    until("the timer has fired", || look(&runtime).1.last().is_some_and(|note| note == "timer"));
    store.send(draft, PaperMessage::Copied(9))?;
    assert_eq!(store.result::<Contract>("paper 1")?.wait(LIMIT)?, 9);
    assert_eq!(look_once(&store), 1);
    drop(runtime.shutdown(Duration::MAX)?);
    store.close()?;
    Ok(())
}

#[test]
fn a_command_of_a_step_with_an_upgrade_is_handed_out_once() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&disk, &clock);
    let draft = store.begin("paper 5", Draft::default()).unwrap().address();
    store.send(draft, PaperMessage::FaxAndSeal).unwrap();
    assert_eq!(look(&runtime, draft).0, 1);
    until("it is handed out", || !FAXES.lock().unwrap().is_empty());
    assert_eq!(look(&runtime, draft).0, 1);
    let faxes = std::mem::take(&mut *FAXES.lock().unwrap());
    // The first number was stored with the step.
    assert_eq!(faxes.iter().map(Responder::attempt).collect::<Vec<_>>(), [2]);
    faxes.into_iter().for_each(|fax| fax.ok("faxed".into()));
    until("its answer has come", || look(&runtime, draft).1 == ["faxed"]);
    end((store, runtime));
}

/// The number of contracts that the store has.
fn look_once(store: &Store) -> u64 {
    store.count(&Query::all().kind("contract")).unwrap()
}

#[test]
fn an_upgrade_that_is_lost_with_the_disk_has_not_been() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&disk, &clock);
    let draft = store.begin("paper 2", Draft::default()).unwrap();
    draft.wait(LIMIT).unwrap();
    let draft = draft.address();
    runtime.wait_idle_timeout(LIMIT).unwrap();
    crate::payer::fail_all(&disk);
    drop(store.send(draft, PaperMessage::Seal));
    drop(runtime.shutdown(LIMIT).unwrap());
    drop(store.close());
    drop((store, runtime));
    disk.crash();
    disk.heal();
    let (store, runtime) = open(&disk, &clock);
    assert_eq!(store.find::<Draft>("paper 2").unwrap().pid(), draft.pid());
    store.send(draft, PaperMessage::Seal).unwrap().wait(LIMIT).unwrap();
    assert_eq!(look(&runtime, draft).0, 1);
    end((store, runtime));
}

#[test]
fn an_upgrade_to_a_process_that_is_not_durable_fails_its_step() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(&disk, &clock);
    let draft = store.begin("paper 3", Draft::default()).unwrap().address();
    store.send(draft, PaperMessage::Burn).unwrap();
    let mut parked = Vec::new();
    until("it is parked", || {
        clock.advance(Duration::from_secs(60));
        parked = store.list(&Query::all().error("only to a durable kind")).unwrap();
        !parked.is_empty()
    });
    assert_eq!((parked[0].pid, &*parked[0].kind), (draft.pid(), "draft"));
    store.skip(draft.pid()).unwrap();
    store.send(draft, PaperMessage::Seal).unwrap();
    assert_eq!(look(&runtime, draft).0, 1);
    end((store, runtime));
}

/// The earlier program does not know the kind to which the process is upgraded, so its step fails there.
#[test]
fn mail_of_a_program_before_the_new_kind_is_taken_after_the_upgrade() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let builder = Runtime::builder().workers(2).clock(clock.clock());
    let (store, runtime) = store_in(MemoryJournal::new(&disk)).kind::<Draft>().start(builder).unwrap();
    let draft = store.begin("paper 4", Draft::default()).unwrap().address();
    for message in [PaperMessage::Seal, PaperMessage::Prepare] {
        store.send(draft, message).unwrap().wait(LIMIT).unwrap();
    }
    end((store, runtime));
    let (store, runtime) = open(&disk, &clock);
    assert_eq!(look(&runtime, draft), (1, vec!["mail".to_owned()]));
    assert_eq!(store.mail_counts().unwrap().dead_letters, 0);
    end((store, runtime));
}

/// The same process with another format.
macro_rules! scroll {
    ($name:ident, $format:expr) => {
        #[derive(Serialize, Deserialize)]
        struct $name(u64);

        impl Process for $name {
            type Message = u64;
            type Output = (u64, String);

            fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<(u64, String)> {
                for event in events {
                    match event {
                        Event::Message(0) => return Ok(Step::Done((self.0, "end".into()))),
                        Event::Message(number) => self.0 += number,
                        _ => {}
                    }
                }
                Ok(Step::Idle)
            }
        }

        impl Durable for $name {
            const NAME: &str = "scroll";
            const FORMAT: Format = $format;
        }
    };
}

scroll!(Readable, Format::Json);
scroll!(Compact, Format::Postcard);

/// The two processes begin and go on in one format. The one that ends does so in the first run, or in the second.
fn results_in_both_formats<First, Second>(new: fn(u64) -> First) -> Vec<(u64, String)>
where
    First: Durable<Message = u64, Output = (u64, String)>,
    Second: Durable<Message = u64, Output = (u64, String)>,
{
    let disk = MemoryDisk::new();
    let (store, runtime) = store_in(MemoryJournal::new(&disk)).kind::<First>().start(Runtime::builder()).unwrap();
    let [ended, open] = ["ended", "open"].map(|id| store.begin(id, new(1)).unwrap().address());
    store.send(open, 1).unwrap().wait(LIMIT).unwrap();
    store.send(ended, 0).unwrap();
    store.result::<First>("ended").unwrap().wait(LIMIT).unwrap();
    end((store, runtime));
    let (store, runtime) = store_in(MemoryJournal::new(&disk)).kind::<Second>().start(Runtime::builder()).unwrap();
    store.send(open, 0).unwrap().wait(LIMIT).unwrap();
    let result = |id| store.result::<Second>(id).unwrap().wait(LIMIT).unwrap();
    // A message has a load find that the process has ended.
    let results = vec![result("ended"), result("open")];
    drop(store.send(ended, 0).map(|receipt| receipt.wait(LIMIT)));
    until("its end is known", || store.send(ended, 0).is_err());
    let results = [results, vec![result("ended")]].concat();
    end((store, runtime));
    results
}

#[test]
fn an_output_can_be_had_though_the_format_of_its_kind_has_changed() {
    let expected = [1, 2, 1].map(|number| (number, "end".to_owned()));
    assert_eq!(results_in_both_formats::<_, Compact>(Readable), expected);
    assert_eq!(results_in_both_formats::<_, Readable>(Compact), expected);
}
