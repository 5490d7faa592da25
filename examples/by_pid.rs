//! A numbered tour of what a program can do with a PID, and of what a PID never does.
//!
//! The tour spawns a counter and a clerk. It sends messages to them by typed address and by plain PID. It asks from
//! outside and between processes. It registers names, prints PIDs and parses them back, and sends messages of the
//! wrong type. At the end it sends messages to a process that has ended and whose slot another process has.
//!
//! ```text
//! cargo run --example by_pid
//! cargo test --example by_pid
//! ```
//!
//! Each line is checked before it is printed. If a line is not true, the tour ends there with an error.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use procession::names::NoSuchProcessError;
use procession::observe::{DeadLetter, DeadLetterReason, Observer, ProcessState};
use procession::{
    Address, BoxError, CommandError, Event, Events, Exit, Pid, Process, Reply, Runtime, SendError, SpawnError,
    SpawnOptions, Step, StepOutput, StepResult, Tag,
};

/// A limit that is longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// How long the clerk waits for the counter.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), BoxError> {
    tour(&mut Guide { to: io::stdout().lock(), number: 0 })
}

/// Adds numbers. When asked to stop, it returns its total.
struct Counter {
    total: u64,
}

#[derive(Debug)]
enum CounterMessage {
    Add(u64),
    Read(Reply<u64>),
}

