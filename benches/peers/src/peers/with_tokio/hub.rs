//! Tasks that ask servers, on raw tokio: each has one question open at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::ours::shape::{ASKERS, SERVERS, Walk, entries_of, server_of, sum_of_answers};
use crate::peers::{tokio_runtime, tokio_runtime_with_timers};

/// The limit of an answer, in the workload that has one.
const LIMIT: Duration = Duration::from_secs(10);

struct Get {
    key: u64,
    reply: oneshot::Sender<Option<u64>>,
}

type Servers = Arc<[UnboundedSender<Get>]>;

async fn serve(mut inbox: UnboundedReceiver<Get>, entries: HashMap<u64, u64>) {
    while let Some(Get { key, reply }) = inbox.recv().await {
        // The asker may have given up. Then the answer is not needed.
        let _ = reply.send(entries.get(&key).copied());
    }
}

/// Sends a question for the next key.
fn question(servers: &Servers, walk: &mut Walk) -> oneshot::Receiver<Option<u64>> {
    let key = walk.key();
    let (reply, answer) = oneshot::channel();
    // If the server has gone, the reply is dropped, and the asker is told.
    let _ = servers[server_of(key)].send(Get { key, reply });
    answer
}

/// Asks for random keys, one after the other, and adds the values up. A missing value makes the sum wrong.
async fn ask(servers: Servers, mut walk: Walk, asks: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..asks {
        let Ok(Some(value)) = question(&servers, &mut walk).await else { break };
        sum += value;
    }
    sum
}

async fn ask_with_limit(servers: Servers, mut walk: Walk, asks: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..asks {
        let Ok(Ok(Some(value))) = timeout(LIMIT, question(&servers, &mut walk)).await else { break };
        sum += value;
    }
    sum
}

pub(crate) fn hub(setting: &Setting) -> Outcome<Measured> {
    ask_servers(setting, tokio_runtime(setting)?, ask)
}

pub(crate) fn hub_limit(setting: &Setting) -> Outcome<Measured> {
    ask_servers(setting, tokio_runtime_with_timers(setting)?, ask_with_limit)
}

fn ask_servers<A: Future<Output = u64> + Send + 'static>(
    setting: &Setting,
    runtime: tokio::runtime::Runtime,
    ask: impl Fn(Servers, Walk, u64) -> A,
) -> Outcome<Measured> {
    let mut senders = Vec::new();
    for server in 0..SERVERS {
        let (sender, inbox) = unbounded_channel();
        runtime.spawn(serve(inbox, entries_of(server)));
        senders.push(sender);
    }
    let servers: Servers = senders.into();
    let began = Instant::now();
    let mut askers = Vec::new();
    for asker in 0..ASKERS {
        askers.push(runtime.spawn(ask(servers.clone(), Walk::new(asker), setting.share(asker, ASKERS))));
    }
    let mut sums = Vec::new();
    for asker in askers {
        sums.push(runtime.block_on(asker)?);
    }
    let measured = Measured::since(began, setting.n);
    for (asker, sum) in (0..ASKERS).zip(sums) {
        check("sum of the answers", sum, sum_of_answers(asker, setting.share(asker, ASKERS)))?;
    }
    Ok(measured)
}
