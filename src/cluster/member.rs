//! A peer with its driver and its two threads.
//!
//! The *out thread* sends frames, and waits for the link. The *in thread* takes frames, and runs the decoders of users.
//! They run while the link sees the peer. `docs/cluster.md` has the protocol.

use std::time::{Duration, Instant};

use super::driver::{Inward, Outward, PeerDriver, Wakes};
use super::link::Link;
use super::simulated::{Turns, WorldBells};
use crate::clock::{Clock, Deadline};
use crate::latch::Latch;
use crate::outcome::{Panic, contain, tell_log};
use crate::pool::Parker;
use crate::primitives::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, Weak, lock, thread};
use crate::runtime::PeerStats;
use crate::threads;

/// The most incarnations of one name that are known at once.
const INCARNATIONS: usize = 16;

/// How long it takes until something that has failed is tried again: the start of a thread, or a frame whose link has
/// panicked.
const AGAIN: Duration = Duration::from_millis(250);

/// A peer, which is known by its name.
pub(super) struct Member {
    name: Arc<str>,
    pub(super) driver: Arc<PeerDriver>,
    link: Arc<dyn Link>,
    clock: Clock,
    bells: Bells,
    /// The connection that is up. It is not here during a turn inward.
    inward: Mutex<Option<Inward>>,
    state: Mutex<State>,
    /// Odd if the two threads are to exit. It grows with each change, which is made under the lock of the state.
    phase: AtomicU64,
    /// Whether the node is about to leave.
    is_leaving: AtomicBool,
    /// Frames that were given to the link, and that came from it.
    sent: Frames,
    received: Frames,
    /// The number of in threads.
    #[cfg(all(test, loom))]
    inside: crate::primitives::AtomicUsize,
}

/// A number of frames, and their bytes.
#[derive(Default)]
struct Frames {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Frames {
    fn one(&self, bytes: usize) {
        // Ordering: Relaxed. They are counts.
        self.add((1, bytes as u64));
    }

