//! Tests of the seam to processes that live elsewhere, against a double that notes what comes to it.

use std::any::TypeId;
use std::time::Duration;

use super::{Handle, Runtime};
use crate::clock::{Clock, Deadline};
use crate::outcome::{Exit, Reason};
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::{
    CommandError, Completion, DeadLetter, DeadLetterReason, Event, Events, NoSuchProcessError, Observer, Process,
    Recipient, Reply, SendError, SpawnOptions, Step, StepOutput, StepResult, Upgrade,
};
use crate::sched::cell::{Missed, Missing};
use crate::sched::mailbox::{Control, Signal};
use crate::sched::non_local::{AnyMessage, NonLocal, Settled};
use crate::sched::trace_marks::Context;
use crate::wait::{until, wait};

const LIMIT: Duration = Duration::from_secs(60);

/// The process `<9.1.1>` is elsewhere. It takes numbers below 100, and questions. Any other PID is nobody's.
#[derive(Default)]
struct Elsewhere {
    notes: Mutex<Vec<String>>,
}

enum Ask {
    Number(Reply<u32>),
}

fn far() -> Pid {
    "<9.1.1>".parse().unwrap()
}

fn nobody() -> Pid {
    "<9.2.1>".parse().unwrap()
}

impl Elsewhere {
    fn note(&self, note: impl Into<String>) {
        lock(&self.notes).push(note.into());
    }

    /// Takes the notes out.
    fn noted(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.notes))
    }
}

impl NonLocal for Elsewhere {
    #[cfg(feature = "cluster")]
    fn has_node(&self, node: u32) -> bool {
        self.note(format!("whether it has the node {node}"));
        node == far().node()
    }

    fn post(
        &self,
        from: Option<Pid>,
        to: Pid,
        message: AnyMessage,
        _: Option<&Context>,
    ) -> Result<(), (AnyMessage, SendError)> {
        if to != far() {
            return Err((message, NoSuchProcessError::Pid(to).into()));
        }
        let message = match message.downcast::<Ask>() {
            Ok(ask) => {
                let Ask::Number(reply) = *ask;
                self.note("question");
                reply.send(42);
                return Ok(());
            }
            Err(message) => message,
        };
        match message.downcast_ref::<u32>() {
            Some(number) if *number < 100 => {
                self.note(format!("{number} from {}", if from.is_some() { "a process" } else { "outside" }));
                Ok(())
            }
            Some(_) => Err((message, SendError::Full { pid: to, limit: 3 })),
            None => Err((message, SendError::WrongType { pid: to, takes: "a number", sent: "?" })),
        }
    }

    fn takes(&self, pid: Pid, message: TypeId) -> Result<(), Missed> {
        match (pid == far(), message == TypeId::of::<u32>()) {
            (true, true) => Ok(()),
            (true, false) => Err(Missed::WrongType(|| "a number")),
            (false, _) => Err(Missed::NoSuchProcess),
        }
    }

    fn signal(&self, to: Pid, signal: Signal) -> Result<(), (Missing, Signal)> {
        if to != far() {
            return Err((Missing::Never, signal));
        }
        self.note(match &signal {
            Signal::Control(Control::Cancel(request)) => format!("cancel: {}", request.reason),
            Signal::Control(Control::Exit(exit, _)) => format!("exit: {}", exit.exit),
            Signal::Control(Control::Down(down)) => format!("down: {}", down.exit),
            Signal::Control(Control::Recovered(recovered)) => format!("recovered: {}", recovered.exit),
            _ => "another signal".into(),
        });
        Ok(())
    }

    fn complete(&self, to: Pid, completion: Completion) -> Result<(), Completion> {
        if to != far() {
            return Err(completion);
        }
        self.note(format!("answer to {}", completion.tag()));
        Ok(())
    }

    fn terminate(&self, pid: Pid) -> Result<bool, Missing> {
        self.note(format!("terminate {pid}"));
        if pid == far() { Ok(true) } else { Err(Missing::Never) }
    }

    fn body_lost(&self, _: Pid) {}

    fn settle(&self, _: &Clock, _: Deadline) -> Settled {
        Settled::default()
    }

    fn is_alive(&self, pid: Pid) -> bool {
        pid == far()
    }

