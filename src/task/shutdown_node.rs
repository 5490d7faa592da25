//! The scheduler in a shutdown tree. When asked to close, the node stops the scheduler. It is closed when all
//! closures have returned.

use super::scheduler::{Owner, TaskScheduler};
use super::shared::Shared;
use crate::primitives::{Arc, lock, thread};
use crate::shutdown::{Role, ShutdownNode, describe_left};

impl TaskScheduler {
    /// Returns the scheduler's node in a [shutdown tree](crate::shutdown).
    ///
    /// All calls return the same node.
    ///
    /// [`ShutdownNode::depends_on`] sets the order in which nodes close. A shared pool closes after the schedulers
    /// that use it.
    ///
    /// When the tree asks the node to close, the node [stops](Self::stop) the scheduler. The stop ends all remaining
    /// tasks and asks their closures to return. The node is closed when all closures have returned and the scheduler's
    /// own pool, if it has one, has ended. With [`shutdown_limit`](super::TaskSchedulerBuilder::shutdown_limit), the
    /// node waits only for that limit. If the scheduler is stopped in another way, or dropped, the node closes, too. To
    /// let tasks finish first, wait for them before you shut the tree down.
    ///
    /// The node is called `tasks`. If the tree's shutdown times out because of closures, its error names their tasks.
    ///
    /// ```
    /// use procession::pool::Pool;
    /// use procession::task::TaskScheduler;
    ///
    /// let pool = Pool::new(2)?;
    /// let tasks = TaskScheduler::on(&pool);
    /// let all = pool.shutdown_node().depends_on([tasks.shutdown_node()]);
    ///
    /// let slow = tasks.submit(|cancel| Err::<(), _>(cancel.wait()))?;
    /// all.shutdown()?;
    /// assert!(slow.status().is_finished() && tasks.is_stopped());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_node(&self) -> ShutdownNode {
        let shared = &self.owner.shared;
        let state = shared.part.state(|| role(&self.owner));
        shared.tell_tree();
        state
    }
}

fn role(owner: &Arc<Owner>) -> Role<'_> {
    let shared = &owner.shared;
    let (looks, knows, ends) = (Arc::downgrade(shared), Arc::downgrade(shared), Arc::downgrade(owner));
    Role {
        name: "tasks",
        clock: &shared.clock,
        detail: Box::new(move || describe_tasks(&*looks.upgrade()?)),
        inside: Box::new(move || knows.upgrade().is_some_and(|shared| shared.is_inside())),
        end: Box::new(move || {
            // Without an owner, the scheduler is being dropped, which stops it.
            if let Some(owner) = ends.upgrade() {
                owner.begin_stop();
            }
        }),
        cancel: None,
        on: owner.owns_pool.then(|| shared.pool.shutdown_node()),
    }
}

/// A text that names the tasks whose closures have not returned.
fn describe_tasks(shared: &Shared) -> Option<String> {
    let left: Vec<_> = lock(&shared.table).inside(thread::current().id()).cloned().collect();
    let now = shared.clock.now();
    describe_left(&left, "closure has not returned", "closures have not returned", |record| {
        let info = record.info();
        let name = info.name.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        let time = info.started.map(|started| format!(" for {:?}", now.saturating_duration_since(started)));
        format!("task {}{name}{}", info.id, time.unwrap_or_default())
    })
}
