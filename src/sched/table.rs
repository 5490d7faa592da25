//! The table of processes: slots that never move and are never freed, found by index.
//!
//! A PID's slot number is an index into segments that are made when they are first needed. Its generation is compared
//! under the slot's lock. So a lookup costs the same with ten processes as with a million. There is no reference to
//! count. A message to an ended process cannot reach its successor, because the comparison and the delivery are one
//! critical section.

use std::cell::RefCell;

use crossbeam_queue::SegQueue;

use super::cell::Cell;
use crate::primitives::{AtomicUsize, OnceLock, Ordering};
use crate::process::Pid;

/// The number of slots in a segment. It is a power of two. A segment has 128 KiB of cells.
const SEGMENT: usize = 2048;

/// The most processes that a runtime can be configured to hold.
pub(crate) const MOST_PROCESSES: u32 = Pid::MAX_SLOT + 1;

pub(crate) struct Table {
    node: u32,
    nobody: Pid,
    limit: u32,
    segments: Box<[OnceLock<Box<[Cell]>>]>,
    /// The number of slots ever used.
    used: AtomicUsize,
    /// The number of slots that have used all their generations. Other slots replace them.
    retired: AtomicUsize,
    /// Slots whose process has ended, as the PIDs of their next processes.
    vacant: SegQueue<Pid>,
    /// Whether the drop of the table leaves its segments for another one.
    leaves_segments: bool,
}

/// The most segments that a thread keeps for the next table of a simulation.
const MOST_SPARE: usize = 64;

