//! Recipients of another node, over the machine of a connection.

use super::*;
use crate::Rejected;
use crate::process::Recipient;

/// A recipient of a process that takes large messages: it takes a number and a size.
type SizedTarget = Recipient<(u64, usize)>;

/// A sink at the other node, with a recipient that counts its conversions.
fn sink(world: &World) -> (Handle<Sink>, Address<Large>, SizedTarget, Notes, Arc<AtomicU64>) {
    let (notes, converted) = (Notes::default(), Arc::<AtomicU64>::default());
    let sink = world.ends[1].side.runtime.spawn(Sink(notes.clone())).unwrap();
    let (far, counts) = (world.far(sink.address()), converted.clone());
    let to = far.map(move |(number, size)| {
        counts.fetch_add(1, Ordering::Relaxed);
        large(number, size)
    });
    (sink, far, to, notes, converted)
}

fn large(number: u64, size: usize) -> Large {
    Large(number, vec![number as u8; size])
}

impl World {
    /// Sends messages of this size to a process of the other node, until there is no room for them.
    fn fill(&mut self, far: Address<Large>, size: usize) -> u64 {
        let mut count = 0;
        while self.ends[0].side.runtime.send(far, large(count, size)).is_ok() {
            count += 1;
            self.run();
        }
        count
    }

    /// Has the out thread of the first node find that the other one is silent. The in thread is in a slow decoder.
    fn falls_silent(&mut self) {
        for _ in 0..20 {
            self.clock.advance(100 * MILLIS);
            while self.ends[0].driver.turn_out(&mut Vec::new()) == Outward::Frame {}
        }
        assert_eq!(lock(&self.ends[0].driver.machine).peer.up(), None);
        assert!(self.ends[0].inward.up.is_some(), "the down was not carried out");
    }
}

fn why(result: Result<(), Rejected<(u64, usize), SendError>>) -> (u64, NodeError) {
    match result.unwrap_err().into_parts() {
        ((number, _), SendError::Node { why, .. }) => (number, why),
        (_, why) => panic!("another error: {why}"),
    }
}

#[test]
fn a_recipient_refuses_while_a_down_waits_to_be_carried_out() {
    let mut world = world();
    let (_sink, far, to, _, converted) = sink(&world);
    world.ends[1].is_stopped = true;
    let filled = world.fill(far, 10_000);
    let waits = world.ends[0].side.runtime.send_timeout(&to, (1, 1), LIMIT);
    world.falls_silent();
    // As if the peer had taken some messages just before.
    let connection = world.ends[0].inward.up.as_ref().unwrap().connection.clone();
    world.ends[0].side.node.has_room(&connection, Bound::Small);
    assert_eq!(why(waits.wait()), (1, NodeError::NodeDown));
    let runtime = &world.ends[0].side.runtime;
    assert_eq!(why(runtime.send(&to, (2, 1))), (2, NodeError::NodeDown));
    assert_eq!(why(runtime.send_timeout(&to, (3, 1), LIMIT).wait()), (3, NodeError::NodeDown));
    let answers = world.ends[0].side.begins({
        let to = to.clone();
        move |out| _ = out.send_timeout(&to, (4, 1), LIMIT)
    });
    crate::wait::until("the step is over", || world.ends[0].side.runtime.is_idle());
    assert_eq!(lock(&answers).len(), 1, "its message has come back");
    world.run();
    assert_eq!(converted.load(Ordering::Relaxed), 0);
    assert_eq!(world.ends[0].side.graves().len() as u64, filled, "only those that were on their way");
}

#[test]
fn a_large_message_in_transit_holds_up_no_recipient() {
    let mut world = world();
    let (_sink, far, to, notes, converted) = sink(&world);
    world.ends[1].is_stopped = true;
    let filled = world.fill(far, 1 << 20);
    assert!((8..12).contains(&filled), "{filled} messages of 1 MiB were taken");
    let runtime = &world.ends[0].side.runtime;
    runtime.send(&to, (100, 1)).unwrap();
    runtime.send_timeout(&to, (101, 1), Duration::ZERO).wait().unwrap();
    // Nobody knows its size before it is converted.
    runtime.send(&to, (102, 100_000)).unwrap();
    assert_eq!(converted.load(Ordering::Relaxed), 3);
    world.ends[1].is_stopped = false;
    world.run();
    assert_eq!(*lock(&notes), (0..filled).chain(100..103).collect::<Vec<u64>>());
    assert!(world.ends[0].side.graves().is_empty());
}
