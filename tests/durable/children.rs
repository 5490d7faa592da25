//! Children of durable processes.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use procession::clock::ManualClock;
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Query, Shown, Store};
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{Address, Runtime};

use crate::family::{
    CensusMessage, FAILURES, Node, NodeMessage, Policy, Span, answers, begin, begun, on_disk, open, start,
};
use crate::gate::{Gate, GatedJournal, SlowLoads};
use crate::places::goes_ahead;
use crate::script::{counts, draw, until_the_disk_crashes};
use crate::wait::{LIMIT, until};
use crate::worker::{DAY, Worker, answer_of, asked, end, kill, stepped};

type Two = (Store, Runtime);

#[test]
fn a_child_answers_its_parent_in_whatever_run_and_once() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let run = || start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let stop = |(store, runtime): Two| {
        drop(runtime.shutdown(Duration::MAX).unwrap());
        store.close().unwrap();
    };
    let look = |runtime: &Runtime, node| runtime.ask(node, NodeMessage::Look, Duration::MAX).wait().unwrap();
    let (store, runtime) = run();
    let (_, root) = begin(&store, &[]);
    store.send(root, NodeMessage::Run(7, Span::Day, Policy::Terminate)).unwrap();
    store.send(root, NodeMessage::Run(8, Span::Steps(3), Policy::Terminate)).unwrap();
    until("the second child is done", || look(&runtime, root).len() == 1);
    stop((store, runtime));

    let (store, runtime) = run();
    assert_eq!(look(&runtime, root), ["8: 8"], "the other one is not interrupted");
    clock.advance(DAY + Duration::from_millis(1));
    until("the first child is done", || look(&runtime, root).len() == 2);
    stop((store, runtime));

    let (store, runtime) = run();
    clock.advance(DAY * 2);
    stepped(&runtime);
    assert_eq!(look(&runtime, root), ["8: 8", "7: 7"], "each has answered once");
    stop((store, runtime));
    assert_eq!(on_disk(&disk), (2, 2));
}

#[test]
fn a_child_that_is_terminated_says_so_and_an_ordinary_one_is_interrupted() {
    let disk = MemoryDisk::new();
    let (store, runtime) = open(&disk);
    let (census, root) = begin(&store, &[]);
    store.send(root, NodeMessage::Run(7, Span::Told, Policy::Terminate)).unwrap();
    store.send(root, NodeMessage::RunOrdinary).unwrap();
    until("the child has begun", || begun(&runtime, census).unwrap().contains_key(&7));
    let child = begun(&runtime, census).unwrap()[&7][0];
    runtime.terminate(child).unwrap();
    until("it has answered", || answers(&runtime, root).unwrap() == ["7: child terminated (terminated)"]);
    kill(&disk, (store, runtime));
    let (store, runtime) = open(&disk);
    let interrupted = "0: interrupted by the end of the program or an error of the store";
    assert_eq!(answers(&runtime, root).unwrap(), ["7: child terminated (terminated)", interrupted]);
    end((store, runtime));
}

#[test]
fn children_begin_and_answer_once_though_the_disk_loses_its_power() {
    let children = 40;
    until_the_disk_crashes(counts("seeds", 4, 100), |seed| {
        let disk = MemoryDisk::with_seed(seed);
        let (store, runtime) = open(&disk);
        let (census, root) = begin(&store, &[]);
        store.send(root, NodeMessage::InARow(children)).unwrap().wait(LIMIT).unwrap();
        let (mut crashes, mut calls, deadline) = (0, 0, Instant::now() + LIMIT);
        while answers(&runtime, root).is_none_or(|answers| answers.is_empty()) {
            assert!(Instant::now() < deadline, "seed {seed}: nobody is stuck: {store:?}");
            // The third error in a row would close the store. So something is written between two crashes.
            if crashes < 20 && disk.calls() > calls + 10 + draw(seed, crashes, 1, 30) {
                disk.crash();
                (crashes, calls) = (crashes + 1, disk.calls());
            }
        }
        check_a_row(seed, &runtime, (census, root), children);
        end((store, runtime));
        assert_eq!(on_disk(&disk), (children as usize, 2), "seed {seed}");
        crashes
    });
}

