//! Models of a process that is held, with the real cell and a connection that has room, has none, or is down.

use super::*;
use crate::outcome::Reason;
use crate::primitives::thread;
use crate::process::{CancelRequest, Events, Process, SpawnOptions, Step, StepOutput, StepResult, described_body};
use crate::sched::body::{Ready, Stepped, Verdict};
use crate::sched::cell::{Birth, Cell, Settled};
use crate::sched::mailbox::{Control, Signal};

struct Anybody;

impl Process for Anybody {
    type Message = u32;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

const NODE: u32 = 2;

/// A connection, as far as its room goes.
struct Connection {
    is_full: bool,
    is_down: bool,
    has_refused: bool,
}

impl Connection {
    fn has_room(&mut self) -> bool {
        let has_room = self.is_down || !self.is_full;
        self.has_refused |= !has_room;
        has_room
    }
}

struct World {
    cell: Cell,
    waiting: Waiting,
    connection: Mutex<Connection>,
}

impl World {
    /// A process in hand, and a connection without room.
    fn new() -> (Arc<World>, Ready) {
        let body: Ready = described_body(Anybody, Pid::FIRST, SpawnOptions::new(), None);
        let cell = Cell::new();
        assert!(cell.install(1, body.machine.kind(), Birth::default(), 0, || false));
        let connection = Mutex::new(Connection { is_full: true, is_down: false, has_refused: false });
        (Arc::new(World { cell, waiting: Waiting::default(), connection }), body)
    }

    fn let_go(&self) -> Vec<Ready> {
        self.waiting.take_processes(NODE, Bound::Small).into_iter().filter_map(|pid| self.cell.let_go(pid)).collect()
    }

    /// Sends a message in the step that the process is in, as `Road::hold_sender` does.
    fn send(&self) -> Vec<Ready> {
        if lock(&self.connection).has_room() {
            return Vec::new();
        }
        self.cell.hold_after_step(Pid::FIRST);
        self.waiting.push_process(NODE, Bound::Small, Pid::FIRST);
        let has_room = lock(&self.connection).has_room();
        if has_room { self.let_go() } else { Vec::new() }
    }

    /// The step is over, and the process wants another one.
    fn settle(&self, body: Ready) -> Option<Ready> {
        let stepped = Stepped { verdict: Verdict::Continue, unseen: false, signals: false, taken: 0 };
        match self.cell.settle(body, stepped) {
            Settled::Again(body) | Settled::Ends(body) => Some(body),
            Settled::Resting | Settled::Asking(_) => None,
        }
    }

    /// Changes the connection, and lets those go that wait for it.
    fn changes(&self, change: impl FnOnce(&mut Connection)) -> Vec<Ready> {
        let is_told = {
            let connection = &mut *lock(&self.connection);
            change(connection);
            connection.has_refused || connection.is_down
        };
        if is_told { self.let_go() } else { Vec::new() }
    }

    fn is_in_one_hand(&self, bodies: impl IntoIterator<Item = Ready>) {
        assert_eq!(bodies.into_iter().count(), 1, "somebody has the body, and nobody else");
        assert!(self.waiting.take_processes(NODE, Bound::Small).is_empty(), "and it waits no longer");
    }
}

fn model(change: fn(&mut Connection)) {
    loom::model(move || {
        let (world, body) = World::new();
        let other = thread::spawn({
            let world = world.clone();
            move || world.changes(change)
        });
        let at_once = world.send();
        let kept = world.settle(body);
        let let_go = other.join().unwrap();
        world.is_in_one_hand(at_once.into_iter().chain(kept).chain(let_go));
    });
}

/// Fails if the process is marked after it is among those that wait, or if nobody looks for room afterwards.
#[test]
fn a_sender_is_held_while_room_comes() {
    model(|connection| connection.is_full = false);
}

#[test]
fn a_sender_is_held_while_the_node_goes_down() {
    model(|connection| connection.is_down = true);
}

/// Fails if the process is held although a signal has come, or if a signal does not wake it.
#[test]
fn a_sender_is_held_while_a_signal_comes() {
    loom::model(|| {
        let (world, body) = World::new();
        let other = thread::spawn({
            let world = world.clone();
            move || {
                let control = Control::Cancel(CancelRequest { reason: Reason::Cancelled, deadline: None });
                world.cell.signal(Pid::FIRST, Signal::Control(control)).ok().flatten()
            }
        });
        let at_once = world.send();
        let kept = world.settle(body);
        let woken = other.join().unwrap();
        let bodies: Vec<Ready> = at_once.into_iter().chain(kept).chain(woken).collect();
        assert_eq!(bodies.len(), 1);
    });
}

/// Fails if one that is held is not found by the call that terminates it.
#[test]
fn a_sender_is_held_while_it_is_terminated() {
    loom::model(|| {
        let (world, body) = World::new();
        let other = thread::spawn({
            let world = world.clone();
            move || world.cell.doom(Pid::FIRST, 0).expect("nobody else dooms it")
        });
        let at_once = world.send();
        let kept = world.settle(body);
        let ended = other.join().unwrap();
        assert_eq!(at_once.into_iter().chain(kept).chain(ended).count(), 1);
    });
}

/// A body that is let go twice is in one hand.
#[test]
fn room_and_a_signal_come_to_a_sender_that_is_held() {
    loom::model(|| {
        let (world, body) = World::new();
        assert!(world.send().is_empty() && world.settle(body).is_none());
        let other = thread::spawn({
            let world = world.clone();
            move || world.changes(|connection| connection.is_full = false)
        });
        let control = Control::Cancel(CancelRequest { reason: Reason::Cancelled, deadline: None });
        let woken = world.cell.signal(Pid::FIRST, Signal::Control(control)).ok().flatten();
        let let_go = other.join().unwrap();
        world.is_in_one_hand(woken.into_iter().chain(let_go));
    });
}
