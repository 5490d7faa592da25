//! Measures the times and rates that a cluster promises, between programs of ours: the time until a mesh is complete,
//! the messages that two nodes step while they flood each other, the questions to others while one node stands still,
//! the time until a down is reported, the downs while the processors are busy, and the time until a node has left. Unix
//! only.

use std::io::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use procession::cluster::{Cluster, NodeEvent, Security, Wire};
use procession::spawn::Overflow;
use procession::{Address, Event, Events, Process, Reply, Runtime, SpawnOptions, Step, StepOutput, StepResult, remote};
use serde::{Deserialize, Serialize};

use crate::child::{Keeper, Program};
use crate::idle::{self, SETTLED, rest};
use crate::load::{LIMIT, Outcome};
use crate::rounds::{START, free_port, own};

/// The option that starts these programs.
pub(crate) const BOUNDS: &str = "--bounds";

/// The roles of a node.
const MESH: &str = "mesh";
const FLOOD: &str = "flood";
const ASKS: &str = "asks";
const RESTS: &str = "rests";
const LEAVES: &str = "leaves";
const WATCHED: &str = "watched";
const CROWD: &str = "crowd";

/// The nodes of the mesh.
const NODES: usize = 6;

/// The idle peers of one node. They are nodes of one program.
const PEERS: usize = 31;

/// How long a node with them is measured.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// The threads that keep the processors busy.
const BUSY_THREADS: usize = 32;

/// The flood counts the messages that are stepped in each window of this length.
const WINDOW: Duration = Duration::from_millis(100);

/// How often a node reports its longest question.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// The number of texts that a step of the flood sends.
const SENT: usize = 100;

/// The bound of its mailbox, in messages.
const MAILBOX: usize = 1_000;

/// A figure, and its bar in the contract.
#[derive(Serialize)]
pub(crate) struct Bound {
    statement: u8,
    what: String,
    value: f64,
    unit: &'static str,
    bar: f64,
    pub(crate) is_met: bool,
}

impl Bound {
    pub(crate) fn at_most(
        statement: u8,
        what: impl Into<String>,
        (value, unit): (f64, &'static str),
        bar: f64,
    ) -> Bound {
        Bound { statement, what: what.into(), value, unit, bar, is_met: value <= bar }
    }

    fn at_least(statement: u8, what: &'static str, (value, unit): (f64, &'static str), bar: f64) -> Bound {
        Bound { statement, what: what.into(), value, unit, bar, is_met: value >= bar }
    }

    pub(crate) fn row(&self) -> String {
        let Bound { statement, what, value, unit, bar, is_met } = self;
        let digits = if unit.starts_with('%') { 2 } else { 0 };
        let is_met = if *is_met { "met" } else { "missed" };
        format!("| {statement} | {what} | {value:.digits$} {unit} | {bar} {unit} | {is_met} |")
    }
}

fn millis(time: Duration) -> (f64, &'static str) {
    (time.as_secs_f64() * 1_000.0, "ms")
}

// The nodes.

#[derive(Serialize, Deserialize)]
enum Message {
    /// Sends to this one, without end.
    Flood(Address<Message>),
    Text(String),
    Echo(Reply<u64>),
}

remote!(Message, "nodes::Bounds", 1);

/// Floods another one, and counts what it steps itself.
struct Flooder {
    to: Option<Address<Message>>,
    stepped: Arc<AtomicU64>,
    /// Pauses after each step that sends, so that it is a stream and no flood.
    pause: Option<Duration>,
}

