//! Operators look at the processes of a store, and repair them.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal, Status};
use procession::durable::{Durable, NotRepaired, Query, Request, Store, StoreError, Traced, Which};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::store_in;
use crate::script::{counts, draw};
use crate::wait::{LIMIT, Mutex, until};

/// Adds up the numbers of its messages in their order. Fails at poison, until the poison is healed.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Ledger {
    pub(crate) numbers: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Entry {
    Add(u64),
    /// Fails until its number is healed.
    Poison(u64),
    Read(Reply<Vec<u64>>),
    Over,
    Unreadable(Unreadable),
}

/// It can be stored, and not be read again.
#[derive(Serialize)]
pub(crate) struct Unreadable;

impl<'a> Deserialize<'a> for Unreadable {
    fn deserialize<D: serde::Deserializer<'a>>(_: D) -> Result<Unreadable, D::Error> {
        Err(serde::de::Error::custom("nobody can read this"))
    }
}

static HEALED: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// A number of poison that no other test has.
pub(crate) fn poison() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(1_000);
    LAST.fetch_add(1, Ordering::SeqCst)
}

pub(crate) fn heal(number: u64) {
    HEALED.lock().unwrap().push(number);
}

impl Process for Ledger {
    type Message = Entry;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, Entry>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Entry::Add(number)) => self.numbers.push(number),
                Event::Message(Entry::Poison(number)) if HEALED.lock().unwrap().contains(&number) => {
                    self.numbers.push(number);
                }
                Event::Message(Entry::Poison(number)) => return Err(format!("poison {number}").into()),
                Event::Message(Entry::Read(reply)) => out.reply(reply, self.numbers.clone()),
                Event::Message(Entry::Unreadable(_)) => return Err("unreadable".into()),
                Event::Message(Entry::Over) => return Ok(Step::Done(self.numbers.iter().sum())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Ledger {
    const NAME: &str = "ledger";
}

pub(crate) struct Shop {
    pub(crate) store: Store,
    pub(crate) runtime: Runtime,
    clock: ManualClock,
}

impl Shop {
    pub(crate) fn open(disk: &MemoryDisk, clock: &ManualClock) -> Shop {
        let store = store_in(MemoryJournal::new(disk)).kind::<Ledger>();
        let builder = Runtime::builder().workers(2).clock(clock.clock());
        let (store, runtime) = store.start(builder).unwrap();
        Shop { store, runtime, clock: clock.clone() }
    }

    pub(crate) fn new() -> (MemoryDisk, Shop) {
        let disk = MemoryDisk::new();
        let shop = Shop::open(&disk, &ManualClock::new());
        (disk, shop)
    }

    pub(crate) fn begin(&self, id: &str) -> Address<Entry> {
        let begun = self.store.begin(id, Ledger::default()).unwrap();
        begun.wait(LIMIT).unwrap();
        begun.address()
    }

    fn idle(&self) {
        self.runtime.wait_idle().unwrap();
    }

    /// Lets all pauses of failed steps pass. Then so many processes are parked.
    pub(crate) fn give_up(&self, parked: u64) {
        self.idle();
        for pause in [1, 2, 4, 8, 16] {
            self.clock.advance(Duration::from_secs(pause));
            self.idle();
        }
        // Steps that wait for the disk may fail for the first time when some of the pauses are over.
        let mut looks = 0;
        until("they are parked on disk", || {
            looks += 1;
            if looks % 20 == 0 {
                self.clock.advance(Duration::from_secs(16));
            }
            self.count(&Query::all().parked()) == parked
        });
    }

    fn count(&self, query: &Query) -> u64 {
        self.store.count(query).unwrap()
    }

    pub(crate) fn read(&self, ledger: Address<Entry>) -> Vec<u64> {
        self.runtime.ask(ledger, Entry::Read, Duration::MAX).wait().unwrap()
    }

    /// The last steps of a ledger, and what operators have done with it.
    pub(crate) fn traced(&self, ledger: Address<Entry>) -> Vec<Traced> {
        self.store.show(ledger.pid()).unwrap().trail.iter().map(|step| step.what).collect()
    }

    pub(crate) fn send(&self, ledger: Address<Entry>, entries: impl IntoIterator<Item = Entry>) {
        entries.into_iter().for_each(|entry| drop(self.store.send(ledger, entry).unwrap()));
    }

    pub(crate) fn end(self) {
        assert!(self.runtime.shutdown(Duration::MAX).unwrap().is_clean());
        self.store.close().unwrap();
    }
}

pub(crate) fn is_refused<T>(result: Result<T, StoreError>, why: &NotRepaired) -> bool {
    matches!(result, Err(StoreError::NotRepaired(refused)) if refused == *why)
}

#[test]
fn a_parked_process_tries_again_and_takes_each_message_once() {
    let (disk, shop) = Shop::new();
    let (ledger, poison) = (shop.begin("a"), poison());
    shop.send(ledger, [Entry::Add(1), Entry::Poison(poison), Entry::Add(2)]);
    shop.give_up(1);
    let stuck = shop.store.list(&Query::all().error("poison")).unwrap();
    assert_eq!(stuck.len(), 1);
    assert_eq!((stuck[0].pid, stuck[0].id.as_deref(), stuck[0].attempts), (ledger.pid(), Some("a"), 5));
    let shown = shop.store.show(ledger.pid()).unwrap();
    assert_eq!(shown.state, serde_json::json!({ "numbers": [1] }));
    assert_eq!(shown.mail.iter().map(|mail| mail.fails).collect::<Vec<_>>(), [true, false]);
    assert_eq!(shown.mail[1].message, serde_json::json!({ "Add": 2 }));

    heal(poison);
    shop.store.retry(ledger.pid()).unwrap();
    shop.send(ledger, [Entry::Add(3)]);
    assert_eq!(shop.read(ledger), [1, poison, 2, 3]);
    assert_eq!(shop.count(&Query::all().parked()), 0);
    shop.end();
    // The same is on disk.
    let shop = Shop::open(&disk, &ManualClock::new());
    assert_eq!(shop.read(ledger), [1, poison, 2, 3]);
    let traced = shop.traced(ledger);
    assert!(traced.contains(&Traced::Parked) && traced.contains(&Traced::Retried), "{traced:?}");
    shop.end();
}

#[test]
fn the_counts_of_a_store_follow_its_processes_and_records() {
    let (disk, shop) = Shop::new();
    let before = shop.store.stats();
    assert_eq!((before.in_memory, before.loaded, before.parked), (0, 0, Some(0)));
    let (ledger, poison) = (shop.begin("a"), poison());
    let _other = shop.begin("b");
    shop.send(ledger, [Entry::Poison(poison)]);
    shop.give_up(1);
    let stats = shop.store.stats();
    assert_eq!((stats.parked, stats.unstored), (Some(1), 0));
    assert!(stats.in_memory <= 2 && stats.loaded >= 2, "{stats:?}");
    assert!(stats.stored >= before.stored + 3, "{stats:?} after {before:?}");
    heal(poison);
    shop.store.retry(ledger.pid()).unwrap();
    assert_eq!(shop.read(ledger), [poison]);
    assert_eq!(shop.store.stats().parked, Some(0));
    shop.end();
    // The position goes on over runs, and the processes are loaded anew.
    let shop = Shop::open(&disk, &ManualClock::new());
    let again = shop.store.stats();
    assert!(again.stored > stats.stored, "{again:?} after {stats:?}");
    shop.end();
}

#[test]
fn records_that_the_disk_does_not_have_are_counted() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
    let builder = Runtime::builder().workers(2);
    let (store, runtime) = store_in(journal).kind::<Ledger>().start(builder).unwrap();
    let begun = store.begin("a", Ledger::default()).unwrap();
    begun.wait(LIMIT).unwrap();
    runtime.wait_idle().unwrap();
    let before = store.stats();
    assert_eq!(before.unstored, 0);
    gate.close();
    store.send(begun.address(), Entry::Add(1)).unwrap();
    gate.wait_for(1);
    let waits = store.stats();
    assert!(waits.unstored > 0 && waits.stored == before.stored, "{waits:?} after {before:?}");
    assert!(waits.unstored_bytes > 0 && waits.commits == before.commits, "{waits:?} after {before:?}");
    gate.open();
    until("it is on disk", || store.stats().unstored == 0);
    let after = store.stats();
    assert!(after.stored > before.stored && after.commits > before.commits, "{after:?} after {before:?}");
    assert_eq!((before.unstored_bytes, after.unstored_bytes, after.rewinds), (0, 0, 0));
    assert!(after.commit_bytes >= before.commit_bytes + waits.unstored_bytes, "{after:?} after {waits:?}");
    assert!(after.commit_time > Duration::ZERO, "a commit has waited: {after:?}");
    disk.fail_at(disk.calls(), Fault::Error);
    until("the files are opened anew", || {
        drop(store.send(begun.address(), Entry::Add(2)));
        store.stats().rewinds == 1 && store.stats().unstored == 0
    });
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
}

