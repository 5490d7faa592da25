//! A console in a program of its own: its log, and the memory that its clients cost. Each test is a program by itself.

#![cfg(target_os = "linux")]
#![allow(unreachable_pub, dead_code)]

#[path = "common/log.rs"]
mod log;
#[path = "memory/resident.rs"]
mod resident;
#[path = "common/wait.rs"]
mod wait;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use procession::console::Console;
use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};
use tracing::Level;

use crate::log::Recorder;
use crate::resident::{alone, assert_grown_by_at_most, resident_kib};
use crate::wait::{LIMIT, Mutex, until, wait};

/// The longest line of a client, in bytes.
const LONGEST: usize = 64 << 10;

/// The most clients at a time, with those that are about to leave.
const CLIENTS: usize = 40;

/// The memory that such clients may cost while they are there. A line of a client takes 64 KiB, and an answer about a
/// thousand processes some hundreds.
const MOST_KIB: u64 = 40 << 10;

/// The rounds of work while the threads of a console must not wake. In a debug build they take most of a second, and so
/// more than any pause of a console.
const ROUNDS: u64 = 30;

/// A folder that is removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        Folder(std::env::temp_dir().join(format!("procession-console-of-{}-{name}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Takes this many steps, and ends.
struct Works(u64);

impl Process for Works {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        self.0 -= 1;
        Ok(if self.0 == 0 { Step::Done(()) } else { Step::Continue })
    }
}

/// Rests until it is asked to stop.
struct Idler;

impl Process for Idler {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let is_asked = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if is_asked { Step::Done(()) } else { Step::Idle })
    }
}

fn connect(console: &Console) -> UnixStream {
    let stream = UnixStream::connect(console.place()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Says hello and then these lines. Returns the answers.
fn answers(console: &Console, lines: &[String]) -> Vec<String> {
    let mut stream = connect(console);
    writeln!(stream, "{{\"hello\":1}}\n{}", lines.join("\n")).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    BufReader::new(stream).lines().map(Result::unwrap).skip(1).collect()
}

#[test]
fn actions_are_logged_with_the_number_of_their_client() {
    alone(|| {
        let records = Arc::new(Mutex::new(Vec::new()));
        let recorder = Recorder { level: Level::INFO, records: records.clone(), check: |_| {} };
        tracing::subscriber::set_global_default(recorder).unwrap();
        let of_console = || -> Vec<String> {
            let records = records.lock().unwrap();
            records.iter().filter(|record| record.contains("a client of the console")).cloned().collect()
        };
        let (folder, runtime) = (Folder::new("log"), Runtime::builder().workers(1).start().unwrap());
        let serve = |name: &str, acts| Console::named(name).folder(&folder.0).actions(acts).serve(&runtime).unwrap();
        let (looks, acts) = (serve("looks", false), serve("acts", true));
        let idler = runtime.spawn(Idler).unwrap();
        let pid = idler.pid();
        let action = |action: &str| format!("{{\"do\":\"{action}\",\"pid\":\"{pid}\"}}");
        // Questions are not logged.
        answers(&looks, &["{\"get\":\"overview\"}".into()]);
        assert_eq!(of_console(), [""; 0]);
        answers(&looks, &[action("cancel")]);
        let expected =
            format!("WARN message=a client of the console may not do this client=2 action=\"cancel\" pid={pid}");
        assert_eq!(of_console().concat(), expected);
        answers(&acts, &[action("terminate")]);
        until("it has ended", || idler.is_finished());
        answers(&acts, &[action("cancel"), "{\"do\":\"cancel\",\"pid\":\"<0.999.1>\"}".into()]);
        let acted = |client, action, outcome| {
            let by = format!("client={client} action=\"{action}\"");
            format!("INFO message=a client of the console acts {by} pid={pid} outcome=\"{outcome}\"")
        };
        let nobody = acted(2, "cancel", "there is no such process").replace(&pid.to_string(), "<0.999.1>");
        let all = [expected, acted(1, "terminate", "done"), acted(2, "cancel", "it has ended"), nobody];
        assert_eq!(of_console(), all);
    });
}

/// The threads of consoles.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("procession-con")).count()
}

/// The state of each thread of consoles, and how often it has gone to sleep.
fn sleeps() -> BTreeMap<String, (String, u64)> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let statuses = tasks.filter_map(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_string());
        let is_of_console = field("Name:")?.starts_with("procession-con");
        let count = field("voluntary_ctxt_switches:")?.parse().ok()?;
        let state = field("State:")?;
        is_of_console.then(|| (task.file_name().to_string_lossy().into_owned(), (state, count)))
    });
    statuses.collect()
}

