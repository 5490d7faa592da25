//! Links to ordinary processes that change while the durable process is not in memory, or while its records are lost.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Query, Store};
use procession::observe::ExitWatcher;
use procession::{Address, BoxError, Event, Events, Pid, Process, Runtime, Step, StepOutput, StepResult};

use crate::gate::{Gate, GatedJournal, SlowLoads};
use crate::knots::{Knot, KnotMessage, begin, is_terminated, link, look, open, say, spawn, start, tell};
use crate::places::{goes_ahead, store_in};
use crate::wait::{LIMIT, until};
use crate::worker::{Worker, asked, end, stepped};

/// How an ordinary process leaves a link.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Unlinks,
    IsDone,
    Fails,
}

const WAYS: [Way; 3] = [Way::Unlinks, Way::IsDone, Way::Fails];

impl Way {
    fn go(self, runtime: &Runtime, other: Address<KnotMessage>, durable: Address<KnotMessage>) {
        match self {
            Way::Unlinks => return say(runtime, other, KnotMessage::Unlink(durable.pid())),
            Way::IsDone => runtime.send(other, KnotMessage::Over).unwrap(),
            Way::Fails => runtime.send(other, KnotMessage::Fail).unwrap(),
        }
        until("it has ended", || look(runtime, other).is_none());
    }

    /// The exits that one is told that traps them.
    fn told(self) -> &'static [&'static str] {
        match self {
            Way::Unlinks => &[],
            Way::IsDone => &["done"],
            Way::Fails => &["failed: broken"],
        }
    }
}

/// A durable process that is linked to an ordinary one.
struct Pair {
    one: Address<KnotMessage>,
    other: Address<KnotMessage>,
    traps: bool,
    /// The end of the durable one.
    watched: ExitWatcher,
}

impl Pair {
    fn new((store, runtime): (&Store, &Runtime), by_it: bool, traps: bool) -> Pair {
        let [one] = begin(store);
        let other = spawn(runtime);
        link((store, runtime), one, other, by_it);
        tell(store, one, KnotMessage::Trap(traps));
        assert!(look(runtime, one).is_some());
        stepped(runtime);
        Pair { one, other, traps, watched: runtime.watch(one.pid()) }
    }

    fn has_ended(&self) -> String {
        self.watched.wait_timeout(LIMIT).unwrap().exit.to_string()
    }

    /// The durable process is told the end of the other one as it was, or it is linked to it no more. In each case the
    /// other one is told nothing when the durable one ends.
    fn is_told(&self, (store, runtime): (&Store, &Runtime), way: Way) {
        if way == Way::Fails && !self.traps {
            return assert_eq!(self.has_ended(), because(self.other));
        }
        let told = if self.traps { way.told() } else { &[] };
        until("it is told", || look(runtime, self.one).is_some_and(|notes| notes == told));
        stepped(runtime);
        assert_eq!(asked(|| look(runtime, self.one)), told, "{way:?}");
        // The journal may be being opened anew.
        until("it is ended", || store.terminate(self.one.pid()).is_ok());
        assert_eq!(self.has_ended(), "terminated (terminated)");
        stepped(runtime);
        assert_eq!(look(runtime, self.other).is_some(), way == Way::Unlinks, "it is told nothing");
    }
}

fn because(other: Address<KnotMessage>) -> String {
    format!("terminated (linked to {}, which ended: failed: broken)", other.pid())
}

#[test]
fn a_link_that_an_ordinary_process_leaves_while_the_other_one_sleeps() {
    for way in WAYS {
        for (by_it, traps) in [(true, false), (false, false), (true, true), (false, true)] {
            let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
            let store = store_in(MemoryJournal::new(&disk)).kind::<Knot>().sleep_after(Duration::from_secs(1));
            let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
            let pair @ Pair { one, other, .. } = &Pair::new((&store, &runtime), by_it, traps);
            until("it sleeps", || {
                clock.advance(Duration::from_secs(1));
                runtime.processes().len() == 1
            });
            // From now on it stays in memory.
            way.go(&runtime, *other, *one);
            pair.is_told((&store, &runtime), way);
            end((store, runtime));
        }
    }
}

