//! A chat server: tokio reads and writes the sockets, and each connection and each room is a process.
//!
//! Try it: `cargo run --release --example chat`, and then `nc 127.0.0.1 7000` in two other terminals.
//! Or: `cargo run --release --example chat -- --selftest`
//!
//! Nothing grows without bound: each part waits for room in the next one. A connection reads a line of its client, puts
//! it into the mailbox of the room, and reads the next one then. The room puts each line into the mailbox of each
//! member's writer. So a room is as fast as its slowest member. A client that sends faster than that is slowed down by
//! its own socket. A client that accepts nothing for ten seconds is disconnected.
//!
//! Ctrl-C shuts the runtime down. Each client gets a last line with the reason. The exit code is 0 after a clean end, 1
//! after a failure, 2 for invalid options, and 130 after an interrupted self test.

#[path = "../arguments/mod.rs"]
mod arguments;
mod connection;
mod room;
mod selftest;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::process::ExitCode;

use lexopt::Arg::{Long, Short};
use lexopt::{Parser, ValueExt as _};
use procession::BoxError;
use procession::prelude::*;
use tokio::net::TcpListener;

use self::room::Hall;
use self::selftest::Plan;

/// A connection has two processes, and a room one. A room stays until the server ends.
const MAX_PROCESSES: usize = 20_000;

const USAGE: &str = "\
usage: chat [--listen ADDRESS] [--selftest [--clients N] [--lines N]]

  --listen ADDRESS  where to take connections (127.0.0.1:7000, with --selftest 127.0.0.1:0)
  --selftest        connects clients to itself, and checks that each of them gets every line in order
  --clients N       of the self test, 1 to 1000 (200)
  --lines N         of each of its clients, 1 to 10000 (20)";

struct Options {
    listen: Option<SocketAddr>,
    selftest: Option<Plan>,
}

fn parse(arguments: &mut Parser) -> Result<Option<Options>, lexopt::Error> {
    let (mut listen, mut selftest, mut plan) = (None, false, Plan::default());
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("listen") => listen = Some(arguments.value()?.parse()?),
            Long("selftest") => selftest = true,
            Long("clients") => plan.clients = arguments::number(arguments, "--clients", 1..=1000)?,
            Long("lines") => plan.lines = arguments::number(arguments, "--lines", 1..=10_000)?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(Options { listen, selftest: selftest.then_some(plan) }))
}

fn run(Options { listen, selftest }: Options) -> Result<ExitCode, BoxError> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = tokio.handle().clone();
    // Futures of processes use the sockets of tokio.
    let builder = Runtime::builder().in_context(move |poll| {
        let _entered = handle.enter();
        poll();
    });
    let runtime = builder.max_processes(MAX_PROCESSES).start()?;
    let listen = listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], if selftest.is_some() { 0 } else { 7000 })));
    let listener = tokio.block_on(TcpListener::bind(listen)).map_err(|error| format!("{listen}: {error}"))?;
    let address = listener.local_addr()?;
    runtime.spawn(actor(Hall { listener: listener.into() }))?;
    let (all, on_signal) = (runtime.shutdown_node(), runtime.shutdown_node());
    ctrlc::set_handler(move || on_signal.request_shutdown())?;
    let mut code = ExitCode::SUCCESS;
    match selftest.map(|plan| tokio.block_on(selftest::run(address, plan))) {
        None => println!("listening on {address}"),
        Some(_) if all.is_shutting_down() => code = ExitCode::from(130),
        Some(report) => {
            println!("{}", report?);
            all.request_shutdown();
        }
    }
    // This thread moves the bytes of all sockets until the last process has ended.
    tokio.block_on(all.closed());
    all.err().map_or(Ok(code), |error| Err(error.into()))
}

fn main() -> ExitCode {
    arguments::main("chat", USAGE, parse, run)
}