fn check_a_row(
    seed: u64,
    runtime: &Runtime,
    (census, root): (Address<CensusMessage>, Address<NodeMessage>),
    children: u64,
) {
    let all = asked(|| answers(runtime, root));
    assert_eq!(all, ["all"], "seed {seed}: each answer is that of the child");
    let begun = asked(|| begun(runtime, census));
    assert_eq!(begun.len() as u64, children + 1, "seed {seed}");
    assert!(begun.values().all(|nodes| nodes.len() == 1), "seed {seed}: each has begun once: {begun:?}");
}

#[test]
fn children_begin_and_answer_once_though_the_program_is_killed() {
    let (seeds, children) = (counts("seeds", 3, 100), 40);
    let mut kills = 0;
    for seed in 0..seeds {
        let disk = MemoryDisk::with_seed(seed);
        let mut both = None;
        for run in 0.. {
            assert!(run < 1_000, "seed {seed}: nobody is stuck");
            let (store, runtime) = open(&disk);
            let (census, root) = *both.get_or_insert_with(|| {
                let (census, root) = begin(&store, &[]);
                store.send(root, NodeMessage::InARow(children)).unwrap().wait(LIMIT).unwrap();
                (census, root)
            });
            let enough = disk.calls() + draw(seed, run, 2, 60);
            let is_done = || answers(&runtime, root).is_some_and(|answers| !answers.is_empty());
            until("something is written", || disk.calls() > enough || is_done());
            // The first run is killed in any case.
            if run > 0 && is_done() {
                check_a_row(seed, &runtime, (census, root), children);
                end((store, runtime));
                break;
            }
            kill(&disk, (store, runtime));
            kills += 1;
        }
        assert_eq!(on_disk(&disk), (children as usize, 2), "seed {seed}");
    }
    assert!(kills > 0, "the program was killed");
}

#[test]
fn a_tree_ends_whole_though_the_program_is_killed() {
    let (seeds, width) = (counts("seeds", 3, 10), counts("children", 8, 100));
    let mut kills = 0;
    for seed in 0..seeds {
        let disk = MemoryDisk::with_seed(seed);
        let (store, runtime) = open(&disk);
        let (census, root) = begin(&store, &[width, width]);
        let nodes = (1 + width + width * width) as usize;
        until("all have begun", || begun(&runtime, census).unwrap().len() == nodes);
        end((store, runtime));
        let (mut store, mut runtime) = open(&disk);
        if seed % 2 == 0 {
            store.send(root, NodeMessage::Over).unwrap();
        } else {
            assert_eq!(answers(&runtime, root).unwrap(), [""; 0], "it is in memory");
            runtime.terminate(root).unwrap();
        }
        drop(store.result::<Node>("root").unwrap().wait(LIMIT));
        let mut runs = 0;
        loop {
            let enough = disk.calls() + draw(seed, runs, 2, 8);
            let rests = || runtime.is_idle() && runtime.stats().processes == 0;
            until("something is written", || disk.calls() > enough || rests());
            // The first run is killed in any case.
            if runs > 0 && rests() {
                end((store, runtime));
                if on_disk(&disk) == (nodes, 1) {
                    break;
                }
            } else {
                kill(&disk, (store, runtime));
                kills += 1;
            }
            runs += 1;
            assert!(runs < 1_000, "seed {seed}: nobody is left: {:?}", on_disk(&disk));
            (store, runtime) = open(&disk);
        }
        println!("seed {seed}: {runs} runs");
    }
    assert!(kills > 0, "the program was killed");
}