#[test]
fn a_new_state_is_checked_before_it_is_stored() {
    let (_, shop) = Shop::new();
    let (ledger, poison) = (shop.begin("a"), poison());
    shop.send(ledger, [Entry::Poison(poison)]);
    shop.give_up(1);
    let wrong = shop.store.replace(ledger.pid(), "{\"numbers\": \"none\"}");
    assert!(matches!(wrong, Err(StoreError::NotRepaired(NotRepaired::State(_)))), "{wrong:?}");
    assert_eq!(shop.count(&Query::all().parked()), 1);
    heal(poison);
    assert!(!shop.traced(ledger).contains(&Traced::Replaced));
    shop.store.replace(ledger.pid(), "{\"numbers\": [7, 8]}").unwrap();
    assert!(shop.traced(ledger).contains(&Traced::Replaced));
    assert_eq!(shop.read(ledger), [7, 8, poison]);
    shop.end();
}

#[test]
fn a_process_that_is_parked_since_an_earlier_run_is_repaired() {
    let (disk, shop) = Shop::new();
    let (first, second, poisons) = (shop.begin("a"), shop.begin("b"), [poison(), poison()]);
    shop.send(first, [Entry::Poison(poisons[0]), Entry::Add(1)]);
    shop.send(second, [Entry::Poison(poisons[1]), Entry::Add(2)]);
    shop.give_up(2);
    shop.end();
    let shop = Shop::open(&disk, &ManualClock::new());
    shop.idle();
    heal(poisons[0]);
    // It is loaded, and one is retried and one skipped before anything was sent to it, and after mail.
    shop.store.retry(first.pid()).unwrap();
    shop.send(second, [Entry::Add(3)]);
    shop.store.skip(second.pid()).unwrap();
    assert_eq!((shop.read(first), shop.read(second)), (vec![poisons[0], 1], vec![2, 3]));
    shop.end();
}

