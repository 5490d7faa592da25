//! Messages and yields in words, for the trace of a run that is to be shown.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::outcome::contain;
use crate::pid::Pid;
use crate::process::{Naming, Relate};
use crate::sched::body::{Ready, StepOutput, Yield};
use crate::sched::orders::Order;

/// Returns the content of a value of one type.
type Content = fn(&dyn Any) -> Option<String>;

/// The types whose values are shown with their content. Of others, the name of the type is shown.
///
/// Code of the user makes the words. So no lock is held meanwhile.
#[derive(Clone, Default)]
pub(super) struct TraceFormatter {
    types: BTreeMap<TypeId, Content>,
}

impl TraceFormatter {
    /// Shows the content of the values of this type.
    pub(super) fn add<M: Debug + 'static>(&mut self) {
        self.types.insert(TypeId::of::<M>(), |value| Some(format!("{:?}", value.downcast_ref::<M>()?)));
    }

    /// The content of the value, or the name of its type without the modules.
    pub(super) fn describe(&self, value: &dyn Any, type_name: &str) -> String {
        let content = self.types.get(&value.type_id()).and_then(|content| contain(|| content(value)).ok()?);
        content.unwrap_or_else(|| short(type_name).to_owned())
    }

    /// The messages that wait for a process, with their senders.
    pub(super) fn waiting(&self, body: &Ready) -> Vec<(Option<Pid>, String)> {
        let (mut waiting, type_name) = (Vec::new(), (body.machine.kind().message_name)());
        body.machine.show_messages(&mut |from, message| waiting.push((from, self.describe(message, type_name))));
        waiting
    }

    /// The messages that a step has taken, with their senders. `waiting` were there before the step, and the body has
    /// those that the step has left.
    pub(super) fn taken(&self, mut waiting: Vec<(Option<Pid>, String)>, body: &Ready) -> Vec<(Option<Pid>, String)> {
        for left in self.waiting(body) {
            if let Some(place) = waiting.iter().rposition(|one| *one == left) {
                waiting.remove(place);
            }
        }
        waiting
    }

    /// The yields in words, without those that a reader need not see.
    pub(super) fn yields(&self, out: &StepOutput) -> Vec<String> {
        let mut yields = Yields { formatter: self, out, places: Vec::new() };
        let mut others = out.yields.iter();
        let mut words = Vec::new();
        for order in out.orders.newest() {
            match order {
                Order::Send { lane, count, to } => {
                    words.extend((0..*count).map(|_| format!("send {to} {}", yields.next_of(*lane))));
                }
                Order::Next => words.extend(others.next().and_then(|one| yields.name(one))),
            }
        }
        words
    }
}

/// The yields of a step, of which none is performed yet.
struct Yields<'a> {
    formatter: &'a TraceFormatter,
    out: &'a StepOutput,
    /// The place of the next message on each lane.
    places: Vec<usize>,
}

impl Yields<'_> {
    /// The next message of this lane.
    fn next_of(&mut self, lane: u32) -> String {
        let number = lane as usize;
        if self.places.len() <= number {
            self.places.resize(number + 1, 0);
        }
        let place = self.places[number];
        self.places[number] += 1;
        let message = self.out.outbox.look(lane, place).filter(|_| !self.out.orders.has_slices());
        message.map_or(String::new(), |(message, type_name)| self.formatter.describe(message, type_name))
    }

    /// The yield in words. `None` if a reader need not see it.
    fn name(&mut self, one: &Yield) -> Option<String> {
        Some(match one {
            Yield::Ask { lane, to, .. } => format!("ask {to} {}", self.next_of(*lane)),
            Yield::Broadcast { lane, to } => {
                let messages: Vec<String> = to.iter().map(|_| self.next_of(*lane)).collect();
                let first = messages.into_iter().next().unwrap_or_default();
                format!("broadcast {first} to {} processes", to.len())
            }
            Yield::SendNowhere { lane, why } => format!("send {}, but {why}", self.next_of(*lane)),
            Yield::Refused { tag, why } => format!("command {tag} is refused: {why}"),
            Yield::Reply(reply) => {
                let mut value = String::new();
                reply.look(&mut |answer| value = self.formatter.describe(answer, ""));
                let to = reply.identity().0.map_or(String::from("a caller outside"), |pid| pid.to_string());
                format!("reply {value}{}to {to}", if value.is_empty() { "" } else { " " })
            }
            Yield::Spawn(body) => {
                let name = body.head.name().map_or(String::new(), |name| format!(" {name:?}"));
                format!("spawn {} {}{name}", body.head.pid, short((body.machine.kind().process)()))
            }
            Yield::Blocking { tag, .. } => format!("blocking closure {tag}"),
            Yield::Timer { tag, delay } => format!("timer {tag} in {delay:?}"),
            Yield::CancelTimer { tag } => format!("cancel timer {tag}"),
            Yield::Command { tag, command } => format!("command {tag} {}", short(command.name)),
            Yield::CommandTimeout(limited) => format!("command {} {}", limited.tag, short(limited.command.name)),
            Yield::CancelCommand { tag } => format!("cancel command {tag}"),
            Yield::SendTimeout(_) => String::from("send with a limit"),
            Yield::BeginRun { .. } => String::from("run"),
            Yield::Entrust { tag, .. } => format!("retry {tag}"),
            Yield::Future { tag, .. } => format!("future {tag}"),
            Yield::CancelFuture { tag } => format!("cancel future {tag}"),
            Yield::Feed(_) => String::from("feed"),
            Yield::Cancel { to, .. } => format!("cancel {to}"),
            Yield::Terminate { to, .. } => format!("terminate {to}"),
            Yield::Relate(Relate::Monitor(monitor)) => format!("monitor {}", monitor.pid()),
            Yield::Relate(Relate::Demonitor(monitor)) => format!("demonitor {}", monitor.pid()),
            Yield::Relate(Relate::Link(to)) => format!("link {to}"),
            Yield::Relate(Relate::Unlink(to)) => format!("unlink {to}"),
            Yield::Relate(Relate::TrapExits(_)) => String::from("trap exits"),
            Yield::Relate(Relate::Subscribe(_)) => String::from("subscribe to a group"),
            Yield::Relate(Relate::Unsubscribe(_)) => String::from("unsubscribe from a group"),
            Yield::Naming { naming, .. } => match &**naming {
                Naming::Register { name, pid } => format!("register {name:?} for {pid}"),
                Naming::Unregister { name } => format!("unregister {name:?}"),
                Naming::Join { group, pid } => format!("{pid} joins {group:?}"),
                Naming::Leave { group, pid } => format!("{pid} leaves {group:?}"),
            },
            Yield::Drawn | Yield::Performed => return None,
        })
    }
}

/// The name of a type without the modules.
pub(super) fn short(name: &str) -> &str {
    let end = name.find('<').unwrap_or(name.len());
    name[..end].rfind("::").map_or(name, |place| &name[place + 2..])
}
