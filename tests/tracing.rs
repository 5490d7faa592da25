//! Statement 63, in a program of its own: the subscriber that the workers' threads tell can only be the global one.

#![allow(unreachable_pub, dead_code)]

#[path = "common/blocker.rs"]
mod blocker;
#[path = "process/helpers.rs"]
mod helpers;
#[path = "common/log.rs"]
mod log;
#[path = "common/panics.rs"]
mod panics;
#[path = "common/script.rs"]
mod script;
#[path = "common/wait.rs"]
mod wait;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::Watchdog;
use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::supervisor::{ChildSpec, Supervisor, SupervisorMessage};
use procession::{
    EntryArgs, Event, Events, Exit, InitResult, Pid, Process, Reply, SpawnOptions, Step, StepOutput, StepResult,
    Upgrade,
};
use tracing::Level;

use crate::helpers::*;
use crate::log::Recorder;

/// From here on a step of a [`Forfeit`] process takes its body away.
static FORFEITS: AtomicBool = AtomicBool::new(false);

/// Holds the step of a [`Forfeit`] process up, before its body is taken away.
static HELD_UP: LazyLock<Mutex<Option<Blocked>>> = LazyLock::new(|| Mutex::new(None));

/// Panics at every record about a [`Cursed`] process, and when a [`Forfeit`] process is to be stepped.
fn check(record: &str) {
    assert!(!record.contains("Cursed") && !record.contains("node=666"), "in a subscriber");
    if record.contains(" span ") && record.contains("Forfeit") && FORFEITS.load(Ordering::SeqCst) {
        let held_up = HELD_UP.lock().unwrap().take();
        if let Some(blocked) = held_up {
            blocked.wait();
        }
        panic!("in a subscriber");
    }
}

#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("in the text of an error");
    }
}

impl std::error::Error for Unspeakable {}

/// The events that the one subscriber of this program has received.
fn heard() -> Arc<Mutex<Vec<String>>> {
    static HEARD: OnceLock<Arc<Mutex<Vec<String>>>> = OnceLock::new();
    let heard = HEARD.get_or_init(|| {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let recorder = Recorder { level: Level::TRACE, records: heard.clone(), check };
        tracing::subscriber::set_global_default(recorder).unwrap();
        heard
    });
    heard.clone()
}

/// Not even its steps can be told of.
struct Cursed;

impl Process for Cursed {
    type Message = u8;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, u8>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Done(()))
    }
}

#[test]
fn a_panic_of_the_subscriber_ends_only_the_process_of_its_event() {
    heard();
    quiet_panics();
    let runtime = runtime(1);
    let parent = runtime.spawn(script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let child = out.spawn(Cursed)?;
        out.send(child, 1);
        Ok(Step::Done(()))
    }));
    // That it is born is an event, and the panic there is nobody's news. That it steps is a span around user code,
    // and the panic there takes its body away.
    output(&parent.unwrap());
    let cursed = runtime.spawn_with(Cursed, SpawnOptions::new().name("cursed")).unwrap();
    assert!(matches!(join(&cursed), Exit::Panicked(_)));
    until("both have ended", || runtime.stats().processes == 0);
    // They are counted before their names are free.
    until("the name is free", || runtime.whereis("cursed").is_none());
    assert_eq!(runtime.stats().ended.panicked, 2);
    assert_accounted(&runtime);
    output(&runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(())))).unwrap());
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
}

enum Word {
    Question(Reply<u32>),
    /// The next step is the one that takes the body away: on a worker, or on the pool.
    Forfeit {
        on_pool: bool,
    },
}

/// Keeps its questions, has taken everything that a process can have, and is linked with another one.
#[derive(Default)]
struct Forfeit {
    kept: Vec<Reply<u32>>,
    linked: Option<Pid>,
}