#[test]
fn an_order_is_on_disk_when_its_call_returns() {
    let (disk, shop) = Shop::new();
    let (ledger, poison) = (shop.begin("a"), poison());
    shop.send(ledger, [Entry::Poison(poison), Entry::Add(1)]);
    shop.give_up(1);
    shop.store.skip(ledger.pid()).unwrap();
    disk.crash();
    drop(shop.runtime.shutdown(Duration::MAX));
    drop(shop.store.close());
    drop(shop);
    let shop = Shop::open(&disk, &ManualClock::new());
    assert_eq!(shop.read(ledger), [1]);
    assert_eq!(shop.store.dead_letters(None, 10).unwrap().len(), 1);
    shop.end();
}

#[test]
fn orders_that_cannot_be_carried_out_disturb_nobody() {
    let (_, shop) = Shop::new();
    let ledger = shop.begin("a");
    shop.send(ledger, [Entry::Add(1)]);
    shop.idle();
    let before = shop.store.show(ledger.pid()).unwrap();
    let calls = [
        shop.store.retry(ledger.pid()),
        shop.store.skip(ledger.pid()),
        shop.store.replace(ledger.pid(), "{\"numbers\": []}"),
    ];
    assert!(calls.into_iter().all(|result| is_refused(result, &NotRepaired::NotParked)));
    assert_eq!(shop.store.show(ledger.pid()).unwrap(), before);
    shop.send(ledger, [Entry::Over]);
    shop.store.result::<Ledger>("a").unwrap().wait(LIMIT).unwrap();
    let nobody = &NotRepaired::NoSuchProcess;
    assert!(is_refused(shop.store.retry(ledger.pid()), nobody));
    assert!(is_refused(shop.store.terminate(ledger.pid()), nobody));
    let ordinary = shop.runtime.spawn(Ledger::default()).unwrap();
    assert!(is_refused(shop.store.retry(ordinary.pid()), nobody));
    ordinary.send(Entry::Over).unwrap();
    shop.end();
}

