//! Supervisors with the processes below them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::request::{MOST, Refused};
use super::views;
use super::waiting::{from_now, wait_until};
use crate::pid::Pid;
use crate::primitives::{Mutex, lock};
use crate::process::Process as _;
use crate::runtime::{AskFuture, Runtime, WeakRuntime};
use crate::supervisor::{ChildInfo, ChildState, Strategy, Supervisor, SupervisorMessage};

/// How long a supervisor has for its answer, by the system's clock: a program might not move a manual one.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);

/// The most supervisors one below the other. Each takes two levels of JSON, and readers stop at 128.
const DEEPEST: usize = 50;

type Answer = (Strategy, Vec<ChildInfo>);

/// The questions that supervisors have not answered yet.
///
/// A supervisor that is stuck is not asked again before it has answered. So a client that looks at the tree again and
/// again does not fill its mailbox.
#[derive(Default)]
pub(super) struct Questions(Mutex<HashMap<Pid, AskFuture<Answer>>>);

/// Asks all supervisors, and shows their tree.
pub(super) fn tree(runtime: &WeakRuntime, questions: &Questions) -> Result<Value, Refused> {
    let over = || Refused::new("no_answer", "the runtime has ended");
    let (count, mut asked) = {
        let runtime = runtime.upgrade().ok_or_else(over)?;
        let (count, pids) = runtime.core().of_type(Supervisor::type_name(), MOST);
        let mut open = std::mem::take(&mut *lock(&questions.0));
        let ask = |pid: Pid| {
            let new = || runtime.ask(pid.typed::<SupervisorMessage>(), SupervisorMessage::overview, Duration::MAX);
            (pid, open.remove(&pid).unwrap_or_else(new))
        };
        (count, pids.into_iter().map(ask).collect::<Vec<_>>())
    };
    // No handle of the runtime is kept while this waits. All were asked at once, so that several that do not answer
    // take the time of one.
    let deadline = from_now(PATIENCE);
    let mut supervisors = HashMap::new();
    for (pid, question) in &mut asked {
        let answer = wait_until(&mut *question, deadline);
        supervisors.insert(*pid, answer);
    }
    let pids: Vec<Pid> = asked.iter().map(|(pid, _)| *pid).collect();
    let open = asked.into_iter().filter(|(pid, _)| matches!(supervisors.get(pid), Some(None)));
    lock(&questions.0).extend(open);
    let supervisors: HashMap<Pid, Option<Answer>> =
        supervisors.into_iter().map(|(pid, answer)| (pid, answer.and_then(Result::ok))).collect();
    let all = supervisors.values().flatten().flat_map(|(_, children)| children);
    let below: HashSet<Pid> = all.filter_map(|child| child.pid).collect();
    let runtime = runtime.upgrade().ok_or_else(over)?;
    let left_out = count - pids.len();
    let mut growing = Growing { runtime: &runtime, supervisors, seen: HashSet::new(), shown: 0, left_out };
    let top = pids.iter().filter(|pid| !below.contains(pid));
    let supervisors: Vec<Value> = top.filter_map(|pid| growing.supervisor(*pid)).collect();
    let mut tree = json!({ "supervisors": supervisors });
    if growing.left_out > 0 {
        tree["left_out"] = json!(growing.left_out);
    }
    Ok(tree)
}

/// A tree that is being made.
struct Growing<'a> {
    runtime: &'a Runtime,
    supervisors: HashMap<Pid, Option<Answer>>,
    /// The processes that are in it. Supervisors have answered at different moments, so a process may be below two.
    seen: HashSet<Pid>,
    /// The supervisors and children that are in it, also those without a process.
    shown: usize,
    left_out: usize,
}

impl Growing<'_> {
    /// Whether there is room for one more.
    fn has_room(&mut self) -> bool {
        let has_room = self.shown < MOST;
        (self.shown, self.left_out) =
            if has_room { (self.shown + 1, self.left_out) } else { (MOST, self.left_out + 1) };
        has_room
    }

    /// The process, if it lives and is not in the tree yet.
    fn process(&mut self, pid: Pid) -> Option<Value> {
        let info = self.runtime.process(pid)?;
        self.seen.insert(pid).then(|| views::process(&info))
    }

    fn supervisor(&mut self, pid: Pid) -> Option<Value> {
        if !self.has_room() {
            return None;
        }
        let mut shown = self.process(pid)?;
        self.below(pid, 1, &mut shown);
        Some(shown)
    }

    /// Adds the children of a supervisor.
    fn below(&mut self, pid: Pid, depth: usize, to: &mut Value) {
        match self.supervisors.remove(&pid) {
            Some(Some((strategy, children))) => {
                to["strategy"] = json!(match strategy {
                    Strategy::OneForOne => "one_for_one",
                    Strategy::OneForAll => "one_for_all",
                    Strategy::RestForOne => "rest_for_one",
                });
                if depth >= DEEPEST {
                    self.left_out += children.len();
                    return;
                }
                let children: Vec<Value> = children.iter().filter_map(|child| self.child(child, depth)).collect();
                to["children"] = json!(children);
            }
            Some(None) => to["no_answer"] = json!(true),
            None => {}
        }
    }

    fn child(&mut self, child: &ChildInfo, depth: usize) -> Option<Value> {
        if !self.has_room() {
            return None;
        }
        let mut shown = json!({
            "id": *child.id,
            "restarts": child.restarts,
            "state": match child.state {
                ChildState::Queued => "waiting",
                ChildState::Delayed => "delayed",
                ChildState::Starting => "starting",
                ChildState::Up => "running",
                ChildState::ToStop | ChildState::Stopping => "stopping",
                ChildState::Down => "stopped",
            },
        });
        if let Some(pid) = child.pid {
            // It may have ended since.
            if let Some(process) = self.process(pid) {
                shown["process"] = process;
            }
            self.below(pid, depth + 1, &mut shown);
        }
        Some(shown)
    }
}
