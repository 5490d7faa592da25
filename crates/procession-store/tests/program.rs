//! The program beside a program that has the store, and alone.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use procession::command::{Command, Responder};
use procession::durable::{Durable, DurableCommand, ErrorText, Query, Store};
use procession::{Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

const LIMIT: Duration = Duration::from_secs(120);

/// Whether orders can be paid.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

#[derive(Default, Serialize, Deserialize)]
struct Order {
    paid: u64,
    #[serde(default)]
    approval: Option<Tag<u64>>,
}

/// A question that a person answers.
#[derive(Serialize, Deserialize)]
struct Approve;

impl Command for Approve {
    type Output = u64;
}

impl DurableCommand for Approve {
    const NAME: &str = "approve";
    type Error = ErrorText;
}

#[derive(Serialize, Deserialize)]
enum OrderMessage {
    Approve,
    Pay(u64),
    Paid(Reply<u64>),
}

impl Process for Order {
    type Message = OrderMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, OrderMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                // This one fails in every run.
                Event::Message(OrderMessage::Pay(13)) => return Err("no such sum".into()),
                Event::Message(OrderMessage::Pay(_)) if !IS_OPEN.load(Ordering::SeqCst) => {
                    return Err("the bank is closed".into());
                }
                Event::Message(OrderMessage::Pay(sum)) => self.paid += sum,
                Event::Message(OrderMessage::Paid(reply)) => out.reply(reply, self.paid),
                Event::Message(OrderMessage::Approve) => self.approval = Some(out.command(Approve)),
                Event::Completed(done) => {
                    self.paid += self.approval.and_then(|tag| done.take(tag)?.ok()).unwrap_or(1_000);
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Order {
    const NAME: &str = "order";
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let name = format!("procession-store-{}-{}", std::process::id(), LAST.fetch_add(1, Ordering::SeqCst));
        Folder(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(folder: &Path, words: &[&str]) -> Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_procession-store")).arg(folder).args(words).output().unwrap()
}

/// The output of a command that reads this text.
fn run_with(folder: &Path, words: &[&str], input: &str) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_procession-store"));
    command.arg(folder).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// The answer of a command that must succeed and prints JSON.
#[track_caller]
fn json(folder: &Path, words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&ok(folder, &[words, &["--json"]].concat())).unwrap()
}

/// The output of a command that must succeed.
#[track_caller]
fn ok(folder: &Path, words: &[&str]) -> String {
    let output = run(folder, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "it took too long until {what}");
        std::thread::yield_now();
    }
}

/// Opens the store by a clock that goes by itself, so that failed steps do not have to be waited for.
fn open(folder: &Path) -> (Store, Runtime, procession::clock::ManualClock) {
    let clock = procession::clock::ManualClock::new();
    let store = Store::open(folder).kind::<Order>().command::<Approve>();
    let builder = Runtime::builder().workers(2).clock(clock.clock()).handler(|_: Approve, done: Responder<u64>| {
        done.later();
        Ok(())
    });
    let (store, runtime) = store.start(builder).unwrap();
    (store, runtime, clock)
}

#[test]
fn an_operator_finds_and_repairs_what_is_stuck() {
    let folder = Folder::new();
    let (store, runtime, clock) = open(&folder.0);
    let [good, bad] = ["order-1", "order-2"].map(|id| store.begin(id, Order::default()).unwrap());
    store.send(good.address(), OrderMessage::Pay(5)).unwrap();
    store.send(bad.address(), OrderMessage::Pay(13)).unwrap().wait(LIMIT).unwrap();
    until("both are parked", || {
        clock.advance(Duration::from_secs(1));
        runtime.wait_idle().unwrap();
        store.count(&Query::all().parked()).unwrap() == 2
    });
    // While the program runs.
    let listed = ok(&folder.0, &["list", "--status", "parked"]);
    assert!(listed.contains("order-1") && listed.contains("the bank is closed"), "{listed}");
    assert_eq!(ok(&folder.0, &["count", "--kind", "order"]).trim(), "2");
    IS_OPEN.store(true, Ordering::SeqCst);
    assert_eq!(ok(&folder.0, &["retry", "--error", "bank"]).trim(), "1");
    let paid = |order: &procession::durable::Begun<OrderMessage>, runtime: &Runtime| {
        runtime.ask(order.address(), OrderMessage::Paid, Duration::MAX).wait().unwrap()
    };
    assert_eq!(paid(&good, &runtime), 5);
    let backup = folder.0.with_extension("backup");
    ok(&folder.0, &["backup", backup.to_str().unwrap()]);
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
    drop((store, runtime));

    // While nobody has it. The next start finds what was done.
    let shown = ok(&folder.0, &["show", "order-2", "--json"]);
    assert!(shown.contains("\"Pay\":13") && shown.contains("\"fails\":true"), "{shown}");
    assert_eq!(ok(&folder.0, &["skip", "order-2"]).trim(), "1");
    assert!(ok(&folder.0, &["dead"]).contains("{\"Pay\":13}"));
    assert_eq!(ok(&folder.0, &["check"]).trim(), "all is well");
    let counts: serde_json::Value = serde_json::from_str(&ok(&folder.0, &["mail"])).unwrap();
    let [accepted, stepped, dead, queued] =
        ["accepted", "stepped", "dead_letters", "queued"].map(|name| counts[name].as_u64().unwrap());
    assert_eq!(accepted, stepped + dead + queued);
    assert!(stepped > 0, "{counts}");
    assert_eq!(ok(&folder.0, &["export"]).lines().count(), 2);
    let (store, runtime, _) = open(&folder.0);
    assert_eq!((paid(&good, &runtime), paid(&bad, &runtime)), (5, 0));
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();

    // The copy is a store, with the process that was parked then.
    assert_eq!(ok(&backup, &["count", "--status", "parked"]).trim(), "1");
    assert_eq!(ok(&backup, &["replace", &bad.pid().to_string(), "{\"paid\": 77}"]).trim(), "1");
    assert_eq!(ok(&backup, &["terminate", "order-1"]).trim(), "1");
    assert!(ok(&backup, &["show", "order-1"]).contains("ended"));
    std::fs::remove_dir_all(backup).unwrap();
}

#[test]
fn orders_to_a_store_that_nobody_has_are_found_by_the_next_start() {
    let folder = Folder::new();
    let (store, runtime, clock) = open(&folder.0);
    let [stuck, ..] = ["stuck", "sleeps", "sleeps too"].map(|id| store.begin(id, Order::default()).unwrap());
    // This one fails in every run.
    store.send(stuck.address(), OrderMessage::Pay(13)).unwrap().wait(LIMIT).unwrap();
    let parks = |(store, runtime): (&Store, &Runtime), clock: &procession::clock::ManualClock| {
        until("it is parked", || {
            clock.advance(Duration::from_secs(1));
            runtime.wait_idle().unwrap();
            store.count(&Query::all().parked()).unwrap() == 1
        });
    };
    parks((&store, &runtime), &clock);
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
    drop((store, runtime));

    let traced = |id: &str, what: &str| {
        let shown = json(&folder.0, &["show", id]);
        let trail = shown["trail"].as_array().unwrap().iter();
        trail.filter(|step| step["what"].as_str().unwrap().eq_ignore_ascii_case(what)).count()
    };
    assert_eq!(ok(&folder.0, &["retry", "stuck"]).trim(), "1");
    assert_eq!((traced("stuck", "retried"), json(&folder.0, &["count", "--status", "parked"])), (1, 0.into()));
    assert_eq!(code(&run(&folder.0, &["retry", "stuck"])), Some(1), "it is not parked");
    assert_eq!(ok(&folder.0, &["cancel", "sleeps"]).trim(), "1");
    assert_eq!(ok(&folder.0, &["cancel", "--id", "sleeps t"]).trim(), "1");
    assert_eq!(code(&run(&folder.0, &["cancel", "nobody"])), Some(1));
    let cancelled = || ["stuck", "sleeps", "sleeps too"].map(|id| traced(id, "cancelled"));
    assert_eq!(cancelled(), [0, 0, 0], "no step has taken a request");

    let (store, runtime, clock) = open(&folder.0);
    until("both have taken the request", || cancelled() == [0, 1, 1]);
    parks((&store, &runtime), &clock);
    assert_eq!(traced("stuck", "parked"), 2, "it has tried again");
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
}

#[test]
fn bad_input_is_refused_with_a_code() {
    let folder = Folder::new();
    assert_eq!(code(&run(&folder.0, &["list"])), Some(3), "there is no store");
    assert!(!folder.0.exists(), "and none was made");
    let (store, runtime, _clock) = open(&folder.0);
    store.begin("a", Order::default()).unwrap().wait(LIMIT).unwrap();
    for words in
        [&["retry", "a"][..], &["retry", "nobody"], &["skip", "<1.2.3>"], &["resend", "a", "5"], &["retry", "--all"]]
    {
        assert_eq!(code(&run(&folder.0, words)), Some(1), "{words:?}");
    }
    for words in [
        &[][..],
        &["lists"],
        &["list", "more"],
        &["list", "--status", "dead"],
        &["show"],
        &["show", "a", "--kind", "order"],
        &["retry"],
        &["resend", "a", "b"],
        &["list", "--limit", "many"],
        &["list", "--older", "old"],
        &["list", "--older", "5y"],
        &["list", "--parent", "a"],
        &["list", "--failed"],
        &["skip", "a", "--failed"],
    ] {
        let output = run(&folder.0, words);
        assert_eq!(code(&output), Some(2), "{words:?}");
        assert!(!output.stderr.is_empty());
    }
    assert!(ok(&folder.0, &["--help"]).contains("Exit codes"));
    assert_eq!(ok(&folder.0, &["list", "--json", "--limit", "1"]).lines().count(), 1);
    assert_eq!(ok(&folder.0, &["list", "--json", "--older", "2h"]), "");
    assert_eq!(ok(&folder.0, &["list", "--json", "--parent", "1.2.3"]), "");
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
}

#[test]
fn damage_has_a_code_and_so_has_a_store_that_cannot_be_read() {
    let (folder, backup) = (Folder::new(), Folder::new());
    let (store, runtime, _clock) = open(&folder.0);
    store.begin("a", Order { paid: 4_711, approval: None }).unwrap().wait(LIMIT).unwrap();
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
    drop((store, runtime));
    // All of a copy is in its main files.
    ok(&folder.0, &["backup", backup.0.to_str().unwrap()]);
    assert_eq!(ok(&backup.0, &["check"]).trim(), "all is well");
    let tables = backup.0.join("tables.db");
    let mut bytes = std::fs::read(&tables).unwrap();
    let state = bytes.windows(4).position(|bytes| bytes == b"4711").expect("the state is in the tables");
    bytes[state] ^= 1;
    std::fs::write(&tables, &bytes).unwrap();
    let checked = run(&backup.0, &["check"]);
    assert_eq!(code(&checked), Some(1), "{checked:?}");
    assert!(String::from_utf8_lossy(&checked.stdout).contains("cannot be read"), "{checked:?}");
    assert_eq!(ok(&backup.0, &["count"]).trim(), "1", "the rest can be read");

    std::fs::write(&tables, b"this is no file of tables").unwrap();
    for command in ["check", "count", "list"] {
        let refused = run(&backup.0, &[command]);
        assert_eq!(code(&refused), Some(3), "{command}: {refused:?}");
    }
}

#[test]
fn a_person_answers_commands_by_their_keys() {
    let folder = Folder::new();
    let (store, runtime, _clock) = open(&folder.0);
    let order = store.begin("order", Order::default()).unwrap();
    let key = || {
        let shown = ok(&folder.0, &["show", "order", "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let of = |name: &str| shown["commands"][0][name].as_str().map(str::to_owned);
        of("key").filter(|_| of("phase").is_some_and(|phase| phase == "later"))
    };
    let waits = || {
        store.send(order.address(), OrderMessage::Approve).unwrap().wait(LIMIT).unwrap();
        let mut found = None;
        until("the handler leaves the answer to a person", || {
            found = key();
            found.is_some()
        });
        found.unwrap()
    };
    let paid = |runtime: &Runtime| {
        let mut paid = None;
        until("it is answered", || {
            paid = runtime.ask(order.address(), OrderMessage::Paid, Duration::MAX).wait().ok();
            paid.is_some_and(|paid| paid > 0)
        });
        paid
    };
    // While the program runs.
    let first = waits();
    assert_eq!(code(&run(&folder.0, &["answer", &first, "\"no number\""])), Some(1));
    assert_eq!(ok(&folder.0, &["answer", &first, "7"]).trim(), "1");
    assert_eq!(paid(&runtime), Some(7));
    assert_eq!(code(&run(&folder.0, &["answer", &first, "7"])), Some(1), "it was answered");
    // While nobody has the store.
    let second = waits();
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
    drop((store, runtime));
    assert_eq!(ok(&folder.0, &["answer", &second, "30"]).trim(), "1");
    assert_eq!(code(&run(&folder.0, &["answer", &second, "30"])), Some(1), "it was answered");
    let (store, runtime, _) = open(&folder.0);
    until("both are paid", || paid(&runtime) == Some(37));
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
}

#[test]
fn each_order_is_carried_out_while_the_program_runs() {
    let folder = Folder::new();
    let (store, runtime, clock) = open(&folder.0);
    let [good, bad] = ["order-1", "order-2"].map(|id| store.begin(id, Order::default()).unwrap());
    let paid = |order: &procession::durable::Begun<OrderMessage>| {
        runtime.ask(order.address(), OrderMessage::Paid, Duration::MAX).wait().unwrap()
    };
    let parks = || {
        until("one is parked", || {
            clock.advance(Duration::from_secs(1));
            runtime.wait_idle().unwrap();
            store.count(&Query::all().parked()).unwrap() == 1
        });
    };
    store.send(good.address(), OrderMessage::Approve).unwrap().wait(LIMIT).unwrap();
    let mut key = None;
    until("the handler leaves the answer to a person", || {
        let command = &json(&folder.0, &["show", "order-1"])["commands"][0];
        key = command["key"].as_str().filter(|_| command["phase"] == "later").map(str::to_owned);
        key.is_some()
    });
    assert_eq!(json(&folder.0, &["answer", &key.unwrap(), "\"refused\"", "--failed"]), 1);
    until("the process has the error", || paid(&good) == 1_000);
    assert_eq!(json(&folder.0, &["cancel", "order-1"]), 1);
    let is_cancelled = |step: &serde_json::Value| step["what"].as_str().unwrap().eq_ignore_ascii_case("cancelled");
    until("its step has taken the request", || {
        json(&folder.0, &["show", "order-1"])["trail"].as_array().unwrap().iter().any(is_cancelled)
    });

    store.send(bad.address(), OrderMessage::Pay(13)).unwrap().wait(LIMIT).unwrap();
    parks();
    assert_eq!(json(&folder.0, &["skip", "order-2"]), 1);
    let number = json(&folder.0, &["dead"])["number"].to_string();
    assert_eq!(json(&folder.0, &["resend", "order-2", &number]), 1);
    assert_eq!(ok(&folder.0, &["dead"]).lines().filter(|line| line.contains("13")).count(), 0);
    parks();
    let refused = run_with(&folder.0, &["replace", "order-2", "-"], "{\"paid\": \"much\"}");
    assert_eq!(code(&refused), Some(1), "{refused:?}");
    let replaced = run_with(&folder.0, &["replace", "order-2", "-"], "{\"paid\": 5}");
    assert_eq!((code(&replaced), &*replaced.stdout), (Some(0), &b"1\n"[..]), "{replaced:?}");
    parks();
    assert_eq!(json(&folder.0, &["skip", "--error", "no such sum"]), 1);
    assert_eq!(paid(&bad), 5);

    assert_eq!(json(&folder.0, &["count"]), 2);
    assert_eq!(json(&folder.0, &["check"]), serde_json::json!([]));
    let counts = json(&folder.0, &["mail"]);
    // The message that was sent again counts twice.
    let counted = ["accepted", "stepped", "dead_letters", "queued"].map(|name| counts[name].as_u64().unwrap());
    assert_eq!(counted, [3, 1, 2, 0], "{counts}");
    assert_eq!(json(&folder.0, &["terminate", "order-2"]), 1);
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
}