#[test]
fn a_process_is_terminated_whether_it_runs_sleeps_or_is_parked() {
    let (disk, shop) = Shop::new();
    let [runs, parked, sleeps] = ["runs", "parked", "sleeps"].map(|id| shop.begin(id));
    shop.send(parked, [Entry::Poison(poison()), Entry::Add(1)]);
    shop.give_up(1);
    shop.store.terminate(runs.pid()).unwrap();
    shop.store.terminate(parked.pid()).unwrap();
    assert!(matches!(shop.store.result::<Ledger>("parked").unwrap().wait(LIMIT), Err(StoreError::Terminated)));
    shop.end();
    let shop = Shop::open(&disk, &ManualClock::new());
    shop.store.terminate(sleeps.pid()).unwrap();
    for id in ["runs", "parked", "sleeps"] {
        assert!(matches!(shop.store.result::<Ledger>(id).unwrap().wait(LIMIT), Err(StoreError::Terminated)), "{id}");
    }
    for ledger in [runs, parked, sleeps] {
        assert_eq!(shop.traced(ledger).last(), Some(&Traced::Ended));
    }
    // Both messages of the parked one are dead letters.
    assert!(shop.store.dead_letters(None, 10).unwrap().iter().all(|dead| dead.to == parked.pid()));
    assert_eq!(shop.store.dead_letters(None, 10).unwrap().len(), 2);
    assert_eq!(shop.count(&Query::all().status(Status::Ended)), 3);
    shop.end();
}

#[test]
fn all_with_the_same_error_try_again() {
    let (_, shop) = Shop::new();
    let (same, other) = (poison(), poison());
    let ledgers: Vec<_> = (0..50).map(|number| shop.begin(&format!("{number:02}"))).collect();
    ledgers.iter().for_each(|ledger| shop.send(*ledger, [Entry::Poison(same)]));
    let left = shop.begin("other");
    shop.send(left, [Entry::Poison(other)]);
    shop.give_up(51);
    heal(same);
    assert_eq!(shop.store.retry_all(&Query::all().kind("ledger").error(format!("poison {same}"))).unwrap(), 50);
    assert!(ledgers.iter().all(|ledger| shop.read(*ledger) == [same]));
    assert_eq!(shop.store.skip_all(&Query::all().parked()).unwrap(), 1);
    assert!(shop.read(left).is_empty());
    shop.end();
}

