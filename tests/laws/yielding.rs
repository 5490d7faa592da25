//! How a process of a random program carries out the acts of a step: each yields something.

use std::time::Duration;

use procession::{Monitor, Pid, SpawnOptions, StepOutput};

use crate::actor::{Actor, Pending, PendingLetter};
use crate::acts::{Act, Born, Completes, Do, DoSoon, Letter, StepNumber, future};
use crate::monitor::{Note, Yields};
use crate::parcels::send_parcels;
use crate::records::{Effect, WrittenAs};

/// The yields of a burst.
const BURST: usize = 16_500;

impl Actor {
    fn monitor(&mut self, monitor: Monitor, (effects, yields): (&mut Vec<Effect>, &mut Yields), me: Pid) {
        yields.ends.monitors.push(monitor);
        self.monitors.push(monitor);
        effects.push(Box::new(move |world| world.relations.monitors(me, monitor)));
    }

    /// Carries out the acts of a plan. Returns the effects, to be written down if the step succeeds.
    pub fn act(&mut self, acts: &[Act], effective: bool, out: &mut StepOutput) -> (Vec<Effect>, Yields) {
        let (world, me) = (self.world.clone(), out.pid());
        let step = StepNumber(world.number());
        let (mut effects, mut yields): (Vec<Effect>, _) = (Vec::new(), Yields::new(step, world.elapsed(out.now())));
        let letter = |to, reply| {
            let number = world.number();
            let stamp = world.observations().map(|seen| seen.stamp()).unwrap_or_default();
            (number, Letter { to, from: Some(me), number, effective, reply, stamp })
        };
        let mut tags = Vec::new();
        for act in acts {
            match *act {
                Act::Send(which) => {
                    let Some(to) = self.world.choose(which) else { continue };
                    let (number, letter) = letter(to, None);
                    yields.sent.push((to, number));
                    out.send(to, letter);
                }
                Act::Spawn(plan, born) => {
                    let plan = plan % self.world.plans.len();
                    if self.world.known.lock().unwrap().len() > 60 {
                        continue;
                    }
                    let options = self.world.plans[plan].options();
                    let options = match born {
                        Born::Alone => options,
                        Born::Linked => options.link(),
                        Born::Monitored => options.monitor(),
                    };
                    let child = Actor::born_of(step, Actor::new(&self.world, plan));
                    let child = match self.world.written_as {
                        WrittenAs::Machine => out.spawn_with(child, options).ok(),
                        WrittenAs::AsyncProcess => {
                            let (child, options) = child.into_async(options);
                            out.spawn_with(child, options).ok()
                        }
                        WrittenAs::Actor => out.spawn_with(child.into_actor(), options).ok(),
                    };
                    let child = child.map(|child| {
                        if let Some(monitor) = child.monitor {
                            self.monitor(monitor, (&mut effects, &mut yields), me);
                        }
                        child.address
                    });
                    let Some(child) = child else { continue };
                    self.world.note_bound(child.pid(), plan);
                    let linked = child.pid();
                    if let Born::Linked = born {
                        effects.push(Box::new(move |world| {
                            world.relations.links(me, linked);
                            world.linked.lock().unwrap().insert((me, linked));
                        }));
                    }
                    let (number, letter) = letter(child.pid(), None);
                    yields.sent.push((child.pid(), number));
                    out.send(child, letter);
                }
                Act::Ask(which) => {
                    let Some(to) = self.world.choose(which) else { continue };
                    let mut number = 0;
                    let tag = out.ask(
                        to.typed(),
                        |reply| {
                            let (n, letter) = letter(to, Some(reply));
                            number = n;
                            letter
                        },
                        Duration::from_secs(5),
                    );
                    yields.sent.push((to, number));
                    yields.asks.push((tag.id(), number));
                    tags.push((tag.id(), Pending::Ask(tag)));
                }
                Act::SendTimeout(which, seconds) => {
                    let Some(to) = self.world.choose(which) else { continue };
                    let (number, letter) = letter(to, None);
                    yields.sent.push((to, number));
                    let tag = out.send_timeout(to.typed(), letter, Duration::from_secs(seconds.into()));
                    yields.rooms.push((tag.id(), number));
                    let room = PendingLetter { to, number };
                    effects.push(Box::new(move |world| world.waits_for_room(room)));
                    tags.push((tag.id(), Pending::Room(tag, room)));
                }
                Act::Timer(seconds) => {
                    let tag = out.after(Duration::from_secs(seconds.into()));
                    yields.timers.push((tag.id(), Duration::from_secs(seconds.into())));
                    tags.push((tag.id(), Pending::Time(tag)));
                }
                Act::Blocking { panics } => {
                    let world = world.clone();
                    let tag = out.blocking(move || {
                        world.note(|| Note::Carried(step));
                        if panics { panic!("on purpose") } else { 1 }
                    });
                    tags.push((tag.id(), Pending::Number(tag)));
                }
                Act::Command(outcome) => {
                    let tag = out.command(Do { outcome, of: step });
                    tags.push((tag.id(), Pending::Number(tag)));
                }
                Act::CommandTimeout(outcome) => {
                    let command = DoSoon(Do { outcome, of: step });
                    let tag = out.command_timeout(command, Duration::from_secs(2));
                    tags.push((tag.id(), Pending::Number(tag)));
                }
                Act::Cancel(which) => {
                    let Some(to) = self.world.choose(which) else { continue };
                    let tag = out.cancel(to, "by plan");
                    yields.at_once.push(tag.id());
                    tags.push((tag.id(), Pending::Truth(tag)));
                }
                Act::Terminate(which) => {
                    let Some(to) = self.world.choose(which) else { continue };
                    let tag = out.terminate(to);
                    yields.at_once.push(tag.id());
                    tags.push((tag.id(), Pending::Truth(tag)));
                }
                Act::Monitor(which) => {
                    let Some(to) = self.world.choose(which) else { continue };
                    self.monitor(out.monitor(to), (&mut effects, &mut yields), me);
                }
                Act::Demonitor(which) => {
                    if self.monitors.is_empty() {
                        continue;
                    }
                    let monitor = self.monitors.swap_remove(which % self.monitors.len());
                    out.demonitor(monitor);
                    yields.ends.demonitors.push(monitor);
                    effects.push(Box::new(move |world| world.relations.demonitors(me, monitor)));
                }
                Act::Link(which) => {
                    let Some(to) = self.world.choose(which).filter(|to| *to != me) else { continue };
                    out.link(to);
                    effects.push(Box::new(move |world| world.relations.links(me, to)));
                }
                Act::Unlink(which) => {
                    let Some(to) = self.world.choose(which).filter(|to| *to != me) else { continue };
                    out.unlink(to);
                    effects.push(Box::new(move |world| world.relations.unlinks(me, to)));
                }
                Act::Run(plan) => {
                    let plan = plan % self.world.plans.len();
                    if self.world.known.lock().unwrap().len() > 60 {
                        continue;
                    }
                    let child = Actor::born_of(step, Actor::new(&self.world, plan)).without_traps();
                    let limit = Duration::from_secs(3);
                    let tag = match self.world.written_as {
                        WrittenAs::Machine => out.run_timeout(child, limit),
                        WrittenAs::AsyncProcess => out.run_timeout(child.into_async(SpawnOptions::new()).0, limit),
                        WrittenAs::Actor => out.run_timeout(child.into_actor(), limit),
                    };
                    self.world.relations.runs(me);
                    yields.ends.runs.push(tag.id());
                    tags.push((tag.id(), Pending::Run(tag)));
                }
                Act::CancelCommand(which) => {
                    let which = which % self.outstanding.len().max(1);
                    match self.outstanding.values().nth(which) {
                        Some(Pending::Number(tag)) => out.cancel_command(*tag),
                        Some(Pending::Run(tag)) => out.cancel_command(*tag),
                        Some(Pending::Time(tag)) => out.cancel_timer(*tag),
                        Some(Pending::Room(tag, _)) => out.cancel_command(*tag),
                        Some(Pending::Ask(_) | Pending::Truth(_)) | None => {}
                    }
                }
                Act::Parcels => {
                    let sinks = self.world.sinks.lock().unwrap().clone();
                    let stamp = world.observations().map(|seen| seen.stamp()).unwrap_or_default();
                    send_parcels(&sinks, stamp, out);
                }
                Act::Burst => (0..BURST).for_each(|_| out.unlink(me)),
                Act::Future(completes) => {
                    let tag = out.future(future(&self.world, me, completes));
                    // On real workers each future completes.
                    if !matches!((completes, &world.simulated), (Completes::Never, Some(_))) {
                        tags.push((tag.id(), Pending::Number(tag)));
                    }
                }
            }
        }
        world.observe(|seen| {
            tags.iter().for_each(|(tag, _)| seen.yields(me, *tag));
            Ok(())
        });
        let asked: Vec<_> = tags.iter().map(|(tag, _)| (me, *tag)).collect();
        effects.push(Box::new(move |world| world.asked.lock().unwrap().extend(asked)));
        self.outstanding.extend(tags);
        (effects, yields)
    }
}
