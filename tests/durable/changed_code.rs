//! Programs whose code has changed since the run before.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder};
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal, Opened, Position, Status, StoredProcess};
use procession::durable::{Durable, DurableCommand, Encoded, ErrorText, Listed, Query, Store};
use procession::{
    Address, BoxError, CommandError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::operating::Unreadable;
use crate::places::store_in;
use crate::script::counts;
use crate::wait::{Mutex, until};

/// The content of a purse, as one version of the program has it.
trait Content: Serialize + DeserializeOwned + Send + 'static {
    const VERSION: u32;
    /// The type of the answer of [`Weigh`].
    type Weight: Serialize + DeserializeOwned + Send + Sync + 'static;

    fn migrate(from: u32, old: Encoded<'_>) -> Result<Self, BoxError>;
    fn amount(&mut self) -> &mut u64;
    fn resumed() {}
}

/// A purse. Its type changes with the program, its name does not.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Purse<C>(C);

#[derive(Serialize, Deserialize)]
enum PurseMessage {
    Add(u64),
    /// Adds 50, and fails as often as the number says: see [`fail_next`].
    Fail(u64),
    Look(Reply<u64>),
    Weigh,
    Unreadable(Unreadable),
}

#[derive(Serialize, Deserialize)]
struct Weigh<W>(std::marker::PhantomData<fn() -> W>);

impl<W: Send + Sync + 'static> Command for Weigh<W> {
    type Output = W;
}

impl<W: Serialize + DeserializeOwned + Send + Sync + 'static> DurableCommand for Weigh<W> {
    const NAME: &str = "weigh";
    type Error = ErrorText;
}

/// How often steps are still to fail, by the numbers of the tests.
static FAILURES: Mutex<BTreeMap<u64, u32>> = Mutex::new(BTreeMap::new());

/// The number of the steps that take an answer. One test has such steps.
const ANSWERS: u64 = 0;

fn fail_next(number: u64, failures: u32) {
    FAILURES.lock().unwrap().insert(number, failures);
}

/// A number that no other test has. Its steps fail so often.
fn failing(failures: u32) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(ANSWERS);
    let number = LAST.fetch_add(1, Ordering::SeqCst) + 1;
    fail_next(number, failures);
    number
}

fn left(number: u64) -> u32 {
    FAILURES.lock().unwrap().get(&number).copied().unwrap_or(0)
}

/// Fails if it is to fail: by errors and panics in turn.
fn fail(number: u64) -> Result<(), BoxError> {
    let left = left(number);
    if left == 0 {
        return Ok(());
    }
    fail_next(number, left - 1);
    if left.is_multiple_of(2) { Err("on purpose".into()) } else { resume_unwind(Box::new("on purpose")) }
}

