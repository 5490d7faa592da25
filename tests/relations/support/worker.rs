//! Children for supervisors, which note what happens to them, and supervisors that a test asks about them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use procession::supervisor::{ChildError, ChildInfo, ChildSpec, ChildState, Supervisor, SupervisorMessage};
use procession::{
    EntryArgs, Event, Events, Handle, InitResult, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult,
};

use crate::helpers::*;
use crate::support::node::Way;

/// The messages to a worker.
pub enum Tell {
    Add(u64),
    Read(Reply<u64>),
    End(Way),
    /// Takes its link to this process away.
    Unlink(Pid),
}

/// The record of all workers: `"start a"`, `"stop a"`, `"end a"`.
#[derive(Clone)]
pub struct Diary {
    pub log: Log<String>,
    /// So many of the next starts of each worker fail in `init`.
    pub fail_inits: Arc<AtomicUsize>,
    /// So many of the next calls of a factory panic.
    pub fail_makes: Arc<AtomicUsize>,
    /// So many workers are alive, and so many have ever been.
    pub alive: Arc<AtomicUsize>,
    pub made: Arc<AtomicU64>,
}

impl Diary {
    pub fn new() -> Diary {
        Diary {
            log: Log::new(),
            fail_inits: Arc::default(),
            fail_makes: Arc::default(),
            alive: Arc::default(),
            made: Arc::default(),
        }
    }

    pub fn worker(&self, name: &'static str) -> Worker {
        if self.fail_makes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
            panic!("the factory of {name}");
        }
        self.made.fetch_add(1, Ordering::SeqCst);
        Worker { name, diary: self.clone(), total: 0, stubborn: false, lives: false }
    }

    /// A worker that does not stop when it is asked to.
    pub fn stubborn(&self, name: &'static str) -> Worker {
        Worker { stubborn: true, ..self.worker(name) }
    }

    pub fn spec(&self, name: &'static str) -> ChildSpec {
        let diary = self.clone();
        ChildSpec::new(name, move || diary.worker(name))
    }

    pub fn take(&self) -> Vec<String> {
        self.log.take()
    }
}

pub struct Worker {
    name: &'static str,
    diary: Diary,
    pub total: u64,
    stubborn: bool,
    lives: bool,
}

impl Process for Worker {
    type Message = Tell;
    type Output = u64;

    fn init(&mut self, entry: EntryArgs) -> InitResult {
        if self.diary.fail_inits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
            self.diary.log.push(format!("fail {}", self.name));
            return Err(format!("init of {}", self.name).into());
        }
        self.diary.log.push(format!("start {}", self.name));
        self.diary.alive.fetch_add(1, Ordering::SeqCst);
        self.lives = true;
        entry.method("main", |(): ()| Ok(())).finish()
    }

    fn step(&mut self, events: &mut Events<'_, Tell>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Tell::Add(amount)) => self.total += amount,
                Event::Message(Tell::Read(reply)) => out.reply(reply, self.total),
                Event::Message(Tell::Unlink(pid)) => out.unlink(pid),
                Event::Message(Tell::End(Way::Done)) => return Ok(Step::Done(self.total)),
                Event::Message(Tell::End(Way::Fail)) => return Err(format!("{} failed", self.name).into()),
                Event::Message(Tell::End(Way::Panic)) => panic!("{} panicked", self.name),
                Event::Cancel(_) if self.stubborn => self.diary.log.push(format!("ask {}", self.name)),
                Event::Cancel(_) => return Ok(Step::Done(self.total)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.lives) {
            self.diary.alive.fetch_sub(1, Ordering::SeqCst);
        }
        self.diary.log.push(format!("end {}", self.name));
    }
}

/// A supervisor that was spawned from outside.
pub struct Boss {
    pub runtime: Runtime,
    pub handle: Handle<Supervisor>,
}

pub fn supervise(runtime: &Runtime, supervisor: Supervisor) -> Boss {
    let handle = runtime.spawn(supervisor).unwrap();
    let boss = Boss { runtime: runtime.clone(), handle };
    let _ = boss.runtime.ask(boss.handle.address(), SupervisorMessage::started, LIMIT).wait();
    boss
}

impl Boss {
    pub fn ask<T: Send + 'static>(&self, question: impl FnOnce(Reply<T>) -> SupervisorMessage) -> T {
        self.runtime.ask(self.handle.address(), question, LIMIT).wait().unwrap()
    }

    pub fn children(&self) -> Vec<ChildInfo> {
        self.ask(SupervisorMessage::children)
    }

    pub fn child(&self, id: &str) -> Option<ChildInfo> {
        self.children().into_iter().find(|info| *info.id == *id)
    }

    pub fn pid(&self, id: &str) -> Pid {
        self.child(id).and_then(|info| info.pid).unwrap_or_else(|| panic!("{id} is not up"))
    }

    pub fn tell(&self, id: &str, tell: Tell) {
        self.runtime.send(self.pid(id), tell).unwrap();
    }

    /// Waits until all children are up, and this one has been restarted so often.
    pub fn restarted(&self, id: &str, times: u64) {
        until("it is up again", || {
            let children = self.children();
            children.iter().all(|info| info.state == ChildState::Up)
                && children.iter().any(|info| *info.id == *id && info.restarts == times)
        });
    }

    /// Ends a child, and waits until it has been restarted so often and all are up.
    pub fn fail(&self, id: &str, times: u64) {
        self.tell(id, Tell::End(Way::Fail));
        self.restarted(id, times);
    }

    pub fn add(&self, spec: ChildSpec) -> Result<Pid, ChildError> {
        self.ask(SupervisorMessage::add(spec))
    }

    /// Asks it to stop, and waits until it has.
    pub fn stop(&self) {
        self.runtime.cancel(self.handle.pid(), "enough").unwrap();
        assert!(join(&self.handle).is_done(), "{}", join(&self.handle));
    }
}