#[test]
fn all_with_the_same_error_are_asked_to_stop_or_terminated() {
    let (_, shop) = Shop::new();
    let (first, second) = (poison(), poison());
    let same = ["one", "two"].map(|id| shop.begin(id));
    let other = shop.begin("other");
    same.iter().for_each(|ledger| shop.send(*ledger, [Entry::Poison(first)]));
    shop.send(other, [Entry::Poison(poison())]);
    shop.give_up(3);
    let failing = |number| Which::All(Query::all().error(format!("poison {number}")));
    assert_eq!(shop.store.operate(&Request::Cancel(failing(first))).unwrap(), 2);
    heal(first);
    assert_eq!(shop.store.retry_all(&Query::all().error("poison")).unwrap(), 3);
    assert!(same.iter().all(|ledger| shop.read(*ledger) == [first]));
    shop.give_up(1);
    let is_asked = |ledger: Address<Entry>| shop.traced(ledger).contains(&Traced::Cancelled);
    assert_eq!([same[0], same[1], other].map(is_asked), [true, true, false]);

    same.iter().for_each(|ledger| shop.send(*ledger, [Entry::Poison(second)]));
    shop.give_up(3);
    assert_eq!(shop.store.operate(&Request::Terminate(failing(second))).unwrap(), 2);
    for id in ["one", "two"] {
        assert!(matches!(shop.store.result::<Ledger>(id).unwrap().wait(LIMIT), Err(StoreError::Terminated)), "{id}");
    }
    assert_eq!((shop.count(&Query::all().status(Status::Ended)), shop.count(&Query::all().parked())), (2, 1));
    shop.end();
}

#[test]
fn a_list_comes_in_pages_and_by_conditions() {
    let (_, shop) = Shop::new();
    let ledgers: Vec<_> = (0..10).map(|number| shop.begin(&format!("a{number}"))).collect();
    let [_, parked, ended] = ["b", "c", "d"].map(|id| shop.begin(id));
    shop.send(parked, [Entry::Poison(poison())]);
    shop.send(ended, [Entry::Over]);
    shop.give_up(1);
    shop.store.result::<Ledger>("d").unwrap().wait(LIMIT).unwrap();
    let query = Query::all().id_prefix("a").limit(4);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let query = query.clone();
        let page = shop.store.list(&after.map_or(query.clone(), |pid| query.after(pid))).unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.pid);
        found.extend(page.iter().map(|listed| listed.pid));
    }
    assert_eq!(found, ledgers.iter().map(|ledger| ledger.pid()).collect::<Vec<_>>());
    assert_eq!(shop.count(&Query::all()), 13);
    for (status, only) in [(Status::Parked, parked), (Status::Ended, ended)] {
        let listed = shop.store.list(&Query::all().status(status)).unwrap();
        assert_eq!(listed.iter().map(|one| (one.pid, one.status)).collect::<Vec<_>>(), [(only.pid(), status)]);
        assert_eq!(shop.count(&Query::all().status(status)), 1);
    }
    assert_eq!(shop.count(&Query::all().kind("order")), 0);
    assert_eq!(shop.count(&Query::all().status(Status::Sleeping)), 11);
    shop.end();
}

#[test]
fn what_has_ended_is_removed_when_it_is_kept_no_longer() {
    const KEEP: Duration = Duration::from_secs(60 * 60);
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let open = || {
        let store = store_in(MemoryJournal::new(&disk)).kind::<Ledger>().keep(KEEP);
        let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
        Shop { store, runtime, clock: clock.clone() }
    };
    let shop = open();
    let (ended, skipped) = (shop.begin("ended"), shop.begin("skipped"));
    shop.send(ended, [Entry::Add(4), Entry::Over]);
    shop.send(skipped, [Entry::Poison(poison())]);
    shop.give_up(1);
    shop.store.skip(skipped.pid()).unwrap();
    assert_eq!(shop.store.result::<Ledger>("ended").unwrap().wait(LIMIT).unwrap(), 4);
    shop.clock.advance(KEEP / 2);
    shop.idle();
    assert_eq!(shop.count(&Query::all()), 2);
    shop.clock.advance(KEEP / 2 + Duration::from_secs(60));
    until("both are removed", || {
        shop.count(&Query::all()) == 1 && shop.store.dead_letters(None, 10).unwrap().is_empty()
    });
    assert!(matches!(shop.store.result::<Ledger>("ended"), Err(StoreError::NoSuchId(_))));
    // The id is free, for another process.
    let again = shop.store.begin("ended", Ledger::default()).unwrap();
    assert!(!again.was_there());
    assert_ne!(again.pid(), ended.pid());
    shop.send(again.address(), [Entry::Over]);
    shop.store.result::<Ledger>("ended").unwrap().wait(LIMIT).unwrap();
    shop.end();
    // A later run removes what an earlier one has left.
    clock.advance(KEEP + Duration::from_secs(60));
    let shop = open();
    until("it is removed", || shop.count(&Query::all()) == 1);
    shop.end();
}

