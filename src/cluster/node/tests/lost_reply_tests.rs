//! Replies that nobody answers: an asker of another node gets the same error as one of the same node.

use super::*;
use crate::outcome::Exit;
use crate::process::Upgrade;

/// Keeps its replies, and ends as it is told.
struct Holder {
    kept: Vec<Reply<u64>>,
    /// The first is set in a step that waits. The second is set when this step is to go on.
    begun: Latch<()>,
    goes_on: Latch<()>,
    recovers: bool,
}

/// Numbers that tell a holder what to do.
const FAILS: u64 = 1;
const PANICS: u64 = 2;
const WAITS: u64 = 3;

impl Process for Holder {
    type Message = Message;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Message>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Message::Keep(reply)) => self.kept.push(reply),
                Event::Message(Message::Note(FAILS)) => return Err("on purpose: with a reply".into()),
                Event::Message(Message::Note(PANICS)) => panic!("on purpose: with a reply"),
                Event::Message(Message::Note(WAITS)) => {
                    let _ = self.begun.set(());
                    wait(&self.goes_on);
                    return Ok(Step::Idle);
                }
                Event::Message(Message::Drop(reply)) => drop(reply),
                Event::Message(Message::Stop) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        let (begun, goes_on) = (self.begun.clone(), self.goes_on.clone());
        self.recovers.then(|| Upgrade::to(Holder { kept: Vec::new(), begun, goes_on, recovers: true }))
    }
}

/// The fate of a reply.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Dropped,
    /// The holder gets this message next, and ends or recovers.
    HolderEnds(u64),
    HolderRecovers(u64),
    HolderIsDone,
    HolderIsTerminated,
    /// The question is in the mailbox of a process that is in a step, and is terminated.
    InMailbox,
    NodeDown,
}

/// The text for an answer to the asker.
fn told(answer: Result<u64, CommandError>, holder: Pid) -> &'static str {
    match answer {
        Err(CommandError::Dropped) => "dropped",
        Err(CommandError::Ended(pid)) if pid == holder => "ended",
        Err(CommandError::Node { pid, why: NodeError::NodeDown }) if pid == holder => "node down",
        other => panic!("another answer: {other:?}"),
    }
}

/// Asks a holder from the other node, or from its own, and returns what the asker is told.
fn ask(fate: Fate, is_far: bool) -> &'static str {
    let two = two();
    let (begun, goes_on) = (Latch::new(), Latch::new());
    let recovers = matches!(fate, Fate::HolderRecovers(_));
    let holder = Holder { kept: Vec::new(), begun: begun.clone(), goes_on: goes_on.clone(), recovers };
    let holder = two.other.runtime.spawn(holder).unwrap();
    let (asker, to) = match is_far {
        true => (&two.one.runtime, two.far(holder.address())),
        false => (&two.other.runtime, holder.address()),
    };
    let tell = |message| two.other.runtime.send(holder.address(), message).unwrap();
    if let Fate::InMailbox = fate {
        tell(Message::Note(WAITS));
        wait(&begun);
    }
    let question = if let Fate::Dropped = fate { Message::Drop } else { Message::Keep };
    let asked = asker.ask(to, question, LIMIT);
    two.carry_frames();
    match fate {
        Fate::Dropped => {}
        Fate::HolderEnds(message) | Fate::HolderRecovers(message) => tell(Message::Note(message)),
        Fate::HolderIsDone => tell(Message::Stop),
        Fate::HolderIsTerminated => {
            until("the question is taken", || two.other.runtime.is_idle());
            assert!(two.other.runtime.terminate(&holder).unwrap());
        }
        Fate::InMailbox => {
            assert!(two.other.runtime.terminate(&holder).unwrap());
            goes_on.set(()).unwrap();
        }
        Fate::NodeDown => two.cut(),
    }
    if !matches!(fate, Fate::NodeDown) {
        two.carry();
    }
    let told = told(asked.wait(), to.pid());
    assert_eq!(two.open_questions(), [(0, 0); 2], "{fate:?}");
    told
}

#[test]
fn the_asker_of_a_reply_that_nobody_answers_is_told_what_has_become_of_it() {
    for (fate, expected) in [
        (Fate::Dropped, "dropped"),
        (Fate::HolderRecovers(FAILS), "dropped"),
        (Fate::HolderRecovers(PANICS), "dropped"),
        (Fate::HolderEnds(FAILS), "ended"),
        (Fate::HolderEnds(PANICS), "ended"),
        (Fate::HolderIsDone, "ended"),
        (Fate::HolderIsTerminated, "ended"),
        (Fate::InMailbox, "ended"),
    ] {
        let far_and_near = [ask(fate, true), ask(fate, false)];
        assert_eq!(far_and_near, [expected; 2], "{fate:?}");
    }
    assert_eq!(ask(Fate::NodeDown, true), "node down");
}
