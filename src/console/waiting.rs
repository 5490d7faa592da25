//! Waits for a future by the system's clock.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::clock::{Clock, Deadline};
use crate::pool::Parker;

struct Unparks(Parker);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A moment by the system's clock: so long from now.
pub(super) fn from_now(limit: Duration) -> Deadline {
    Clock::system().deadline(limit)
}

/// Waits for a future. `None` if the deadline has passed first.
pub(super) fn wait_until<T>(future: &mut (impl Future<Output = T> + Unpin), deadline: Deadline) -> Option<T> {
    let (clock, parker) = (Clock::system(), Parker::new());
    let mut future = Pin::new(future);
    let waker = Waker::from(Arc::new(Unparks(parker.clone())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        if deadline.has_passed(&clock) {
            return None;
        }
        parker.park(&clock, deadline);
    }
}