/// Operators retry and skip, others send, and the disk loses its power meanwhile.
#[test]
fn orders_lose_and_double_no_message_though_the_disk_loses_its_power() {
    const LEDGERS: usize = 4;
    for seed in 0..counts("seeds", 3, 60) {
        let disk = MemoryDisk::with_seed(seed);
        let store = store_in(MemoryJournal::new(&disk)).kind::<Ledger>();
        let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
        let shop = Shop { store, runtime, clock: ManualClock::new() };
        let ledgers: Vec<_> = (0..LEDGERS).map(|number| shop.begin(&number.to_string())).collect();
        let is_over = AtomicBool::new(false);
        let acknowledged: Vec<Mutex<Vec<u64>>> = (0..LEDGERS).map(|_| Mutex::default()).collect();
        std::thread::scope(|scope| {
            let (shop, ledgers, is_over, acknowledged) = (&shop, &ledgers, &is_over, &acknowledged);
            let operators: Vec<_> = (0..2)
                .map(|operator| {
                    scope.spawn(move || {
                        while !is_over.load(Ordering::SeqCst) {
                            for ledger in ledgers {
                                // A parked one goes on, and others refuse.
                                let result = match operator {
                                    0 => shop.store.skip(ledger.pid()),
                                    _ => shop.store.retry(ledger.pid()),
                                };
                                let is_expected = match &result {
                                    Ok(()) | Err(StoreError::Journal(_)) => true,
                                    Err(StoreError::NotRepaired(why)) => {
                                        matches!(
                                            why,
                                            NotRepaired::NotParked | NotRepaired::Lost | NotRepaired::NothingToSkip
                                        )
                                    }
                                    Err(_) => false,
                                };
                                assert!(is_expected, "{result:?}");
                            }
                        }
                    })
                })
                .collect();
            for round in 0..40 {
                for (ledger, acknowledged) in ledgers.iter().zip(acknowledged) {
                    // An unreadable message parks a process at once.
                    let entry = if round % 10 == 5 { Entry::Unreadable(Unreadable) } else { Entry::Add(round) };
                    let is_number = matches!(entry, Entry::Add(_));
                    let sent = shop.store.send(*ledger, entry).ok();
                    if sent.is_some_and(|receipt| receipt.wait(LIMIT).is_ok()) && is_number {
                        acknowledged.lock().unwrap().push(round);
                    }
                }
                if draw(seed, round, 3, 4) == 0 {
                    disk.crash();
                }
            }
            is_over.store(true, Ordering::SeqCst);
            operators.into_iter().for_each(|operator| operator.join().unwrap_or_else(|panic| resume_unwind(panic)));
        });
        for (ledger, acknowledged) in ledgers.iter().zip(&acknowledged) {
            let mut numbers = None;
            until("it answers", || {
                // While it is loaded again, a question may be dropped. While it is parked, it waits.
                let _ = shop.store.skip_all(&Query::all().parked());
                numbers = shop.runtime.ask(*ledger, Entry::Read, Duration::from_millis(100)).wait().ok();
                numbers.is_some()
            });
            let numbers = numbers.unwrap_or_default();
            assert!(numbers.is_sorted_by(|one, next| one < next), "seed {seed}: {numbers:?}");
            let lost: Vec<u64> =
                acknowledged.lock().unwrap().iter().copied().filter(|number| !numbers.contains(number)).collect();
            assert_eq!(lost, [0; 0], "seed {seed}");
        }
        shop.end();
    }
}
