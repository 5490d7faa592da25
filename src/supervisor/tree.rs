//! The tree of a supervisor, to inspect and print.

use std::fmt;
use std::time::Duration;

use super::message::{ChildInfo, ChildState, SupervisorMessage};
use crate::{Address, CommandError, Runtime};

/// A supervisor with all processes below it. Each supervisor describes its own children at the time of its answer.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The children, in the order of their start. If a child is a supervisor and is up, its own tree is beside it.
    pub children: Vec<(ChildInfo, Option<Tree>)>,
}

impl Tree {
    /// Asks a supervisor and the supervisors below it for their children. The limit applies to each question.
    ///
    /// # Errors
    /// The supervisor at the top does not answer. If a supervisor below it does not answer, the result has no tree for
    /// it.
    pub fn of(
        runtime: &Runtime,
        supervisor: Address<SupervisorMessage>,
        limit: Duration,
    ) -> Result<Tree, CommandError> {
        let infos = runtime.ask(supervisor, SupervisorMessage::children, limit).wait()?;
        let below = |info: &ChildInfo| {
            let pid = info.pid.filter(|_| info.supervises && info.state == ChildState::Up)?;
            Tree::of(runtime, pid.typed(), limit).ok()
        };
        let children = infos.into_iter().map(|info| (below(&info), info)).map(|(tree, info)| (info, tree)).collect();
        Ok(Tree { children })
    }

    /// The number of processes in the tree, without the supervisor at the top.
    pub fn processes(&self) -> usize {
        let each = self.children.iter();
        each.map(|(info, tree)| usize::from(info.pid.is_some()) + tree.as_ref().map_or(0, Tree::processes)).sum()
    }

    /// Whether all processes below the supervisor are up.
    pub fn is_up(&self) -> bool {
        let up = |(info, tree): &(ChildInfo, Option<Tree>)| {
            info.state == ChildState::Up && tree.as_ref().map_or(!info.supervises, Tree::is_up)
        };
        self.children.iter().all(up)
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, before: &str) -> fmt::Result {
        let last = self.children.len().saturating_sub(1);
        for (place, (info, tree)) in self.children.iter().enumerate() {
            let (branch, below) = if place == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            writeln!(f, "{before}{branch}{info}")?;
            if let Some(tree) = tree {
                tree.print(f, &format!("{before}{below}"))?;
            }
        }
        Ok(())
    }
}

/// Prints one line for each child, with its id, state and PID.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, "")
    }
}
