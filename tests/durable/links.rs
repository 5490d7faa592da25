//! Links of durable processes.

use std::time::Instant;

use procession::Runtime;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Store, StoreError};

use crate::gate::{Gate, SlowLoads};
use crate::knots::{Knot, KnotMessage, Knots, begin, is_terminated, look, open, start, tell};
use crate::places::store_in;
use crate::script::{counts, draw, until_the_disk_crashes};
use crate::wait::{LIMIT, until};
use crate::worker::{Worker, asked, end, kill, stepped};

/// A store in which the first process traps exits, and is linked to the second one. That one has linked itself to the
/// third one, which traps none.
fn linked(disk: &MemoryDisk) -> ((Store, Runtime), Knots<3>) {
    let (store, runtime) = open(disk);
    let knots @ [one, two, three] = begin(&store);
    tell(&store, one, KnotMessage::Trap(true));
    assert!(look(&runtime, one).is_some());
    tell(&store, one, KnotMessage::Link(two.pid()));
    tell(&store, two, KnotMessage::Link(three.pid()));
    for knot in knots {
        assert_eq!(look(&runtime, knot).unwrap(), [""; 0]);
    }
    stepped(&runtime);
    ((store, runtime), knots)
}

#[test]
fn an_abnormal_end_ends_the_other_one_or_is_told_to_it_once() {
    for sleeps in [false, true] {
        let disk = MemoryDisk::new();
        let ((mut store, mut runtime), [one, two, _]) = linked(&disk);
        if sleeps {
            end((store, runtime));
            (store, runtime) = open(&disk);
            assert_eq!(runtime.processes().len(), 0, "all sleep");
        }
        store.terminate(two.pid()).unwrap();
        until("it is told", || look(&runtime, one).unwrap() == ["terminated (terminated)"]);
        until("the other one has ended", || is_terminated(&store, "2"));
        end((store, runtime));
        for _ in 0..2 {
            let (store, runtime) = open(&disk);
            stepped(&runtime);
            assert_eq!(look(&runtime, one).unwrap(), ["terminated (terminated)"]);
            assert!(is_terminated(&store, "2"));
            end((store, runtime));
        }
    }
}

#[test]
fn a_normal_end_is_told_to_one_that_traps_and_is_nothing_to_others() {
    for sleeps in [false, true] {
        let disk = MemoryDisk::new();
        let ((mut store, mut runtime), [one, two, three]) = linked(&disk);
        if sleeps {
            end((store, runtime));
            (store, runtime) = open(&disk);
        }
        tell(&store, two, KnotMessage::Over);
        until("it is told", || look(&runtime, one).unwrap() == ["done"]);
        stepped(&runtime);
        assert_eq!(look(&runtime, three).unwrap(), [""; 0]);
        // Nothing is left of the link.
        tell(&store, three, KnotMessage::Trap(true));
        end((store, runtime));
        for _ in 0..2 {
            let (store, runtime) = open(&disk);
            stepped(&runtime);
            assert_eq!(look(&runtime, one).unwrap(), ["done"]);
            assert_eq!(look(&runtime, three).unwrap(), [""; 0]);
            end((store, runtime));
        }
    }
}

#[test]
fn a_link_that_was_removed_tells_nothing() {
    let disk = MemoryDisk::new();
    let ((store, runtime), [one, two, three]) = linked(&disk);
    // Both ends may remove it.
    tell(&store, two, KnotMessage::Unlink(one.pid()));
    tell(&store, three, KnotMessage::Unlink(two.pid()));
    for knot in [two, three] {
        assert_eq!(look(&runtime, knot).unwrap(), [""; 0]);
    }
    stepped(&runtime);
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    store.terminate(two.pid()).unwrap();
    stepped(&runtime);
    assert_eq!(look(&runtime, one).unwrap(), [""; 0]);
    assert_eq!(look(&runtime, three).unwrap(), [""; 0]);
    end((store, runtime));
}

