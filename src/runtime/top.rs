//! The processes that a console asks for: those with the largest values, and those that wait for answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::dispatch::Core;
use super::inspect::{ProcessInfo, ProcessState, state};
use crate::pid::Pid;
use crate::sched::cell::{BORN_SPAN, Look, Rest};

/// By which value processes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Mailbox,
    Steps,
    Age,
    /// The time for which it has been in its step. Processes that are in none are left out.
    InStep,
}

/// Which processes are meant. All that is set must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// A part of the name of the type.
    pub(crate) type_name: Option<String>,
    /// A part of one of the names of the process.
    pub(crate) name: Option<String>,
    pub(crate) state: Option<ProcessState>,
}

impl Core {
    /// The processes with the largest values, largest first, and by PID where they are equal. Also returns how many
    /// processes the filter has let through. Each cell is looked at once, one after the other.
    pub(crate) fn top(&self, by: By, limit: usize, filter: &Filter) -> (usize, Vec<ProcessInfo>) {
        let running = self.running();
        let (now, mut matched) = (self.road.now_micros(), 0);
        // The smallest of the largest is on top.
        let mut largest: BinaryHeap<Reverse<(u64, Reverse<Pid>)>> = BinaryHeap::new();
        for (slot, cell) in self.road.table.cells() {
            let Some(look) = cell.look() else { continue };
            let Some(pid) = self.road.table.pid(slot, look.generation) else { continue };
            let in_step = running.get(&pid.to_word()).copied().filter(|_| look.rest == Rest::Out);
            let value = match by {
                By::Mailbox => u64::from(look.queued),
                By::Steps => look.steps,
                // One that was born during the walk has no age.
                By::Age => {
                    Some(now.wrapping_sub(look.born) % BORN_SPAN).filter(|age| *age < BORN_SPAN / 2).unwrap_or(0)
                }
                By::InStep => match in_step {
                    Some(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
                    None => continue,
                },
            };
            if !self.is_meant(filter, pid, &look, in_step) {
                continue;
            }
            matched += 1;
            let entry = (value, Reverse(pid));
            if largest.len() < limit {
                largest.push(Reverse(entry));
            } else if let Some(mut least) = largest.peek_mut()
                && least.0 < entry
            {
                *least = Reverse(entry);
            }
        }
        let described = largest.into_sorted_vec().into_iter().filter_map(|Reverse((_, Reverse(pid)))| {
            // One that has ended meanwhile is left out.
            Some(self.info(pid, self.look(pid)?, self.names.of(pid), &running))
        });
        (matched, described.collect())
    }

    fn is_meant(&self, filter: &Filter, pid: Pid, look: &Look, in_step: Option<Duration>) -> bool {
        let Filter { type_name, name, state: wanted } = filter;
        wanted.is_none_or(|wanted| wanted == state(look.rest, in_step.is_some()))
            && type_name.as_ref().is_none_or(|part| (look.kind.process)().contains(&**part))
            && name.as_ref().is_none_or(|part| self.names.of(pid).iter().any(|name| name.contains(&**part)))
    }

    /// The processes that wait for exactly one answer, each with the process that can give it: at most so many. Also
    /// returns how many there are.
    pub(crate) fn waits(&self, most: usize) -> (usize, Vec<(Pid, Pid)>) {
        let table = &self.road.table;
        let mut waits = Vec::new();
        let mut count = 0;
        for (slot, cell) in table.cells() {
            if let Some(look) = cell.look()
                && look.rest == Rest::Waiting
                && let Some(pid) = table.pid(slot, look.generation)
                && let Some(wait) = cell.ask_wait(pid)
            {
                count += 1;
                if waits.len() < most {
                    waits.push((pid, wait.asked));
                }
            }
        }
        (count, waits)
    }

    /// The processes of a type: at most so many. Also returns how many there are.
    pub(crate) fn of_type(&self, type_name: &str, most: usize) -> (usize, Vec<Pid>) {
        let table = &self.road.table;
        let (mut count, mut pids) = (0, Vec::new());
        for (slot, cell) in table.cells() {
            if let Some(look) = cell.look()
                && (look.kind.process)() == type_name
                && let Some(pid) = table.pid(slot, look.generation)
            {
                count += 1;
                if pids.len() < most {
                    pids.push(pid);
                }
            }
        }
        (count, pids)
    }

    /// The numbers of monitors of a process, and of its links.
    pub(crate) fn related(&self, pid: Pid) -> (usize, usize) {
        self.relations.counts(pid)
    }
}
