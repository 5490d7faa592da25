//! The messages of a step that are measured. `outbox/sampled.rs` has the way of such a message.

use super::body::{StepOutput, Yield};
use super::orders::Order;

impl StepOutput {
    /// Decides which messages of a step that has returned are measured.
    #[inline]
    pub(crate) fn sample_waits(&mut self) {
        let Some(sampler) = self.outbox.sampler() else { return };
        let is_sampled = match (self.orders.newest(), &self.yields[..]) {
            ([], _) | ([Order::Next], [Yield::Reply(_)]) => false,
            ([Order::Send { count, .. }], _) => !sampler.passes(*count),
            ([Order::Next], [Yield::Ask { .. }]) => !sampler.passes(1),
            (_, yields) => {
                let count = |count: u32, (_, more)| count.saturating_add(more);
                !sampler.passes(deliveries(self.orders.iter(), yields).fold(0, count))
            }
        };
        if is_sampled {
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