impl Process for Forfeit {
    type Message = Word;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Word>, out: &mut StepOutput) -> StepResult<()> {
        let me = out.pid();
        if let Some(linked) = self.linked.take() {
            out.register("forfeit", me);
            out.join_group("forfeits", me);
            out.subscribe("forfeits");
            out.monitor(linked);
            out.link(linked);
        }
        for event in events {
            match event {
                Event::Message(Word::Question(reply)) => self.kept.push(reply),
                Event::Message(Word::Forfeit { on_pool }) => {
                    FORFEITS.store(true, Ordering::SeqCst);
                    return Ok(if on_pool { Step::Blocking } else { Step::Continue });
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Whether a thread that is called so sleeps.
#[cfg(target_os = "linux")]
fn is_asleep(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats.into_iter().any(|stat| stat.contains(&format!("({name}) S")))
}

#[test]
fn a_process_whose_body_is_lost_ends_like_any_other() {
    heard();
    quiet_panics();
    for on_pool in [false, true] {
        FORFEITS.store(false, Ordering::SeqCst);
        let watcher = Watcher::new();
        let runtime = builder().workers(1).max_processes(3).observer(watcher.clone()).start().unwrap();
        let linked = runtime.spawn(sink::<()>()).unwrap();
        let forfeit = Forfeit { linked: Some(linked.pid()), ..Forfeit::default() };
        let forfeit = runtime.spawn_with(forfeit, SpawnOptions::new().mailbox(1, Overflow::Refuse)).unwrap();
        let (pid, to) = (forfeit.pid(), forfeit.address());
        let downs = Log::new();
        let told = downs.clone();
        let monitor = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            let mut is_first = true;
            for event in events {
                is_first = false;
                match event {
                    Event::Down(down) => told.push(down.exit.to_string()),
                    Event::Message(()) | Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            if is_first {
                out.monitor(pid);
            }
            Ok(Step::Idle)
        }));
        let monitor = monitor.unwrap();
        let asking = std::thread::spawn({
            let runtime = runtime.clone();
            move || runtime.ask(to, Word::Question, Duration::MAX).wait()
        });
        until("it keeps the question, and its things", || runtime.stats().messages.stepped == 1 && runtime.is_idle());
        let outside = runtime.watch(pid);
        assert_eq!((runtime.whereis("forfeit"), runtime.group_members("forfeits")), (Some(pid), vec![pid]));

        let blocker = Blocker::new();
        *HELD_UP.lock().unwrap() = Some(blocker.blocked());
        runtime.send(to, Word::Forfeit { on_pool }).unwrap();
        blocker.wait_begun();
        // The next message is not with the body and fills the mailbox, so one more sender waits for room.
        runtime.send(to, Word::Forfeit { on_pool }).unwrap();
        let sender = std::thread::Builder::new().name(String::from("waits-for-room")).spawn({
            let runtime = runtime.clone();
            move || runtime.send_timeout(to, Word::Forfeit { on_pool }, Duration::MAX).wait().is_err()
        });
        #[cfg(target_os = "linux")]
        until("the sender waits", || is_asleep("waits-for-room"));
        blocker.release();
        assert!(wait(sender.unwrap()).unwrap(), "the sender that waits for room is told");
        assert!(matches!(join(&forfeit), Exit::Panicked(_)));
        assert!(matches!(wait(outside).exit, Exit::Panicked(_)));
        assert!(wait(asking).unwrap().is_err(), "its question is answered");
        assert!(join(&linked).to_string().contains("linked"), "it ends with the one that it is linked with");
        until("the monitor is told", || downs.len() == 1);
        assert!(downs.take()[0].starts_with("panicked"));
        assert_eq!((runtime.whereis("forfeit"), runtime.group_members("forfeits")), (None, vec![]));
        // The observer is told after the monitor.
        until("the ends are over", || runtime.is_idle());
        assert_eq!(watcher.exits.take().iter().filter(|(exited, _)| *exited == pid).count(), 1);
        assert!(
            watcher.dead.take().contains(&(pid, None, DeadLetterReason::Ended)),
            "what had come meanwhile is a dead letter"
        );
        assert_accounted(&runtime);
        // Its place is free again, and that of the other one.
        FORFEITS.store(false, Ordering::SeqCst);
        let another = runtime.spawn(sink::<()>()).unwrap();
        let forfeit = runtime.spawn(Forfeit::default()).unwrap();
        assert!(runtime.spawn(sink::<()>()).is_err());
        until("its first step is over", || runtime.is_idle());
        // The step that is told of the shutdown takes its body away, and the shutdown does not wait for it.
        FORFEITS.store(true, Ordering::SeqCst);
        assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
        assert!(matches!(forfeit.exit(), Some(Exit::Panicked(_))));
        assert!(monitor.is_finished() && another.is_finished());
    }
}

#[test]
fn a_panic_of_the_subscriber_stops_neither_pool_nor_shutdown() {
    heard();
    // Of the shutdown of this node, and of a job that panics so, it cannot hear.
    let runtime = builder().workers(1).blocking_threads(1).node(666).start().unwrap();
    for _ in 0..2 {
        let mut tag = None;
        let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            if events.any(|event| matches!(event, Event::Completed(_))) {
                return Ok(Step::Done(()));
            }
            tag = tag.or_else(|| Some(out.blocking(|| panic!("Cursed"))));
            Ok(Step::Wait)
        });
        output(&runtime.spawn(process).unwrap());
    }
    let idle = runtime.spawn(sink::<()>()).unwrap();
    let report = runtime.shutdown(LIMIT).unwrap();
    assert_eq!((report.ended, report.is_clean()), (1, true), "{report}");
    assert!(idle.is_finished());
}

/// Panics when it is closed, whichever way it ends.
struct Unclosable(&'static str);

impl Process for Unclosable {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        if self.0 == "init fails" { Err("not begun".into()) } else { Ok(()) }
    }

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        match self.0 {
            "done" => Ok(Step::Done(())),
            "failed" => Err("failed".into()),
            "panicked" => panic!("in a step"),
            "upgraded" => {
                Ok(Step::Upgrade(Upgrade::to(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(()))))))
            }
            _ => Ok(Step::Idle),
        }
    }

    fn close(&mut self) {
        panic!("no end of {}", self.0);
    }
}