#[test]
fn when_a_parent_ends_its_children_do_what_it_has_said() {
    // With the end of a program between the end of the parent and what the children do.
    for is_killed in [false, true] {
        let disk = MemoryDisk::new();
        let (store, runtime) = open(&disk);
        let (census, root) = begin(&store, &[]);
        for (number, policy) in [(2, Policy::Terminate), (3, Policy::Cancel), (4, Policy::Leave)] {
            store.send(root, NodeMessage::Run(number, Span::Told, policy)).unwrap();
        }
        until("all have begun", || begun(&runtime, census).unwrap().len() == 4);
        let nodes = begun(&runtime, census).unwrap();
        store.send(root, NodeMessage::Over).unwrap().wait(LIMIT).unwrap();
        let (store, runtime) = if is_killed {
            store.result::<Node>("root").unwrap().wait(LIMIT).unwrap();
            kill(&disk, (store, runtime));
            open(&disk)
        } else {
            (store, runtime)
        };
        until("two have ended", || {
            answers(&runtime, nodes[&2][0]).is_none() && answers(&runtime, nodes[&3][0]).is_none()
        });
        assert_eq!(answers(&runtime, nodes[&4][0]).unwrap(), [""; 0]);
        end((store, runtime));
        assert_eq!(on_disk(&disk), (3, 2));
        // The one that was left answers nobody.
        let (store, runtime) = open(&disk);
        store.send(nodes[&4][0], NodeMessage::Over).unwrap().wait(LIMIT).unwrap();
        until("it has ended", || answers(&runtime, nodes[&4][0]).is_none());
        end((store, runtime));
        assert_eq!(on_disk(&disk), (4, 1));
    }
}

#[test]
fn a_step_that_fails_begins_no_child_and_is_offered_the_same_answer_again() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = start(MemoryJournal::new(&disk), Runtime::builder().clock(clock.clock()));
    let (census, root) = begin(&store, &[]);
    // Two failures when it runs the child, and the third when it takes the answer.
    FAILURES.store(3, Ordering::SeqCst);
    store.send(root, NodeMessage::RunAndFail(7)).unwrap();
    let mut asked = None;
    until("it has the answer", || {
        clock.advance(Duration::from_secs(60));
        // A question waits while the process pauses. So the clock goes on meanwhile.
        let answers = answer_of(&mut asked, || runtime.ask(root, NodeMessage::Look, Duration::MAX));
        FAILURES.load(Ordering::SeqCst) == 0 && answers.is_some_and(|answers| answers.is_ok_and(|is| is == ["7: 7"]))
    });
    let begun = runtime.ask(census, CensusMessage::Look, Duration::MAX).wait().unwrap();
    assert_eq!(begun.values().map(Vec::len).sum::<usize>(), 2, "the root, and one child");
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
    assert_eq!(on_disk(&disk), (1, 2));
}

#[test]
fn a_child_whose_command_is_cancelled_ends_and_answers_nothing_more() {
    for is_killed in [false, true] {
        let disk = MemoryDisk::new();
        let (store, runtime) = open(&disk);
        let (census, root) = begin(&store, &[]);
        store.send(root, NodeMessage::Run(7, Span::Told, Policy::Leave)).unwrap();
        until("it has begun", || begun(&runtime, census).unwrap().len() == 2);
        store.send(root, NodeMessage::RunAndCancel(8)).unwrap().wait(LIMIT).unwrap();
        until("both are cancelled", || answers(&runtime, root).unwrap().len() == 2);
        let (store, runtime) = if is_killed {
            kill(&disk, (store, runtime));
            open(&disk)
        } else {
            (store, runtime)
        };
        let mut notes = answers(&runtime, root).unwrap();
        notes.sort();
        assert_eq!(notes, ["7: cancelled (cancelled)", "8: cancelled (cancelled)"]);
        let child = begun(&runtime, census).unwrap()[&7][0];
        until("it has ended", || answers(&runtime, child).is_none());
        assert_eq!(begun(&runtime, census).unwrap().len(), 2, "the other one has never begun");
        end((store, runtime));
        assert_eq!(on_disk(&disk), (1, 2));
    }
}

