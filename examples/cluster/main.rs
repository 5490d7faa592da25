//! Nodes that find each other, and processes that answer questions from other nodes.
//!
//! It shows:
//!
//! - A runtime becomes a node with a name, an endpoint, and the endpoint of one other node.
//! - A process is found by the name that it has on its node. After that, the calls are those for local processes.
//! - A counter has many keys, which are spread over the nodes. They move when a node comes or goes: see `shards.rs`.
//! - Events tell of nodes that come and go. A watched process of another node is told of, too.
//!
//! How to try it, in two or more terminals:
//!
//! ```text
//! cargo run --features zenoh --example cluster -- --node a --listen tcp/127.0.0.1:7001
//! cargo run --features zenoh --example cluster -- --node b --listen tcp/127.0.0.1:7002 --join tcp/127.0.0.1:7001
//! ```
//!
//! With `--certificates tests/certificates --peer b`, and endpoints `quic/`, they have certificates.
//!
//! Each node asks the process of each other one, and prints how long an answer takes. It also prints how many keys each
//! shard has, and how many messages are in doubt. Kill one of them, or stop it with
//! Ctrl-C, and see what the others print. Ctrl-C leaves the cluster in order, and the exit code is 130. It is 1 after
//! an error, and 2 for invalid options.

#[path = "../arguments/mod.rs"]
mod arguments;
mod shards;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use lexopt::Arg::{Long, Short};
use lexopt::{Parser, ValueExt as _};
use procession::cluster::{Certificates, Cluster, NodeEvent, NodeIdentity, Security, Wire};
use procession::{Address, BoxError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, remote};
use serde::{Deserialize, Serialize};

use crate::shards::{Count, Doubts};

const USAGE: &str = "\
usage: cluster --node NAME --listen ENDPOINT [--join ENDPOINT]... [--questions N]
               [--certificates DIR --peer NAME...]

  --node NAME         the name of this node
  --listen ENDPOINT   where it listens, as tcp/127.0.0.1:7001
  --join ENDPOINT     the endpoint of another node, which may start later
  --questions N       how often each other node is asked (default: 1000)
  --certificates DIR  where authority.pem, NAME.pem and NAME.key are; endpoints are quic/127.0.0.1:7001 then
  --peer NAME         another node that may connect with its certificate
";

/// How long to wait for an answer.
const LIMIT: Duration = Duration::from_secs(5);

/// The question to a process of another node: how many it has been asked so far.
#[derive(Serialize, Deserialize)]
struct Question(Reply<u64>);

remote!(Question, "example::Question", 1);

/// Answers questions.
struct Counter(u64);

impl Process for Counter {
    type Message = Question;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, Question>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Question(reply)) => {
                    self.0 += 1;
                    out.reply(reply, self.0);
                }
                Event::Cancel(_) => return Ok(Step::Done(self.0)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

struct Options {
    node: String,
    listen: String,
    join: Vec<String>,
    /// The folder with `authority.pem`, and with `NAME.pem` and `NAME.key` of this node.
    certificates: Option<PathBuf>,
    /// The other nodes that may connect with certificates.
    nodes: Vec<String>,
    questions: u32,
}

fn parse(parser: &mut Parser) -> Result<Option<Options>, lexopt::Error> {
    let (mut node, mut listen, mut join, mut questions) = (None, None, Vec::new(), 1_000);
    let (mut certificates, mut nodes) = (None, Vec::new());
    while let Some(argument) = parser.next()? {
        match argument {
            Long("node") => node = Some(parser.value()?.string()?),
            Long("listen") => listen = Some(parser.value()?.string()?),
            Long("join") => join.push(parser.value()?.string()?),
            Long("certificates") => certificates = Some(PathBuf::from(parser.value()?)),
            Long("peer") => nodes.push(parser.value()?.string()?),
            Long("questions") => questions = arguments::number(parser, "--questions", 1..=1_000_000)?,
            Long("help") | Short('h') => return Ok(None),
            _ => return Err(argument.unexpected()),
        }
    }
    let (node, listen) = (node.ok_or("--node is missing")?, listen.ok_or("--listen is missing")?);
    Ok(Some(Options { node, listen, join, certificates, nodes, questions }))
}

fn run(Options { node, listen, join, certificates, nodes, questions }: Options) -> Result<ExitCode, BoxError> {
    let doubts = Doubts::default();
    let runtime = Runtime::builder().observer(doubts.clone()).start()?;
    let counter = runtime.spawn(Counter(0))?;
    runtime.register("counter", &counter)?;
    let wire = Wire::new().message::<Question>().message::<Count>();
    let security = match certificates {
        Some(folder) => {
            let of = |end: &str| folder.join(format!("{node}.{end}"));
            let certificates = Certificates::new(folder.join("authority.pem"), of("pem"), of("key"));
            Security::Certificates(certificates.nodes(nodes))
        }
        None => Security::TrustedNetwork,
    };
    let builder = Cluster::named(node, wire).listen(listen).security(security);
    let cluster = join.into_iter().fold(builder, |builder, seed| builder.join(seed)).start(&runtime)?;
    println!("{} has started", cluster.here());
    shards::start(&runtime, &cluster, &doubts)?;
    let all = runtime.shutdown_node();
    ctrlc::set_handler(move || all.request_shutdown())?;
    let mut events = cluster.events();
    // They end when the runtime has shut down.
    while let Some(event) = events.recv()? {
        match event {
            NodeEvent::Up(node) => {
                println!("{} is up", node.name());
                let (runtime, cluster) = (runtime.clone(), cluster.clone());
                thread::spawn(move || match ask(&runtime, &cluster, &node, questions) {
                    Ok(time) => println!("{} answers in {time:?}", node.name()),
                    Err(error) => println!("{} does not answer: {error}", node.name()),
                });
            }
            NodeEvent::Down(node, reason) => println!("{} is down: {reason:?}", node.name()),
            NodeEvent::UpElsewhere { node, at } => println!("{} is up at {}", node.name(), at.name()),
            NodeEvent::Refused { name, why } => println!("{name} is refused: {why}"),
            _ => {}
        }
    }
    println!("{} questions were answered", counter.join()?.output().map_or(0, |count| **count));
    Ok(ExitCode::from(130))
}

/// Asks the process of a node, again and again. Returns the mean time of an answer.
fn ask(runtime: &Runtime, cluster: &Cluster, node: &NodeIdentity, questions: u32) -> Result<Duration, BoxError> {
    let counter: Address<Question> = cluster.whereis(node.name(), "counter", LIMIT).wait()?.typed();
    let start = Instant::now();
    for _ in 0..questions {
        runtime.ask(counter, Question, LIMIT).wait()?;
    }
    Ok(start.elapsed() / questions)
}

fn main() -> ExitCode {
    arguments::main("cluster", USAGE, parse, run)
}