#[test]
fn a_link_that_an_ordinary_process_leaves_while_the_other_one_is_loaded() {
    for way in WAYS {
        for traps in [false, true] {
            let (disk, gate) = (MemoryDisk::new(), Gate::default());
            let store = store_in(SlowLoads(MemoryJournal::new(&disk), gate.clone())).kind::<Knot>();
            let store = store.sleep_after(Duration::from_micros(50));
            let (store, runtime) = store.start(Runtime::builder().workers(2)).unwrap();
            let pair @ Pair { one, other, .. } = &Pair::new((&store, &runtime), true, traps);
            until("it sleeps", || runtime.processes().len() == 1);
            gate.close();
            drop(store.send(*one, KnotMessage::Trap(traps)).unwrap());
            gate.wait_for(1);
            way.go(&runtime, *other, *one);
            gate.open();
            pair.is_told((&store, &runtime), way);
            end((store, runtime));
        }
    }
}

/// The record in which a durable process has seen the change is lost.
#[test]
fn a_change_that_was_seen_is_seen_again_if_its_record_is_lost() {
    if !goes_ahead() {
        return;
    }
    for way in WAYS {
        for (by_it, traps) in [(true, false), (false, false), (true, true), (false, true)] {
            let (disk, gate) = (MemoryDisk::new(), Gate::default());
            let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
            let pair @ Pair { one, other, .. } = &Pair::new((&store, &runtime), by_it, traps);
            gate.close();
            way.go(&runtime, *other, *one);
            stepped(&runtime);
            gate.wait_for(1);
            disk.fail_at(disk.calls(), Fault::Crash);
            gate.open();
            pair.is_told((&store, &runtime), way);
            end((store, runtime));
        }
    }
}

/// The durable process has ended when the change comes, and its end is lost.
#[test]
fn a_change_after_an_end_that_is_lost_is_seen() {
    if !goes_ahead() {
        return;
    }
    for way in WAYS {
        for traps in [false, true] {
            let (disk, gate) = (MemoryDisk::new(), Gate::default());
            let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
            let pair @ Pair { one, other, .. } = &Pair::new((&store, &runtime), true, traps);
            gate.close();
            drop(store.send(*one, KnotMessage::Over).unwrap());
            stepped(&runtime);
            gate.wait_for(1);
            way.go(&runtime, *other, *one);
            disk.fail_at(disk.calls(), Fault::Crash);
            gate.open();
            pair.is_told((&store, &runtime), way);
            end((store, runtime));
        }
    }
}

/// The record of a step is on disk, but the commit fails. So the step is not undone, and its yields are lost.
#[test]
fn a_change_of_a_step_that_was_not_performed_is_performed_by_the_load() {
    if !goes_ahead() {
        return;
    }
    for begins in [true, false] {
        let (disk, gate) = (MemoryDisk::new(), Gate::default());
        let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
        let [one] = begin(&store);
        let other = spawn(&runtime);
        if !begins {
            link((&store, &runtime), one, other, false);
        }
        tell(&store, one, KnotMessage::Trap(true));
        assert!(look(&runtime, one).is_some());
        stepped(&runtime);
        gate.close();
        drop(store.send(one, KnotMessage::Trap(true)).unwrap());
        gate.wait_for(1);
        // All that follows is one batch.
        let change = if begins { KnotMessage::Link(other.pid()) } else { KnotMessage::Unlink(other.pid()) };
        drop(store.send(one, change).unwrap());
        stepped(&runtime);
        gate.let_one_pass();
        gate.wait_for(2);
        // The sync of the batch.
        disk.fail_at(disk.calls() + 1, Fault::CrashBehind);
        gate.open();
        assert_eq!(asked(|| look(&runtime, one)), [""; 0]);
        stepped(&runtime);
        if begins {
            runtime.send(other, KnotMessage::Fail).unwrap();
            until("it is told", || asked(|| look(&runtime, one)) == ["failed: broken"]);
        } else {
            store.terminate(one.pid()).unwrap();
            until("it has ended", || is_terminated(&store, "0"));
            stepped(&runtime);
            assert!(look(&runtime, other).is_some());
        }
        end((store, runtime));
    }
}

