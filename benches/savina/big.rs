//! Big: each actor pings a random other, waits for its pong, and pings the next. A sink waits until all have had
//! their pongs.

use std::sync::Arc;
use std::time::Instant;

use procession::{Address, Event, Events, Process, Step, StepOutput, StepResult};

use super::measure::{Measured, Outcome, Setting};
use super::problems::big::{ACTORS, Targets, check};
use super::runtime::{done, finish};

enum Chat {
    /// All actors, in order.
    Meet(Arc<[Address<Chat>]>),
    Begin,
    /// Has the sender's number.
    Ping(usize),
    Pong(usize),
}

struct Friend {
    number: usize,
    friends: Arc<[Address<Chat>]>,
    sink: Address<OneIsDone>,
    targets: Targets,
    pinged: usize,
    left: u64,
    answered: u64,
}

impl Friend {
    fn next(&mut self, out: &mut StepOutput) {
        if self.left == 0 {
            out.send(self.sink, OneIsDone);
            return;
        }
        self.left -= 1;
        self.pinged = self.targets.next();
        out.send(self.friends[self.pinged], Chat::Ping(self.number));
    }
}

impl Process for Friend {
    type Message = Chat;
    type Output = u64;

    fn step(&mut self, events: &mut Events<Chat>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Chat::Ping(from)) => {
                    self.answered += 1;
                    out.send(self.friends[from], Chat::Pong(self.number));
                }
                Event::Message(Chat::Pong(from)) if from == self.pinged => self.next(out),
                Event::Message(Chat::Pong(from)) => {
                    return Err(format!("{from} answers, and {} was asked", self.pinged).into());
                }
                Event::Message(Chat::Meet(friends)) => self.friends = friends,
                Event::Message(Chat::Begin) => self.next(out),
                Event::Cancel(_) => return Ok(Step::Done(self.answered)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

struct OneIsDone;

/// Ends when all actors are done.
struct Sink {
    left: usize,
}

impl Process for Sink {
    type Message = OneIsDone;
    type Output = ();

    fn step(&mut self, events: &mut Events<OneIsDone>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(OneIsDone) => self.left -= 1,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Idle })
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let began = Instant::now();
    let sink = runtime.spawn(Sink { left: ACTORS })?;
    let nobody: Arc<[Address<Chat>]> = Arc::new([]);
    let mut handles = Vec::new();
    for number in 0..ACTORS {
        handles.push(runtime.spawn(Friend {
            number,
            friends: nobody.clone(),
            sink: sink.address(),
            targets: Targets::of(number),
            pinged: number,
            left: setting.n,
            answered: 0,
        })?);
    }
    let friends: Arc<[_]> = handles.iter().map(|handle| handle.address()).collect();
    for friend in friends.iter() {
        runtime.send(*friend, Chat::Meet(friends.clone()))?;
    }
    // This must come last, because an actor that is pinged must know all others.
    for friend in friends.iter() {
        runtime.send(*friend, Chat::Begin)?;
    }
    done(&sink)?;
    let measured = Measured::since(began, setting.n * ACTORS as u64);
    finish(&runtime)?;
    let answered = handles.iter().map(done).collect::<Outcome<Vec<_>>>()?;
    check(&answered, setting.n)?;
    Ok(measured)
}
