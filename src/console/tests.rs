//! A console and its clients, on real sockets.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::*;
use crate::latch::Latch;
use crate::pid::Pid;
use crate::primitives::thread;
use crate::process::{Event, Events, Process, Step, StepOutput, StepResult};
use crate::runtime::{Handle, ProcessState};
use crate::wait::{until, wait};
use crate::{Exit, SpawnOptions};

const LIMIT: Duration = Duration::from_secs(60);

/// A folder of this test alone, which is removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("procession-console-{}-{name}", std::process::id()));
        _ = std::fs::remove_dir_all(&folder);
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn runtime() -> Runtime {
    Runtime::builder().workers(2).start().unwrap()
}

/// A client of the protocol.
struct Client<S>(BufReader<S>);

impl Client<UnixStream> {
    /// Connects, and says nothing.
    fn silent(console: &Console) -> Client<UnixStream> {
        let stream = UnixStream::connect(console.place()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Client(BufReader::new(stream))
    }

    fn new(console: &Console) -> Client<UnixStream> {
        let mut client = Client::silent(console);
        let hello = client.ask(&json!({ "hello": 1 }));
        assert_eq!(hello["hello"], 1, "{hello}");
        client
    }
}

impl<S: std::io::Read> Client<S>
where
    for<'a> &'a S: std::io::Write,
{
    fn say(&self, line: &str) -> bool {
        let mut stream = self.0.get_ref();
        stream.write_all(format!("{line}\n").as_bytes()).is_ok()
    }

    /// The next line. `None` if the client was disconnected.
    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(count) if count > 0 => Some(serde_json::from_str(&line).unwrap()),
            Ok(_) => None,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
                None
            }
        }
    }

    fn ask(&mut self, request: &Value) -> Value {
        assert!(self.say(&request.to_string()), "the client was disconnected before {request}");
        self.hear().unwrap_or_else(|| panic!("the client was disconnected after {request}"))
    }

    /// The result of a question. It must have one.
    fn get(&mut self, question: Value) -> Value {
        let mut answer = self.ask(&question);
        let name = question["get"].as_str().unwrap();
        assert!(answer[name].is_object(), "{question}: {answer}");
        answer[name].take()
    }

    fn error(&mut self, request: &Value) -> String {
        let answer = self.ask(request);
        answer["error"]["kind"].as_str().unwrap_or_else(|| panic!("{request}: {answer}")).into()
    }
}

/// Rests until it is asked to stop.
struct Idler;

impl Process for Idler {
    type Message = u32;
    type Output = ();

    fn type_name() -> &'static str {
        "idler"
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it has taken nothing")
    }

    fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        let is_asked = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if is_asked { Step::Done(()) } else { Step::Idle })
    }
}

/// Steps at this latch.
struct Blocks(Latch<()>);

impl Process for Blocks {
    type Message = ();
    type Output = ();

    fn type_name() -> &'static str {
        "blocks"
    }

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        _ = self.0.wait_timeout(LIMIT);
        Ok(Step::Idle)
    }
}

#[test]
fn a_client_says_hello_and_asks() {
    let folder = Folder::new("asks");
    let runtime = runtime();
    let idler = runtime.spawn(Idler).unwrap();
    runtime.register("first", idler.pid()).unwrap();
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::silent(&console);
    let hello = client.ask(&json!({ "hello": 7, "new": [1] }));
    assert_eq!((&hello["hello"], &hello["program"], &hello["actions"]), (&json!(1), &json!("shop"), &json!(false)));
    assert_eq!((&hello["process_id"], &hello["metrics"]), (&json!(std::process::id()), &json!(false)));
    // Ids come back, and fields that nobody knows are left.
    let answer = client.ask(&json!({ "id": "a", "get": "overview", "colour": "red" }));
    assert_eq!((&answer["id"], &answer["overview"]["shutdown"]), (&json!("a"), &json!("running")));
    assert_eq!(answer["overview"]["stats"]["processes"], 1);
    let top = client.get(json!({ "get": "top", "by": "age", "limit": 5 }));
    assert_eq!((&top["of"], &top["processes"][0]["pid"]), (&json!(1), &json!(idler.pid().to_string())));
    assert_eq!((&top["processes"][0]["name"], &top["processes"][0]["type"]), (&json!("first"), &json!("idler")));
    let pid = json!(idler.pid().to_string());
    let process = client.get(json!({ "get": "process", "pid": pid }));
    assert_eq!(
        (&process["state"], &process["names"], &process["links"]),
        (&json!("idle"), &json!(["first"]), &json!(0))
    );
    let _watcher = runtime.watch(idler.pid());
    assert_eq!(client.get(json!({ "get": "process", "pid": pid }))["monitors"], 1);
    assert_eq!(client.get(json!({ "get": "snapshot" }))["stats"]["processes"], 1);
    assert_eq!(client.get(json!({ "get": "types" }))["types"], json!([]));
    assert_eq!(client.get(json!({ "get": "stuck" }))["stuck"], json!([]));
    assert_eq!(client.get(json!({ "get": "waits" })), json!({ "of": 0, "waits": [] }));
    assert_eq!(client.get(json!({ "get": "tree" })), json!({ "supervisors": [] }));
}