#[test]
fn a_panic_in_close_is_logged_once_and_the_exit_stays() {
    let heard = heard();
    let runtime = runtime(1);
    let spawn = |way| runtime.spawn(Unclosable(way));
    assert!(join(&spawn("done").unwrap()).is_done());
    assert!(matches!(join(&spawn("failed").unwrap()), Exit::Failed(_)));
    assert!(matches!(join(&spawn("panicked").unwrap()), Exit::Panicked(panic) if panic.message() == "in a step"));
    assert!(join(&spawn("upgraded").unwrap()).is_done());
    let terminated = spawn("terminated").unwrap();
    runtime.terminate(terminated.pid()).unwrap();
    assert!(matches!(join(&terminated), Exit::Terminated(_)));
    drop(spawn("init fails").map(drop).unwrap_err());
    let shut_down = spawn("shut down").unwrap();
    runtime.shutdown(Duration::ZERO).unwrap();
    assert!(matches!(join(&shut_down), Exit::Terminated(_)));
    let heard = heard.lock().unwrap().clone();
    for way in ["done", "failed", "panicked", "upgraded", "terminated", "init fails", "shut down"] {
        let told: Vec<_> = heard.iter().filter(|line| line.contains(&format!("no end of {way}"))).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        let parts = ["ERROR", "`close` panicked", "Unclosable"];
        assert!(parts.iter().all(|part| told[0].contains(part)), "{told:?}");
    }
}