/// Runs a child, ends the run, and begins one in which the child is in memory and the parent sleeps.
fn with_a_parent_that_sleeps(disk: &MemoryDisk, journal: impl Journal + 'static) -> (Two, [Address<NodeMessage>; 2]) {
    let (store, runtime) = open(disk);
    let (census, root) = begin(&store, &[]);
    store.send(root, NodeMessage::Run(7, Span::Told, Policy::Terminate)).unwrap();
    until("it has begun", || begun(&runtime, census).unwrap().len() == 2);
    let child = begun(&runtime, census).unwrap()[&7][0];
    end((store, runtime));
    let (store, runtime) = start(journal, Runtime::builder());
    assert_eq!(answers(&runtime, child).unwrap(), [""; 0]);
    assert_eq!(runtime.processes().len(), 1, "the parent sleeps");
    ((store, runtime), [root, child])
}

#[test]
fn an_answer_that_is_not_on_disk_yet_reaches_a_parent_that_sleeps() {
    if !goes_ahead() {
        return;
    }
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let journal = GatedJournal(MemoryJournal::new(&disk), gate.clone());
    let ((store, runtime), [root, child]) = with_a_parent_that_sleeps(&disk, journal);
    gate.close();
    runtime.send(child, NodeMessage::Over).unwrap();
    until("it is being written", || gate.arrivals() > 0);
    stepped(&runtime);
    gate.open();
    until("the parent has the answer", || answers(&runtime, root).unwrap() == ["7: 7"]);
    end((store, runtime));
}

#[test]
fn a_parent_shows_its_children_and_a_list_has_them_by_parent_and_age() {
    let disk = MemoryDisk::new();
    let ((store, runtime), [root, child]) = with_a_parent_that_sleeps(&disk, MemoryJournal::new(&disk));
    let children = |of: &Shown| of.children.iter().map(|child| child.pid).collect::<Vec<_>>();
    let shown = store.show(root.pid()).unwrap();
    assert_eq!((children(&shown), shown.listed.parent), (vec![child.pid()], None));
    let shown = store.show(child.pid()).unwrap();
    assert_eq!((children(&shown), shown.listed.parent), (vec![], Some(root.pid())));
    let list = |query: Query| store.list(&query).unwrap().iter().map(|one| one.pid).collect::<Vec<_>>();
    assert_eq!(list(Query::all().parent(root.pid())), [child.pid()]);
    assert_eq!(list(Query::all().parent(child.pid())), []);
    let begun = SystemTime::UNIX_EPOCH + Duration::from_millis(shown.listed.begun);
    assert!(!list(Query::all().begun_before(begun)).contains(&child.pid()));
    assert!(list(Query::all().begun_before(begun + Duration::from_millis(1))).contains(&child.pid()));
    end((store, runtime));
}

#[test]
fn an_answer_that_comes_while_its_parent_is_loaded_is_not_missed() {
    let (disk, gate) = (MemoryDisk::new(), Gate::default());
    let journal = SlowLoads(MemoryJournal::new(&disk), gate.clone());
    let ((store, runtime), [root, child]) = with_a_parent_that_sleeps(&disk, journal);
    gate.close();
    store.send(root, NodeMessage::RunAndCancel(8)).unwrap();
    until("the parent is read", || gate.arrivals() > 0);
    store.send(child, NodeMessage::Over).unwrap().wait(LIMIT).unwrap();
    until("the child has ended", || runtime.send(child, NodeMessage::Over).is_err());
    gate.open();
    until("the parent has the answer", || answers(&runtime, root).unwrap().contains(&"7: 7".into()));
    end((store, runtime));
}

#[test]
fn a_supervisor_refuses_a_process_of_the_store() {
    let disk = MemoryDisk::new();
    let (store, runtime) = crate::worker::open(&disk);
    let specs = [
        ChildSpec::new("worker", Worker::default),
        ChildSpec::in_place("worker", Worker::default),
        ChildSpec::in_place_with("worker", Worker::default, |_, _| Worker::default()),
    ];
    for spec in specs {
        let supervisor = runtime.spawn(Supervisor::builder().child(spec).build().unwrap()).unwrap();
        let exit = supervisor.join_timeout(LIMIT).unwrap().into_result().unwrap_err().to_string();
        assert!(exit.contains("a durable process cannot be the child of a supervisor"), "{exit}");
    }
    end((store, runtime));
}