#[test]
fn a_link_to_an_ended_process_is_told_at_once() {
    let nobody = "terminated (no such process)";
    for is_later_run in [false, true] {
        let disk = MemoryDisk::new();
        let (mut store, mut runtime) = open(&disk);
        let [one, two, three, four] = begin(&store);
        for over in [two, four] {
            tell(&store, over, KnotMessage::Over);
        }
        for id in ["1", "3"] {
            store.result::<Knot>(id).unwrap().wait(LIMIT).unwrap();
        }
        if is_later_run {
            end((store, runtime));
            (store, runtime) = open(&disk);
        }
        tell(&store, one, KnotMessage::Trap(true));
        assert!(look(&runtime, one).is_some());
        tell(&store, one, KnotMessage::Link(two.pid()));
        until("it is told", || look(&runtime, one).unwrap() == [nobody]);
        tell(&store, three, KnotMessage::Link(four.pid()));
        until("it has ended", || is_terminated(&store, "2"));
        end((store, runtime));
        let (store, runtime) = open(&disk);
        stepped(&runtime);
        assert_eq!(look(&runtime, one).unwrap(), [nobody]);
        end((store, runtime));
    }
}

#[test]
fn an_end_that_is_on_disk_is_told_in_the_next_run() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let ((store, runtime), [one, two, _]) = linked(&disk);
    end((store, runtime));
    // The others are not loaded in this run.
    let (store, runtime) = start(SlowLoads(MemoryJournal::new(&disk), gate.clone()));
    assert_eq!(look(&runtime, two).unwrap(), [""; 0]);
    gate.close();
    assert!(runtime.terminate(two.pid()).unwrap());
    until("one of them is read", || gate.arrivals() > 0);
    // Nothing that they do reaches the disk.
    (disk.calls()..disk.calls() + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
    gate.open();
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    until("it is told", || look(&runtime, one).is_some_and(|notes| notes == ["terminated (terminated)"]));
    until("the other one has ended", || is_terminated(&store, "2"));
    end((store, runtime));
}

