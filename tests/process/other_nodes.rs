//! PIDs of other nodes in a runtime that is no node. Nothing is known of them, and each call says so.
//!
//! This file is a part of two programs, one with the feature `cluster` and one without. So the texts are the same in
//! both builds.

use std::sync::Arc;

use procession::observe::{DeadLetter, DeadLetterReason, Observer};
use procession::{
    Event, Events, Pid, Process, Rejected, Reply, Runtime, SendError, SpawnOptions, Step, StepOutput, StepResult, Tag,
};

use crate::wait::{LIMIT, Mutex};

/// The error of a call for the process.
const NOBODY: &str = "no such process: <9.5.1> (it has ended, or never was in this runtime)";

type Texts = Arc<Mutex<Vec<String>>>;

/// Yields everything that takes a PID, and notes what comes.
struct Caller {
    far: Pid,
    texts: Texts,
    asked: Option<Tag<u32>>,
    sent: Option<Tag<Sent>>,
    stops: Vec<Tag<bool>>,
    left: usize,
}

/// The result of a message that was sent with a limit.
type Sent = Result<(), Rejected<u32, SendError>>;

impl Process for Caller {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), procession::BoxError> {
        let far = self.far;
        out.send(far.typed(), 1_u32);
        self.asked = Some(out.ask(far.typed(), |reply: Reply<u32>| reply, LIMIT));
        self.sent = Some(out.send_timeout(far.typed(), 2_u32, LIMIT));
        self.stops = vec![out.cancel(far, "enough"), out.terminate(far)];
        out.monitor(far);
        out.link(far);
        self.left = 6;
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            let text = match event {
                Event::Completed(done) => {
                    let asked = self.asked.and_then(|tag| done.take(tag));
                    let sent = self.sent.and_then(|tag| done.take(tag));
                    let stopped = self.stops.iter().find_map(|tag| done.take(*tag));
                    match (asked, sent, stopped) {
                        (Some(Err(why)), ..) => format!("asked: {why}"),
                        (_, Some(Ok(Err(refused))), _) => format!("sent: {}", refused.reason()),
                        (.., Some(Ok(lived))) => format!("stopped: {lived}"),
                        (.., Some(Err(why))) => format!("stopped: {why}"),
                        _ => "another completion".into(),
                    }
                }
                Event::Down(down) => format!("down: {}", down.exit),
                Event::Exit(exit) => format!("exit: {}", exit.exit),
                _ => "another event".into(),
            };
            self.texts.lock().unwrap().push(text);
            self.left -= 1;
        }
        Ok(if self.left == 0 { Step::Done(()) } else { Step::Idle })
    }
}

/// Notes dead letters.
struct Graves(Texts);

impl Observer for Graves {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        assert_eq!(letter.reason, DeadLetterReason::NoSuchProcess);
        self.0.lock().unwrap().push(format!("dead letter: {}", letter.reason));
    }
}

#[test]
fn a_runtime_that_is_no_node_knows_nothing_of_other_nodes() {
    let texts = Texts::default();
    let runtime = Runtime::builder().workers(1).node(7).observer(Graves(texts.clone())).start().unwrap();
    let far: Pid = "<9.5.1>".parse().unwrap();
    let say = |what: &str, text: &dyn std::fmt::Display| texts.lock().unwrap().push(format!("{what}: {text}"));
    say("send", runtime.send(far.typed(), 1_u32).unwrap_err().reason());
    say("send to", runtime.send(far, 1_u32).unwrap_err().reason());
    say("send with a limit", runtime.send_timeout(far.typed(), 1_u32, LIMIT).wait().unwrap_err().reason());
    say("send converted", runtime.send(&far.typed::<u32>().map(|n: u8| n.into()), 1).unwrap_err().reason());
    say("ask", &runtime.ask(far.typed(), |reply: Reply<u32>| reply, LIMIT).wait().unwrap_err());
    say("cancel", &runtime.cancel(far, "enough").unwrap_err());
    say("terminate", &runtime.terminate(far).unwrap_err());
    say("watch", &runtime.watch(far).wait_timeout(LIMIT).unwrap().exit);
    say("register", &runtime.register("far", far).unwrap_err());
    say("join", &runtime.join_group("far", far).unwrap_err());
    say("address", &runtime.address::<u32>(far).unwrap_err());
    assert!(!runtime.is_alive(far) && runtime.process(far).is_none());
    let caller = Caller { far, texts: texts.clone(), asked: None, sent: None, stops: Vec::new(), left: 0 };
    runtime.spawn_with(caller, SpawnOptions::new().trap_exits()).unwrap().join_timeout(LIMIT).unwrap();
    let mut texts = texts.lock().unwrap().clone();
    // Those of the steps, which have no order among each other.
    texts[11..].sort();
    let calls = [
        "send",
        "send to",
        "send with a limit",
        "send converted",
        "ask",
        "cancel",
        "terminate",
        "register",
        "join",
        "address",
    ];
    let mut expected: Vec<String> = calls.iter().map(|call| format!("{call}: {NOBODY}")).collect();
    expected.insert(7, "watch: terminated (no such process)".into());
    expected.push(format!("asked: {NOBODY}"));
    expected.extend(["dead letter: no such process"; 2].map(String::from));
    expected.extend(["down", "exit"].map(|event| format!("{event}: terminated (no such process)")));
    expected.extend(["sent", "stopped", "stopped"].map(|answer| format!("{answer}: {NOBODY}")));
    assert_eq!(texts, expected);
}
