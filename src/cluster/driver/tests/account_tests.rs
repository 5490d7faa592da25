//! Each message that a node has accepted for another one is stepped, dead or queued there, or dead here.

use super::*;
use crate::cluster::node::echo::Spoilt;
use crate::process::Overflow;

/// Passes over all its messages, so they stay in its mailbox.
struct PassesOver;

impl Process for PassesOver {
    type Message = Message;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Message>, _: &mut StepOutput) -> StepResult<()> {
        assert!(events.select(|_| false).is_none());
        Ok(Step::Idle)
    }
}

/// Takes another type.
struct OfOtherType;

impl Process for OfOtherType {
    type Message = u32;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

/// The addresses to which the first node sends, and how many messages it has sent.
struct Sender {
    to: Vec<Address<Message>>,
    sent: u64,
}

impl Sender {
    /// Sends messages to all addresses, from outside and from a step.
    fn sends(&mut self, world: &World, count: u64) {
        let here = &world.ends[0].side;
        for to in &self.to {
            (0..count).for_each(|number| here.runtime.send(*to, Message::Note(number)).unwrap());
        }
        let to = self.to.clone();
        here.begins(move |out| {
            to.iter().for_each(|to| (0..count).for_each(|number| out.send(*to, Message::Note(number))));
        });
        self.sent += 2 * count * self.to.len() as u64;
        until("all are sent", || here.runtime.is_idle());
    }
}

/// How many messages the other node has stepped, how many are dead there, and how many are in its mailboxes.
fn there(world: &World) -> (u64, u64, u64) {
    let messages = world.ends[1].side.runtime.stats().messages;
    assert_eq!(messages.accepted, messages.stepped + messages.dead() + messages.queued, "{messages:?}");
    (messages.stepped, messages.dead(), messages.queued)
}

/// How many messages are dead at the sender, for the reason that their node is down.
fn dead_here(world: &World) -> u64 {
    let graves = world.ends[0].side.graves();
    assert!(graves.iter().all(|(_, why)| *why == DeadLetterReason::NodeDown), "{graves:?}");
    graves.len() as u64
}

#[test]
fn each_accepted_message_is_stepped_dead_or_queued_also_after_a_break() {
    let mut world = world();
    let other = world.ends[1].side.runtime.clone();
    let (_echo, taken, notes) = world.echo();
    let bounded = SpawnOptions::new().mailbox(5, Overflow::Refuse);
    let (full, kept) = (other.spawn_with(PassesOver, bounded).unwrap(), other.spawn(PassesOver).unwrap());
    let (wrong, ended) = (other.spawn(OfOtherType).unwrap(), other.spawn(PassesOver).unwrap());
    other.terminate(&ended).unwrap();
    let to = [full.pid(), kept.pid(), wrong.pid(), ended.pid()].map(|pid| world.far(pid.typed()));
    let mut sender = Sender { to: [&[taken][..], &to].concat(), sent: 0 };
    // Idle moments without a break.
    for round in 1..=5 {
        sender.sends(&world, 10);
        let here = &world.ends[0].side.runtime;
        let [one, two] = [(); 2].map(|()| {
            let mut reply = None;
            drop(here.ask(
                taken,
                |asked| {
                    reply = Some(asked);
                    Message::Note(0)
                },
                LIMIT,
            ));
            reply.unwrap()
        });
        here.send(taken, Message::Spoilt(one, Spoilt::Fails, two)).unwrap();
        sender.sent += 3;
        world.run();
        let (stepped, dead, queued) = there(&world);
        assert_eq!(stepped + dead + queued, sender.sent);
        // Those of `sends`, and the notes that the two questions of each round have sent.
        assert_eq!((stepped, queued), (22 * round, 5 + 20 * round));
        assert_eq!(dead_here(&world), 0);
    }
    // These messages are lost. They are dead here, and not known there.
    let before = there(&world);
    sender.sends(&world, 10);
    world.pass(Duration::from_secs(2), &mut || false);
    assert_eq!((world.is_up(), there(&world)), ([false; 2], before));
    let mut dead = dead_here(&world);
    assert_eq!(dead, 100);
    world.connect();
    // These messages arrive, and their acknowledgement does not. So they are in doubt.
    sender.sends(&world, 10);
    let mut frame = Vec::new();
    while world.ends[0].turns_out(&mut frame) {
        world.ends[1].driver.arrived(frame.clone());
    }
    world.pass(Duration::from_secs(2), &mut || false);
    let in_doubt = dead_here(&world);
    dead += in_doubt;
    let (stepped, dead_there, queued) = there(&world);
    assert_eq!((world.is_up(), in_doubt), ([false; 2], 100));
    assert_eq!(stepped + dead_there + queued + dead, sender.sent + in_doubt);
    assert_eq!(lock(&notes).len() as u64, stepped);
    world.connect();
    sender.sends(&world, 1);
    world.run();
    let (stepped, dead_there, queued) = there(&world);
    assert_eq!(stepped + dead_there + queued + dead, sender.sent + in_doubt);
}