impl<C: Content> Process for Purse<C> {
    type Message = PurseMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, PurseMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(PurseMessage::Add(amount)) => *self.0.amount() += amount,
                Event::Message(PurseMessage::Fail(number)) => {
                    *self.0.amount() += 50;
                    fail(number)?;
                }
                Event::Message(PurseMessage::Look(reply)) => out.reply(reply, *self.0.amount()),
                Event::Message(PurseMessage::Weigh) => drop(out.command(Weigh::<C::Weight>(Default::default()))),
                Event::Completed(_) => {
                    *self.0.amount() += 7;
                    fail(ANSWERS)?;
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl<C: Content> Durable for Purse<C> {
    const NAME: &str = "purse";
    const VERSION: u32 = C::VERSION;

    fn migrate(from: u32, state: Encoded<'_>) -> Result<Purse<C>, BoxError> {
        C::migrate(from, state).map(Purse)
    }

    fn resumed(&mut self) {
        C::resumed();
    }
}

/// A content in cents that is migrated from one in euros.
macro_rules! cents {
    ($(#[$doc:meta])* $name:ident { $field:ident }, $version:literal, $migrated:expr $(, $resumed:expr)?) => {
        $(#[$doc])*
        #[derive(Serialize, Deserialize)]
        struct $name {
            $field: u64,
        }

        impl Content for $name {
            const VERSION: u32 = $version;
            type Weight = String;

            fn migrate(from: u32, old: Encoded<'_>) -> Result<$name, BoxError> {
                assert_eq!(from, 1);
                let migrated: fn(u64) -> Result<(), BoxError> = $migrated;
                let Euros { amount } = old.decode()?;
                migrated(amount).map(|()| $name { $field: amount * 100 })
            }

            fn amount(&mut self) -> &mut u64 {
                &mut self.$field
            }

            $(fn resumed() {
                $resumed
            })?
        }
    };
}

/// Version 1.
#[derive(Serialize, Deserialize)]
struct Euros {
    amount: u64,
}

impl Content for Euros {
    const VERSION: u32 = 1;
    type Weight = u64;

    fn migrate(from: u32, _: Encoded<'_>) -> Result<Euros, BoxError> {
        Err(format!("there is no version {from}").into())
    }

    fn amount(&mut self) -> &mut u64 {
        &mut self.amount
    }
}

cents!(
    /// Version 2, whose states look like those of version 1.
    Cents { amount }, 2, |_| Ok(())
);
cents!(
    /// Version 2, whose states cannot be read as version 1, nor those of version 1 as this.
    OtherCents { cents }, 2, |_| Ok(())
);
cents!(
    /// Version 2, whose `resumed` panics twice.
    Sleepy { cents }, 2, |_| Ok(()), if fail(SLEEPY).is_err() { resume_unwind(Box::new("on purpose")) }
);
cents!(
    /// Version 3, which notes how often each amount was migrated.
    Counted { amount }, 3, |amount| {
        *MIGRATED.lock().unwrap().entry(amount).or_default() += 1;
        Ok(())
    }
);
cents!(
    /// Version 2, which refuses one amount, and counts how often it did.
    Picky { cents }, 2, |amount| {
        REFUSED.fetch_add(u64::from(amount == 666), Ordering::SeqCst);
        if amount == 666 { Err("not this one".into()) } else { Ok(()) }
    }
);

cents!(
    /// Version 3, which refuses nothing.
    Mild { cents }, 3, |_| Ok(())
);

/// The number of the failures of `Sleepy::resumed`, which no test draws.
const SLEEPY: u64 = u64::MAX;
static MIGRATED: Mutex<BTreeMap<u64, u32>> = Mutex::new(BTreeMap::new());
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// A run of the program.
struct Run {
    store: Store,
    runtime: Runtime,
    clock: ManualClock,
}

impl Run {
    fn new<C: Content>(disk: &MemoryDisk) -> Run {
        Run::in_journal::<C>(MemoryJournal::new(disk))
    }

    fn in_journal<C: Content>(journal: impl Journal + 'static) -> Run {
        let clock = ManualClock::new();
        let store = store_in(journal).kind::<Purse<C>>().command::<Weigh<C::Weight>>();
        let weigh = |_: Weigh<C::Weight>, done: Responder<C::Weight>| {
            done.later();
            Ok(())
        };
        let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock()).handler(weigh)).unwrap();
        Run { store, runtime, clock }
    }

    fn find<C: Content>(&self, id: &str) -> Address<PurseMessage> {
        self.store.find::<Purse<C>>(id).unwrap()
    }

    fn send(&self, to: Address<PurseMessage>, message: PurseMessage) {
        self.store.send(to, message).unwrap().wait(Duration::MAX).unwrap();
    }

    fn look(&self, purse: Address<PurseMessage>) -> Result<u64, CommandError> {
        self.runtime.ask(purse, PurseMessage::Look, Duration::MAX).wait()
    }

    /// Waits until the steps of this number have failed so often that so many failures are left.
    fn fails_until(&self, number: u64, failures: u32) {
        until("the step has failed", || left(number) == failures);
        self.runtime.wait_idle().unwrap();
    }

    /// Lets a step fail five times, of which a hundred are to fail. Then its process is parked.
    fn parks(&self, number: u64) {
        for (pause, failures) in [(1, 99), (2, 98), (4, 97), (8, 96), (16, 95)] {
            self.fails_until(number, failures);
            self.clock.advance(Duration::from_secs(pause));
        }
        self.runtime.wait_idle().unwrap();
        assert_eq!(left(number), 95, "there are five attempts");
        fail_next(number, 0);
    }

    /// The only one that is parked.
    fn parked(&self) -> Listed {
        let mut parked = Vec::new();
        until("one is parked on disk", || {
            parked = self.store.list(&Query::all().parked()).unwrap();
            !parked.is_empty()
        });
        assert_eq!(parked.len(), 1, "{parked:?}");
        parked.remove(0)
    }

    fn end(self) {
        assert!(self.runtime.shutdown(Duration::MAX).unwrap().is_clean());
        self.store.close().unwrap();
    }
}

/// Begins purses with so many euros, under their numbers as ids.
fn begin(disk: &MemoryDisk, euros: &[u64]) -> Vec<Address<PurseMessage>> {
    let run = Run::new::<Euros>(disk);
    let begin = |(id, amount): (usize, &u64)| run.store.begin(&id.to_string(), Purse(Euros { amount: *amount }));
    let begun = euros.iter().enumerate().map(begin).map(|begun| begun.unwrap().address()).collect();
    // The first step of each may wait for the disk, which makes no runtime busy.
    until("all have made their first step", || {
        run.runtime.wait_idle().unwrap();
        run.store.count(&Query::all().status(Status::Sleeping)).unwrap() == euros.len() as u64
    });
    run.end();
    begun
}

/// The rows of a process, as the disk has them.
fn rows(disk: &MemoryDisk, pid: procession::Pid) -> StoredProcess {
    let Opened { recovered, mut tables, .. } = MemoryJournal::new(disk).open().unwrap();
    assert!(tables.apply(recovered.last).unwrap() >= Position::START);
    let mut reader = tables.reader().unwrap();
    let all = reader.with_status(None, 0, usize::MAX).unwrap();
    let [serial] = *all else { panic!("{pid} is one of {} processes", all.len()) };
    reader.load(serial).unwrap()
}

/// Runs steps that fail as the first ones after a migration.
fn first_steps_fail<C: Content>() {
    let disk = MemoryDisk::new();
    let [twice, always] = *begin(&disk, &[3, 4]) else { unreachable!() };
    let run = Run::new::<C>(&disk);
    let number = failing(2);
    run.send(twice, PurseMessage::Fail(number));
    run.fails_until(number, 1);
    run.clock.advance(Duration::from_secs(1));
    run.fails_until(number, 0);
    run.clock.advance(Duration::from_secs(2));
    assert_eq!(run.look(twice).unwrap(), 350);

    let number = failing(100);
    run.send(always, PurseMessage::Fail(number));
    run.parks(number);
    let parked = run.parked();
    assert_eq!((parked.pid, parked.version, parked.attempts), (always.pid(), 1, 5), "{parked:?}");
    assert!(parked.error.as_ref().unwrap().ends_with("on purpose"), "{parked:?}");
    run.store.retry(always.pid()).unwrap();
    assert_eq!(run.look(always).unwrap(), 450);
    run.end();
    let run = Run::new::<C>(&disk);
    assert_eq!([twice, always].map(|purse| run.look(purse).unwrap()), [350, 450]);
    run.end();
}

#[test]
fn a_migration_outlives_steps_that_fail_behind_it() {
    first_steps_fail::<Cents>();
    first_steps_fail::<OtherCents>();
}

#[test]
fn a_migration_outlives_a_failed_return() {
    let disk = MemoryDisk::new();
    let [purse] = *begin(&disk, &[6]) else { unreachable!() };
    fail_next(SLEEPY, 2);
    let run = Run::new::<Sleepy>(&disk);
    run.send(purse, PurseMessage::Add(1));
    run.fails_until(SLEEPY, 1);
    run.clock.advance(Duration::from_secs(1));
    run.fails_until(SLEEPY, 0);
    run.clock.advance(Duration::from_secs(2));
    assert_eq!(run.look(purse).unwrap(), 601);
    run.end();
}

/// Parks a process behind its migration, and goes back to the program before.
fn goes_back<C: Content>() {
    let disk = MemoryDisk::new();
    let [purse] = *begin(&disk, &[5]) else { unreachable!() };
    let state = rows(&disk, purse.pid()).row.unwrap().state;
    let run = Run::new::<C>(&disk);
    let number = failing(100);
    run.send(purse, PurseMessage::Fail(number));
    run.parks(number);
    run.parked();
    run.end();
    let row = rows(&disk, purse.pid()).row.unwrap();
    assert_eq!((row.version, row.state), (1, state), "its state is the old one");
    // The old program tries it, and takes the message.
    let run = Run::new::<Euros>(&disk);
    assert_eq!(run.look(purse).unwrap(), 55);
    run.end();
}

#[test]
fn a_process_that_a_new_version_has_parked_goes_on_in_the_old_one() {
    goes_back::<Cents>();
    goes_back::<OtherCents>();
}

#[test]
fn an_old_state_is_migrated_until_a_step_has_stored_the_new_one() {
    let disk = MemoryDisk::new();
    let amounts: Vec<u64> = (0..counts("processes of an old version", 500, 10_000)).collect();
    let purses = begin(&disk, &amounts);
    // A question changes nothing, and no euros are no cents. The first step stores the new version all the same.
    for _ in 0..2 {
        let run = Run::new::<Counted>(&disk);
        let asked: Vec<_> = purses.iter().map(|to| run.runtime.ask(*to, PurseMessage::Look, Duration::MAX)).collect();
        assert!(asked.into_iter().map(|answer| answer.wait().unwrap()).eq(amounts.iter().map(|amount| amount * 100)));
        run.end();
    }
    let migrated = MIGRATED.lock().unwrap();
    assert!(migrated.iter().map(|(amount, calls)| (*amount, *calls)).eq(amounts.iter().map(|amount| (*amount, 1))));
}

#[test]
fn a_state_that_cannot_be_migrated_parks_its_process_and_no_other() {
    let disk = MemoryDisk::new();
    let [good, bad] = *begin(&disk, &[1, 666]) else { unreachable!() };
    for _ in 0..3 {
        let run = Run::new::<Picky>(&disk);
        assert_eq!(run.look(good).unwrap(), 100);
        let answer = run.look(bad);
        assert!(matches!(answer, Err(CommandError::Dropped)), "{answer:?}");
        let parked = run.parked();
        assert_eq!((parked.pid, &*parked.kind, parked.version), (bad.pid(), "purse", 1));
        assert_eq!(parked.error.as_deref(), Some("not this one"));
        run.end();
        assert_eq!(REFUSED.load(Ordering::SeqCst), 1, "a program of the same version does not try again");
    }
    // One of another version does.
    let run = Run::new::<Mild>(&disk);
    assert_eq!(run.look(bad).unwrap(), 66_600);
    run.end();
}

#[test]
fn a_message_that_cannot_be_read_parks_its_process() {
    let disk = MemoryDisk::new();
    let [purse] = *begin(&disk, &[2]) else { unreachable!() };
    // The process sleeps, so that its mail is read.
    let run = Run::new::<Euros>(&disk);
    let number = failing(100);
    run.send(purse, PurseMessage::Fail(number));
    run.parks(number);
    run.send(purse, PurseMessage::Unreadable(Unreadable));
    run.end();
    let before = rows(&disk, purse.pid());
    let run = Run::new::<OtherCents>(&disk);
    run.send(purse, PurseMessage::Add(1));
    let mut parked = run.parked();
    until("the new version has tried it", || {
        parked = run.parked();
        parked.error.as_ref().unwrap().contains("a message cannot be read: nobody can read this")
    });
    assert_eq!((parked.pid, &*parked.kind, parked.version), (purse.pid(), "purse", 1));
    assert_eq!(run.store.show(purse.pid()).unwrap().mail.len(), 3, "its mail is kept");
    run.end();
    let after = rows(&disk, purse.pid());
    assert_eq!(before.row.unwrap().state, after.row.unwrap().state);
}

#[test]
fn an_answer_that_cannot_be_read_parks_its_process() {
    let disk = MemoryDisk::new();
    let [purse] = *begin(&disk, &[2]) else { unreachable!() };
    let run = Run::new::<Euros>(&disk);
    fail_next(ANSWERS, 100);
    run.send(purse, PurseMessage::Weigh);
    let mut key = None;
    until("the handler leaves the answer to others", || {
        let commands = run.store.show(purse.pid()).unwrap().commands;
        key = commands.first().filter(|command| command.phase == "later").map(|command| command.key.clone());
        key.is_some()
    });
    run.store.answer::<Weigh<u64>>(key.unwrap().parse().unwrap(), Ok(7)).unwrap();
    run.fails_until(ANSWERS, 99);
    run.end();
    // The answer of the new version is a text.
    let run = Run::new::<OtherCents>(&disk);
    let parked = run.parked();
    assert_eq!((parked.pid, &*parked.kind, parked.version), (purse.pid(), "purse", 1));
    assert!(parked.error.as_ref().unwrap().contains("invalid type"), "{parked:?}");
    run.end();
    // The old one takes it.
    fail_next(ANSWERS, 0);
    let run = Run::new::<Euros>(&disk);
    until("the answer is taken", || run.look(purse).unwrap() == 9);
    run.end();
}

#[test]
fn a_state_of_a_newer_version_stays_as_it_is_with_its_mail() {
    let disk = MemoryDisk::new();
    let [purse] = *begin(&disk, &[2]) else { unreachable!() };
    let run = Run::new::<OtherCents>(&disk);
    run.send(purse, PurseMessage::Add(1));
    assert_eq!(run.look(purse).unwrap(), 201);
    run.end();
    let new = rows(&disk, purse.pid()).row.unwrap();

    for mail in 1..=2 {
        let run = Run::new::<Euros>(&disk);
        run.send(purse, PurseMessage::Add(10));
        let answer = run.look(purse);
        assert!(matches!(answer, Err(CommandError::Dropped)), "{answer:?}");
        let parked = run.parked();
        assert_eq!((parked.pid, &*parked.kind, parked.version), (purse.pid(), "purse", 2));
        let error = parked.error.as_deref().unwrap();
        assert_eq!(error, "the state has version 2, and this program knows 1");
        assert_eq!(run.store.show(purse.pid()).unwrap().mail.len(), mail);
        run.end();
        let row = rows(&disk, purse.pid()).row.unwrap();
        assert_eq!((row.version, &row.state), (2, &new.state), "byte for byte");
    }

    let run = Run::new::<OtherCents>(&disk);
    assert_eq!(run.look(purse).unwrap(), 221);
    assert_eq!(run.find::<OtherCents>("0").pid(), purse.pid());
    run.end();
}

#[test]
fn a_kind_that_the_program_does_not_know_keeps_its_mail() {
    let disk = MemoryDisk::new();
    let [purse] = *begin(&disk, &[2]) else { unreachable!() };
    let run = Run::new::<Euros>(&disk);
    let number = failing(100);
    run.send(purse, PurseMessage::Fail(number));
    run.fails_until(number, 99);
    run.end();
    let before = rows(&disk, purse.pid());

    let store = store_in(MemoryJournal::new(&disk));
    let (store, runtime) = store.start(Runtime::builder().workers(1)).unwrap();
    runtime.wait_idle().unwrap();
    let listed = store.list(&Query::all()).unwrap();
    assert_eq!((listed.len(), listed[0].pid, &*listed[0].kind, listed[0].version), (1, purse.pid(), "purse", 1));
    let shown = store.show(purse.pid()).unwrap();
    assert_eq!((shown.state, shown.mail.len()), (serde_json::json!({ "amount": 2 }), 1));
    let begun = store.begin("0", Purse(Euros { amount: 0 }));
    assert!(matches!(begun.unwrap_err().reason(), procession::durable::StoreError::UnknownKind("purse")));
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
    assert_eq!(rows(&disk, purse.pid()), before, "byte for byte");

    fail_next(number, 0);
    let run = Run::new::<Euros>(&disk);
    assert_eq!(run.look(purse).unwrap(), 52);
    run.end();
}

/// `procession-store` replaces a state while no program has the store. So nothing knows the type then.
#[cfg(feature = "sqlite")]
#[test]
fn a_state_replaced_without_its_type_is_checked_at_the_next_start() {
    use procession::durable::journal::SqliteJournal;
    use procession::durable::{Request, operate};

    let directory = crate::places::Directory::new();
    let replace = |state: &str| {
        let request = Request::Replace { process: "0".into(), state: state.into() };
        assert_eq!(operate(directory.path(), &request).unwrap(), 1);
    };
    let run = || Run::in_journal::<Euros>(SqliteJournal::new(directory.path()));
    let first = run();
    let purse = first.store.begin("0", Purse(Euros { amount: 1 })).unwrap().address();
    let number = failing(100);
    first.send(purse, PurseMessage::Fail(number));
    first.parks(number);
    first.parked();
    first.end();

    replace("{ \"amount\": \"many\" }");
    let second = run();
    let parked = second.parked();
    assert_eq!((parked.pid, &*parked.kind, parked.version), (purse.pid(), "purse", 1));
    assert!(parked.error.as_ref().unwrap().contains("invalid type: string \"many\""), "{parked:?}");
    second.end();

    replace("{ \"amount\": 77 }");
    let third = run();
    assert_eq!(third.look(purse).unwrap(), 127, "the new state, and the message");
    third.end();
}
