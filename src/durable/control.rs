//! The way of an operator to a store that a program has: a socket in the folder of the store.
//!
//! A client writes one request as JSON, and closes its side. The program writes one answer. A thread waits for clients,
//! and each of them has a thread. So no client waits for another one, and a store without clients wakes no thread.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::StoreError;
use super::operator::Operator;
use super::query::Request;
use crate::latch::Latch;
use crate::outcome::{contain, tell_log};
use crate::primitives::{Arc, AtomicUsize, Ordering, thread};

/// The name of the socket.
const SOCKET: &str = "control";

/// The bytes of a request, at most. A new state may have 1 MiB.
const LARGEST: u64 = 8 << 20;

/// How long a client may take to write its request, and to read the answer.
const LIMIT: Duration = Duration::from_secs(5);

/// How long an operator waits for the program. An order waits for the disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause after an error of the socket.
const PAUSE: Duration = Duration::from_millis(100);

/// How many clients are served at once.
const CLIENTS: usize = 16;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(Value),
    Error(String),
}

/// The socket of a store that is open. Dropping it removes the socket.
pub(super) struct Control {
    path: PathBuf,
    over: Latch<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Control {
    /// Begins to serve clients.
    pub(super) fn serve(folder: &Path, operator: Operator) -> std::io::Result<Control> {
        let path = folder.join(SOCKET);
        // The store is locked, so this is a socket of a program that has ended.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let over = Latch::new();
        let ends = over.clone();
        let thread = thread::Builder::new()
            .name("procession-control".into())
            .spawn(move || accept(&listener, &operator, &ends))?;
        Ok(Control { path, over, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.over.set(());
        // The thread waits for a client.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &UnixListener, operator: &Operator, over: &Latch<()>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming() {
        if over.is_set() {
            return;
        }
        let Ok(client) = client else {
            // Without descriptors, this would go on and on.
            let _ = over.wait_timeout(PAUSE);
            continue;
        };
        let (operator, leaves) = (operator.clone(), Leaves(clients.clone()));
        if clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS {
            answer(&client, &Answer::Error("too many operators at once: try again".into()));
            continue;
        }
        let served = thread::Builder::new().name("procession-client".into()).spawn(move || {
            let _leaves = leaves;
            answer(&client, &serve(&client, &operator));
        });
        if let Err(error) = served {
            tell_log(|| tracing::warn!(%error, "there is no thread for an operator of a store"));
        }
    }
}

/// A client that has been served.
struct Leaves(Arc<AtomicUsize>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(client: &UnixStream, operator: &Operator) -> Answer {
    let mut request = Vec::new();
    let limited = client.set_read_timeout(Some(LIMIT)).and_then(|()| client.set_write_timeout(Some(LIMIT)));
    let read = limited.and_then(|()| client.take(LARGEST).read_to_end(&mut request));
    if let Err(error) = read {
        return Answer::Error(format!("the request cannot be read: {error}"));
    }
    let request: Request = match serde_json::from_slice(&request) {
        Ok(request) => request,
        Err(error) => return Answer::Error(format!("this is no request: {error}")),
    };
    tell_log(|| tracing::info!(?request, "an operator asks"));
    match contain(|| operator.carry_out(&request)) {
        Ok(Ok(answer)) => Answer::Ok(answer),
        Ok(Err(error)) => Answer::Error(error.to_string()),
        Err(panic) => Answer::Error(panic.to_string()),
    }
}

fn answer(mut client: &UnixStream, answer: &Answer) {
    // A client that has gone needs no answer.
    let _ = serde_json::to_vec(answer).map(|bytes| client.write_all(&bytes));
}

/// Asks the program that has the store.
pub(super) fn ask(folder: &Path, request: &Request) -> Result<Value, StoreError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| StoreError::NotStored(format!("{what}: {error}"));
    let path = folder.join(SOCKET);
    let mut program = UnixStream::connect(&path).map_err(|error| failed("its program does not answer", &error))?;
    let bytes = serde_json::to_vec(request).map_err(|error| failed("the request cannot be written", &error))?;
    let mut answer = Vec::new();
    program
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| program.write_all(&bytes))
        .and_then(|()| program.shutdown(Shutdown::Write))
        .and_then(|()| program.read_to_end(&mut answer))
        .map_err(|error| failed("its program does not answer", &error))?;
    match serde_json::from_slice(&answer) {
        Ok(Answer::Ok(answer)) => Ok(answer),
        Ok(Answer::Error(why)) => Err(StoreError::Refused(why)),
        Err(error) => Err(failed("the answer cannot be read", &error)),
    }
}
