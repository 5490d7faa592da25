//! The seam of the runtime to the processes of a store: their PIDs have the node of the store.

use std::any::TypeId;
use std::time::Duration;

use super::core::{RELOAD, StoreCore};
use super::residency::Place;
use super::rows::{StoredHead, StoredRequest};
use super::tail::Fate;
use crate::clock::{Clock, Deadline};
use crate::latch::Latch;
use crate::outcome::{Exit, Reason, tell_log};
use crate::pid::Pid;
use crate::primitives::{Arc, lock};
use crate::process::{Completion, SendError};
use crate::runtime::{Core, Timed};
use crate::sched::cell::{Missed, Missing};
use crate::sched::engine::Engine;
use crate::sched::mailbox::{Control, Signal};
use crate::sched::non_local::{AnyMessage, LinkChange, NonLocal, Settled};
use crate::sched::trace_marks::{Context, MessageTrace};

impl NonLocal for StoreCore {
    #[cfg(feature = "cluster")]
    fn store(&self) -> Option<(u64, u32)> {
        Some((self.id, self.run.store))
    }

    fn stores(&self, process: TypeId) -> bool {
        self.kinds.values().any(|kind| kind.child.process == process)
    }

    fn post(
        &self,
        from: Option<Pid>,
        to: Pid,
        message: AnyMessage,
        trace: Option<&Context>,
    ) -> Result<(), (AnyMessage, SendError)> {
        self.send((from, to), message, MessageTrace::new(trace.cloned()), None)
    }

    fn takes(&self, pid: Pid, message: TypeId) -> Result<(), Missed> {
        let resident = self.number_of(pid).and_then(|serial| self.residency.resident(serial));
        match resident {
            Some(resident) if resident.message == message => Ok(()),
            Some(resident) => Err(Missed::WrongType(resident.message_name)),
            None if self.number_of(pid).is_none() => Err(Missed::NoSuchProcess),
            None if self.messages.contains_key(&message) => Ok(()),
            None => Err(Missed::WrongType(|| "the messages of a durable process")),
        }
    }

    fn signal(&self, to: Pid, signal: Signal) -> Result<(), (Missing, Signal)> {
        // Requests to stop come with no lock. So the store may append a record.
        let signal = match (signal, self.number_of(to)) {
            (Signal::Control(Control::Cancel(request)), Some(serial)) => {
                let refused = self.request_stop(serial, request);
                return refused.map_err(|(why, request)| (why, Signal::Control(Control::Cancel(request))));
            }
            (Signal::Control(Control::Exit(exit, by)), Some(serial)) => {
                let given = self.give_exit(serial, exit, by);
                return given.map_err(|refused| (Missing::Ended, refused));
            }
            (other, _) => other,
        };
        let local = self.local(to);
        match (local, self.core()) {
            (Some(local), Some(core)) => core.road.signal(&mut core.executor(), local, signal),
            _ => Err((Missing::Ended, signal)),
        }
    }

    fn linked(&self, pid: Pid, change: LinkChange) {
        // One that has ended is told by its end.
        self.number_of(pid).into_iter().for_each(|serial| self.link_changed(serial, change));
    }

    fn complete(&self, to: Pid, completion: Completion) -> Result<(), Completion> {
        match (self.local(to), self.core()) {
            (Some(local), Some(core)) => {
                core.road.complete(&mut core.executor(), local, completion);
                Ok(())
            }
            _ => Err(completion),
        }
    }

    fn terminate(&self, pid: Pid) -> Result<bool, Missing> {
        let Some(serial) = self.number_of(pid) else { return Err(Missing::Never) };
        match self.request(serial, &StoredRequest::End, None) {
            Ok(()) => Ok(true),
            Err(Missing::Ended) => Ok(false),
            Err(missing) => Err(missing),
        }
    }

    fn in_memory(&self, pid: Pid) -> Option<Pid> {
        self.local(pid)
    }

    fn is_alive(&self, pid: Pid) -> bool {
        self.number_of(pid).is_some_and(|serial| !self.has_ended(serial))
    }

    fn body_lost(&self, pid: Pid) {
        let lost = self.residency.all().into_iter().find_map(|(_, residence)| match &lock(&residence).place {
            Place::Resident(resident) if resident.local.get() == Some(&pid) => Some(resident.clone()),
            _ => None,
        });
        // All that is on disk is loaded again.
        lost.into_iter().for_each(|resident| self.gone(&resident, None));
    }

    fn watch(&self, pid: Pid) -> bool {
        let lives = self.is_alive(pid);
        let sleeps = self.number_of(pid).filter(|serial| lives && !self.residency.is_in_memory(*serial));
        if let (Some(serial), Some(core)) = (sleeps, self.core()) {
            // It may have ended in an earlier run. This thread has locks, so another one looks.
            self.look_in(&core, serial, Duration::ZERO);
        }
        lives
    }

    fn whereis(&self, _: &str) -> Option<Pid> {
        None
    }

    fn settle(&self, clock: &Clock, deadline: Deadline) -> Settled {
        let (life, end) = self.tail.end();
        let on_disk = Latch::new();
        let told = on_disk.clone();
        self.tail.when_settled(life, end, move |fate| _ = told.set(fate));
        on_disk.wait_until(clock, deadline);
        let unstored = match on_disk.get() {
            Some(Fate::Released) => None,
            Some(Fate::Lost) => Some("an error of the disk has undone the last steps".into()),
            Some(Fate::Unknown) => Some("the store was closed before".into()),
            None => Some("the disk has taken longer than the limit".into()),
        };
        Settled { asleep: self.keeper.asleep_at_end(), unstored }
    }
}

impl StoreCore {
    /// Has another thread look whether a process lives. The caller may hold locks, and a pool that cannot start a
    /// thread calls code of users. So the thread of the timers asks the pool.
    fn look_in(&self, core: &Arc<Core>, serial: u64, delay: Duration) {
        let (me, weak) = (self.me.clone(), Arc::downgrade(core));
        let look = move || {
            if let (Some(store), Some(core)) = (me.upgrade(), weak.upgrade()) {
                store.in_pool(&core, move || {
                    me.upgrade().into_iter().for_each(|me| me.look_whether_it_lives(serial));
                });
            }
        };
        drop(core.timers.after(0, delay, Timed::Run(Box::new(look))).map(|key| key.map(drop)));
    }

    /// Tells the watchers of a process that sleeps, if it has ended in an earlier run.
    fn look_whether_it_lives(&self, serial: u64) {
        let (Some(core), Some(pid)) = (self.core(), self.ticket(serial)) else { return };
        // A process of this run that sleeps may be only in the log.
        let row = self.with_tables(|tables, reader| {
            self.catch_up(tables)?;
            reader.process(serial)
        });
        let exit = match row {
            Ok(Some(row)) => {
                let head = postcard::from_bytes::<StoredHead>(&row.head).ok();
                head.and_then(|head| head.exit).map(|exit| exit.exit(self.run))
            }
            // The tables may not have a process of this run.
            Ok(None) if self.residency.is_in_memory(serial) => None,
            Ok(None) => Some(Exit::Terminated(Reason::NoSuchProcess)),
            Err(error) => {
                tell_log(
                    || tracing::warn!(serial, %error, "a process that is watched cannot be read, and is read again"),
                );
                return self.look_in(&core, serial, RELOAD);
            }
        };
        if let Some(exit) = exit {
            core.tell_related(pid, &exit, &mut core.executor());
        }
    }

    fn local(&self, pid: Pid) -> Option<Pid> {
        self.residency.resident(self.number_of(pid)?)?.local.get().copied()
    }
}