#[test]
fn errors_have_kinds_and_only_some_end_the_connection() {
    let folder = Folder::new("errors");
    let runtime = runtime();
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut client = Client::new(&console);
    for (request, kind) in [
        (json!({ "get": "weather" }), "unknown_request"),
        (json!({ "do": "overview" }), "unknown_request"),
        (json!({ "get": "cancel", "pid": "<0.1.1>" }), "unknown_request"),
        (json!({ "get": "process" }), "bad_field"),
        (json!({ "get": "process", "pid": 7 }), "bad_field"),
        (json!({ "get": "process", "pid": "seven" }), "bad_field"),
        (json!({ "get": "process", "pid": "<0.999.1>" }), "not_found"),
        (json!({ "get": "top", "by": "weight" }), "bad_field"),
        (json!({ "get": "top", "limit": -1 }), "bad_field"),
        (json!({ "get": "top", "state": "tired" }), "bad_field"),
        (json!({ "id": [1], "get": "types" }), "bad_field"),
        (json!({ "get": "types", "do": "cancel" }), "bad_field"),
        (json!({}), "bad_field"),
        (json!([1, 2]), "not_json"),
        (json!({ "get": "nodes" }), "not_here"),
        (json!({ "get": "parked" }), "not_here"),
    ] {
        assert_eq!(client.error(&request), kind, "{request}");
    }
    assert!(client.say("{no json"));
    assert_eq!(client.hear().unwrap()["error"]["kind"], "not_json");
    let answer = client.ask(&json!({ "id": 3, "get": "weather" }));
    assert_eq!(answer["id"], 3, "an error has the id, too");
    // An empty line is nothing.
    assert!(client.say(""));
    assert_eq!(client.get(json!({ "get": "waits" }))["of"], 0);
    // The console may disconnect it before all is written.
    client.say(&"x".repeat(lines::LONGEST + 1));
    assert_eq!(client.hear().unwrap()["error"]["kind"], "too_long");
    assert_eq!(client.hear(), None);
    for hello in ["{\"get\":\"types\"}", "{\"hello\":0}", "{\"hello\":\"one\"}", "[]", "hello"] {
        let mut client = Client::silent(&console);
        assert!(client.say(hello));
        let kind = client.hear().unwrap()["error"]["kind"].clone();
        assert!(kind == "hello" || kind == "not_json", "{hello}: {kind}");
        assert_eq!(client.hear(), None, "{hello}");
    }
}

#[test]
fn a_client_that_is_too_slow_is_disconnected() {
    let folder = Folder::new("slow");
    let runtime = runtime();
    // Their names fill the answers.
    for number in 0..1_000 {
        let idler = runtime.spawn(Idler).unwrap();
        runtime.register(format!("{number} {}", "x".repeat(1_000)), idler.pid()).unwrap();
    }
    let serve = |name: &str, hello: Duration, read: Duration| {
        let mut builder = Console::named(name).folder(&folder.0);
        builder.limits = Limits { hello, read, ..LIMITS };
        builder.serve(&runtime).unwrap()
    };
    let console = serve("hello", Duration::from_millis(50), LIMIT);
    let mut silent = Client::silent(&console);
    assert_eq!(silent.hear().unwrap()["error"]["kind"], "hello");
    assert_eq!(silent.hear(), None);
    // A byte now and then is no hello.
    let mut drops = Client::silent(&console);
    while drops.0.get_ref().write_all(b" ").is_ok() {
        thread::yield_now();
    }
    assert!(drops.hear().is_none_or(|said| said["error"]["kind"] == "hello" || said["error"]["kind"] == "too_long"));
    until("nobody is connected", || console.server.clients.count() == 0);
    let console = serve("read", LIMIT, Duration::from_millis(50));
    let reads_nothing = Client::new(&console);
    for _ in 0..100 {
        if !reads_nothing.say("{\"get\":\"top\",\"limit\":1000}") {
            break;
        }
    }
    until("nobody is connected", || console.server.clients.count() == 0);
    // Others are served as before.
    assert_eq!(Client::new(&console).get(json!({ "get": "top" }))["of"], 1_000);
}

