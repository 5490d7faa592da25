//! The loop in a shutdown tree. When asked to close, the node closes the loop. It is closed when the last tasklet has
//! ended.

use super::context::{Common, LoopHandle};
use super::current;
use super::event_loop::Loop;
use crate::outcome::Reason;
use crate::primitives::{Arc, lock};
use crate::shutdown::{Role, ShutdownNode, describe_left};

impl<S: 'static> Loop<S> {
    /// Returns the loop's node in a [shutdown tree](crate::shutdown).
    ///
    /// All calls return the same node.
    ///
    /// [`LoopHandle::shutdown_node`] returns it on other threads. [`ShutdownNode::depends_on`] sets the order in
    /// which nodes close. A shared pool closes after the loops that use it.
    ///
    /// When the tree asks the node to close, the node closes the loop as [`close`](Self::close) does. Tasklets that are
    /// queued or wait are dropped. For tasklets in a step, the [token](super::TaskletContext::cancelled) is cancelled,
    /// and the node waits until their steps return. A thread in [`run`](Self::run) finds the loop empty and returns.
    /// With [`shutdown_limit`](super::LoopBuilder::shutdown_limit), the node waits for steps only for that limit. If
    /// the loop is closed in another way, or dropped, the node closes, too. To let tasklets finish first, run the loop
    /// before you shut the tree down.
    ///
    /// If the loop has its own pool, the pool closes after the loop, and the node is closed only after that. (The node
    /// has nothing to do with the loop's state: see [`get`](Self::get).)
    ///
    /// The node is called `loop`. If the tree's shutdown times out because of tasklets, its error names them.
    ///
    /// ```
    /// use procession::tasklet::{Directive, Loop, ready};
    ///
    /// let mut home = Loop::new(0_u32);
    /// let state = home.shutdown_node();
    /// home.schedule(ready::wait(), Directive::Wait)?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| state.shutdown());
    ///     home.run() // until somebody closes it
    /// })?;
    /// assert!(state.is_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_node(&self) -> ShutdownNode {
        self.handle().shutdown_node()
    }
}

impl<S: 'static> LoopHandle<S> {
    /// Returns the loop's node in a shutdown tree: see [`Loop::shutdown_node`].
    pub fn shutdown_node(&self) -> ShutdownNode {
        let state = self.shared.part.state(|| role(&self.shared));
        self.shared.tell_if_ended();
        state
    }
}

fn role<S: 'static>(shared: &Arc<Common<S>>) -> Role<'_> {
    let (looks, knows, ends) = (Arc::downgrade(shared), Arc::downgrade(shared), Arc::downgrade(shared));
    Role {
        name: "loop",
        clock: &shared.clock,
        detail: Box::new(move || describe_tasklets(&looks.upgrade()?)),
        inside: Box::new(move || knows.upgrade().is_some_and(|shared| current::is_inside(&shared))),
        end: Box::new(move || {
            // Destructors and callbacks of tasklets run here, because a loop has no thread of its own.
            if let Some(shared) = ends.upgrade() {
                shared.close(&Reason::Shutdown);
            }
        }),
        cancel: None,
        on: shared.has_own_pool.then(|| shared.pool().shutdown_node()),
    }
}

/// A text that names the tasklets that have not ended.
fn describe_tasklets<S: 'static>(shared: &Arc<Common<S>>) -> Option<String> {
    let left = lock(&shared.slots).tasklets();
    describe_left(&left, "tasklet is left", "tasklets are left", |holding| holding.to_string())
}