impl Process for Counter {
    type Message = CounterMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<CounterMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(CounterMessage::Add(n)) => self.total += n,
                Event::Message(CounterMessage::Read(reply)) => out.reply(reply, self.total),
                Event::Cancel(_) => return Ok(Step::Done(self.total)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Asks the counter whenever it is asked for a report. It also sends notes to any PID it is given.
struct Clerk {
    counter: Address<CounterMessage>,
    /// The open requests to the counter, each with the reply that needs its answer.
    asked: Vec<(Tag<u64>, Reply<String>)>,
}

#[derive(Debug)]
enum ClerkMessage {
    Report(Reply<String>),
    Deliver(Pid, Note),
}

/// A message type that neither process accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note(&'static str);

impl Process for Clerk {
    type Message = ClerkMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<ClerkMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(ClerkMessage::Report(reply)) => {
                    // The reply is stored for a later step, when the counter has answered.
                    self.asked.push((out.ask(self.counter, CounterMessage::Read, PATIENCE), reply));
                }
                Event::Message(ClerkMessage::Deliver(to, note)) => out.send(to, note),
                Event::Completed(done) => {
                    let Some(place) = self.asked.iter().position(|(tag, _)| done.is(*tag)) else { continue };
                    let (tag, reply) = self.asked.swap_remove(place);
                    match done.take(tag) {
                        Some(Ok(total)) => out.reply(reply, format!("the counter stands at {total}")),
                        Some(Err(why)) => out.reply(reply, format!("the counter does not answer: {why}")),
                        None => {}
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Forwards the dead letters that it observes.
struct Undertaker {
    to: Sender<Obituary>,
}

/// The parts of a dead letter that the tour shows.
#[derive(Debug, PartialEq, Eq)]
struct Obituary {
    to: Pid,
    from: Option<Pid>,
    reason: DeadLetterReason,
    note: Option<Note>,
}

impl Observer for Undertaker {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let DeadLetter { to, from, reason, .. } = *letter;
        // If the receiver is gone, the dead letter is of no interest.
        let _ = self.to.send(Obituary { to, from, reason, note: letter.message::<Note>().copied() });
    }
}

fn tour<W: Write>(guide: &mut Guide<W>) -> Result<(), BoxError> {
    let (sender, dead_letters) = mpsc::channel();
    let runtime = Runtime::builder().workers(2).node(1).observer(Undertaker { to: sender }).start()?;

    guide.stop("A process is spawned, and has a PID")?;
    let counter = runtime.spawn_with(Counter { total: 0 }, SpawnOptions::new().name("counter"))?;
    let pid = counter.pid();
    guide.say(runtime.is_alive(pid), &format!("{pid} is a counter, and alive"))?;

    guide.stop("It is sent to by its address, which knows the type of its messages")?;
    let address: Address<CounterMessage> = counter.address();
    let sent = runtime.send(address, CounterMessage::Add(2)).is_ok();
    guide.say(sent, "2 is on its way; the compiler has checked that a counter takes it")?;

    guide.stop("It is sent to by its plain PID, and the runtime checks the type")?;
    let sent = runtime.send(pid, CounterMessage::Add(3)).is_ok();
    guide.say(sent, "3 is on its way; had it been of another type, it would have come back")?;

    guide.stop("It is asked from outside")?;
    let total = runtime.ask(address, CounterMessage::Read, LIMIT).wait()?;
    guide.say(total == 5, "the total is 5: what one sender sends to one receiver stays in order")?;

    guide.stop("A PID can be printed, and parsed back")?;
    let text = pid.to_string();
    let parsed: Pid = text.parse()?;
    guide.say(parsed == pid, &format!("{text:?} is {parsed} again"))?;
    runtime.send(parsed.typed(), CounterMessage::Add(4))?;
    guide.say(runtime.ask(address, CounterMessage::Read, LIMIT).wait()? == 9, "and reaches the same process: 9")?;
    let refused = "<1.0>".parse::<Pid>();
    guide.say(refused.is_err(), "other text is refused")?;

    guide.stop("A process can have a name")?;
    guide.say(runtime.whereis("counter") == Some(pid), &format!("\"counter\" is {pid}"))?;
    let twin = match runtime.spawn_with(Counter { total: 77 }, SpawnOptions::new().name("counter")) {
        Ok(_) => return Err("two processes have one name".into()),
        Err(refused) => refused.into_parts(),
    };
    let is_taken = matches!(&twin.1, SpawnError::NameTaken { holder, .. } if *holder == pid);
    guide.say(is_taken && twin.0.total == 77, "nobody else can have it: the second counter comes back unspawned")?;

    guide.stop("A process asks another one")?;
    let clerk = runtime.spawn(Clerk { counter: address, asked: Vec::new() })?;
    let report = runtime.ask(clerk.address(), ClerkMessage::Report, LIMIT).wait()?;
    guide.say(report == "the counter stands at 9", &format!("{} asks {pid} and reports: {report}", clerk.pid()))?;

    guide.stop("A message of the wrong type harms nobody")?;
    let note = Note("with compliments");
    let (back, why) = refused_parts(runtime.send(pid, note))?;
    let is_wrong = matches!(why, SendError::WrongType { pid: to, .. } if to == pid);
    guide.say(is_wrong && back == note, &format!("from outside it is refused and comes back: {why}"))?;
    runtime.send(clerk.address(), ClerkMessage::Deliver(pid, note))?;
    let expected = Obituary { to: pid, from: Some(clerk.pid()), reason: DeadLetterReason::WrongType, note: Some(note) };
    guide.say(next(&dead_letters)? == expected, "from a process it becomes a dead letter, which the hook sees")?;
    guide
        .say(runtime.ask(address, CounterMessage::Read, LIMIT).wait()? == 9, "the counter has seen nothing of it: 9")?;

    guide.stop("A process is asked to stop, and waited for")?;
    let was_there = runtime.cancel(pid, "closing time")?;
    let exit = counter.join()?;
    guide.say(was_there, "the counter was told")?;
    guide
        .say(matches!(&exit, Exit::Done(total) if **total == 9), &format!("it ended by itself ({exit}) and left 9"))?;

    guide.stop("The PID of an ended process names nobody")?;
    let state = runtime.process_state(pid);
    let has_ended = state == Some(ProcessState::Complete) && runtime.whereis("counter").is_none();
    guide.say(has_ended, &format!("{pid} is complete, and its name is free"))?;
    let (back, why) = refused_parts(runtime.send(address, CounterMessage::Add(5)))?;
    let is_nobody =
        why == SendError::NoSuchProcess(NoSuchProcessError::Pid(pid)) && matches!(back, CounterMessage::Add(5));
    guide.say(is_nobody, &format!("a message is refused and comes back: {why}"))?;
    let answer = runtime.ask(address, CounterMessage::Read, LIMIT).wait();
    guide.say(
        matches!(answer, Err(CommandError::NoSuchProcess(NoSuchProcessError::Pid(to))) if to == pid),
        "a question is answered at once",
    )?;
    let report = runtime.ask(clerk.address(), ClerkMessage::Report, LIMIT).wait()?;
    guide.say(report.contains("no such process"), &format!("so is the clerk's: {report}"))?;
    // The clerk's request was a message, too, and became a dead letter. It is received here, before the later ones.
    let question = next(&dead_letters)?;
    guide.say(
        (question.to, question.reason) == (pid, DeadLetterReason::NoSuchProcess),
        "its question is a dead letter",
    )?;
    runtime.send(clerk.address(), ClerkMessage::Deliver(pid, note))?;
    let expected =
        Obituary { to: pid, from: Some(clerk.pid()), reason: DeadLetterReason::NoSuchProcess, note: Some(note) };
    guide.say(next(&dead_letters)? == expected, "and so is what the clerk sends")?;
    guide.say(!runtime.cancel(pid, "again")?, "to stop it again does nothing")?;

    guide.stop("The next process in its slot is another process")?;
    successor(guide, pid)?;

    guide.stop("The end: every message is accounted for")?;
    let report = runtime.shutdown(LIMIT)?;
    guide.say(report.is_clean(), &format!("shut down: {report}"))?;
    guide.say(clerk.is_finished(), "the clerk was asked to stop, and did")?;
    let messages = runtime.stats().messages;
    let (accepted, stepped, dead) = (messages.accepted, messages.stepped, messages.dead());
    guide.say(dead == 3, &format!("{accepted} messages accepted = {stepped} stepped + {dead} dead letters"))?;
    guide.say(accepted == stepped + dead + messages.queued, "and nothing has vanished")
}

/// A runtime with room for a single process, so that the next process gets the same slot.
fn successor<W: Write>(guide: &mut Guide<W>, foreign: Pid) -> Result<(), BoxError> {
    let small = Runtime::builder().workers(1).node(2).max_processes(1).start()?;
    let first = small.spawn(Counter { total: 1 })?;
    let full = small.spawn(Counter { total: 2 });
    guide.say(full.is_err(), &format!("in a second runtime, {} has the only slot", first.pid()))?;
    small.cancel(first.pid(), "make room")?;
    first.join()?;

    let second = small.spawn(Counter { total: 2 })?;
    let (old, new) = (first.pid(), second.pid());
    let is_successor = old.slot() == new.slot() && old.generation() < new.generation() && old != new;
    guide.say(is_successor, &format!("when it has ended, {new} has the slot, in another generation"))?;
    let (_, why) = refused_parts(small.send(first.address(), CounterMessage::Add(100)))?;
    guide.say(
        why == SendError::NoSuchProcess(NoSuchProcessError::Pid(old)),
        &format!("the old PID does not reach it: {why}"),
    )?;
    let total = small.ask(second.address(), CounterMessage::Read, LIMIT).wait()?;
    guide.say(total == 2, "the new process has seen nothing of it: 2")?;
    let (_, why) = refused_parts(small.send(foreign, CounterMessage::Add(100)))?;
    guide.say(
        why == SendError::NoSuchProcess(NoSuchProcessError::Pid(foreign)),
        &format!("nor does {foreign}, of the first runtime"),
    )?;
    let report = small.shutdown(LIMIT)?;
    guide.say(report.is_clean(), &format!("the second runtime is shut down: {report}"))
}

/// The refused message and the reason. If the message was accepted, the tour fails here.
fn refused_parts<T>(sent: Result<(), procession::Rejected<T, SendError>>) -> Result<(T, SendError), BoxError> {
    match sent {
        Ok(()) => Err("it was not refused".into()),
        Err(refused) => Ok(refused.into_parts()),
    }
}

fn next(dead_letters: &Receiver<Obituary>) -> Result<Obituary, BoxError> {
    Ok(dead_letters.recv_timeout(LIMIT)?)
}

/// Prints only lines that are true.
struct Guide<W> {
    to: W,
    number: u32,
}

impl<W: Write> Guide<W> {
    /// Begins the next stop of the tour.
    fn stop(&mut self, title: &str) -> Result<(), BoxError> {
        self.number += 1;
        Ok(writeln!(self.to, "{}. {title}", self.number)?)
    }

    fn say(&mut self, is_so: bool, what: &str) -> Result<(), BoxError> {
        if !is_so {
            return Err(format!("stop {}: this is not so: {what}", self.number).into());
        }
        Ok(writeln!(self.to, "   {what}")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procession::testing::{Driver, Outstanding, Status, question};

    #[test]
    fn a_counter_adds_up_answers_and_leaves_its_total() {
        let mut counter = Driver::new(Counter { total: 1 });
        let (reply, total) = question();
        counter.message(CounterMessage::Add(4)).message(CounterMessage::Read(reply)).message(CounterMessage::Add(2));
        assert_eq!(counter.run(), Status::Idle);
        assert_eq!(total.answer().unwrap().unwrap(), 5);
        counter.cancel("enough");
        assert_eq!(counter.run(), Status::Ended);
        assert!(matches!(counter.exit(), Some(Exit::Done(total)) if *total == 7));
    }

    /// A clerk for the counter with this PID. It has no work yet.
    fn clerk(counter: Pid) -> Driver<Clerk> {
        Driver::new(Clerk { counter: counter.typed(), asked: Vec::new() })
    }

    fn somebody() -> Pid {
        "<1.5.1>".parse().unwrap()
    }

    #[test]
    fn a_clerk_passes_the_answer_of_the_counter_to_the_asker() {
        let mut clerk = clerk(somebody());
        let ((first, first_report), (second, second_report)) = (question(), question());
        clerk.message(ClerkMessage::Report(first)).message(ClerkMessage::Report(second));
        assert_eq!(clerk.run(), Status::Idle);
        assert!(first_report.answer().is_none(), "nobody has told it yet");

        let questions = [clerk.sent::<CounterMessage>().unwrap(), clerk.sent::<CounterMessage>().unwrap()];
        for ((to, question), total) in questions.into_iter().zip([10, 20]).rev() {
            assert_eq!(to, somebody());
            let CounterMessage::Read(reply) = question else { panic!("not a question: {question:?}") };
            assert!(reply.send(total));
        }
        clerk.run();
        assert_eq!(first_report.answer().unwrap().unwrap(), "the counter stands at 10");
        assert_eq!(second_report.answer().unwrap().unwrap(), "the counter stands at 20");
    }

    #[test]
    fn a_clerk_says_why_there_is_no_answer() {
        let mut clerk = clerk(somebody());
        let (reply, report) = question();
        clerk.message(ClerkMessage::Report(reply)).run();
        drop(clerk.sent::<CounterMessage>().unwrap());
        clerk.run();
        assert_eq!(report.answer().unwrap().unwrap(), "the counter does not answer: dropped without an answer");

        let (reply, report) = question();
        clerk.message(ClerkMessage::Report(reply)).run();
        let _unanswered = clerk.sent::<CounterMessage>().unwrap();
        clerk.advance(PATIENCE - Duration::from_millis(1)).run();
        assert!(report.answer().is_none());
        clerk.advance(Duration::from_millis(1)).run();
        assert_eq!(report.answer().unwrap().unwrap(), "the counter does not answer: timed out");
        assert_eq!(clerk.outstanding(), Vec::<Outstanding>::new());
    }

    #[test]
    fn a_clerk_delivers_notes_and_stops_when_it_is_told() {
        let mut clerk = clerk(somebody());
        let to = "<1.6.2>".parse().unwrap();
        clerk.message(ClerkMessage::Deliver(to, Note("hello"))).run();
        assert_eq!(clerk.sent::<Note>(), Ok((to, Note("hello"))));
        clerk.cancel("enough");
        assert_eq!(clerk.run(), Status::Ended);
    }

    #[test]
    fn the_whole_tour_is_true() {
        let mut guide = Guide { to: Vec::new(), number: 0 };
        tour(&mut guide).unwrap();
        assert_eq!(guide.number, 12);
    }

    #[test]
    fn the_guide_does_not_say_what_is_not_so() {
        let mut guide = Guide { to: Vec::new(), number: 3 };
        let error = guide.say(false, "the moon is made of cheese").unwrap_err();
        assert_eq!(error.to_string(), "stop 3: this is not so: the moon is made of cheese");
        assert!(guide.to.is_empty());
    }
}