/// The halves of a link stand in one record, and so do an end and its events.
#[test]
fn a_kill_at_any_call_leaves_each_link_whole() {
    for call in 0..counts("calls", 25, 100) {
        let disk = MemoryDisk::with_seed(call);
        let (store, runtime) = open(&disk);
        let [one, two, three] = begin(&store);
        let first = disk.calls() + call;
        (first..first + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
        drop(runtime.send(one, KnotMessage::Trap(true)));
        drop(runtime.send(two, KnotMessage::Link(one.pid())));
        drop(runtime.send(two, KnotMessage::Link(three.pid())));
        until("nothing is left to be done", || runtime.is_idle());
        drop(runtime.terminate(two.pid()));
        until("nothing is left to be done", || runtime.is_idle());
        kill(&disk, (store, runtime));

        for _ in 0..2 {
            let (store, runtime) = open(&disk);
            stepped(&runtime);
            // It may have a stored request to end.
            let has_ended = look(&runtime, two).is_none();
            if !has_ended {
                // The messages may be lost, or their steps.
                for (to, message) in [
                    (one, KnotMessage::Trap(true)),
                    (two, KnotMessage::Link(one.pid())),
                    (two, KnotMessage::Link(three.pid())),
                ] {
                    tell(&store, to, message);
                    assert!(asked(|| look(&runtime, to)).is_empty());
                }
                store.terminate(two.pid()).unwrap();
            }
            let told = || is_terminated(&store, "0") || look(&runtime, one).is_some_and(|notes| notes.len() == 1);
            until("one is told", told);
            until("the other one has ended", || is_terminated(&store, "2"));
            stepped(&runtime);
            assert!(told(), "call {call}");
            end((store, runtime));
        }
    }
}

const OTHERS: usize = 20;

#[test]
fn each_end_is_told_once_though_the_disk_loses_its_power() {
    until_the_disk_crashes(counts("seeds", 4, 100), |seed| {
        let disk = MemoryDisk::with_seed(seed);
        let (store, runtime) = open(&disk);
        let [knot, others @ ..] = begin::<{ OTHERS + 1 }>(&store);
        tell(&store, knot, KnotMessage::InARow(others.iter().map(|other| other.pid()).collect()));
        let (mut crashes, mut calls, deadline) = (0, 0, Instant::now() + LIMIT);
        while look(&runtime, knot).is_none_or(|notes| notes.len() < OTHERS) {
            assert!(Instant::now() < deadline, "seed {seed}: nobody is stuck: {store:?}");
            // The third error in a row would close the store. So something is written between two crashes.
            if crashes < 20 && disk.calls() > calls + 5 + draw(seed, crashes, 1, 20) {
                disk.crash();
                (crashes, calls) = (crashes + 1, disk.calls());
            }
        }
        stepped(&runtime);
        assert_eq!(asked(|| look(&runtime, knot)), ["terminated (terminated)"; OTHERS], "seed {seed}");
        end((store, runtime));
        crashes
    });
}

#[test]
fn a_ring_ends_whole_though_the_program_is_killed() {
    let mut kills = 0;
    for seed in 0..counts("seeds", 3, 100) {
        let disk = MemoryDisk::with_seed(seed);
        let (store, runtime) = open(&disk);
        let ring: Knots<OTHERS> = begin(&store);
        for n in 0..OTHERS {
            tell(&store, ring[n], KnotMessage::Link(ring[(n + 1) % OTHERS].pid()));
            assert!(look(&runtime, ring[n]).is_some());
        }
        stepped(&runtime);
        end((store, runtime));
        for run in 0.. {
            assert!(run < 1_000, "seed {seed}: nobody is stuck");
            let (store, runtime) = open(&disk);
            if run == 0 {
                store.terminate(ring[0].pid()).unwrap();
            }
            let enough = disk.calls() + draw(seed, run, 2, 40);
            let is_done = || (0..OTHERS).all(|n| is_terminated(&store, &n.to_string()));
            until("something is written", || disk.calls() > enough || is_done());
            // The first run is killed in any case.
            if run > 0 && is_done() {
                end((store, runtime));
                break;
            }
            kill(&disk, (store, runtime));
            kills += 1;
        }
    }
    assert!(kills > 0, "the program was killed");
}

#[test]
fn the_end_of_a_linked_process_ends_one_of_a_kind_that_is_not_known() {
    let disk = MemoryDisk::new();
    let both =
        || store_in(MemoryJournal::new(&disk)).kind::<Knot>().kind::<Worker>().start(Runtime::builder()).unwrap();
    let (store, runtime) = both();
    let [knot] = begin(&store);
    let worker = store.begin("worker", Worker::default()).unwrap();
    worker.wait(LIMIT).unwrap();
    tell(&store, knot, KnotMessage::Link(worker.pid()));
    assert!(look(&runtime, knot).is_some());
    stepped(&runtime);
    end((store, runtime));
    // This program does not know the kind of the other one.
    let (store, runtime) = open(&disk);
    store.terminate(knot.pid()).unwrap();
    stepped(&runtime);
    end((store, runtime));
    let (store, runtime) = both();
    let result = store.result::<Worker>("worker").unwrap();
    assert!(matches!(result.wait(LIMIT), Err(StoreError::Terminated)));
    end((store, runtime));
}

/// The reason of one that a link has ended names the first of the chain, in each run.
#[test]
fn the_end_of_each_one_of_a_chain_names_the_first() {
    for sleeps in [false, true] {
        let disk = MemoryDisk::new();
        let (mut store, mut runtime) = open(&disk);
        let chain @ [one, two, .., last] = begin::<5>(&store);
        tell(&store, last, KnotMessage::Trap(true));
        assert!(look(&runtime, last).is_some());
        for pair in chain.windows(2) {
            tell(&store, pair[0], KnotMessage::Link(pair[1].pid()));
            assert!(look(&runtime, pair[0]).is_some());
        }
        stepped(&runtime);
        if sleeps {
            end((store, runtime));
            (store, runtime) = open(&disk);
        }
        let watched = runtime.watch(two.pid());
        store.terminate(one.pid()).unwrap();
        let because = format!("terminated (linked to {}, which ended: terminated (terminated))", one.pid());
        until("the last one is told", || look(&runtime, last).unwrap() == [because.clone()]);
        assert_eq!(watched.wait_timeout(LIMIT).unwrap().exit.to_string(), because);
        end((store, runtime));
        let (store, runtime) = open(&disk);
        let watched = runtime.watch(chain[3].pid());
        assert_eq!(watched.wait_timeout(LIMIT).unwrap().exit.to_string(), because, "in a later run");
        assert_eq!(look(&runtime, last).unwrap(), [because]);
        end((store, runtime));
    }
}

/// A step that links, or removes a link, and is the last one.
#[test]
fn a_link_of_a_last_step_tells_the_end() {
    for sleeps in [false, true] {
        let disk = MemoryDisk::new();
        let (mut store, mut runtime) = open(&disk);
        let [one, two, three, four] = begin(&store);
        for traps in [two, three] {
            tell(&store, traps, KnotMessage::Trap(true));
            assert!(look(&runtime, traps).is_some());
        }
        tell(&store, one, KnotMessage::Link(two.pid()));
        tell(&store, four, KnotMessage::Link(one.pid()));
        assert!(look(&runtime, one).is_some() && look(&runtime, four).is_some());
        stepped(&runtime);
        if sleeps {
            end((store, runtime));
            (store, runtime) = open(&disk);
        }
        let last = vec![KnotMessage::Unlink(two.pid()), KnotMessage::Link(three.pid()), KnotMessage::Link(four.pid())];
        tell(&store, one, KnotMessage::Last(last));
        until("the new one is told", || look(&runtime, three).unwrap() == ["done"]);
        stepped(&runtime);
        assert_eq!(look(&runtime, two).unwrap(), [""; 0]);
        // Nothing is left of the links.
        tell(&store, four, KnotMessage::Trap(true));
        end((store, runtime));
        let (store, runtime) = open(&disk);
        stepped(&runtime);
        assert_eq!(look(&runtime, two).unwrap(), [""; 0]);
        assert_eq!(look(&runtime, three).unwrap(), ["done"]);
        assert_eq!(look(&runtime, four).unwrap(), [""; 0]);
        end((store, runtime));
    }
}

#[test]
fn a_link_that_is_made_anew_in_the_step_that_is_told_reports_anew() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [one, two] = begin(&store);
    tell(&store, two, KnotMessage::Over);
    store.result::<Knot>("1").unwrap().wait(LIMIT).unwrap();
    tell(&store, one, KnotMessage::Trap(true));
    tell(&store, one, KnotMessage::Relink(3));
    tell(&store, one, KnotMessage::Link(two.pid()));
    until("all four are told", || look(&runtime, one).unwrap() == ["terminated (no such process)"; 4]);
    end((store, runtime));
    let (store, runtime) = open(&disk);
    stepped(&runtime);
    assert_eq!(look(&runtime, one).unwrap().len(), 4, "nothing is left to be told");
    end((store, runtime));
}

/// The event of a link to a process that had ended is in memory only. A load makes it again.
#[test]
fn a_link_to_an_ended_process_is_told_after_a_kill() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = open(&disk);
    let [one, two] = begin(&store);
    tell(&store, one, KnotMessage::Trap(true));
    tell(&store, two, KnotMessage::Over);
    store.result::<Knot>("1").unwrap().wait(LIMIT).unwrap();
    assert!(look(&runtime, one).is_some());
    end((store, runtime));
    let (store, runtime) = start(SlowLoads(MemoryJournal::new(&disk), gate.clone()));
    assert!(look(&runtime, one).is_some());
    gate.close();
    tell(&store, one, KnotMessage::Link(two.pid()));
    assert_eq!(look(&runtime, one).unwrap(), [""; 0], "the link is on disk");
    until("the other one is read", || gate.arrivals() > 0);
    // Nothing that follows reaches the disk.
    (disk.calls()..disk.calls() + 10_000).for_each(|call| disk.fail_at(call, Fault::Error));
    gate.open();
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    until("it is told", || look(&runtime, one).unwrap() == ["terminated (no such process)"]);
    end((store, runtime));
}