#[test]
fn a_console_has_a_thread_for_each_client_and_wakes_for_nothing_else() {
    alone(|| {
        let (folder, runtime) = (Folder::new("threads"), Runtime::builder().workers(1).start().unwrap());
        let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
        // Whether all of its threads sleep, and none of them wakes while the program works.
        let rests = |rounds: u64| {
            let before = sleeps();
            (0..rounds).for_each(|_| drop(wait(&runtime.spawn(Works(100_000)).unwrap())));
            before.values().all(|(state, _)| state.starts_with('S')) && sleeps() == before
        };
        // The program works meanwhile. At first, a thread of the console may not be asleep yet.
        let keeps_resting = || {
            until("the console rests", || rests(1));
            rests(ROUNDS)
        };
        assert!(keeps_resting(), "the console wakes without a client");
        assert_eq!(sleeps().len(), 1);
        let clients: Vec<UnixStream> = (0..8)
            .map(|_| {
                let mut client = connect(&console);
                client.write_all(b"{\"hello\":1}\n").unwrap();
                BufReader::new(&client).read_line(&mut String::new()).unwrap();
                client
            })
            .collect();
        assert!(keeps_resting(), "a thread wakes for a client that says nothing");
        assert_eq!(sleeps().len(), 8 + 1);
        drop(clients);
        until("all have gone", || sleeps().len() == 1);
        assert!(keeps_resting(), "the console wakes when its clients have gone");
    });
}

#[test]
fn hostile_clients_cost_a_bounded_number_of_threads_and_no_memory() {
    alone(|| {
        let (folder, runtime) = (Folder::new("memory"), Runtime::builder().workers(1).start().unwrap());
        (0..1_000).for_each(|_| drop(runtime.spawn(Idler).unwrap()));
        let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
        // Some say no hello. Some never end their line. Some read none of many long answers. All of them stay.
        let question = "{\"get\":\"top\",\"limit\":1000}\n".repeat(20);
        let round = |count: usize| {
            let connected = |n: usize| {
                let mut client = connect(&console);
                let hello = if n.is_multiple_of(3) { "" } else { "{\"hello\":1}\n" };
                let rest = if n.is_multiple_of(2) { "x".repeat(32 * LONGEST) } else { question.clone() };
                // The console may have disconnected it.
                _ = client.write_all(format!("{hello}{rest}").as_bytes());
                // A thread ends a moment after its client has left.
                assert!(threads() <= 3 * CLIENTS, "{}", threads());
                client
            };
            let clients: Vec<UnixStream> = (0..count).map(connected).collect();
            let most = resident_kib();
            drop(clients);
            until("all have gone", || threads() == 1);
            most
        };
        let before = resident_kib();
        let most = round(200);
        if let Some((before, most)) = before.zip(most) {
            assert!(most < before + MOST_KIB, "{before} KiB before, {most} KiB with hostile clients");
        }
        let before = resident_kib();
        round(2_000);
        assert_grown_by_at_most(4 << 10, before);
        assert_eq!(answers(&console, &["{\"get\":\"waits\"}".into()]).len(), 1);
    });
}
