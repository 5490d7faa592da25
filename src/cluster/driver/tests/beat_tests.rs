//! Heartbeats, which need no turn of the thread that decodes.

use super::*;

/// The frames that a node sends now.
fn frames(end: &mut End) -> Vec<Vec<u8>> {
    let (mut frame, mut frames) = (Vec::new(), Vec::new());
    while end.turns_out(&mut frame) {
        frames.push(frame.clone());
    }
    frames
}

/// Sends a note from one node to the other, and returns its frame, which has not arrived.
fn note(world: &mut World, far: Address<Message>) -> Vec<u8> {
    world.pass(Duration::from_millis(100), &mut || true);
    world.ends[0].side.runtime.send(far, Message::Note(1)).unwrap();
    let [batch] = frames(&mut world.ends[0]).try_into().unwrap();
    batch
}

#[test]
fn a_heartbeat_that_acknowledges_needs_no_turn_of_a_decoder() {
    let mut world = world();
    let (_echo, far, notes) = world.echo();
    let batch = note(&mut world, far);
    let [here, there] = &mut world.ends;
    there.driver.arrived(batch);
    while there.driver.turn_in(&mut there.inward) {}
    world.clock.advance(10 * MILLIS);
    let [beat] = frames(there).try_into().unwrap();
    assert!(peer::is_beat(&beat) && !here.driver.is_drained());
    here.driver.arrived(beat);
    assert!(here.driver.is_drained() && !here.driver.has_arrivals());
    until("it is stepped", || *lock(&notes) == [1]);
}

#[test]
fn a_heartbeat_waits_behind_the_frames_that_came_before_it() {
    let mut world = world();
    let (_echo, far, notes) = world.echo();
    let batch = note(&mut world, far);
    world.clock.advance(250 * MILLIS);
    let [here, there] = &mut world.ends;
    let beats = frames(here);
    assert!(beats.iter().all(|beat| peer::is_beat(beat)) && !beats.is_empty());
    std::iter::once(batch).chain(beats).for_each(|frame| there.driver.arrived(frame));
    while there.driver.turn_in(&mut there.inward) {}
    assert!(there.inward.up.is_some(), "the heartbeat follows the batch");
    until("it is stepped", || *lock(&notes) == [1]);
}

#[test]
fn heartbeats_are_due_at_multiples_of_their_interval() {
    let mut world = apart([spoken(PROTOCOL), spoken(PROTOCOL)]);
    let begun = world.clock.clock().now();
    world.connect();
    let (_echo, far, _notes) = world.echo();
    world.pass(70 * MILLIS, &mut || true);
    world.ends[0].side.runtime.send(far, Message::Note(1)).unwrap();
    world.pass(50 * MILLIS, &mut || true);
    for beat in 1..=3 {
        let due = world.ends.each_ref().map(|end| end.sleeps_until.unwrap() - begun);
        assert_eq!(due, [beat * 250 * MILLIS; 2]);
        world.pass(250 * MILLIS, &mut || true);
    }
}

impl World {
    /// Delivers notes of the first node to the other one, and then nothing more. For the time of `silence`, the other
    /// node takes no frame. Returns the notes that it takes after that.
    fn notes_after(&mut self, silence: Duration) -> Vec<u64> {
        let (_echo, far, notes) = self.echo();
        (0..3).for_each(|number| self.ends[0].side.runtime.send(far, Message::Note(number)).unwrap());
        let mut frame = Vec::new();
        while self.ends[0].turns_out(&mut frame) {
            self.ends[1].driver.arrived(frame.clone());
        }
        let begin = self.clock.clock().now();
        while self.clock.clock().now() < begin + silence {
            self.clock.advance(50 * MILLIS);
            while self.ends[1].turns_out(&mut frame) {}
        }
        self.ends[0].is_stopped = true;
        self.run();
        assert_eq!(self.is_up(), [true, false]);
        lock(&notes).clone()
    }
}

/// A decoder is slow, and the peer is silent meanwhile.
#[test]
fn what_has_arrived_comes_before_the_down() {
    assert_eq!(world().notes_after(Duration::from_secs(29)), [0, 1, 2]);
    // The connection is over. These messages are dead letters of their sender.
    assert_eq!(world().notes_after(Duration::from_secs(31)), [0_u64; 0]);
}