#[test]
fn there_are_at_most_eight_clients() {
    let folder = Folder::new("eight");
    let runtime = runtime();
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    let mut clients: Vec<_> = (0..8).map(|_| Client::new(&console)).collect();
    let mut more = Client::silent(&console);
    assert_eq!(more.error(&json!({ "hello": 1 })), "busy");
    assert_eq!(more.hear(), None);
    assert_eq!(clients[7].get(json!({ "get": "waits" }))["of"], 0);
    drop(clients.pop());
    until("there is room again", || console.server.clients.count() == 7);
    Client::new(&console).get(json!({ "get": "waits" }));
}

/// A console whose clients are idle at once.
fn impatient(folder: &Folder, runtime: &Runtime) -> Console {
    let mut builder = Console::named("shop").folder(&folder.0);
    builder.limits.idle = Duration::ZERO;
    builder.serve(runtime).unwrap()
}

#[test]
fn the_client_that_says_nothing_for_longest_gives_its_place_up() {
    let folder = Folder::new("idle");
    let runtime = runtime();
    let idler = runtime.spawn(Idler).unwrap();
    let console = impatient(&folder, &runtime);
    let mut clients: Vec<_> = (0..8).map(|_| Client::new(&console)).collect();
    // The first one asks again and the second one has a trace, so the third one is silent for longest.
    clients[0].get(json!({ "get": "waits" }));
    clients[1].get(json!({ "get": "trace", "pid": idler.pid().to_string(), "seconds": 60 }));
    until("the first one rests", || console.server.clients.idle() == 7);
    let mut more = Client::new(&console);
    more.get(json!({ "get": "waits" }));
    let mut third = clients.remove(2);
    assert_eq!(third.hear().unwrap()["error"]["kind"], "idle");
    assert_eq!(third.hear(), None);
    until("it has gone", || console.server.clients.count() == 8);
    // All others have their places.
    clients.iter_mut().for_each(|client| assert_eq!(client.get(json!({ "get": "waits" }))["of"], 0));
}

#[test]
fn clients_that_say_no_hello_take_no_places() {
    let folder = Folder::new("new");
    let runtime = runtime();
    let mut builder = Console::named("shop").folder(&folder.0);
    builder.limits.hello = LIMIT;
    let console = builder.serve(&runtime).unwrap();
    let mut silent: Vec<_> = (0..clients::NEW).map(|_| Client::silent(&console)).collect();
    until("all have come", || console.server.clients.count() == clients::NEW);
    // There is room for eight all the same. Each pushes the oldest silent one out while it is new itself.
    let mut served: Vec<_> = (0..clients::SERVED).map(|_| Client::new(&console)).collect();
    assert_eq!(silent[0].hear().unwrap()["error"]["kind"], "busy");
    assert_eq!(silent[0].hear(), None);
    let left = clients::NEW + clients::SERVED;
    until("so many are left at most", || console.server.clients.count() <= left);
    assert!(
        silent.last_mut().is_some_and(|last| last.error(&json!({ "hello": 1 })) == "busy"),
        "it was not pushed out"
    );
    served.iter_mut().for_each(|client| assert_eq!(client.get(json!({ "get": "waits" }))["of"], 0));
}

#[test]
fn only_the_owner_gets_at_the_socket() {
    let folder = Folder::new("owner");
    let runtime = runtime();
    let serve = |name: &str| Console::named(name).folder(&folder.0).serve(&runtime);
    let console = serve("shop").unwrap();
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.0), mode(Path::new(&console.place()))), (0o700, 0o600));
    let refused = serve("shop").unwrap_err();
    assert!(matches!(refused, ConsoleError::InUse(_)), "{refused}");
    Client::new(&console).get(json!({ "get": "waits" }));
    let _second = serve("shop-2").unwrap();
    for name in ["", ".hidden", "a/b", "a b", &"x".repeat(65)] {
        assert!(matches!(serve(name), Err(ConsoleError::BadName(_))), "{name:?}");
    }
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o750)).unwrap();
    assert!(matches!(serve("open"), Err(ConsoleError::OpenFolder(_))));
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o700)).unwrap();
    let link = folder.0.join("link");
    std::os::unix::fs::symlink(&folder.0, &link).unwrap();
    assert!(matches!(Console::named("x").folder(&link).serve(&runtime), Err(ConsoleError::OpenFolder(_))));
}

