//! The messages of a step that are measured. `outbox/sampled.rs` has the way of such a message.

use super::body::{StepOutput, Yield};
use super::orders::Order;

impl StepOutput {
    /// Counts the messages of a step that has returned. If it has yielded anything but messages to one process, or one
    /// of them is to be measured, returns false and counts nothing.
    #[inline]
    pub(crate) fn passes_waits(&mut self) -> bool {
        match *self.orders.newest() {
            [] => true,
            [Order::Send { count, .. }] => self.outbox.passes(count),
            _ => false,
        }
    }

    /// Decides which messages of a step that has returned are measured.
    pub(crate) fn sample_waits(&mut self) {
        if self.passes_waits() {
            return;
        }
        let messages = match (self.orders.newest(), &self.yields[..]) {
            ([Order::Send { lane, count, .. }], _) => return self.outbox.sample_lane(*lane, *count),
            ([Order::Next], [Yield::Reply(_)]) => return,
            ([Order::Next], [Yield::Ask { .. }]) => 1,
            (_, yields) => {
                let count = |count: u32, (_, more)| count.saturating_add(more);
                deliveries(self.orders.iter(), yields).fold(0, count)
            }
        };
        if !self.outbox.passes(messages) {
            self.outbox.sample(deliveries(self.orders.iter(), &self.yields));
        }
    }
}

/// The deliveries of these yields, in order: a lane, and a number of its next messages.
fn deliveries(orders: impl Iterator<Item = Order>, others: &[Yield]) -> impl Iterator<Item = (u32, u32)> {
    let mut others = others.iter();
    orders.filter_map(move |order| match order {
        Order::Send { lane, count, .. } => Some((lane, count)),
        Order::Next => match others.next()? {
            Yield::Ask { lane, .. } | Yield::SendNowhere { lane, .. } => Some((*lane, 1)),
            Yield::Broadcast { lane, to } => Some((*lane, to.len() as u32)),
            _ => None,
        },
    })
}
