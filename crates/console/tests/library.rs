//! The program beside a program with the library's own console.
#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use procession::actor::{Actions, Actor, actor};
use procession::clock::ManualClock;
use procession::cluster::{Cluster, MemoryNetwork, Wire};
use procession::console::Console;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Query, Store};
use procession::observe::MetricsOptions;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{BoxError, Event, Events, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

const LIMIT: Duration = Duration::from_secs(60);

/// A program with a console, in a folder that is removed at the end.
struct Shop {
    folder: PathBuf,
    runtime: Runtime,
    console: Console,
}

/// Takes messages.
struct Courier<T>(T);

impl<T: Send + 'static> Actor for Courier<T> {
    type Message = ();
    type Output = ();

    fn receive(&mut self, _: (), _: &mut Actions<Self>) -> Result<(), BoxError> {
        Ok(())
    }

    fn finish(&mut self, _: &mut Actions<Self>) -> Result<(), BoxError> {
        Ok(())
    }
}

fn new_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("procession-console-library-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

impl Shop {
    fn open(name: &str) -> Shop {
        let folder = new_folder(name);
        let runtime = Runtime::builder().workers(1).metrics(MetricsOptions::new()).start().unwrap();
        let console = Console::named("shop").folder(folder.join("procession")).serve(&runtime).unwrap();
        Shop { folder, runtime, console }
    }

    /// Runs the program. Returns its output, or its error.
    fn run(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_procession-console"));
        let output =
            command.env("XDG_RUNTIME_DIR", &self.folder).current_dir(&self.folder).args(words).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        if output.status.success() { Ok(String::from_utf8(output.stdout).unwrap()) } else { Err(error) }
    }

    fn rows(&self, words: &[&str]) -> Vec<Vec<String>> {
        let text = self.run(words).unwrap();
        text.lines().map(|line| line.split_whitespace().map(String::from).collect()).collect()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        // A test that has failed may leave it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn each_view_of_a_program_with_the_library_is_printed() {
    let shop = Shop::open("views");
    let spawn = |name: &str| {
        let options = SpawnOptions::new().name(name);
        shop.runtime.spawn_with(actor(Courier(0_u8)), options).unwrap().pid()
    };
    let (first, _second) = (spawn("order 7"), spawn("order 8"));
    let child = ChildSpec::new("till", || actor(Courier((0_u8, 0_u8))));
    let supervisor = shop.runtime.spawn(Supervisor::builder().child(child).build().unwrap()).unwrap();
    shop.runtime.wait_idle_timeout(LIMIT).unwrap();
    let overview = shop.rows(&["shop", "--once"]);
    assert!(overview.iter().any(|row| row.join(" ") == "spawned 4"), "{overview:?}");
    assert_eq!(shop.rows(&["shop", "--once", "processes"]).len(), 5);
    // A name and a type with spaces.
    let named = shop.rows(&["--once", "processes", "--filter", "order 7"]);
    assert!(named.len() == 2 && named[1][0] == first.to_string() && named[1][1..3] == ["order", "7"], "{named:?}");
    let typed = shop.rows(&["--once", "processes", "--filter", "type:Courier<(u8, u8)> state:idle"]);
    assert!(typed.len() == 2 && typed[1].iter().any(|word| word.contains("Courier<(u8,")), "{typed:?}");
    let types = shop.run(&["shop", "--once", "types"]).unwrap();
    assert!(types.contains("Courier<u8>"), "{types}");
    let tree = shop.run(&["shop", "--once", "tree"]).unwrap();
    assert!(tree.contains(&supervisor.pid().to_string()) && tree.contains("till"), "{tree}");
    assert!(shop.run(&["shop", "--once", "waits"]).is_ok());
    assert!(shop.run(&["shop", "--once", "nodes"]).is_ok());
    // A moment of it says the same.
    shop.run(&["shop", "--save", "moment"]).unwrap();
    let processes = shop.rows(&["open", "moment", "--once", "processes", "--filter", "order 7"]);
    assert_eq!(processes[1][..3], named[1][..3]);
}

#[test]
fn a_program_whose_places_are_all_taken_says_that_it_is_busy() {
    let shop = Shop::open("busy");
    let connect = |_| {
        let mut client = UnixStream::connect(shop.console.place()).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        client.write_all(b"{\"hello\":1}\n").unwrap();
        let mut hello = String::new();
        BufReader::new(&client).read_line(&mut hello).unwrap();
        assert!(hello.contains("\"program\":\"shop\""), "{hello}");
        client
    };
    let _clients: Vec<UnixStream> = (0..8).map(connect).collect();
    let error = shop.run(&["shop", "--once"]).unwrap_err();
    assert!(error.contains("busy: the console has 8 clients already"), "{error}");
}

/// Fails at each message.
#[derive(Serialize, Deserialize)]
struct Bank;

impl Process for Bank {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        match events.next() {
            Some(Event::Message(())) => Err("the bank is closed".into()),
            _ => Ok(Step::Idle),
        }
    }
}

impl Durable for Bank {
    const NAME: &str = "bank";
}

#[test]
fn the_peers_of_a_node_and_the_parked_processes_of_a_store_are_printed() {
    let folder = new_folder("nodes");
    let (manual, network) = (ManualClock::new(), MemoryNetwork::new());
    let builder = || Runtime::builder().workers(1).clock(manual.clock());
    let (store, runtime) =
        Store::with_journal(MemoryJournal::new(&MemoryDisk::new())).kind::<Bank>().start(builder()).unwrap();
    let order = store.begin("order 7", Bank).unwrap();
    store.send(order.address(), ()).unwrap();
    let begun = Instant::now();
    while store.count(&Query::all().parked()).unwrap() == 0 {
        assert!(begun.elapsed() < LIMIT, "the order is not parked");
        manual.advance(Duration::from_secs(20));
    }
    // From here on, the clock of both nodes stands still, so neither takes the other for silent.
    let other = builder().start().unwrap();
    let node = |name: &str, of: &Runtime| Cluster::named(name, Wire::new()).memory(&network).start(of).unwrap();
    let (north, _east) = (node("north", &runtime), node("east", &other));
    north.wait_for("east", LIMIT).unwrap();
    let console = Console::named("shop").folder(folder.join("procession"));
    let console = console.store(&store).cluster(&north).serve(&runtime).unwrap();
    let shop = Shop { folder, runtime, console };
    let text = shop.run(&["shop", "--once", "nodes"]).unwrap();
    let rows: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert!(rows.iter().any(|row| row.starts_with("east up ")), "{text}");
    assert!(rows.contains(&format!("{} order 7 the bank is closed", order.pid())), "{text}");
    let overview = shop.run(&["shop", "--once"]).unwrap();
    assert!(overview.contains("north with 1 peers") && overview.contains("parked"), "{overview}");
}

/// Sends the lines to the console with `nc`, and gives each answer to `jq`. `None` if one of the two is not installed.
fn with_nc_and_jq(shop: &Shop, lines: &str, filter: &str) -> Option<String> {
    let installed = |program: &str, word: &str, needed: &str| {
        let help = Command::new(program).arg(word).output().ok()?;
        let text = [help.stdout, help.stderr].concat();
        String::from_utf8_lossy(&text).contains(needed).then_some(())
    };
    // There are several programs with the name `nc`, and not each of them knows sockets of Unix.
    installed("nc", "-h", "-NnrStUuvZz").and_then(|()| installed("jq", "--version", "jq"))?;
    let output = Command::new("sh")
        .args(["-c", "printf '%s' \"$1\" | nc -N -U \"$2\" | jq --compact-output \"$3\"", "sh", lines])
        .args([shop.console.place().as_str(), filter])
        .output()
        .unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn nc_and_jq_suffice_to_use_the_protocol() {
    let shop = Shop::open("lines");
    let courier = |name: &str| {
        shop.runtime.spawn_with(actor(Courier(0_u8)), SpawnOptions::new().name(name)).unwrap().pid().to_string()
    };
    let (first, second) = (courier("order 7"), courier("order 8"));
    shop.runtime.wait_idle_timeout(LIMIT).unwrap();
    let lines = format!(
        "{{\"hello\":1}}\n{{\"id\":1,\"get\":\"top\",\"by\":\"age\",\"limit\":1}}\n\
         {{\"id\":2,\"get\":\"process\",\"pid\":\"{second}\"}}\n{{\"id\":3,\"do\":\"terminate\",\"pid\":\"{first}\"}}\n"
    );
    let filter = "[.id, .program, .top.processes[0].pid, .process.name, .error.kind]";
    let Some(answers) = with_nc_and_jq(&shop, &lines, filter) else {
        eprintln!("== SKIPPED: the protocol of the console by hand needs `nc` of OpenBSD and `jq`");
        return;
    };
    let expected = format!(
        "[null,\"shop\",null,null,null]\n[1,null,\"{first}\",null,null]\n\
         [2,null,null,\"order 8\",null]\n[3,null,null,null,\"not_allowed\"]\n"
    );
    assert_eq!(answers, expected);
}