impl Process for Flooder {
    type Message = Message;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Message>, out: &mut StepOutput) -> StepResult<()> {
        let mut is_due = self.pause.is_none();
        for event in events {
            match event {
                Event::Message(Message::Flood(to)) => (self.to, is_due) = (Some(to), true),
                Event::Message(Message::Text(_)) => _ = self.stepped.fetch_add(1, Ordering::Relaxed),
                Event::Message(Message::Echo(reply)) => out.reply(reply, 0),
                Event::Completed(_) => is_due = true,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        let Some(to) = self.to.filter(|_| is_due) else { return Ok(Step::Idle) };
        (0..SENT).for_each(|_| out.send(to, Message::Text("x".repeat(200))));
        match self.pause {
            Some(pause) => {
                out.after(pause);
                Ok(Step::Idle)
            }
            None => Ok(Step::Continue),
        }
    }
}

fn say(line: &str) -> Outcome<()> {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}

/// Runs a node until its input ends.
pub(crate) fn node(role: &str, name: &str, (listen, join): (u16, u16), time: Duration) -> Outcome<()> {
    let endpoint = |port: u16| format!("tcp/127.0.0.1:{port}");
    let begun = Instant::now();
    if role == CROWD {
        return crowd(&endpoint(join));
    }
    let runtime = Runtime::builder().workers(2).start()?;
    let stepped = Arc::new(AtomicU64::new(0));
    let pause = (role == ASKS).then_some(Duration::from_millis(1));
    let flooder = Flooder { to: None, stepped: stepped.clone(), pause };
    let options = SpawnOptions::new().mailbox(MAILBOX, Overflow::Refuse);
    let flooder = runtime.spawn_with(flooder, options)?;
    runtime.register("flooder", &flooder)?;
    let mut builder = Cluster::named(name, Wire::new().message::<Message>());
    builder = builder.listen(endpoint(listen)).security(Security::TrustedNetwork);
    if join != 0 {
        builder = builder.join(endpoint(join));
    }
    let cluster = builder.start(&runtime)?;
    let find = |node: &str| -> Outcome<Address<Message>> {
        cluster.wait_for(node, LIMIT)?;
        Ok(cluster.whereis(node, "flooder", LIMIT).wait()?.typed())
    };
    // The input ends with the program that has started this one.
    let (ends, end) = channel::<()>();
    thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(ends);
    });
    let is_over = |time: Duration| end.recv_timeout(time) != Err(RecvTimeoutError::Timeout);
    match role {
        MESH => {
            let mut events = cluster.events();
            while cluster.nodes().len() + 1 < NODES {
                events.recv_timeout(LIMIT)?;
            }
            say(&format!("up {}", begun.elapsed().as_nanos()))?;
        }
        FLOOD => {
            runtime.send(&flooder, Message::Flood(find(if name == "a" { "b" } else { "a" })?))?;
            while stepped.load(Ordering::Relaxed) == 0 {
                if is_over(WINDOW) {
                    return Ok(());
                }
            }
            let (begun, mut windows) = (Instant::now(), Vec::new());
            let look = || (Instant::now(), stepped.load(Ordering::Relaxed));
            let mut before = look();
            while begun.elapsed() < time {
                if is_over(WINDOW) {
                    return Ok(());
                }
                let now = look();
                // A window of a busy machine is longer.
                let share = (now.0 - before.0).as_secs_f64() / WINDOW.as_secs_f64();
                windows.push(((now.1 - before.1) as f64 / share) as u64);
                before = now;
            }
            say(&format!("least {}", windows.iter().min().unwrap_or(&0)))?;
        }
        ASKS => {
            let (still, other) = (find("b")?, find("c")?);
            runtime.send(&flooder, Message::Flood(still))?;
            let mut events = cluster.events();
            thread::spawn(move || {
                while let Ok(Some(event)) = events.recv() {
                    if let NodeEvent::Down(node, reason) = event {
                        let _ = say(&format!("down {} {reason:?}", node.name()));
                    }
                }
            });
            let mut count = 0;
            loop {
                let (begun, mut longest) = (Instant::now(), Duration::ZERO);
                while begun.elapsed() < REPORT_INTERVAL {
                    let asked = Instant::now();
                    runtime.ask(other, Message::Echo, LIMIT).wait()?;
                    longest = longest.max(asked.elapsed());
                    count += 1;
                }
                say(&format!("longest {} of {count}", longest.as_nanos()))?;
                if is_over(Duration::ZERO) {
                    return Ok(());
                }
            }
        }
        RESTS => {
            if join != 0 {
                cluster.wait_for("a", LIMIT)?;
                say("ready")?;
            }
            let mut events = cluster.events();
            thread::spawn(move || {
                while let Ok(Some(event)) = events.recv() {
                    if let NodeEvent::Down(node, reason) = event {
                        let _ = say(&format!("down {} {reason:?}", node.name()));
                    }
                }
            });
        }
        LEAVES => {
            // Its messages are never acknowledged, so it leaves as late as it can.
            runtime.send(&flooder, Message::Flood(find("b")?))?;
            say("ready")?;
            let _ = end.recv();
            let begun = Instant::now();
            let report = runtime.shutdown(LIMIT)?;
            if !report.is_clean() {
                return Err(format!("the shutdown of the node: {report}").into());
            }
            return say(&format!("left {}", begun.elapsed().as_nanos()));
        }
        WATCHED => {
            let mut events = cluster.events();
            while cluster.nodes().len() < PEERS {
                events.recv_timeout(LIMIT)?;
            }
            rest(SETTLED);
            let before = idle::now()?;
            rest(time);
            let after = idle::now()?;
            let ours = after.our_processor - before.our_processor;
            say(&format!("processor {} {ours}", after.processor - before.processor))?;
        }
        _ => return Err(format!("there is no role {role:?}").into()),
    }
    let _ = end.recv();
    Ok(())
}

