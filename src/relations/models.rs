//! The races of relations, under the model checker. The table of relations and the cells are real, and there is no
//! queue.

use super::Cells;
use super::Relations;
use super::Told;
use crate::outcome::{Exit, Reason};
use crate::primitives::{Arc, AtomicUsize, Ordering};
use crate::process::{
    Bond, Completion, Events, Monitor, ParentEndPolicy, Pid, Process, Recovered, RecoveredBy, SpawnOptions, Step,
    StepOutput, StepResult, described_body,
};
use crate::sched::body::Ready;
use crate::sched::cell::{Birth, Cell, DOOMED, RELATED, TRAPS};
use crate::sched::ending::vacate;
use crate::sched::mailbox::{AnyMailbox, Control, Signal, Unwanted};

struct Anybody;

impl Process for Anybody {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

/// Two processes, both with their bodies in hand.
struct Two {
    relations: Relations,
    cells: [Cell; 2],
    dooms: AtomicUsize,
}

impl Cells for Two {
    fn cell(&self, pid: Pid) -> Option<&Cell> {
        self.cells.get(pid.slot() as usize)
    }

    fn dooms(&self) -> &AtomicUsize {
        &self.dooms
    }
}

fn pid(slot: u32) -> Pid {
    Pid::new(0, slot, 1).unwrap()
}

fn body(slot: u32) -> Ready {
    described_body(Anybody, pid(slot), SpawnOptions::new(), None)
}

fn two(traps: bool) -> Arc<Two> {
    let two = Two { relations: Relations::new(), cells: [Cell::new(), Cell::new()], dooms: AtomicUsize::new(0) };
    let birth = Birth { marks: if traps { TRAPS } else { 0 }, ..Birth::default() };
    for cell in &two.cells {
        assert!(cell.install(1, body(0).machine.kind(), birth, 0, || false));
    }
    Arc::new(two)
}

/// The remains of a process that has ended.
struct Ended {
    inbox: Option<Box<dyn AnyMailbox>>,
    exit: Exit,
}

impl Ended {
    /// Whether it was ended by the other end of a link. If not, it has ended by itself.
    fn by_link(&self) -> bool {
        match &self.exit {
            Exit::Terminated(Reason::Linked(_)) => true,
            Exit::Terminated(Reason::Cancelled) => false,
            exit => panic!("{exit}"),
        }
    }
}

/// Ends the process, as the worker that has its body does.
fn end(two: &Two, slot: u32) -> Ended {
    let mut exit = Exit::Terminated(Reason::Cancelled);
    let vacated = vacate(&two.dooms, &two.cells[slot as usize], &mut body(slot), &mut exit);
    if vacated.marks & RELATED != 0 {
        two.relations.ended(two, pid(slot), &exit, |told| {
            assert!(!matches!(told, Told::Woken(_)), "its body is in hand");
        });
    }
    Ended { inbox: vacated.into_inbox().map(|inbox| inbox.mailbox), exit }
}

/// The downs and exits that have arrived for a process. Each has whether it said that there was no such process.
fn told(two: &Two, slot: u32) -> Vec<bool> {
    let Some(mut inbox) = two.cells[slot as usize].vacate().into_inbox().map(|inbox| inbox.mailbox) else {
        return Vec::new();
    };
    let signals = inbox.signals().take().unwrap_or_default();
    let is_nobody = |exit: &Exit| matches!(exit, Exit::Terminated(Reason::NoSuchProcess));
    signals
        .control
        .iter()
        .map(|control| match control {
            Control::Down(down) => is_nobody(&down.exit),
            Control::Exit(exit, _) => is_nobody(&exit.exit),
            _ => panic!("there are only relations"),
        })
        .collect()
}

/// This test fails in two cases:
///
/// - The end takes the halves before the cell is vacant.
/// - The cell is marked outside of the lock of the halves.
#[test]
fn a_process_is_monitored_while_it_ends() {
    loom::model(|| {
        let two = two(false);
        let other = two.clone();
        let ends = loom::thread::spawn(move || drop(end(&other, 1)));
        let _ = two.relations.monitor(&*two, pid(0), Monitor::new(7, pid(1)));
        ends.join().unwrap();
        assert_eq!(told(&two, 0).len(), 1, "told once");
        assert_eq!(two.relations.len(), 0, "and nothing is left over");
    });
}

/// This test fails if the event is put into the mailbox outside of the lock. That lock is the one of the half that is
/// the right to tell.
#[test]
fn a_monitor_is_taken_back_while_the_process_ends() {
    loom::model(|| {
        let two = two(false);
        let monitor = Monitor::new(7, pid(1));
        let _ = two.relations.monitor(&*two, pid(0), monitor);
        let other = two.clone();
        let ends = loom::thread::spawn(move || drop(end(&other, 1)));
        if !two.relations.demonitor(&*two, pid(0), monitor) {
            let forgotten = two.cells[0].forget(pid(0), &[Unwanted::Down(monitor)].into());
            assert_eq!(forgotten.len(), 1, "it is in the mailbox");
        }
        ends.join().unwrap();
        assert!(told(&two, 0).is_empty(), "nothing comes afterwards");
        assert_eq!(two.relations.len(), 0);
    });
}

/// Both ends of a monitor end at once.
#[test]
fn a_watcher_ends_while_the_process_ends() {
    loom::model(|| {
        let two = two(false);
        let _ = two.relations.monitor(&*two, pid(0), Monitor::new(7, pid(1)));
        let other = two.clone();
        let ends = loom::thread::spawn(move || drop(end(&other, 1)));
        drop(end(&two, 0));
        ends.join().unwrap();
        assert_eq!(two.relations.len(), 0);
    });
}

/// This test fails in the cases of the first one.
#[test]
fn a_process_is_linked_while_it_ends() {
    loom::model(|| {
        let two = two(true);
        let other = two.clone();
        let ends = loom::thread::spawn(move || drop(end(&other, 1)));
        let _ = two.relations.link(&*two, pid(0), pid(1));
        ends.join().unwrap();
        assert_eq!(told(&two, 0).len(), 1, "told once");
        assert_eq!(two.relations.len(), 0);
    });
}

/// At most one of the two is ended by the other, and no process is left to be ended. This test fails in two cases:
///
/// - An end is told without the half that is the right to tell.
/// - A process is doomed and its exit does not say so.
#[test]
fn a_link_kills_while_the_other_ends_by_itself() {
    loom::model(|| {
        let two = two(false);
        let _ = two.relations.link(&*two, pid(0), pid(1));
        let other = two.clone();
        let ends = loom::thread::spawn(move || end(&other, 1));
        let ended = [end(&two, 0), ends.join().unwrap()];
        assert!(ended.iter().filter(|one| one.by_link()).count() <= 1);
        assert_eq!(two.dooms.load(Ordering::SeqCst), 0, "each that was doomed has ended so");
        assert_eq!(two.relations.len(), 0);
    });
}

/// One process links while the other removes the link. Both see the same result.
#[test]
fn a_link_is_made_and_taken_away_at_once() {
    loom::model(|| {
        let two = two(true);
        let other = two.clone();
        let unlinks = loom::thread::spawn(move || other.relations.unlink(&*other, pid(1), pid(0)).0);
        let _ = two.relations.link(&*two, pid(0), pid(1));
        let unlinked = unlinks.join().unwrap();
        drop(end(&two, 1));
        assert_eq!(told(&two, 0).len(), usize::from(!unlinked));
        assert_eq!(two.relations.len(), 0);
    });
}

/// Replaces the state machine of a process after a failure, as its worker does. Returns the number of signals that
/// were taken out of its mailbox, and its successor with the remaining ones.
fn recover(two: &Two, slot: u32, traps: bool) -> (usize, Ready) {
    let exit = Exit::Terminated(Reason::Cancelled);
    let recovered = Recovered { pid: pid(slot), exit, by: RecoveredBy::Process };
    let mut successor = body(slot);
    successor.head.rare().traps = traps;
    two.relations.recover(two, &recovered, &successor, |told| {
        assert!(!matches!(told, Told::Woken(_)), "its body is in hand");
    });
    let (left, signals) = two.cells[slot as usize].recover(&mut successor, 0);
    if let Some(mut inbox) = left {
        successor.machine.mailbox().absorb(&mut *inbox.mailbox, usize::MAX);
    }
    (signals.len(), successor)
}

/// The numbers of exits and recoveries that wait in the body or the cell of a process.
fn heard(two: &Two, slot: u32, mut body: Ready) -> (usize, usize) {
    let inbox = two.cells[slot as usize].vacate().into_inbox().map(|inbox| inbox.mailbox);
    let mailboxes =
        inbox.into_iter().map(|mut inbox| inbox.signals().take()).chain([body.machine.mailbox().signals().take()]);
    let control: Vec<Control> = mailboxes.flatten().flat_map(|signals| signals.control).collect();
    let count = |is: fn(&Control) -> bool| control.iter().filter(|control| is(control)).count();
    let (exits, recoveries) =
        (count(|one| matches!(one, Control::Exit(..))), count(|one| matches!(one, Control::Recovered(_))));
    assert_eq!(control.len(), exits + recoveries, "and nothing of monitors");
    (exits, recoveries)
}

/// The makers of the link between the process that recovers, 0, and the other, 1.
const MAKERS: [&[u32]; 3] = [&[0], &[1], &[0, 1]];

fn link(two: &Two, makers: &[u32]) {
    for maker in makers {
        let _ = two.relations.link(two, pid(*maker), pid(1 - maker));
    }
}

/// This test fails in three cases:
///
/// - The next incarnation begins before the relations are given up.
/// - An exit does not say which end has made the link.
/// - A link is given up under the lock of one end only.
#[test]
fn the_other_end_ends_while_this_one_recovers() {
    for makers in MAKERS {
        loom::model(move || {
            let two = two(true);
            link(&two, makers);
            let _ = two.relations.monitor(&*two, pid(0), Monitor::new(7, pid(1)));
            let other = two.clone();
            let ends = loom::thread::spawn(move || end(&other, 1));
            let (_, successor) = recover(&two, 0, true);
            let mut ended = ends.join().unwrap();
            let (exits, recoveries) = heard(&two, 0, successor);
            let of_other = usize::from(makers.contains(&1));
            assert_eq!((exits, recoveries), (of_other, 0), "told of the link of the other, and of nothing else");
            let told = ended.inbox.as_mut().and_then(|inbox| inbox.signals().take()).unwrap_or_default();
            assert!(told.control.len() <= 1, "the exit of the failed one, or its recovery");
            assert_eq!(two.relations.len(), 0, "and nothing is left over");
        });
    }
}

/// The exit of the failed process ends the other, which also ends by itself. It ends once.
#[test]
fn the_other_end_is_ended_by_a_failure_while_it_ends_by_itself() {
    loom::model(|| {
        let two = two(false);
        link(&two, &[0]);
        let other = two.clone();
        let ends = loom::thread::spawn(move || end(&other, 1));
        let (_, successor) = recover(&two, 0, false);
        let ended = ends.join().unwrap();
        let doomed = usize::from(two.cells[0].vacate().marks & DOOMED != 0);
        assert_eq!(two.dooms.load(Ordering::SeqCst), doomed, "the other one that was doomed has ended so");
        assert!(doomed == 0 || !ended.by_link(), "one of them has ended the other");
        drop(successor);
        assert_eq!(two.relations.len(), 0);
    });
}

/// The link that the other process makes remains. It ends with the process that has recovered.
#[test]
fn the_other_end_links_itself_while_this_one_recovers() {
    loom::model(|| {
        let two = two(true);
        link(&two, &[0]);
        let other = two.clone();
        let links = loom::thread::spawn(move || drop(other.relations.link(&*other, pid(1), pid(0))));
        let (_, successor) = recover(&two, 0, true);
        links.join().unwrap();
        assert_eq!(two.relations.len(), 2);
        assert!(two.cells[0].vacate().marks & RELATED != 0);
        let mut told = Vec::new();
        two.relations.ended(&*two, pid(0), &Exit::Done(()), |one| told.push(one));
        let (exits, recoveries) = heard(&two, 1, body(1));
        assert_eq!(exits + recoveries, 2, "the end, and before that the recovery or the exit of the failed one");
        assert!(exits >= 1);
        drop(successor);
        assert_eq!(two.relations.len(), 0);
    });
}

/// This test fails if the cell is marked after the other end is told.
#[test]
fn the_other_end_unlinks_while_this_one_recovers() {
    for makers in MAKERS {
        loom::model(move || {
            let two = two(true);
            link(&two, makers);
            let other = two.clone();
            let unlinks = loom::thread::spawn(move || {
                let (_, told) = other.relations.unlink(&*other, pid(1), pid(0));
                if let Some(told) = told {
                    assert!(told == Unwanted::Recovered(pid(0)));
                    drop(other.cells[1].forget(pid(1), &[told].into()));
                }
            });
            let (_, successor) = recover(&two, 0, true);
            unlinks.join().unwrap();
            assert_eq!(heard(&two, 1, body(1)), (0, 0), "it has unlinked, and is told nothing");
            drop(successor);
            assert_eq!(two.relations.len(), 0);
        });
    }
}

/// Process 0 runs process 1.
fn run(two: &Two) {
    two.relations.bond(
        two,
        pid(1),
        Bond {
            parent: pid(0),
            monitor: None,
            watcher: pid(0),
            link: false,
            run: Some((7, ParentEndPolicy::Terminate)),
        },
    );
    assert!(two.cells[1].relate(pid(1)));
}

/// The end of the parent, or its recovery, ends the child, which also ends by itself. It ends once, and the parent is
/// told nothing. This test fails if the child is told without its half, which is the right to tell.
#[test]
fn a_child_that_is_run_ends_while_its_parent_ends_or_recovers() {
    for recovers in [false, true] {
        loom::model(move || {
            let two = two(false);
            run(&two);
            let other = two.clone();
            let ends = loom::thread::spawn(move || drop(end(&other, 1)));
            if recovers {
                let (forgotten, successor) = recover(&two, 0, false);
                assert_eq!((forgotten, heard(&two, 0, successor)), (0, (0, 0)));
            } else {
                assert!(!end(&two, 0).by_link() && told(&two, 0).is_empty());
            }
            ends.join().unwrap();
            assert_eq!(two.dooms.load(Ordering::SeqCst), 0, "if it was doomed, it has ended so");
            assert_eq!(two.relations.len(), 0, "and nothing is left over");
        });
    }
}

/// The child is told the end of the parent, before its recovery or after it. This test fails if the recovery takes the
/// half of the child.
#[test]
fn a_child_that_is_run_recovers_while_its_parent_ends() {
    loom::model(|| {
        let two = two(true);
        run(&two);
        let other = two.clone();
        let ends = loom::thread::spawn(move || drop(end(&other, 0)));
        let (_, successor) = recover(&two, 1, true);
        ends.join().unwrap();
        assert_eq!(heard(&two, 1, successor), (1, 0));
        assert_eq!(two.relations.len(), 0);
    });
}

/// An answer to the failed state machine is taken out, or refused.
#[test]
fn an_answer_comes_while_its_process_recovers() {
    loom::model(|| {
        let two = two(false);
        let other = two.clone();
        let answers = loom::thread::spawn(move || {
            other.cells[0].signal(pid(0), Signal::Completed(Completion::from(None, 1, Ok(Box::new(()))))).is_err()
        });
        let (forgotten, mut successor) = recover(&two, 0, false);
        let refused = answers.join().unwrap();
        assert_eq!(forgotten + usize::from(refused), 1, "late, once");
        assert!(!successor.machine.mailbox().has_signals());
        assert!(two.cells[0].vacate().into_inbox().is_none_or(|inbox| !inbox.mailbox.has_signals()));
    });
}
