//! A. Processes driven without a runtime: under PIDs of their own, by one clock, and what a test asks of them in vain.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::testing::{Driver, Outstanding, SentError, Status};
use procession::{
    Address, CommandError, EntryArgs, Event, Events, InitResult, Pid, Process, Reply, Step, StepOutput, StepResult, Tag,
};

use crate::helpers::*;

fn pid(text: &str) -> Pid {
    text.parse().unwrap()
}

/// Asks, and is done with the answer.
struct Asker {
    to: Address<Reply<u32>>,
    tag: Option<Tag<u32>>,
}

impl Process for Asker {
    type Message = ();
    type Output = Result<u32, String>;

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Self::Output> {
        let tag = *self.tag.get_or_insert_with(|| out.ask(self.to, |reply| reply, Duration::from_secs(5)));
        for event in events {
            if let Event::Completed(done) = event {
                let answer = done.take(tag).unwrap();
                return Ok(Step::Done(answer.map_err(|why: CommandError| why.to_string())));
            }
        }
        Ok(Step::Wait)
    }
}

/// Answers two seconds after it was asked, and notes who asks.
#[derive(Default)]
struct Slow {
    kept: Option<Reply<u32>>,
    askers: Vec<Pid>,
}

impl Process for Slow {
    type Message = Reply<u32>;
    type Output = Vec<Pid>;

    fn step(&mut self, events: &mut Events<'_, Reply<u32>>, out: &mut StepOutput) -> StepResult<Vec<Pid>> {
        while let Some(event) = events.next() {
            match event {
                Event::Message(reply) => {
                    self.askers.extend(events.sender());
                    self.kept = Some(reply);
                    out.after(Duration::from_secs(2));
                }
                Event::Completed(_) => self.kept.take().into_iter().for_each(|reply| out.reply(reply, 7)),
                _ => return Ok(Step::Done(std::mem::take(&mut self.askers))),
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn processes_with_a_clock_in_common_and_a_pid_each_talk_to_each_other() {
    for (delay, expected) in [(2, Ok(7)), (6, Err("timed out".to_string()))] {
        let clock = ManualClock::new();
        let mut slow = Driver::builder().pid(pid("<3.1.1>")).clock(&clock).build(Slow::default());
        let asker = Asker { to: slow.address(), tag: None };
        let mut asker = Driver::builder().pid(pid("<3.2.9>")).clock(&clock).build(asker);
        assert_eq!((slow.pid(), asker.pid(), asker.clock().now()), (pid("<3.1.1>"), pid("<3.2.9>"), clock.now()));
        assert_eq!((slow.run(), asker.run()), (Status::Idle, Status::Blocked));
        let (to, question) = asker.sent().unwrap();
        assert_eq!(to, slow.pid());
        if delay > 5 {
            clock.advance(Duration::from_secs(delay));
            assert_eq!(asker.run(), Status::Ended);
        }
        assert_eq!(slow.message_from(asker.pid(), question).run(), Status::Idle);
        let due = slow.clock().now() + Duration::from_secs(2);
        assert_eq!(slow.outstanding(), [Outstanding::Timer { tag: 1, due: Some(due) }]);
        // One driver moves the clock of both.
        asker.advance(Duration::from_secs(2));
        assert_eq!((slow.run(), asker.run()), (Status::Idle, Status::Ended));
        assert_eq!(**asker.exit().unwrap().output().unwrap(), expected);
        slow.cancel("enough");
        assert_eq!(slow.run(), Status::Ended);
        assert_eq!(**slow.exit().unwrap().output().unwrap(), [asker.pid()]);
    }
}

/// Spawns two children.
fn parent() -> impl Process<Message = (), Output = [Pid; 2]> {
    script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        Ok(Step::Done([out.spawn(sink::<()>())?.pid(), out.spawn(sink::<()>())?.pid()]))
    })
}

#[test]
fn children_of_driven_processes_in_different_slots_have_different_pids() {
    let children = |text: &str| {
        let mut driver = Driver::builder().pid(pid(text)).build(parent());
        driver.run();
        **driver.exit().unwrap().output().unwrap()
    };
    assert_eq!(children("<0.0.1>"), [pid("<0.1.1>"), pid("<0.2.1>")]);
    assert_eq!(children("<5.2.8>"), [pid("<5.2001.1>"), pid("<5.2002.1>")]);
    assert_eq!(children("<5.67108863.1>"), [pid("<5.1.1>"), pid("<5.2.1>")], "the greatest slot");
}

/// Notes how it is entered, and how many messages each step is given.
struct Entered(u32, Vec<usize>);

impl Process for Entered {
    type Message = ();
    type Output = (u32, Vec<usize>);

    fn init(&mut self, entry: EntryArgs) -> InitResult {
        let enter = |from: u32| {
            self.0 = from;
            Ok(())
        };
        entry.method("from", enter).finish()
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<Self::Output> {
        let (mut count, mut over) = (0, false);
        for event in events {
            match event {
                Event::Message(()) => count += 1,
                _ => over = true,
            }
        }
        self.1.push(count);
        Ok(if over { Step::Done((self.0, self.1.clone())) } else { Step::Idle })
    }
}

#[test]
fn a_driver_builder_sets_the_entry_and_the_events_of_a_step() {
    for (events, steps) in [(0, vec![1, 1, 1, 0]), (2, vec![2, 1, 0]), (usize::MAX, vec![3, 0])] {
        let mut driver = Driver::builder().entry("from", 7_u32).step_events(events).build(Entered(0, Vec::new()));
        driver.message(()).message(()).message(());
        assert_eq!(driver.run(), Status::Idle);
        driver.cancel("enough").run();
        assert_eq!(**driver.exit().unwrap().output().unwrap(), (7, steps));
    }
}

#[test]
fn a_message_that_is_not_there_and_one_of_another_type_are_told_apart() {
    let to = pid("<0.5.1>");
    let mut driver = Driver::new(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(to, "text");
        out.send(to, 7_u32);
        out.ask(to.typed(), |reply: Reply<()>| Some(reply), Duration::MAX);
        Ok(Step::Done(()))
    }));
    assert_eq!(driver.sent::<u32>(), Err(SentError::Nothing));
    driver.run();
    let why = driver.sent::<u32>().unwrap_err();
    assert_eq!(why, SentError::OtherType { to, found: "&str", expected: "u32" });
    assert_eq!(
        why.to_string(),
        "the oldest message that the process has sent, to <0.5.1>, is of type &str, and not of type u32"
    );
    assert_eq!((driver.sent::<&str>(), driver.sent::<u32>()), (Ok((to, "text")), Ok((to, 7))));
    let found = std::any::type_name::<Option<Reply<()>>>();
    assert_eq!(driver.sent::<u32>(), Err(SentError::OtherType { to, found, expected: "u32" }));
    assert!(driver.sent::<Option<Reply<()>>>().is_ok());
    assert_eq!(driver.sent::<u32>(), Err(SentError::Nothing));
    assert_eq!(SentError::Nothing.to_string(), "the process has sent no message that was not taken");
}