    fn watch(&self, pid: Pid) -> bool {
        self.note(format!("watch {pid}"));
        pid == far()
    }

    fn whereis(&self, name: &str) -> Option<Pid> {
        (name == "far").then(far)
    }
}

type DeadLetters = Arc<Mutex<Vec<(Pid, DeadLetterReason, Option<u32>)>>>;

/// Notes dead letters.
struct Graves(DeadLetters);

impl Observer for Graves {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        lock(&self.0).push((letter.to, letter.reason, letter.message::<u32>().copied()));
    }
}

/// A runtime with the double, and its dead letters.
struct Here {
    runtime: Runtime,
    other: Arc<Elsewhere>,
    graves: DeadLetters,
}

fn here() -> Here {
    let (other, graves) = (Arc::new(Elsewhere::default()), Arc::default());
    let runtime = Runtime::builder().workers(1).observer(Graves(Arc::clone(&graves))).start().unwrap();
    assert!(runtime.core().road.non_local.set(other.clone()).is_ok());
    Here { runtime, other, graves }
}

/// Lets a local process fail. It takes greater numbers, and goes on.
const FAIL: u32 = 1_000;

type Begin = Box<dyn FnOnce(&mut StepOutput) + Send>;

/// Yields what it is given in its first step, notes its events, and is done at its first number below `FAIL`.
struct Local {
    begin: Option<Begin>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Process for Local {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(begin) = self.begin.take() {
            out.trap_exits(true);
            begin(out);
        }
        for event in events {
            lock(&self.seen).push(match event {
                Event::Message(number) if number > FAIL => continue,
                Event::Message(FAIL) => return Err("as it was told".into()),
                Event::Message(_) => return Ok(Step::Done(())),
                Event::Completed(done) => format!("answer {}", done.tag()),
                Event::Down(down) => format!("down: {}", down.exit),
                Event::Exit(exit) => format!("exit: {}", exit.exit),
                _ => "another event".into(),
            });
        }
        Ok(Step::Idle)
    }
}

impl Here {
    /// Spawns a process that yields this, and waits until it rests.
    fn local(&self, begin: impl FnOnce(&mut StepOutput) + Send + 'static) -> (Handle<Local>, Arc<Mutex<Vec<String>>>) {
        let seen = Arc::default();
        let process = self.runtime.spawn(Local { begin: Some(Box::new(begin)), seen: Arc::clone(&seen) }).unwrap();
        self.rests();
        (process, seen)
    }

    fn rests(&self) {
        until("the runtime rests", || self.runtime.is_idle());
    }
}

#[test]
fn messages_elsewhere_are_handed_over_in_order_and_counted_there() {
    let here = here();
    here.local(|out| {
        (0..3_u32).for_each(|number| out.send(far(), number));
        out.send(far(), 100_u32);
        out.send(far(), "text");
        out.send(nobody(), 7_u32);
    });
    assert_eq!(here.other.noted(), ["0 from a process", "1 from a process", "2 from a process"]);
    let graves = lock(&here.graves).clone();
    assert_eq!(
        graves,
        [
            (far(), DeadLetterReason::Full, Some(100)),
            (far(), DeadLetterReason::WrongType, None),
            (nobody(), DeadLetterReason::NoSuchProcess, Some(7)),
        ]
    );
    let messages = here.runtime.stats().messages;
    assert_eq!((messages.accepted, messages.stepped), (3, 0), "those that were handed over are counted there");
}

/// The local road has no branch for other nodes: messages, questions and ends ask for none.
#[cfg(feature = "cluster")]
#[test]
fn calls_between_local_processes_ask_no_other_node() {
    let here = here();
    assert!(here.runtime.core().road.nodes.set(here.other.clone()).is_ok());
    let (receiver, seen) = here.local(|_| ());
    let to = receiver.address();
    let rounds = crate::counts::counts(1, 100);
    for _ in 0..rounds {
        here.local(move |out| (1..=100_000).for_each(|number| out.send(to, FAIL + number)));
    }
    assert!(receiver.exit().is_none(), "it has taken all of them");
    assert_eq!(here.runtime.stats().messages.stepped, rounds * 100_000);
    here.local(move |out| {
        out.monitor(to);
        out.cancel(to, "enough");
    });
    here.rests();
    let (ended, to) = (here.runtime.spawn(Local { begin: None, seen }).unwrap(), receiver.address());
    here.runtime.terminate(&ended).unwrap();
    until("it has ended", || here.runtime.send(&ended, 1).is_err());
    let _ = (here.runtime.send(to, 1), here.runtime.ask(to.pid().typed(), Ask::Number, LIMIT).wait());
    assert_eq!(here.other.noted(), Vec::<String>::new());
    assert!(here.runtime.send(far().typed(), 1_u32).is_ok());
    assert_eq!(here.other.noted().len(), 2, "the double is asked, and gets it");
}

