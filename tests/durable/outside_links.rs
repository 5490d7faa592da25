//! Links between durable processes and ordinary ones.

use std::time::{Duration, Instant};

use procession::durable::journal::{MemoryDisk, MemoryJournal, Status};
use procession::durable::{Durable, Store};
use procession::{Event, Events, Process, Reply, Runtime, SpawnOptions, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::knots::{Knot, KnotMessage, begin, is_terminated, link, look, open, open_sleepy, say, spawn, start, tell};
use crate::places::{goes_ahead, store_in};
use crate::script::{counts, draw, until_the_disk_crashes};
use crate::wait::{LIMIT, until};
use crate::worker::{Worker, asked, end, kill, stepped};

#[test]
fn the_end_of_an_ordinary_process_is_told_to_a_durable_one_once() {
    for by_it in [true, false] {
        for sleeps in [false, true] {
            let disk = MemoryDisk::new();
            let (store, runtime) = if sleeps { open_sleepy(&disk) } else { open(&disk) };
            let [one, two, three, four] = begin(&store);
            let [failing, done] = [(); 2].map(|()| spawn(&runtime));
            for (durable, other) in [(one, failing), (two, failing), (three, done), (four, done)] {
                link((&store, &runtime), durable, other, by_it);
            }
            for traps in [two, four] {
                tell(&store, traps, KnotMessage::Trap(true));
                assert!(look(&runtime, traps).is_some());
            }
            if sleeps {
                until("all of the store sleep", || runtime.processes().len() == 2);
            }
            let watched = runtime.watch(one.pid());
            runtime.send(failing, KnotMessage::Fail).unwrap();
            runtime.send(done, KnotMessage::Over).unwrap();
            until("the one that traps none has ended", || is_terminated(&store, "0"));
            until("it is told", || look(&runtime, two).unwrap() == ["failed: broken"]);
            until("it is told", || look(&runtime, four).unwrap() == ["done"]);
            stepped(&runtime);
            assert_eq!(look(&runtime, three).unwrap(), [""; 0]);
            let because = format!("terminated (linked to {}, which ended: failed: broken)", failing.pid());
            assert_eq!(watched.wait_timeout(LIMIT).unwrap().exit.to_string(), because);
            // Nothing is left of the links.
            tell(&store, three, KnotMessage::Trap(true));
            end((store, runtime));
            for _ in 0..2 {
                let (store, runtime) = open(&disk);
                stepped(&runtime);
                assert_eq!(look(&runtime, two).unwrap(), ["failed: broken"]);
                assert_eq!(look(&runtime, three).unwrap(), [""; 0]);
                assert_eq!(look(&runtime, four).unwrap(), ["done"]);
                end((store, runtime));
            }
        }
    }
}

#[test]
fn the_end_of_a_durable_process_is_told_to_an_ordinary_one() {
    for by_it in [true, false] {
        for sleeps in [false, true] {
            let disk = MemoryDisk::new();
            let (store, runtime) = if sleeps { open_sleepy(&disk) } else { open(&disk) };
            let [one, two] = begin(&store);
            let [trapping, other, third] = [(); 3].map(|()| spawn(&runtime));
            say(&runtime, trapping, KnotMessage::Trap(true));
            for ordinary in [trapping, other] {
                link((&store, &runtime), one, ordinary, by_it);
            }
            link((&store, &runtime), two, third, by_it);
            if sleeps {
                until("all of the store sleep", || runtime.processes().len() == 3);
            }
            assert!(look(&runtime, other).is_some(), "its sleep is no end");
            store.terminate(one.pid()).unwrap();
            until("it is told", || look(&runtime, trapping).unwrap() == ["terminated (terminated)"]);
            until("the other one has ended", || look(&runtime, other).is_none());
            tell(&store, two, KnotMessage::Over);
            stepped(&runtime);
            assert!(look(&runtime, third).is_some(), "one that is done ends nobody");
            end((store, runtime));
        }
    }
}

#[test]
fn an_ordinary_process_of_an_earlier_run_is_told_once_to_have_ended() {
    for by_it in [true, false] {
        for kills in [false, true] {
            let disk = MemoryDisk::new();
            let (store, runtime) = open(&disk);
            let [one, two, three] = begin(&store);
            let [first, second] = [(); 2].map(|()| spawn(&runtime));
            for durable in [one, two] {
                for other in [first, second] {
                    link((&store, &runtime), durable, other, by_it);
                }
            }
            tell(&store, one, KnotMessage::Trap(true));
            assert!(look(&runtime, one).is_some());
            stepped(&runtime);
            if kills {
                kill(&disk, (store, runtime));
            } else {
                end((store, runtime));
            }
            for _ in 0..2 {
                let (store, runtime) = open(&disk);
                until("the one that traps none has ended", || is_terminated(&store, "1"));
                let told = ["terminated (shutdown)"; 2];
                until("each is told", || look(&runtime, one).unwrap() == told);
                stepped(&runtime);
                assert_eq!(look(&runtime, one).unwrap(), told);
                assert_eq!(look(&runtime, three).unwrap(), [""; 0]);
                end((store, runtime));
            }
        }
    }
}

#[test]
fn a_link_to_an_ordinary_process_that_was_removed_tells_nothing() {
    for by_it in [true, false] {
        for removed_by_it in [true, false] {
            let disk = MemoryDisk::new();
            let (store, runtime) = open(&disk);
            let [one, two] = begin(&store);
            let [first, second] = [(); 2].map(|()| spawn(&runtime));
            for (durable, other) in [(one, first), (two, second)] {
                link((&store, &runtime), durable, other, by_it);
                if removed_by_it {
                    tell(&store, durable, KnotMessage::Unlink(other.pid()));
                } else {
                    say(&runtime, other, KnotMessage::Unlink(durable.pid()));
                }
                assert!(look(&runtime, durable).is_some());
                stepped(&runtime);
            }
            runtime.send(first, KnotMessage::Fail).unwrap();
            stepped(&runtime);
            assert_eq!(look(&runtime, one).unwrap(), [""; 0]);
            store.terminate(one.pid()).unwrap();
            stepped(&runtime);
            assert!(look(&runtime, second).is_some());
            kill(&disk, (store, runtime));
            let (store, runtime) = open(&disk);
            stepped(&runtime);
            assert_eq!(look(&runtime, two).unwrap(), [""; 0], "it has not ended with the run");
            end((store, runtime));
        }
    }
}

#[test]
fn a_link_to_an_ordinary_process_that_had_ended_is_told_at_once() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let [one, two] = begin(&store);
    let other = spawn(&runtime);
    runtime.send(other, KnotMessage::Over).unwrap();
    until("it has ended", || look(&runtime, other).is_none());
    tell(&store, one, KnotMessage::Trap(true));
    for durable in [one, two] {
        tell(&store, durable, KnotMessage::Link(other.pid()));
    }
    until("it is told", || look(&runtime, one).unwrap() == ["terminated (no such process)"]);
    until("the one that traps none has ended", || is_terminated(&store, "1"));
    end((store, runtime));
    let (store, runtime) = open(&disk);
    stepped(&runtime);
    assert_eq!(look(&runtime, one).unwrap(), ["terminated (no such process)"]);
    end((store, runtime));
}