/// Runs the peers of a node that listens there, until the input ends.
fn crowd(join: &str) -> Outcome<()> {
    let mut nodes = Vec::new();
    for number in 1..=PEERS {
        let runtime = Runtime::builder().workers(1).start()?;
        let node = Cluster::named(format!("n{number}"), Wire::new().message::<Message>()).join(join);
        let node = node.listen(format!("tcp/127.0.0.1:{}", free_port()?)).security(Security::TrustedNetwork);
        nodes.push((node.start(&runtime)?, runtime));
    }
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    Ok(())
}

// The program that starts them.

/// Starts a node.
fn start(keeper: &mut Keeper, (role, name): (&str, &str), ports: (u16, u16), time: Duration) -> Outcome<Program> {
    let (option, time) = (format!("{BOUNDS}={role}"), time.as_millis().to_string());
    keeper.start(own(&[&option, name, &ports.0.to_string(), &ports.1.to_string(), &time])?)
}

/// Waits for a line of a program that begins with this word. Returns the rest of the line.
fn report(keeper: &mut Keeper, program: &Program, word: &str, limit: Duration) -> Outcome<String> {
    loop {
        let line = keeper.line(program, limit)?;
        if let Some(rest) = line.strip_prefix(word) {
            return Ok(rest.trim().to_string());
        }
    }
}

fn nanos(text: &str) -> Outcome<Duration> {
    Ok(Duration::from_nanos(text.split(' ').next().unwrap_or_default().parse()?))
}

/// The longest time that one of the nodes took until it saw all others. They know one node.
fn mesh(keeper: &mut Keeper) -> Outcome<Bound> {
    let seed = free_port()?;
    let mut programs = vec![start(keeper, (MESH, "n0"), (seed, 0), LIMIT)?];
    for number in 1..NODES {
        programs.push(start(keeper, (MESH, &format!("n{number}")), (free_port()?, seed), LIMIT)?);
    }
    let mut longest = Duration::ZERO;
    for program in &programs {
        longest = longest.max(nanos(&report(keeper, program, "up", START)?)?);
    }
    Ok(Bound::at_most(2, "six programs that know one are a mesh", millis(longest), 2_000.0))
}

/// The least number of messages that either node stepped in 100 ms while they flooded each other.
fn flood(keeper: &mut Keeper, time: Duration) -> Outcome<Bound> {
    let port = free_port()?;
    let one = start(keeper, (FLOOD, "a"), (port, 0), time)?;
    let other = start(keeper, (FLOOD, "b"), (free_port()?, port), time)?;
    let mut least = u64::MAX;
    for program in [&one, &other] {
        least = least.min(report(keeper, program, "least", START + time)?.parse()?);
    }
    let figure = (least as f64, "messages");
    Ok(Bound::at_least(21, "each of two nodes that flood each other steps in 100 ms", figure, 1_000.0))
}

fn signal(program: &Program, signal: &str) -> Outcome<()> {
    let status = Command::new("kill").args([signal, &program.id().to_string()]).status()?;
    if !status.success() {
        return Err(format!("`kill {signal}` ended with {status}").into());
    }
    Ok(())
}

