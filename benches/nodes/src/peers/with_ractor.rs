//! ractor with ractor_cluster, over TCP: two actors on one node, which their groups name, and tasks on the other node
//! that cast and call.
//!
//! A frame of ractor_cluster has at most 16 MiB, if nothing else is set. Here it may have 32 MiB.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, pg};
use ractor_cluster::{IncomingEncryptionMode, NodeServer, NodeServerMessage, RactorClusterMessage};
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::load::{
    Arrived, BATCH, Counts, ECHO, IN_FLIGHT, LARGE, LARGE_MESSAGES, LIMIT, Measured, OPEN, Outcome, RECEIVER,
    check_answer, large_text, text,
};
use crate::peers::tasks::{Watch, runtime};
use crate::peers::until_the_end;

const FRAME: u64 = 32 << 20;

#[derive(RactorClusterMessage)]
enum Message {
    Item(u64, String),
    /// Answered with the fields of `Arrived`.
    #[rpc]
    Count(RpcReplyPort<Vec<u64>>),
    #[rpc]
    Echo(u64, RpcReplyPort<u64>),
    /// Answered with the length of the text.
    #[rpc]
    Large(String, RpcReplyPort<u64>),
}

struct Receiver;

impl Actor for Receiver {
    type Msg = Message;
    type State = Arrived;
    type Arguments = &'static str;

    async fn pre_start(&self, myself: ActorRef<Message>, group: &'static str) -> Result<Arrived, ActorProcessingErr> {
        pg::join(group.to_string(), vec![myself.get_cell()]);
        Ok(Arrived::default())
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut Arrived,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Item(number, text) => state.message(number, &text),
            Message::Count(reply) => reply.send(vec![state.messages, state.out_of_order])?,
            Message::Echo(number, reply) => reply.send(number + 1)?,
            Message::Large(text, reply) => reply.send(text.len() as u64)?,
        }
        Ok(())
    }
}

async fn node(name: &str, port: u16) -> Outcome<ActorRef<NodeServerMessage>> {
    let server = NodeServer::new(
        port,
        String::from("nodes"),
        name.to_string(),
        String::from("127.0.0.1"),
        Some(IncomingEncryptionMode::Raw),
        None,
    );
    let server = server.with_listen_addr([127, 0, 0, 1].into()).with_max_inbound_frame_size(FRAME);
    Ok(Actor::spawn(None, server, ()).await?.0)
}

/// The node that is asked.
pub(crate) fn serve(port: u16) -> Outcome<()> {
    let runtime = runtime()?;
    runtime.block_on(async {
        node("b", port).await?;
        for group in [RECEIVER, ECHO] {
            Actor::spawn(None, Receiver, group).await?;
        }
        Outcome::Ok(())
    })?;
    until_the_end(&format!("127.0.0.1:{port}"))
}

/// The node that sends and asks.
pub(crate) fn measure(address: &str, counts: Counts) -> Outcome<Measured> {
    runtime()?.block_on(async {
        // A task of its own, as every other one that sends.
        tokio::spawn(all(address.to_string(), counts)).await?
    })
}

async fn all(address: String, counts: Counts) -> Outcome<Measured> {
    let server = node("a", 0).await?;
    ractor_cluster::client_connect(&server, address).await?;
    let (receiver, echo) = (find(RECEIVER).await?, find(ECHO).await?);
    let mut measured = Measured::default();

    asks(&echo, counts.asks / 10).await?;
    measured.asked(asks(&echo, counts.asks).await?);

    let begun = Instant::now();
    pipelined(&echo, counts.pipelined).await?;
    measured.in_flight(counts.pipelined, begun.elapsed());

    let begun = Instant::now();
    let arrived = send(&receiver, counts.messages).await?;
    measured.one_way(counts.messages, arrived, begun.elapsed());

    if counts.large > 0 {
        let begun = Instant::now();
        let large = tokio::spawn(larges(receiver, counts.large));
        let times = asks_until(&echo, &large).await?;
        large.await??;
        measured.beside(times, begun.elapsed(), counts.large);
    }
    Ok(measured)
}

/// Looks for the actor of the other node until it is known here.
async fn find(group: &str) -> Outcome<ActorRef<Message>> {
    let (begun, mut ticks) = (Instant::now(), interval(Duration::from_millis(10)));
    loop {
        if let Some(member) = pg::get_members(&group.to_string()).pop() {
            return Ok(member.into());
        }
        if begun.elapsed() > LIMIT {
            return Err(format!("no member of {group} was found").into());
        }
        ticks.tick().await;
    }
}

fn answer<T>(result: CallResult<T>) -> Outcome<T> {
    match result {
        CallResult::Success(answer) => Ok(answer),
        CallResult::Timeout => Err("a question was not answered in time".into()),
        CallResult::SenderError => Err("a question was dropped".into()),
    }
}

async fn ask(to: &ActorRef<Message>, number: u64) -> Outcome<()> {
    check_answer(number, answer(to.call(|reply| Message::Echo(number, reply), Some(LIMIT)).await?)?)
}

async fn count(to: ActorRef<Message>) -> Outcome<Vec<u64>> {
    answer(to.call(Message::Count, Some(LIMIT)).await?)
}

async fn asks(to: &ActorRef<Message>, questions: u64) -> Outcome<Vec<Duration>> {
    let mut watch = Watch::default();
    for number in 0..questions {
        watch.begin();
        ask(to, number).await?;
        watch.end();
    }
    Ok(watch.times)
}

async fn asks_until<T>(to: &ActorRef<Message>, end: &JoinHandle<T>) -> Outcome<Vec<Duration>> {
    let mut watch = Watch::default();
    while !end.is_finished() {
        watch.begin();
        ask(to, 0).await?;
        watch.end();
    }
    Ok(watch.times)
}

/// As many tasks as questions are in flight, each with its share.
async fn pipelined(to: &ActorRef<Message>, questions: u64) -> Outcome<()> {
    let tasks: Vec<_> = (0..IN_FLIGHT as u64)
        .map(|task| {
            let to = to.clone();
            tokio::spawn(async move {
                for number in (task..questions).step_by(IN_FLIGHT) {
                    ask(&to, number).await?;
                }
                Outcome::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn send(to: &ActorRef<Message>, messages: u64) -> Outcome<Arrived> {
    let mut open: VecDeque<JoinHandle<Outcome<Vec<u64>>>> = VecDeque::new();
    for number in 0..messages {
        to.cast(Message::Item(number, text()))?;
        if (number + 1) % BATCH == 0 {
            open.push_back(tokio::spawn(count(to.clone())));
            if open.len() >= OPEN
                && let Some(first) = open.pop_front()
            {
                first.await??;
            }
        }
    }
    for task in open {
        task.await??;
    }
    // Behind all messages.
    let fields = count(to.clone()).await?;
    let [messages, out_of_order] = fields[..] else { return Err("an answer has other fields".into()) };
    Ok(Arrived::told(messages, out_of_order))
}

async fn larges(to: ActorRef<Message>, often: u64) -> Outcome<()> {
    for _ in 0..often * LARGE_MESSAGES {
        let length = answer(to.call(|reply| Message::Large(large_text(), reply), Some(LIMIT)).await?)?;
        check_answer(LARGE as u64, length + 1)?;
    }
    Ok(())
}