/// The record of a step is lost that has linked the process anew. So the change of the other one counts.
#[test]
fn a_link_of_a_step_that_is_lost_does_not_come_back() {
    if !goes_ahead() {
        return;
    }
    for way in WAYS {
        let (disk, gate) = (MemoryDisk::new(), Gate::default());
        let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
        let pair @ Pair { one, other, .. } = &Pair::new((&store, &runtime), true, true);
        gate.close();
        drop(store.send(*one, KnotMessage::Link(other.pid())).unwrap());
        stepped(&runtime);
        gate.wait_for(1);
        way.go(&runtime, *other, *one);
        disk.fail_at(disk.calls(), Fault::Crash);
        gate.open();
        pair.is_told((&store, &runtime), way);
        end((store, runtime));
    }
}

/// A program that does not know the kind of the durable process.
fn unknown(disk: &MemoryDisk) -> (Store, Runtime) {
    store_in(MemoryJournal::new(disk)).kind::<Worker>().start(Runtime::builder()).unwrap()
}

#[test]
fn a_link_of_an_ordinary_process_to_one_of_a_kind_that_is_not_known() {
    for way in WAYS {
        for traps in [false, true] {
            let disk = MemoryDisk::new();
            let (store, runtime) = open(&disk);
            let [one] = begin(&store);
            tell(&store, one, KnotMessage::Trap(traps));
            assert!(look(&runtime, one).is_some());
            end((store, runtime));
            let (store, runtime) = unknown(&disk);
            let other = spawn(&runtime);
            // Threads of the pool look at the link, and store it. The rest is lost with the program.
            let calls = disk.calls();
            say(&runtime, other, KnotMessage::Link(one.pid()));
            let watched = runtime.watch(one.pid());
            until("the link is on disk", || disk.calls() > calls);
            stepped(&runtime);
            let calls = disk.calls();
            way.go(&runtime, other, one);
            stepped(&runtime);
            if way == Way::Unlinks || way == Way::IsDone && !traps {
                until("the end of the link is on disk", || disk.calls() > calls);
            }
            let ends = way == Way::Fails && !traps;
            if ends {
                assert_eq!(watched.wait_timeout(LIMIT).unwrap().exit.to_string(), because(other));
            }
            end((store, runtime));
            let (store, runtime) = open(&disk);
            stepped(&runtime);
            assert_eq!(is_terminated(&store, "0"), ends, "{way:?}");
            if !ends {
                // The exit itself was in memory only.
                let told = if traps && way != Way::Unlinks { &["terminated (shutdown)"][..] } else { &[] };
                until("it is told", || look(&runtime, one).unwrap() == told);
                stepped(&runtime);
                assert_eq!(look(&runtime, one).unwrap(), told);
            }
            end((store, runtime));
        }
    }
}

#[test]
fn a_link_that_an_ordinary_process_leaves_while_the_other_one_is_parked() {
    for way in WAYS {
        for traps in [false, true] {
            let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
            let store = store_in(MemoryJournal::new(&disk)).kind::<Knot>();
            let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
            let [one] = begin(&store);
            tell(&store, one, KnotMessage::Trap(traps));
            assert!(look(&runtime, one).is_some());
            drop(store.send(one, KnotMessage::Fail).unwrap());
            until("it is parked", || {
                clock.advance(Duration::from_secs(1));
                store.count(&Query::all().parked()).unwrap() == 1
            });
            drop(runtime.shutdown(Duration::MAX).unwrap());
            store.close().unwrap();
            // From now on it is not in memory.
            let (store, runtime) = open(&disk);
            let other = spawn(&runtime);
            say(&runtime, other, KnotMessage::Link(one.pid()));
            let pair = Pair { one, other, traps, watched: runtime.watch(one.pid()) };
            stepped(&runtime);
            way.go(&runtime, other, one);
            if way != Way::Fails || traps {
                stepped(&runtime);
                assert!(!is_terminated(&store, "0"));
                store.skip(one.pid()).unwrap();
            }
            pair.is_told((&store, &runtime), way);
            end((store, runtime));
        }
    }
}