/// Stops or kills a node while another one sends to it and asks a third. Returns the time until the down was reported,
/// with the start of the program `kill`, and the longest question until then.
fn fault(keeper: &mut Keeper, signal: &str) -> Outcome<(Duration, Duration)> {
    let port = free_port()?;
    let asks = start(keeper, (ASKS, "a"), (port, 0), LIMIT)?;
    let still = start(keeper, (RESTS, "b"), (free_port()?, port), LIMIT)?;
    let _third = start(keeper, (RESTS, "c"), (free_port()?, port), LIMIT)?;
    for _ in 0..4 {
        report(keeper, &asks, "longest", START)?;
    }
    let begun = Instant::now();
    self::signal(&still, signal)?;
    let mut longest = Duration::ZERO;
    let down = loop {
        let line = keeper.line(&asks, START)?;
        match line.split_once(' ') {
            Some(("longest", time)) => longest = longest.max(nanos(time)?),
            Some(("down", who)) if who.starts_with("b ") => break begun.elapsed(),
            _ => {
                let wanted = "\"longest …\" or \"down b …\"";
                return Err(format!("the node that asks printed {line:?}: expected {wanted}").into());
            }
        }
    };
    // The question that was open at the down is in the next report.
    longest = longest.max(nanos(&report(keeper, &asks, "longest", START)?)?);
    Ok((down, longest))
}

/// The downs of two idle nodes while many threads keep the processors busy.
fn busy(keeper: &mut Keeper, time: Duration) -> Outcome<Bound> {
    let port = free_port()?;
    let one = start(keeper, (RESTS, "a"), (port, 0), LIMIT)?;
    let other = start(keeper, (RESTS, "b"), (free_port()?, port), LIMIT)?;
    report(keeper, &other, "ready", START)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let spin = |is_over: Arc<AtomicBool>| {
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    };
    let threads: Vec<_> = (0..BUSY_THREADS).map(|_| spin(is_over.clone())).collect();
    let mut downs = 0;
    let lines = (|| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            downs += usize::from(keeper.line_timeout(&one, time.saturating_sub(begun.elapsed()))?.is_some());
        }
        Outcome::Ok(())
    })();
    is_over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    lines?;
    while keeper.line_timeout(&other, REPORT_INTERVAL)?.is_some() {
        downs += 1;
    }
    Ok(Bound::at_most(45, "downs while 32 threads keep the processors busy", (downs as f64, "downs"), 0.0))
}

/// The processor time of a node with many idle peers, in percent of a core.
fn idle_peers(keeper: &mut Keeper, time: Duration) -> Outcome<Bound> {
    let port = free_port()?;
    let watched = start(keeper, (WATCHED, "a"), (port, 0), time)?;
    let _crowd = start(keeper, (CROWD, "crowd"), (0, port), time)?;
    let measured = report(keeper, &watched, "processor", START + time)?;
    eprintln!("nodes: processor time of a node with {PEERS} idle peers, and of our threads: {measured} ns");
    let share = 100.0 * nanos(&measured)?.as_secs_f64() / time.as_secs_f64();
    Ok(Bound::at_most(59, "processor of a node with 31 idle peers", (share, "% of a core"), 3.0))
}

/// The time in which a node shuts down while its peer stands still.
fn leave(keeper: &mut Keeper) -> Outcome<Bound> {
    let port = free_port()?;
    let mut leaves = start(keeper, (LEAVES, "a"), (port, 0), LIMIT)?;
    let still = start(keeper, (RESTS, "b"), (free_port()?, port), LIMIT)?;
    report(keeper, &leaves, "ready", START)?;
    signal(&still, "-STOP")?;
    leaves.end_input();
    let time = nanos(&report(keeper, &leaves, "left", START)?)?;
    Ok(Bound::at_most(60, "a node beside one that stands still shuts down", millis(time), 1_000.0))
}

/// Measures all bounds. The flood and the busy processors are measured for this time each.
pub(crate) fn all(keeper: &mut Keeper, time: Duration) -> Outcome<Vec<Bound>> {
    let mut bounds = vec![mesh(keeper)?, flood(keeper, time)?];
    let (down, longest) = fault(keeper, "-STOP")?;
    bounds.push(Bound::at_most(22, "the longest question beside a node that stands still", millis(longest), 50.0));
    bounds.push(Bound::at_most(45, "the down of a node that was stopped", millis(down), 2_000.0));
    let (down, _) = fault(keeper, "-KILL")?;
    bounds.push(Bound::at_most(45, "the down of a node that was killed", millis(down), 50.0));
    bounds.extend([busy(keeper, time)?, idle_peers(keeper, time.min(IDLE_TIME))?, leave(keeper)?]);
    Ok(bounds)
}