    fn add(&self, (count, bytes): (u64, u64)) {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// The counts of a peer that was forgotten.
#[derive(Clone, Copy)]
pub(super) struct PeerCounts {
    /// The numbers of frames that were sent and received, each with the bytes.
    frames: [(u64, u64); 2],
}

/// Calls the two threads when there may be something to do.
#[derive(Clone)]
pub(super) enum Bells {
    Threads(ThreadBells),
    /// The world of a simulation has the turns.
    World(Arc<WorldBells>),
}

/// The places at which the two threads wait.
#[derive(Clone)]
pub(super) struct ThreadBells {
    inward: Parker,
    outward: Parker,
    quiet: Parker,
}

#[derive(Default)]
struct State {
    /// The incarnations that the link sees, the earliest first.
    seen: Vec<u64>,
    /// The two threads, by their direction.
    threads: [Running; 2],
    /// A thread could not be started. A frame of the peer is another try from this moment on.
    again_at: Option<Instant>,
    has_left: bool,
}

/// A thread of the connection.
#[derive(Default)]
struct Running {
    /// Whether it has not decided to exit.
    is_running: bool,
    /// Set when it has exited. It is that of the last one that was started.
    exited: Option<Latch<()>>,
}

/// Which of the two threads.
#[derive(Clone, Copy)]
enum Direction {
    Out,
    In,
}

/// Sets a latch when it is dropped, also by a panic.
struct SetsWhenDropped(Latch<()>);

impl Drop for SetsWhenDropped {
    fn drop(&mut self) {
        let _ = self.0.set(());
    }
}

impl Bells {
    /// Those of threads. `quiet` is rung after each frame of the peer, and after each turn of the in thread, while the
    /// node leaves.
    pub(super) fn of_threads(quiet: Parker) -> Bells {
        Bells::Threads(ThreadBells { inward: Parker::new(), outward: Parker::new(), quiet })
    }

    pub(super) fn wakes(&self) -> Wakes {
        match self {
            Bells::Threads(bells) => {
                let (inward, outward) = (bells.inward.clone(), bells.outward.clone());
                Wakes { inward: Box::new(move || inward.unpark()), outward: Box::new(move || outward.unpark()) }
            }
            Bells::World(bells) => bells.wakes(),
        }
    }
}

impl Member {
    pub(super) fn new(
        name: Arc<str>,
        (driver, bells): (Arc<PeerDriver>, Bells),
        link: Arc<dyn Link>,
        clock: Clock,
    ) -> Arc<Member> {
        let member = Arc::new(Member {
            name,
            driver,
            link,
            clock,
            bells,
            inward: Mutex::new(Some(Inward::default())),
            state: Mutex::default(),
            phase: AtomicU64::new(1),
            is_leaving: AtomicBool::new(false),
            sent: Frames::default(),
            received: Frames::default(),
            #[cfg(all(test, loom))]
            inside: crate::primitives::AtomicUsize::new(0),
        });
        if let Bells::World(bells) = &member.bells {
            let turns: Weak<Member> = Arc::downgrade(&member);
            bells.begin(turns);
        }
        member
    }

    /// Whether the link sees no node of this name, and its threads have exited.
    pub(super) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.seen.is_empty() && state.exited().all(Latch::is_set)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn stats(&self, is_up: bool) -> PeerStats {
        let [(frames_sent, bytes_sent), (frames_received, bytes_received)] =
            self.counts().map_or([(0, 0); 2], |counts| counts.frames);
        PeerStats { name: self.name.to_string(), is_up, frames_sent, bytes_sent, frames_received, bytes_received }
    }

    /// The counts. `None` until the peer was up, because a node may see more names than it can remember.
    pub(super) fn counts(&self) -> Option<PeerCounts> {
        self.driver.has_been_up().then(|| PeerCounts { frames: [self.sent.get(), self.received.get()] })
    }

    /// Goes on with the counts of an earlier member of this name, which was up once.
    pub(super) fn go_on_from(&self, counts: PeerCounts) {
        self.driver.set_has_been_up();
        [&self.sent, &self.received].into_iter().zip(counts.frames).for_each(|(frames, counts)| frames.add(counts));
    }

    /// The link sees this incarnation of the peer. The error says why there is no thread for it.
    pub(super) fn seen(self: &Arc<Self>, incarnation: u64) -> std::io::Result<()> {
        let mut state = lock(&self.state);
        if state.has_left {
            return Ok(());
        }
        if !state.seen.contains(&incarnation) {
            if state.seen.len() >= INCARNATIONS {
                // The link reports the ends of old ones late. One that has come later is likelier to live, and the one
                // that is connected lives.
                let old = state.seen.iter().position(|old| !self.driver.is_connected_to(*old));
                old.into_iter().for_each(|old| _ = state.seen.remove(old));
            }
            state.seen.push(incarnation);
        }
        self.driver.seen();
        // A name costs one thread until it has sent a frame.
        self.run(&mut state, &[Direction::Out])
    }

    /// The link does not see this incarnation any more.
    pub(super) fn gone(&self, incarnation: u64) {
        let mut state = lock(&self.state);
        let before = state.seen.len();
        state.seen.retain(|seen| *seen != incarnation);
        if state.seen.len() == before {
            return;
        }
        if state.seen.is_empty() {
            self.driver.gone();
            self.end();
        } else if self.driver.is_connected_to(incarnation) {
            self.driver.closed();
        }
    }

    /// Takes a frame of the peer.
    pub(super) fn frame(self: &Arc<Self>, frame: Vec<u8>) {
        self.received.one(frame.len());
        self.driver.arrived(frame);
        if let Bells::Threads(bells) = &self.bells
            && self.is_leaving.load(Ordering::SeqCst)
        {
            // It may be a heartbeat that acknowledges everything. The in thread sleeps on if it has no effects.
            bells.quiet.unpark();
        }
        let mut state = lock(&self.state);
        let is_missing = !state.threads.iter().all(|thread| thread.is_running);
        if is_missing && !state.seen.is_empty() && state.again_at.is_none_or(|at| at <= self.clock.now()) {
            // The peer says hello again and again, so its frames are tries for a thread that could not be started.
            let begun = self.run(&mut state, &[Direction::Out, Direction::In]);
            drop(state);
            self.tell(begun);
        }
    }

    /// Reports that there is no thread. User code may run, so no lock is held.
    pub(super) fn tell(&self, begun: std::io::Result<()>) {
        if let Err(error) = begun {
            tell_log(|| tracing::error!(peer = &*self.name, %error, "there is no thread for the connection"));
        }
    }

    /// The node is about to leave, and waits until the peer has everything.
    pub(super) fn announce_leave(&self) {
        self.is_leaving.store(true, Ordering::SeqCst);
    }

    /// Leaves the cluster. Returns the latches that the two threads set when they exit.
    pub(super) fn leave(&self) -> Vec<Latch<()>> {
        let mut state = lock(&self.state);
        state.has_left = true;
        self.driver.leave();
        self.end();
        drop(state);
        self.left()
    }

    /// The latches that the two threads which ran last set when they exit.
    fn left(&self) -> Vec<Latch<()>> {
        lock(&self.state).exited().cloned().collect()
    }

    /// Has the threads go on. Starts those of these directions that do not run, unless the node has left.
    fn run(self: &Arc<Self>, state: &mut State, directions: &[Direction]) -> std::io::Result<()> {
        let Bells::Threads(bells) = &self.bells else { return Ok(()) };
        if state.has_left {
            return Ok(());
        }
        if is_over(self.phase.load(Ordering::SeqCst)) {
            self.phase.fetch_add(1, Ordering::SeqCst);
        }
        let begun = directions.iter().try_for_each(|direction| self.start(state, bells, *direction));
        state.again_at = begun.is_err().then(|| self.clock.now() + AGAIN);
        begun
    }

    /// Whether threads run that were not told to exit.
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_running(&self) -> bool {
        !is_over(self.phase.load(Ordering::SeqCst))
    }

    /// Starts a thread, unless it runs.
    ///
    /// The one before it has decided to exit. The new one waits until it has, so that the last one ends last.
    fn start(self: &Arc<Self>, state: &mut State, bells: &ThreadBells, direction: Direction) -> std::io::Result<()> {
        let thread = &mut state.threads[direction as usize];
        if thread.is_running {
            return Ok(());
        }
        let (member, bells) = (self.clone(), bells.clone());
        let (before, exited) = (thread.exited.clone(), Latch::new());
        let exits = SetsWhenDropped(exited.clone());
        let main = move || {
            // A thread that waits for this one may end the program next. So it is set last.
            let _exits = exits;
            before.into_iter().for_each(|before| before.wait());
            let run = || match direction {
                Direction::Out => member.run_out(&bells),
                Direction::In => member.run_in(&bells),
            };
            if let Err(panic) = contain(run) {
                tell_log(|| tracing::error!(peer = &*member.name, %panic, "the thread of a connection panicked"));
                lock(&member.state).threads[direction as usize].is_running = false;
                member.driver.closed();
            }
            drop(member);
        };
        let name = match direction {
            Direction::Out => "to",
            Direction::In => "from",
        };
        threads::start(format!("procession-{name}-{}", self.name), main)?;
        *thread = Running { is_running: true, exited: Some(exited) };
        Ok(())
    }

    /// Has the two threads exit when they have nothing more to do. The caller has the lock of the state.
    fn end(&self) {
        if let Bells::Threads(bells) = &self.bells
            && !is_over(self.phase.load(Ordering::SeqCst))
        {
            self.phase.fetch_add(1, Ordering::SeqCst);
            bells.inward.unpark();
            bells.outward.unpark();
        }
    }

    /// Whether a thread exits that has read this phase, and has then done everything that there was to do.
    ///
    /// It goes on if the phase is another one by now. If it is to exit again then, there may be something new to do.
    fn exits(&self, direction: Direction, phase: u64) -> bool {
        if !is_over(phase) {
            return false;
        }
        let mut state = lock(&self.state);
        let exits = self.phase.load(Ordering::SeqCst) == phase;
        state.threads[direction as usize].is_running = !exits;
        exits
    }

    fn run_out(&self, bells: &ThreadBells) {
        let _watch = bells.outward.watch(&self.clock);
        loop {
            // Read before the turn: all that was to be sent before it was set is sent.
            let phase = self.phase.load(Ordering::SeqCst);
            let due = self.turn_out();
            if self.exits(Direction::Out, phase) {
                return;
            }
            bells.outward.park(&self.clock, Deadline(due));
            if self.driver.has_unacknowledged() {
                // Frames are not yet acknowledged, so no question travels alone. Threads that wait for a processor run
                // first, so that their items go with the next frame.
                thread::yield_now();
            }
        }
    }

    fn run_in(&self, bells: &ThreadBells) {
        #[cfg(all(test, loom))]
        assert_eq!(self.inside.fetch_add(1, Ordering::Relaxed), 0, "two threads decode at once");
        loop {
            let phase = self.phase.load(Ordering::SeqCst);
            if self.turn_in() {
                if self.is_leaving.load(Ordering::SeqCst) {
                    bells.quiet.unpark();
                }
                continue;
            }
            #[cfg(all(test, loom))]
            self.inside.fetch_sub(1, Ordering::Relaxed);
            if self.exits(Direction::In, phase) {
                return;
            }
            #[cfg(all(test, loom))]
            self.inside.fetch_add(1, Ordering::Relaxed);
            bells.inward.park(&self.clock, Deadline::NEVER);
        }
    }
}

impl State {
    fn exited(&self) -> impl Iterator<Item = &Latch<()>> {
        self.threads.iter().filter_map(|thread| thread.exited.as_ref())
    }
}

fn is_over(phase: u64) -> bool {
    phase % 2 == 1
}

impl Turns for Member {
    fn turn_in(&self) -> bool {
        // Not locked while user code runs. In a world, user code that waits may come back here. The turn around it
        // then has the next one follow.
        let Some(mut inward) = lock(&self.inward).take() else { return false };
        let turned = contain(|| self.driver.turn_in(&mut inward));
        *lock(&self.inward) = Some(inward);
        turned.unwrap_or_else(|panic| {
            self.close_after(&panic);
            true
        })
    }

    fn turn_out(&self) -> Option<Instant> {
        let mut frame = Vec::new();
        loop {
            let turned = contain(|| match self.driver.turn_out(&mut frame) {
                Outward::Frame => {
                    self.sent.one(frame.len());
                    self.link.send(&self.name, &frame);
                    None
                }
                Outward::Until(due) => Some(due),
            });
            match turned {
                Ok(None) => {}
                Ok(Some(due)) => return due,
                Err(panic) => {
                    self.close_after(&panic);
                    return Some(self.clock.now() + AGAIN);
                }
            }
        }
    }
}

impl Member {
    fn close_after(&self, panic: &Panic) {
        tell_log(|| tracing::error!(peer = &*self.name, %panic, "a connection is closed after a panic"));
        self.driver.closed();
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