/// Fails when it is asked to stop.
struct Stubborn {
    linked_to: Option<Pid>,
}

impl Process for Stubborn {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.linked_to.into_iter().for_each(|pid| out.link(pid));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        match events.any(|event| matches!(event, Event::Cancel(_))) {
            true => Err("it does not stop".into()),
            false => Ok(Step::Idle),
        }
    }
}

/// The next run tells of the ends that a shutdown brings.
#[test]
fn a_shutdown_ends_no_durable_process_by_its_links() {
    for traps in [false, true] {
        let disk = MemoryDisk::new();
        let (store, runtime) = open(&disk);
        let [one] = begin(&store);
        let other = runtime.spawn(Stubborn { linked_to: None }).unwrap();
        tell(&store, one, KnotMessage::Trap(traps));
        tell(&store, one, KnotMessage::Link(other.pid()));
        assert!(look(&runtime, one).is_some());
        stepped(&runtime);
        drop(runtime.shutdown(LIMIT).unwrap());
        store.close().unwrap();
        let (store, runtime) = open(&disk);
        if traps {
            until("it is told", || look(&runtime, one).unwrap() == ["terminated (shutdown)"]);
        } else {
            let exit = runtime.watch(one.pid()).wait_timeout(LIMIT).unwrap().exit.to_string();
            assert!(exit.ends_with("which ended: terminated (shutdown))"), "{exit}");
        }
        end((store, runtime));
    }
}

/// As above, for a durable process that its load would end.
#[test]
fn a_shutdown_ends_no_process_of_a_kind_that_is_not_known() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [one] = begin(&store);
    end((store, runtime));
    let (store, runtime) = unknown(&disk);
    let linked_to = Some(one.pid());
    runtime.spawn(Stubborn { linked_to }).unwrap();
    stepped(&runtime);
    // It is not parked. The order is refused by a load.
    assert!(store.skip(one.pid()).is_err());
    drop(runtime.shutdown(LIMIT).unwrap());
    store.close().unwrap();
    let (store, runtime) = open(&disk);
    if look(&runtime, one).is_none() {
        let exit = runtime.watch(one.pid()).wait_timeout(LIMIT).unwrap().exit.to_string();
        assert!(!exit.contains("it does not stop"), "{exit}");
    }
    end((store, runtime));
}

/// Two ends of a link end at once: the end of the one comes before that of the other one is on disk.
#[test]
fn both_ends_of_a_link_end_at_once() {
    if !goes_ahead() {
        return;
    }
    for by_it in [true, false] {
        let (disk, gate) = (MemoryDisk::new(), Gate::default());
        let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
        let pair @ Pair { one, other, .. } = &Pair::new((&store, &runtime), by_it, false);
        let watched = runtime.watch(other.pid());
        gate.close();
        drop(store.send(*one, KnotMessage::Over).unwrap());
        stepped(&runtime);
        Way::Fails.go(&runtime, *other, *one);
        gate.open();
        assert_eq!(pair.has_ended(), "done");
        assert_eq!(watched.wait_timeout(LIMIT).unwrap().exit.to_string(), "failed: broken");
        stepped(&runtime);
        end((store, runtime));
        let (store, runtime) = open(&disk);
        assert_eq!(runtime.watch(one.pid()).wait_timeout(LIMIT).unwrap().exit.to_string(), "done");
        end((store, runtime));
    }
}