#[test]
fn a_message_from_outside_that_is_refused_elsewhere_comes_back() {
    let here = here();
    let runtime = &here.runtime;
    runtime.send(far().typed(), 1_u32).unwrap();
    let full = runtime.send(far().typed(), 100_u32).unwrap_err();
    assert_eq!(full.reason(), &SendError::Full { pid: far(), limit: 3 });
    assert_eq!(full.into_inner(), 100);
    let wrong = runtime.send(far().typed(), "text").unwrap_err();
    assert!(matches!(wrong.reason(), SendError::WrongType { takes: "a number", sent: "&str", .. }));
    let missing = runtime.send(nobody().typed(), 2_u32).unwrap_err();
    assert_eq!(missing.reason(), &SendError::NoSuchProcess(NoSuchProcessError::Pid(nobody())));
    // There is no place to wait for room.
    let full = runtime.send_timeout(far().typed(), 100_u32, Duration::MAX).wait().unwrap_err();
    assert_eq!(full.reason(), &SendError::Full { pid: far(), limit: 3 });
    assert_eq!(here.other.noted(), ["1 from outside"]);
    assert_eq!(runtime.stats().messages.accepted, 0);
}

#[test]
fn a_recipient_converts_for_a_process_elsewhere_if_it_lives() {
    let here = here();
    let recipient: Recipient<u32> = far().typed::<u32>().map(|number: u32| number + 1);
    here.runtime.send(&recipient, 5).unwrap();
    here.runtime.send(&recipient, 99).unwrap();
    assert_eq!(here.other.noted(), ["6 from outside"]);
    assert_eq!(
        *lock(&here.graves),
        [(far(), DeadLetterReason::Full, Some(100))],
        "it was converted before it was refused"
    );
    let wrong: Recipient<u32> = far().typed::<String>().map(|_: u32| panic!("it is not converted"));
    let wrong = here.runtime.send(&wrong, 5).unwrap_err();
    assert!(matches!(wrong.reason(), SendError::WrongType { takes: "a number", .. }));
    let missing: Recipient<u32> = nobody().typed::<u32>().map(|_: u32| panic!("it is not converted"));
    assert_eq!(here.runtime.send(&missing, 5).unwrap_err().into_inner(), 5);
}

#[test]
fn a_question_to_a_process_elsewhere_gets_its_answer_or_its_refusal() {
    let here = here();
    let answer = here.runtime.ask(far().typed(), Ask::Number, LIMIT);
    assert_eq!(answer.wait().unwrap(), 42);
    let missing = here.runtime.ask(nobody().typed(), Ask::Number, LIMIT).wait();
    assert!(matches!(missing, Err(CommandError::NoSuchProcess(_))), "{missing:?}");
    let (_local, seen) = here.local(|out| {
        out.ask(far().typed(), Ask::Number, LIMIT);
        out.ask(nobody().typed(), Ask::Number, LIMIT);
    });
    here.rests();
    assert_eq!(lock(&seen).len(), 2, "each question has one answer");
    assert_eq!(here.other.noted(), ["question", "question"]);
}

#[test]
fn the_end_of_a_process_elsewhere_is_told_once_to_all_related() {
    let here = here();
    let (_local, seen) = here.local(|out| {
        out.monitor(far());
        out.link(far());
        out.monitor(nobody());
        out.link(nobody());
    });
    let watcher = here.runtime.watch(far());
    let missing = wait(here.runtime.watch(nobody()));
    assert!(matches!(missing.exit, Exit::Terminated(Reason::NoSuchProcess)));
    assert_eq!(lock(&seen).iter().filter(|event| event.contains("no such process")).count(), 2, "{seen:?}");
    lock(&seen).clear();
    assert!(here.other.noted().contains(&"watch <9.1.1>".into()));
    let core = here.runtime.core();
    for _ in 0..2 {
        core.relations.ended(&*core.road, far(), &Exit::Done(()), |told| core.told(told, &mut core.executor()));
        here.rests();
        let mut events = lock(&seen).clone();
        events.sort();
        assert_eq!(events, ["down: done", "exit: done"]);
    }
    assert!(matches!(wait(watcher).exit, Exit::Done(())));
}