/// Begins an ordinary process that is linked to it.
#[derive(Serialize, Deserialize)]
struct Parent;

#[derive(Serialize, Deserialize)]
enum ParentMessage {
    Spawn(Reply<procession::Pid>),
}

impl Process for Parent {
    type Message = ParentMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ParentMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(ParentMessage::Spawn(reply)) = event {
                let Ok(child) = out.spawn_with(Knot::default(), SpawnOptions::new().link()) else {
                    return Err("no child".into());
                };
                out.reply(reply, child.address.pid());
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Parent {
    const NAME: &str = "parent";
}

#[test]
fn a_process_spawned_with_a_link_and_its_parent_end_together() {
    for kills in [false, true] {
        let disk = MemoryDisk::new();
        let both =
            || store_in(MemoryJournal::new(&disk)).kind::<Parent>().start(Runtime::builder().workers(2)).unwrap();
        let (store, runtime) = both();
        let [one, two] = ["0", "1"].map(|id| store.begin(id, Parent).unwrap().address());
        let spawned = |of| runtime.ask(of, ParentMessage::Spawn, LIMIT).wait().unwrap().typed::<KnotMessage>();
        let (first, second) = (spawned(one), spawned(two));
        stepped(&runtime);
        store.terminate(one.pid()).unwrap();
        until("the child has ended", || look(&runtime, first).is_none());
        let has_ended = |store: &Store| {
            let result = store.result::<Parent>("1").unwrap();
            matches!(result.wait(Duration::ZERO), Err(procession::durable::StoreError::Terminated))
        };
        assert!(!has_ended(&store) && look(&runtime, second).is_some());
        if kills {
            kill(&disk, (store, runtime));
        } else {
            runtime.send(second, KnotMessage::Fail).unwrap();
            until("the parent has ended", || has_ended(&store));
            end((store, runtime));
        }
        let (store, runtime) = both();
        until("the parent has ended", || has_ended(&store));
        end((store, runtime));
    }
}

#[test]
fn the_end_of_an_ordinary_process_ends_one_of_a_kind_that_is_not_known() {
    for is_later_run in [false, true] {
        let disk = MemoryDisk::new();
        let both =
            || store_in(MemoryJournal::new(&disk)).kind::<Knot>().kind::<Worker>().start(Runtime::builder()).unwrap();
        let (store, runtime) = start(MemoryJournal::new(&disk));
        let [knot] = begin(&store);
        let other = spawn(&runtime);
        if is_later_run {
            link((&store, &runtime), knot, other, true);
        }
        end((store, runtime));
        // This program does not know the kind.
        let (store, runtime) = store_in(MemoryJournal::new(&disk)).kind::<Worker>().start(Runtime::builder()).unwrap();
        stepped(&runtime);
        let has_ended = || store.show(knot.pid()).unwrap().listed.status == Status::Ended;
        until("it has ended, or is kept", || has_ended() == is_later_run);
        end((store, runtime));
        let (store, runtime) = both();
        until("it has ended, or lives", || is_terminated(&store, "0") == is_later_run);
        stepped(&runtime);
        assert_eq!(is_terminated(&store, "0"), is_later_run);
        end((store, runtime));
    }
}

const OTHERS: usize = 20;

#[test]
fn each_end_outside_is_told_once_though_the_disk_loses_its_power() {
    until_the_disk_crashes(counts("seeds", 4, 100), |seed| {
        let disk = MemoryDisk::with_seed(seed);
        let (store, runtime) = open(&disk);
        let [knot] = begin(&store);
        let others: Vec<_> = (0..OTHERS).map(|_| spawn(&runtime)).collect();
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
fn a_link_of_a_last_step_tells_an_ordinary_process_of_the_end() {
    for was_linked in [false, true] {
        let disk = MemoryDisk::new();
        let (store, runtime) = open(&disk);
        let [one] = begin(&store);
        let [first, second] = [(); 2].map(|()| spawn(&runtime));
        for other in [first, second] {
            say(&runtime, other, KnotMessage::Trap(true));
            if was_linked {
                link((&store, &runtime), one, other, true);
            }
        }
        let last = vec![KnotMessage::Link(first.pid()), KnotMessage::Unlink(second.pid())];
        tell(&store, one, KnotMessage::Last(last));
        until("it is told", || look(&runtime, first).unwrap() == ["done"]);
        stepped(&runtime);
        assert_eq!(look(&runtime, first).unwrap(), ["done"]);
        assert_eq!(look(&runtime, second).unwrap(), [""; 0]);
        end((store, runtime));
    }
}

/// Links that a step has changed are performed when its record is on disk. Until then the step decides.
#[test]
fn a_link_of_a_step_holds_though_the_other_one_removes_it_earlier() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let (store, runtime) = start(GatedJournal(MemoryJournal::new(&disk), gate.clone()));
    let [one] = begin(&store);
    let other = spawn(&runtime);
    link((&store, &runtime), one, other, true);
    tell(&store, one, KnotMessage::Trap(true));
    assert!(look(&runtime, one).is_some());
    gate.close();
    for message in [KnotMessage::Unlink(other.pid()), KnotMessage::Link(other.pid())] {
        runtime.send(one, message).unwrap();
    }
    stepped(&runtime);
    say(&runtime, other, KnotMessage::Unlink(one.pid()));
    stepped(&runtime);
    gate.open();
    assert_eq!(look(&runtime, one).unwrap(), [""; 0]);
    stepped(&runtime);
    runtime.send(other, KnotMessage::Fail).unwrap();
    until("it is told", || look(&runtime, one).unwrap() == ["failed: broken"]);
    end((store, runtime));
}