#[test]
fn a_console_ends_with_its_runtime_and_removes_its_socket() {
    let folder = Folder::new("ends");
    for how in 0..3 {
        let runtime = runtime();
        let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
        let (mut client, node) = (Client::new(&console), console.shutdown_node());
        match how {
            0 => drop(runtime.shutdown(LIMIT).unwrap()),
            1 => drop(runtime),
            _ => node.shutdown_timeout(LIMIT).unwrap(),
        }
        node.wait_closed_timeout(LIMIT).unwrap();
        assert_eq!(client.hear(), None, "{how}");
        assert!(!Path::new(&console.place()).exists(), "{how}");
    }
    // A socket that is left of a program that was killed is replaced.
    let runtime = runtime();
    let path = folder.0.join("shop.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let console = Console::named("shop").folder(&folder.0).serve(&runtime).unwrap();
    Client::new(&console).get(json!({ "get": "waits" }));
    // Another program has the place by now. Its socket stays, and the thread of the console ends all the same.
    std::fs::remove_file(&path).unwrap();
    let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    runtime.shutdown(LIMIT).unwrap();
    console.shutdown_node().wait_closed_timeout(LIMIT).unwrap();
    assert!(path.exists());
    until("no thread has the console", || Arc::strong_count(&console.server) == 1);
}

#[test]
fn actions_are_refused_unless_they_are_allowed() {
    let folder = Folder::new("actions");
    let runtime = runtime();
    let (one, other) = (runtime.spawn(Idler).unwrap(), runtime.spawn(Idler).unwrap());
    let looks = Console::named("looks").folder(&folder.0).serve(&runtime).unwrap();
    let acts = Console::named("acts").folder(&folder.0).actions(true).serve(&runtime).unwrap();
    let pid = |handle: &Handle<Idler>| json!(handle.pid().to_string());
    let mut client = Client::new(&looks);
    for action in ["cancel", "terminate"] {
        assert_eq!(client.error(&json!({ "do": action, "pid": pid(&one) })), "not_allowed");
    }
    runtime.wait_idle().unwrap();
    assert!(!one.is_finished() && !other.is_finished());
    let mut client = Client::new(&acts);
    assert_eq!(client.ask(&json!({ "do": "cancel", "pid": pid(&one) }))["cancel"], json!({ "done": true }));
    assert!(matches!(one.join_timeout(LIMIT).unwrap(), Exit::Done(_)));
    assert_eq!(client.ask(&json!({ "do": "terminate", "pid": pid(&other) }))["terminate"], json!({ "done": true }));
    assert!(matches!(other.join_timeout(LIMIT).unwrap(), Exit::Terminated(_)));
    assert_eq!(client.ask(&json!({ "do": "terminate", "pid": pid(&other) }))["terminate"], json!({ "done": false }));
    assert_eq!(client.error(&json!({ "do": "cancel", "pid": "<0.999.1>" })), "not_found");
}

#[test]
fn tcp_is_for_the_loopback_and_needs_the_token() {
    let folder = Folder::new("tcp");
    let runtime = runtime();
    std::fs::create_dir(&folder.0).unwrap();
    let token_file = folder.0.join("token");
    let serve = |address: &str| Console::named("shop").tcp(address.parse().unwrap(), &token_file).serve(&runtime);
    for address in ["0.0.0.0:0", "192.0.2.1:0", "[::]:0"] {
        assert!(matches!(serve(address), Err(ConsoleError::NotLoopback(_))), "{address}");
    }
    assert!(!token_file.exists());
    let console = serve("127.0.0.1:0").unwrap();
    let token = std::fs::read_to_string(&token_file).unwrap();
    assert_eq!(token.len(), 32);
    assert_eq!(std::fs::metadata(&token_file).unwrap().permissions().mode() & 0o777, 0o600);
    let say = |hello: Value| {
        let stream = TcpStream::connect(console.place()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut client = Client(BufReader::new(stream));
        let said = client.ask(&hello);
        (client, said)
    };
    let wrong =
        [json!(null), json!(""), json!(7), json!(&token[1..]), json!("0".repeat(32)), json!(format!("{token}0"))];
    for token in wrong {
        let (mut client, said) = say(json!({ "hello": 1, "token": token }));
        assert_eq!((&said["error"]["kind"], client.hear()), (&json!("token"), None), "{token}");
    }
    let (mut client, said) = say(json!({ "hello": 1, "token": format!("{token}\n") }));
    assert_eq!((&said["hello"], client.get(json!({ "get": "waits" }))["of"].as_u64()), (&json!(1), Some(0)));
    console.shutdown_node().shutdown_timeout(LIMIT).unwrap();
    assert!(!token_file.exists());
    // Each run has another one.
    let _again = serve("127.0.0.1:0").unwrap();
    assert_ne!(std::fs::read_to_string(&token_file).unwrap(), token);
}

/// Sends this many lines that are random, cut or changed. Some of the clients vanish.
fn be_hostile(console: &Console, good: &[&str], mut left: usize) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    while left > 0 {
        let stream = UnixStream::connect(console.place()).unwrap();
        // Answers are read by nobody or by another thread, and some clients vanish in the middle of one.
        let reads = random.random_bool(0.8);
        let mut reader = stream.try_clone().unwrap();
        let reading = reads.then(|| {
            thread::spawn(move || {
                let mut read = Vec::new();
                // It may have been reset.
                _ = std::io::Read::read_to_end(&mut reader, &mut read);
                String::from_utf8(read).unwrap().matches("a panic").count()
            })
        });
        let hello: &[u8] = if random.random_bool(0.9) { b"{\"hello\":1}\n" } else { b"" };
        let mut bytes = hello.to_vec();
        let lines = random.random_range(1..if reads { 5_000 } else { 20 });
        left = left.saturating_sub(lines);
        for _ in 0..lines {
            let mut line = good[random.random_range(0..good.len())].as_bytes().to_vec();
            match random.random_range(0..4) {
                0 => line = (0..random.random_range(0..100)).map(|_| random.random()).collect(),
                1 => line.truncate(random.random_range(0..=line.len())),
                2 => {
                    let at = random.random_range(0..line.len());
                    line[at] = random.random();
                }
                _ => line = format!("{}{}", "[".repeat(random.random_range(0..500)), "1").into_bytes(),
            }
            bytes.append(&mut line);
            bytes.push(b'\n');
        }
        // The console may have disconnected it.
        _ = (&stream).write_all(&bytes);
        _ = stream.shutdown(std::net::Shutdown::Write);
        if let Some(reading) = reading {
            assert_eq!(wait(reading).unwrap(), 0);
        }
        drop(stream);
        until("the client has gone", || console.server.clients.count() < 8);
    }
    until("all have gone", || console.server.clients.count() == 0);
}

#[test]
fn hostile_lines_and_clients_that_vanish_do_no_harm() {
    let folder = Folder::new("hostile");
    let runtime = runtime();
    let idlers: Vec<_> = (0..20).map(|_| runtime.spawn(Idler).unwrap()).collect();
    let good = [
        r#"{"get":"overview"}"#,
        r#"{"id":1,"get":"top","by":"mailbox","limit":1000,"type":"idler","state":"idle"}"#,
        r#"{"get":"process","pid":"<0.1.1>"}"#,
        r#"{"get":"tree","id":"ü"}"#,
        r#"{"do":"terminate","pid":"<0.1.1>"}"#,
    ];
    let serve = |name: &str, acts| Console::named(name).folder(&folder.0).actions(acts).serve(&runtime).unwrap();
    let (looks, acts) = (serve("looks", false), serve("acts", true));
    be_hostile(&looks, &good, 100_000);
    // With actions allowed, only questions are changed, because a changed line could act.
    be_hostile(&acts, &good[..4], 20_000);
    assert!(idlers.iter().all(|idler| !idler.is_finished()), "no client may act");
    for console in [looks, acts] {
        assert_eq!(Client::new(&console).get(json!({ "get": "top" }))["of"], 20);
    }
}

#[test]
fn the_limits_are_those_of_the_documentation() {
    let seconds = Duration::from_secs;
    assert_eq!((LIMITS.hello, LIMITS.read, LIMITS.idle), (seconds(5), seconds(10), seconds(60)));
    assert_eq!((tree::PATIENCE, super::views::DESCRIBED), (Duration::from_millis(200), seconds(1)));
    assert_eq!((request::LONGEST_TRACE, request::MOST, lines::LONGEST), (seconds(60), 1_000, 64 << 10));
    assert_eq!((clients::SERVED, clients::NEW), (8, 16));
}

mod views;