#[test]
fn tracing_tells_of_steps_spawns_exits_dead_letters_and_the_shutdown() {
    let heard = heard();
    assert!(tracing::enabled!(target: "procession", Level::TRACE));
    let runtime = runtime(1);
    let lost: procession::Pid = "<0.8.8>".parse().unwrap();
    let done = runtime.spawn_with(
        script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.send(lost, 1_u8);
            out.send(out.pid(), 1_u16);
            Ok(Step::Done(()))
        }),
        SpawnOptions::new().name("heard"),
    );
    let done = done.unwrap();
    output(&done);
    let failed = runtime.spawn(script(
        |_: &mut Events<'_, ()>, _: &mut StepOutput| if true { Err("no".into()) } else { Ok(Step::Done(())) },
    ));
    let failed = failed.unwrap();
    join(&failed);
    // An error that cannot even be printed.
    let unspeakable = runtime.spawn(script(
        |_: &mut Events<'_, ()>, _: &mut StepOutput| if true { Err(Box::new(Unspeakable)) } else { Ok(Step::Done(())) },
    ));
    assert!(join(&unspeakable.unwrap()).into_result().is_err());
    let after = runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(()))));
    output(&after.unwrap());
    runtime.shutdown(LIMIT).unwrap();
    let heard = heard.lock().unwrap().clone();
    let expect = |parts: &[&str]| {
        let found = heard.iter().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "nothing with {parts:?} in {heard:#?}");
    };
    let (pid, failed) = (format!("pid={}", done.pid()), format!("pid={}", failed.pid()));
    expect(&["TRACE span step", &pid, "process="]);
    expect(&["DEBUG message=spawned", &pid, "name=\"heard\""]);
    expect(&["DEBUG message=done", &pid]);
    expect(&["WARN message=failed", &failed, "error=no"]);
    expect(&["DEBUG message=dead letter", "to=<0.8.8>", "reason=no such process"]);
    expect(&["DEBUG message=dead letter", "reason=wrong type", "message=\"u16\"", "takes=\"()\""]);
    expect(&["INFO message=runtime shut down", "report=0 ended"]);
}

/// Fails at each message, and recovers so often.
struct Frail {
    recovers: u32,
}

impl Process for Frail {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        if events.any(|event| matches!(event, Event::Message(()))) { Err("frail".into()) } else { Ok(Step::Idle) }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        self.recovers.checked_sub(1).map(|recovers| Upgrade::to(Frail { recovers }))
    }
}

