//! Messages of many types, and a process for each. A step that sends all of them has as many lanes in its outbox.

use std::sync::Arc;

use procession::observe::DeadLetter;
use procession::{Event, Events, Pid, Process, Runtime, Step, StepOutput, StepResult};

use crate::observations::Stamp;
use crate::records::World;

/// A message of the type with this number.
pub struct Parcel<const N: usize>(Stamp);

/// Takes the messages of one type.
struct Sink<const N: usize>(Arc<World>);

impl<const N: usize> Process for Sink<N> {
    type Message = Parcel<N>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Parcel<N>>, out: &mut StepOutput) -> StepResult<()> {
        self.0.settle_last();
        let me = out.pid();
        let mut is_asked = false;
        for event in events.by_ref() {
            match event {
                Event::Message(Parcel(stamp)) => self.0.observe(|seen| seen.takes(me, stamp, || format!("parcel {N}"))),
                Event::Cancel(_) => is_asked = true,
                _ => {}
            }
        }
        self.0.observations().into_iter().for_each(|seen| seen.stepped(false));
        Ok(if is_asked { Step::Done(()) } else { Step::Idle })
    }
}

/// Calls a macro with each number of a type.
macro_rules! each_type {
    ($call:ident) => {
        $call!(0 1 2 3 4 5 6 7 8 9)
    };
}

/// Spawns the processes, in the order of the numbers.
pub fn spawn_sinks(runtime: &Runtime, world: &Arc<World>) -> Result<Vec<Pid>, String> {
    macro_rules! spawn {
        ($($number:literal)*) => {
            vec![$(runtime.spawn(Sink::<$number>(world.clone())).map_err(|error| error.to_string())?.pid()),*]
        };
    }
    Ok(each_type!(spawn))
}

/// Sends a message of each type.
pub fn send_parcels(sinks: &[Pid], stamp: Stamp, out: &mut StepOutput) {
    macro_rules! send {
        ($($number:literal)*) => {
            $(sinks.get($number).iter().for_each(|to| out.send(to.typed(), Parcel::<$number>(stamp)));)*
        };
    }
    each_type!(send);
}

/// The stamp of a dead letter, if it is one of these messages.
pub fn stamp_of(letter: &DeadLetter<'_>) -> Option<Stamp> {
    macro_rules! look {
        ($($number:literal)*) => {
            None$(.or_else(|| letter.message::<Parcel<$number>>().map(|parcel| parcel.0)))*
        };
    }
    each_type!(look)
}
