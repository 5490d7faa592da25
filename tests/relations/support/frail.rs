//! A process that does what it is told, fails when it is told so, and recovers. It notes the events that it gets.

use procession::names::GroupChange;
use procession::{
    Address, Event, Events, Exit, Handle, Pid, Process, Reply, Runtime, SpawnOptions, Step, StepOutput, StepResult,
    Upgrade,
};

use crate::helpers::*;

pub enum Order {
    Do(Box<dyn FnOnce(&mut StepOutput) + Send>),
    /// To be kept as long as the state machine lives.
    Keep(Reply<u32>),
    /// To be answered when all before it is done.
    Answer(Reply<()>),
    Fail,
    /// Says `Wait`.
    Wait,
    Upgrade(Frail),
    Done,
}

pub struct Frail {
    /// Which state machine of the process this is, and how many there may be.
    pub life: usize,
    pub lives: usize,
    kept: Vec<Reply<u32>>,
    heard: Log<String>,
}

impl Frail {
    pub fn new(lives: usize, heard: &Log<String>) -> Frail {
        Frail { life: 1, lives, kept: Vec::new(), heard: heard.clone() }
    }

    /// One that calls itself the state machine with this number.
    pub fn numbered(self, life: usize) -> Frail {
        Frail { life, ..self }
    }

    fn hears(&self, what: &str) {
        self.heard.push(format!("{}: {what}", self.life));
    }
}

impl Process for Frail {
    type Message = Order;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Order>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Order::Do(deed)) => deed(out),
                Event::Message(Order::Keep(reply)) => self.kept.push(reply),
                Event::Message(Order::Answer(reply)) => out.reply(reply, ()),
                Event::Message(Order::Fail) => return Err("frail".into()),
                Event::Message(Order::Wait) => return Ok(Step::Wait),
                Event::Message(Order::Upgrade(next)) => return Ok(Step::Upgrade(Upgrade::to(next))),
                Event::Message(Order::Done) => return Ok(Step::Done(())),
                Event::Completed(_) => self.hears("completed"),
                Event::Cancel(_) => self.hears("cancel"),
                Event::Down(down) => self.hears(&format!("down {}", down.pid)),
                Event::Exit(exit) => self.hears(&format!("exit {}", exit.pid)),
                Event::Recovered(recovered) => self.hears(&format!("recovered {}", recovered.pid)),
                Event::Group(event) => self.hears(match event.change {
                    GroupChange::Members(_) => "members",
                    GroupChange::Joined(_) => "joined",
                    _ => "left",
                }),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        let next = Frail { life: self.life + 1, lives: self.lives, kept: Vec::new(), heard: self.heard.clone() };
        (self.life < self.lives).then(|| Upgrade::to(next))
    }
}

/// A frail process, and what it has heard.
pub struct Known {
    pub runtime: Runtime,
    pub handle: Handle<Frail>,
    pub heard: Log<String>,
}

/// One that has so many lives.
pub fn frail(runtime: &Runtime, lives: usize, options: SpawnOptions) -> Known {
    let heard = Log::new();
    let handle = runtime.spawn_with(Frail::new(lives, &heard), options).unwrap();
    Known { runtime: runtime.clone(), handle, heard }
}

impl Known {
    pub fn pid(&self) -> Pid {
        self.handle.pid()
    }

    pub fn address(&self) -> Address<Order> {
        self.handle.address()
    }

    pub fn tell(&self, order: Order) {
        self.runtime.send(self.address(), order).unwrap();
    }

    pub fn does(&self, deed: impl FnOnce(&mut StepOutput) + Send + 'static) {
        self.tell(Order::Do(Box::new(deed)));
    }

    /// Waits until it has stepped what was sent before, and its yields are performed.
    pub fn settles(&self) {
        // The second answer comes from a later step than the first.
        for _ in 0..2 {
            self.runtime.ask(self.address(), Order::Answer, LIMIT).wait().unwrap();
        }
    }

    /// Has it fail when it has done what it was told before, and waits until the next state machine has made a step.
    pub fn fails(&self) {
        // Acts of the step that fails would have no effect.
        self.settles();
        self.tell(Order::Fail);
        self.settles();
    }
}