#[test]
fn each_restart_is_logged_once_with_its_details() {
    let (heard, runtime) = (heard(), runtime(1));
    let options = |name: &'static str| move || SpawnOptions::new().name(name);
    let supervisor = Supervisor::builder()
        .intensity(100, Duration::from_secs(1))
        .child(ChildSpec::new("restarted", || Frail { recovers: 0 }).options(options("one")))
        .child(ChildSpec::in_place("in place", || Frail { recovers: 0 }).options(options("two")))
        .child(ChildSpec::new("recovered", || Frail { recovers: 9 }).options(options("three")));
    let boss = runtime.spawn(supervisor.build().unwrap()).unwrap();
    runtime.ask(boss.address(), SupervisorMessage::started, LIMIT).wait().unwrap();
    let lone = runtime.spawn_with(Frail { recovers: 9 }, SpawnOptions::new().name("lone")).unwrap();
    let children = ["one", "two", "three"].map(|name| (name, runtime.whereis(name).unwrap()));
    let mut pids = Vec::new();
    for attempt in 1..=2 {
        for (name, _) in children {
            let pid = runtime.whereis(name).unwrap();
            pids.push((name, attempt, pid));
            runtime.send(name, ()).unwrap();
            until("it is up again", || {
                let children = runtime.ask(boss.address(), SupervisorMessage::children, LIMIT).wait().unwrap();
                let all = children.iter().filter(|info| info.restarts >= attempt).count();
                all >= pids.iter().filter(|(_, one, _)| *one == attempt).count()
            });
            until("the runtime is idle", || runtime.is_idle());
        }
    }
    // One that is told of the recovery, and tells nobody.
    let lone_pid = lone.pid();
    let told = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.link(lone_pid);
        Ok(if events.any(|event| matches!(event, Event::Recovered(_))) { Step::Done(()) } else { Step::Idle })
    });
    let told = runtime.spawn_with(told, SpawnOptions::new().trap_exits()).unwrap();
    until("it is linked", || runtime.is_idle());
    runtime.send("lone", ()).unwrap();
    until("it has recovered", || runtime.is_idle());
    output(&told);
    let heard = heard.lock().unwrap().clone();
    let told = |parts: &[&str]| heard.iter().filter(|line| parts.iter().all(|part| line.contains(part))).count();
    for (name, attempt, pid) in pids {
        let (name, attempt, pid) = (format!("name=\"{name}\""), format!("attempt={attempt}"), format!("pid={pid} "));
        let (id, what) = match &*name {
            "name=\"one\"" => ("child=\"restarted\"", "has ended and is restarted"),
            "name=\"two\"" => ("child=\"in place\"", "has failed and is restarted in place"),
            _ => ("child=\"recovered\"", "has failed and has recovered"),
        };
        let parts = ["WARN", what, id, &name, &attempt, &pid, "error=failed: frail"];
        assert_eq!(told(&parts), 1, "{parts:?} in {heard:#?}");
        // The runtime tells of an end, and says no more than it must of a recovery that somebody else tells of.
        let ended = usize::from(id.contains("restarted"));
        assert_eq!(told(&["WARN message=failed", &pid]), ended, "{heard:#?}");
        assert_eq!(told(&["WARN message=recovered", &pid]), 0, "{heard:#?}");
    }
    let lone = format!("pid={} ", lone.pid());
    assert_eq!(told(&["WARN message=recovered from a failure", &lone, "name=\"lone\"", "exit=failed: frail"]), 1);
    assert!(told(&["InPlace"]) + told(&["supervisor::in_place"]) == 0, "{heard:#?}");
}

#[test]
fn the_log_is_told_of_a_stuck_step_while_it_runs_and_when_it_is_over() {
    let (heard, clock) = (heard(), ManualClock::new());
    let watchdog = Watchdog::after(Duration::from_millis(100));
    let runtime = builder().workers(1).clock(clock.clock()).watchdog(watchdog).start().unwrap();
    let (held, blocker) = hold_up(&runtime);
    clock.advance(Duration::from_millis(200));
    let told = |parts: &[&str]| {
        let pid = format!("pid={} ", held.pid());
        let is_it = |line: &String| line.contains(&pid) && parts.iter().all(|part| line.contains(part));
        until("the log is told", || heard.lock().unwrap().iter().any(is_it));
    };
    told(&["WARN message=a step is stuck", "process=", "doing=in a step, before the first event", "runs_for=1"]);
    blocker.release();
    told(&["WARN message=a step that was stuck is over", "took=1"]);
    output(&held);
}

#[test]
fn a_process_whose_steps_take_nothing_is_logged_once() {
    let heard = heard();
    let runtime = runtime(1);
    let declines = script(|_: &mut Events<'_, u8>, _: &mut StepOutput| Ok(Step::<()>::Idle));
    let declines = runtime.spawn_with(declines, SpawnOptions::new().name("declines")).unwrap();
    for number in 1..=3 {
        runtime.send(declines.address(), number).unwrap();
        until("it is stepped", || runtime.is_idle());
        assert_eq!(runtime.process(declines.pid()).unwrap().mailbox, usize::from(number));
    }
    let (pid, heard) = (format!("pid={} ", declines.pid()), heard.lock().unwrap().clone());
    let told: Vec<_> = heard.iter().filter(|line| line.starts_with("WARN") && line.contains(&pid)).collect();
    let [told] = told[..] else { panic!("{told:#?}") };
    for part in ["a step took none of its events and said `Step::Idle`", "process=", "name=\"declines\""] {
        assert!(told.contains(part), "{told}");
    }
}
