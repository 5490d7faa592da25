//! The races of relations, under the model checker: the real table of relations, the real cells, no queue.

use super::Cells;
use super::Relations;
use super::Told;
use crate::outcome::{Exit, Reason};
use crate::process::body::Ready;
use crate::process::mailbox::{Control, Unwanted};
use crate::process::{Events, Monitor, Pid, Process, SpawnOptions, Step, StepOutput, StepResult, described_body};
use crate::sched::cell::{Birth, Cell, Marks, Vacated};
use crate::sync::{Arc, AtomicUsize};

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
    let birth = Birth { marks: Marks::default().with(Marks::TRAPS, traps), ..Birth::default() };
    for cell in &two.cells {
        assert!(cell.install(1, body(0).machine.kind(), birth, 0, || false));
    }
    Arc::new(two)
}

/// Ends the process, as whoever has its body does. How many are to be woken or ended.
fn end(two: &Two, slot: u32) -> Vacated {
    let vacated = two.cells[slot as usize].vacate();
    if vacated.marks.has(Marks::RELATED) {
        two.relations.ended(two, pid(slot), &Exit::Terminated(Reason::Cancelled), |told| {
            assert!(!matches!(told, Told::Woken(_)), "its body is in hand");
        });
    }
    vacated
}

/// What has arrived for a process: downs and exits with whether they said that there was no such process.
fn told(two: &Two, slot: u32) -> Vec<bool> {
    let Some(mut inbox) = two.cells[slot as usize].vacate().inbox else { return Vec::new() };
    let signals = inbox.take_signals().unwrap_or_default();
    let is_nobody = |exit: &Exit| matches!(exit, Exit::Terminated(Reason::NoSuchProcess));
    signals
        .control
        .iter()
        .map(|control| match control {
            Control::Down(down) => is_nobody(&down.exit),
            Control::Exit(exit) => is_nobody(&exit.exit),
            _ => panic!("there are only relations"),
        })
        .collect()
}

/// Breaks when the end takes the halves before the cell is vacant, and when the cell is marked outside of the lock of the
/// halves.
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

/// Breaks when the event is put into the mailbox outside of the lock of the half that is the right to tell.
#[test]
fn a_monitor_is_taken_back_while_the_process_ends() {
    loom::model(|| {
        let two = two(false);
        let monitor = Monitor::new(7, pid(1));
        let _ = two.relations.monitor(&*two, pid(0), monitor);
        let other = two.clone();
        let ends = loom::thread::spawn(move || drop(end(&other, 1)));
        if !two.relations.demonitor(pid(0), monitor) {
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

/// Breaks as the first one does.
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

/// One that does not trap exits is doomed exactly once, with the killer where whoever ends it finds it.
#[test]
fn a_link_kills_while_the_other_ends_by_itself() {
    loom::model(|| {
        let two = two(false);
        let _ = two.relations.link(&*two, pid(0), pid(1));
        let other = two.clone();
        let ends = loom::thread::spawn(move || drop(end(&other, 1)));
        let mut vacated = end(&two, 0);
        ends.join().unwrap();
        let killer = vacated.inbox.as_mut().and_then(|inbox| inbox.take_killer());
        assert_eq!(vacated.marks.has(Marks::DOOMED), killer.is_some(), "doomed by the link, and by nothing else");
        assert_eq!(two.relations.len(), 0);
    });
}

/// One links while the other takes the link away: they agree.
#[test]
fn a_link_is_made_and_taken_away_at_once() {
    loom::model(|| {
        let two = two(true);
        let other = two.clone();
        let unlinks = loom::thread::spawn(move || other.relations.unlink(pid(1), pid(0)));
        let _ = two.relations.link(&*two, pid(0), pid(1));
        let unlinked = unlinks.join().unwrap();
        drop(end(&two, 1));
        assert_eq!(told(&two, 0).len(), usize::from(!unlinked));
        assert_eq!(two.relations.len(), 0);
    });
}
