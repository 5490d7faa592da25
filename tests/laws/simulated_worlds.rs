//! Small worlds about what the random programs do not do: outputs of children, ends after messages of a replaced state
//! machine, reasons of linked ends, and groups with members that are full.

use std::sync::Arc;
use std::time::Duration;

use procession::simulation::{Simulation, World, ensure};
use procession::spawn::Overflow;
use procession::{
    Address, BoxError, Event, Events, Pid, Process, SpawnOptions, Step, StepOutput, StepResult, Tag, Upgrade,
};

use crate::helpers::*;

const SECOND: Duration = Duration::from_secs(1);

fn worlds(name: &str, scenario: impl Fn(&World) -> Result<(), BoxError> + Send + Sync + 'static) -> Simulation {
    Simulation::new(scenario).name(name).seeds(0..300).without("no step panics")
}

/// Ends with its number. If it is slow, it listens until it is asked to stop.
struct Child {
    number: u64,
    is_slow: bool,
}

impl Process for Child {
    type Message = ();
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<u64> {
        let is_asked = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if self.is_slow && !is_asked { Step::Idle } else { Step::Done(self.number) })
    }
}

/// Runs a child for its output.
struct Parent {
    number: u64,
    output: Option<Tag<u64>>,
}

impl Process for Parent {
    type Message = ();
    type Output = u64;

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.output = Some(out.run(Child { number: self.number, is_slow: false }));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            if let Event::Completed(done) = event
                && let Some(output) = done.take(self.output)
            {
                return Ok(Step::Done(output?));
            }
        }
        Ok(Step::Wait)
    }
}

#[test]
fn a_parent_gets_the_output_of_its_child() {
    worlds("outputs", |world| {
        let runtime = world.start(builder())?;
        let parents = (0..3).map(|number| runtime.spawn(Parent { number, output: None }));
        for (number, parent) in parents.collect::<Result<Vec<_>, _>>()?.into_iter().enumerate() {
            let exit = parent.join()?;
            ensure(exit.output().is_some_and(|output| **output == number as u64), || format!("{number}: {exit}"))?;
        }
        Ok(())
    })
    .check();
}

/// Runs a child, which may trap exits, and gives up.
struct Quitter {
    traps: bool,
    steps: u32,
    child: Option<Tag<u64>>,
}

impl Process for Quitter {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        self.steps += 1;
        if self.steps == 1 {
            let options = SpawnOptions::new();
            let options = if self.traps { options.trap_exits() } else { options };
            self.child = Some(out.run_with(Child { number: 7, is_slow: true }, options));
            return Ok(Step::Continue);
        }
        if let Some(child) = self.child.take() {
            out.cancel_command(child);
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_child_that_traps_exits_is_asked_to_stop_and_not_ended() {
    worlds("children that trap exits", |world| {
        let exits = Watcher::new();
        let runtime = world.start(builder().observer(exits.clone()))?;
        for traps in [true, false] {
            runtime.spawn(Quitter { traps, steps: 0, child: None })?;
            world.run()?;
            let exits: Vec<String> = exits.exits.take().iter().map(|(_, exit)| exit.to_string()).collect();
            ensure(exits.len() == 1 && (exits[0] == "done") == traps, || format!("{exits:?}"))?;
        }
        Ok(())
    })
    .check();
}

/// A message to a receiver.
enum Letter {
    Numbered(u64),
    Replace,
}

/// Sends its letters in a step each, and ends.
struct Sender {
    to: Address<Letter>,
    sent: u64,
}

impl Process for Sender {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        out.send(self.to, Letter::Numbered(self.sent));
        self.sent += 1;
        Ok(if self.sent < 3 { Step::Continue } else { Step::Done(()) })
    }
}

/// Takes letters. A request replaces its state machine, and the next one takes the rest.
struct Receiver {
    is_new: bool,
    taken: Arc<Mutex<Vec<String>>>,
}

impl Process for Receiver {
    type Message = Letter;
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        if !self.is_new {
            let to = out.own_address::<Receiver>();
            out.spawn_with(Sender { to, sent: 0 }, SpawnOptions::new().monitor())?;
        }
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, Letter>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Letter::Replace) => {
                    return Ok(Step::Upgrade(Upgrade::to(Receiver { is_new: true, taken: self.taken.clone() })));
                }
                Event::Message(Letter::Numbered(number)) => self.taken.lock().unwrap().push(number.to_string()),
                Event::Down(down) => self.taken.lock().unwrap().push(down.exit.to_string()),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn an_end_stays_after_letters_when_a_state_machine_is_replaced() {
    worlds("replaced receivers", |world| {
        let runtime = world.start(builder())?;
        let taken = Arc::<Mutex<Vec<String>>>::default();
        let receiver = runtime.spawn(Receiver { is_new: false, taken: taken.clone() })?;
        world.run_for(Duration::from_micros(world.random(0..40)))?;
        runtime.send(&receiver, Letter::Replace)?;
        world.run()?;
        let taken = taken.lock().unwrap();
        ensure(*taken == ["0", "1", "2", "done"], || format!("it took {taken:?}"))?;
        Ok(())
    })
    .check();
}

/// Fails at its first message. Until then it continues.
struct Fragile {
    link: Option<Pid>,
    steps: u32,
}

impl Process for Fragile {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(pid) = self.link.take() {
            out.link(pid);
        }
        if events.any(|event| matches!(event, Event::Message(()))) {
            return Err("fragile".into());
        }
        // A process that is being stepped is killed at the end of the step.
        self.steps = self.steps.saturating_sub(1);
        Ok(if self.steps > 0 { Step::Continue } else { Step::Idle })
    }
}

#[test]
fn a_linked_process_ends_for_the_reason_of_the_first() {
    worlds("links", |world| {
        let runtime = world.start(builder())?;
        let first = runtime.spawn(Fragile { link: None, steps: 0 })?;
        let second = runtime.spawn(Fragile { link: Some(first.pid()), steps: 30 })?;
        world.run_for(Duration::from_micros(world.random(0..200)))?;
        runtime.send(&first, ())?;
        let (first, exit) = (first.pid(), second.join()?.to_string());
        let is_linked = exit.contains(&first.to_string()) && exit.contains("fragile");
        ensure(is_linked || exit.contains("no such process"), || format!("the second {exit}, and not by {first}"))?;
        Ok(())
    })
    .check();
}

/// A member of a group with room for one message.
struct Full;

impl Process for Full {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        let is_asked = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if is_asked { Step::Done(()) } else { Step::Idle })
    }
}

/// Broadcasts four messages in one step.
struct Crier;

impl Process for Crier {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        (0..4_u64).for_each(|number| _ = out.broadcast("all", number));
        Ok(Step::Done(()))
    }
}

#[test]
fn what_full_members_of_a_group_cannot_take_is_dead() {
    worlds("full members", |world| {
        let watcher = Watcher::new();
        let runtime = world.start(builder().observer(watcher.clone()))?;
        let overflow = [Overflow::Refuse, Overflow::DropOldest, Overflow::DropNewest];
        for overflow in overflow {
            runtime.spawn_with(Full, SpawnOptions::new().group("all").mailbox(1, overflow))?;
        }
        world.run()?;
        runtime.spawn(Crier)?;
        world.run()?;
        let (stats, dead) = (runtime.stats(), watcher.dead.len() as u64);
        let sum = stats.messages.stepped + dead;
        ensure(sum == 12, || format!("{} were taken and {dead} are dead, of 12", stats.messages.stepped))?;
        Ok(())
    })
    .check();
}