#[test]
fn the_end_of_a_local_process_is_told_to_those_elsewhere() {
    let here = here();
    let (local, _) = here.local(|_| ());
    let (pid, core) = (local.pid(), here.runtime.core());
    for told in [
        core.relations.monitor(&*core.road, far(), crate::process::Monitor::new(1, pid)),
        core.relations.link(&*core.road, far(), pid),
    ] {
        core.told(told, &mut core.executor());
    }
    here.other.noted();
    here.runtime.send(local.address(), 0).unwrap();
    assert!(wait(&local).is_done());
    here.rests();
    assert_eq!(here.other.noted(), ["down: done", "exit: done"]);
}

#[test]
fn a_process_that_goes_on_after_a_failure_tells_those_elsewhere_once() {
    let here = here();
    let (seen, core) = (Arc::default(), here.runtime.core());
    let local = || Local { begin: None, seen: Arc::clone(&seen) };
    let next = Arc::clone(&seen);
    let options =
        SpawnOptions::new().recover_with(move |_| Some(Upgrade::to(Local { begin: None, seen: Arc::clone(&next) })));
    let local = here.runtime.spawn_with(local(), options).unwrap();
    let link = |other| core.relations.link(&*core.road, other, local.pid());
    [far(), nobody()].map(link).into_iter().for_each(|told| core.told(told, &mut core.executor()));
    assert_eq!(core.relations.len(), 2, "of the one that has ended nothing is kept");
    here.other.noted();
    for _ in 0..2 {
        here.runtime.send(local.address(), FAIL).unwrap();
        here.rests();
        assert_eq!(here.other.noted(), ["recovered: failed: as it was told"]);
    }
}

#[test]
fn requests_names_and_answers_reach_a_process_elsewhere() {
    let here = here();
    let runtime = &here.runtime;
    assert!(runtime.cancel(far(), "enough").unwrap());
    assert!(runtime.cancel(nobody(), "enough").is_err());
    assert!(runtime.terminate(far()).unwrap());
    assert!(runtime.terminate(nobody()).is_err());
    assert_eq!((runtime.is_alive(far()), runtime.is_alive(nobody())), (true, false));
    assert_eq!((runtime.whereis("far"), runtime.whereis("near")), (Some(far()), None));
    runtime.register("far", here.local(|_| ()).0.pid()).unwrap();
    assert_ne!(runtime.whereis("far"), Some(far()), "a name here comes first");
    assert_eq!(runtime.address::<u32>(far()).unwrap().pid(), far());
    assert!(runtime.address::<String>(far()).is_err());
    let core = runtime.core();
    core.road.answer(&mut core.executor(), far(), 7, Ok(Box::new(())));
    core.road.answer(&mut core.executor(), nobody(), 8, Ok(Box::new(())));
    assert_eq!(runtime.stats().discarded_answers, 1);
    let notes = ["cancel: enough", "terminate <9.1.1>", "terminate <9.2.1>", "answer to 7"];
    assert_eq!(here.other.noted(), notes);
}

#[test]
fn nothing_of_this_runtime_goes_elsewhere() {
    let here = here();
    let (one, _) = here.local(|_| ());
    let to = one.pid();
    let (other, seen) = here.local(move |out| {
        out.monitor(to);
        out.link(to);
        out.send(to, 1_u32);
    });
    assert!(wait(&one).is_done());
    here.rests();
    // Its PID is one of this node, and of no process any longer.
    assert!(here.runtime.send(one.address(), 1).is_err() && !here.runtime.is_alive(to));
    assert!(!here.runtime.terminate(to).unwrap());
    assert_eq!(lock(&seen).len(), 2);
    drop(other);
    assert_eq!(here.other.noted(), Vec::<String>::new());
}