std::thread_local! {
    /// Segments of tables of simulations, whose cells are as new.
    static SPARES: RefCell<Vec<Box<[Cell]>>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Table {
    fn drop(&mut self) {
        if !self.leaves_segments {
            return;
        }
        let used = self.used.load(Ordering::Relaxed);
        for (segment, number) in self.segments.iter_mut().zip(0..) {
            let Some(mut cells) = segment.take() else { continue };
            let used = used.saturating_sub(number * SEGMENT).min(SEGMENT);
            cells[..used].iter_mut().for_each(|cell| *cell = Cell::new());
            // While the thread ends, there may be no such list any more.
            let _ = SPARES.try_with(|spares| {
                let mut spares = spares.borrow_mut();
                if spares.len() < MOST_SPARE {
                    spares.push(cells);
                }
            });
        }
    }
}

/// Makes a segment, or takes a spare one.
fn segment() -> Box<[Cell]> {
    let spare = SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten();
    spare.unwrap_or_else(|| std::iter::repeat_with(Cell::new).take(SEGMENT).collect())
}

impl Table {
    /// Makes a table. Returns `None` if the node is out of range.
    pub(crate) fn new(node: u32, limit: u32) -> Option<Table> {
        // There is room for all possible slots, because slots wear out. A segment that is not made costs a few bytes.
        Table::with_room(node, limit, MOST_PROCESSES as usize)
    }

    /// A table of a runtime in a simulation. It has room for its processes only, and its drop leaves its segments for
    /// the next one: a simulation makes very many tables.
    pub(crate) fn of_simulation(node: u32, limit: u32) -> Option<Table> {
        let mut table = Table::with_room(node, limit, limit as usize)?;
        table.leaves_segments = true;
        Some(table)
    }

    fn with_room(node: u32, limit: u32, slots: usize) -> Option<Table> {
        Some(Table {
            node,
            nobody: Pid::nobody(node)?,
            limit,
            segments: std::iter::repeat_with(OnceLock::new).take(slots.div_ceil(SEGMENT)).collect(),
            used: AtomicUsize::new(0),
            retired: AtomicUsize::new(0),
            vacant: SegQueue::new(),
            leaves_segments: false,
        })
    }

    /// A table for one process, in this slot. It has no room for others, and a low slot costs a few hundred bytes.
    pub(crate) fn of_one(pid: Pid) -> Option<Table> {
        let slot = pid.slot() as usize;
        let table = Table::with_room(pid.node(), 1, slot + 1)?;
        let cells = || std::iter::repeat_with(Cell::new).take(slot % SEGMENT + 1).collect();
        table.segments[slot / SEGMENT].get_or_init(cells);
        table.used.store(slot + 1, Ordering::SeqCst);
        Some(table)
    }

    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// Returns a PID that no process has.
    pub(crate) fn nobody(&self) -> Pid {
        self.nobody
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the cell of this PID: its process is, was or will be there.
    #[inline]
    pub(crate) fn cell(&self, pid: Pid) -> Option<&Cell> {
        if pid.node() != self.node {
            return None;
        }
        self.slot(pid.slot() as usize)
    }

    #[inline]
    fn slot(&self, slot: usize) -> Option<&Cell> {
        self.segments.get(slot / SEGMENT)?.get()?.get(slot % SEGMENT)
    }

    /// Returns a PID for a new process, if there is room for one.
    pub(crate) fn vacancy(&self) -> Option<Pid> {
        self.vacant.pop().or_else(|| self.first_use())
    }

    fn first_use(&self) -> Option<Pid> {
        // Ordering: SeqCst. A shutdown closes the door and then asks how many slots are in use. A spawn takes a slot
        // and then asks whether the door is closed. At least one of the two sees the other.
        let most = (self.limit as usize)
            .saturating_add(self.retired.load(Ordering::Relaxed))
            .min(self.segments.len() * SEGMENT);
        let slot =
            self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| (used < most).then(|| used + 1)).ok()?;
        self.segments[slot / SEGMENT].get_or_init(segment);
        Pid::new(self.node, slot as u32, 1)
    }

    /// Takes back a PID that was never used.
    pub(crate) fn give_back(&self, vacancy: Pid) {
        self.vacant.push(vacancy);
    }

    /// Takes back the slot of a PID that no process will have any longer: its process has ended, or was never begun.
    pub(crate) fn give_back_after(&self, pid: Pid) {
        match pid.successor() {
            Some(next) => self.vacant.push(next),
            None => drop(self.retired.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// The number of slots that have ever been used.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Returns all cells that have ever been used, with their slots.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (u32, &Cell)> {
        (0..self.used()).filter_map(|slot| Some((slot as u32, self.slot(slot)?)))
    }

    pub(crate) fn pid(&self, slot: u32, generation: u32) -> Option<Pid> {
        Pid::new(self.node, slot, generation)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_one_has_its_cell_and_room_for_no_other() {
        for slot in [0, 1, 2047, 2048, 70_000] {
            let pid = Pid::new(3, slot, 5).unwrap();
            let table = Table::of_one(pid).unwrap();
            assert!(table.cell(pid).is_some() && table.vacancy().is_none());
            assert_eq!(
                table.segments.iter().filter_map(|one| one.get()).map(|one| one.len()).sum::<usize>(),
                slot as usize % SEGMENT + 1
            );
        }
    }

    #[test]
    fn slots_come_back_under_a_new_generation_and_the_limit_is_exact() {
        let table = Table::new(7, 3).unwrap();
        let taken: Vec<_> = std::iter::from_fn(|| table.vacancy()).collect();
        assert_eq!(taken.iter().map(Pid::to_string).collect::<Vec<_>>(), ["<7.0.1>", "<7.1.1>", "<7.2.1>"]);
        table.give_back_after(taken[1]);
        assert_eq!(table.vacancy().unwrap().to_string(), "<7.1.2>");
        assert!(table.vacancy().is_none());
        table.give_back_after("<7.1.16777215>".parse().unwrap());
        assert_eq!(
            table.vacancy().unwrap().to_string(),
            "<7.3.1>",
            "another takes the place of a slot that is worn out"
        );
        assert!(table.vacancy().is_none());
    }

    // With a shadow in its lock it is larger.
    #[cfg(not(procession_sanitize_thread))]
    #[test]
    fn a_cell_is_a_cache_line() {
        assert_eq!(size_of::<Cell>(), 64);
    }

    #[test]
    fn the_cell_of_a_process_does_not_move_when_the_table_grows() {
        let table = Table::new(7, MOST_PROCESSES).unwrap();
        let place = |pid| std::ptr::from_ref::<Cell>(table.cell(pid).unwrap());
        let first = table.vacancy().unwrap();
        let was = place(first);
        let many: Vec<Pid> = (0..50_000).map(|_| table.vacancy().unwrap()).collect();
        assert_eq!(place(first), was);
        for pid in many {
            let slot = pid.slot() as usize;
            assert_eq!(place(pid), &raw const table.segments[slot / SEGMENT].get().unwrap()[slot % SEGMENT]);
        }
    }

    #[test]
    fn a_pid_of_another_runtime_has_no_cell_here() {
        let table = Table::new(7, 10).unwrap();
        table.vacancy().unwrap();
        assert!(table.cell("<7.0.1>".parse().unwrap()).is_some());
        assert!(table.cell("<8.0.1>".parse().unwrap()).is_none());
        assert!(table.cell("<7.9999.1>".parse().unwrap()).is_none());
    }
}
