//! kameo with remote actors, over the TCP of libp2p: two actors on one node, which are registered by name, and tasks
//! on the other node that tell and ask.
//!
//! A message is a request of libp2p, of which 100 may be open. Those beyond are dropped, and the sender is not told.
//! So a sender tells 64 at a time, and asks how many have arrived before it goes on. Its messages have at most 1 MiB,
//! if nothing else is set, and the large ones are left out.

use std::time::{Duration, Instant};

use kameo::prelude::*;
use kameo::remote::{Behaviour, messaging};
use libp2p::futures::StreamExt as _;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, SwarmBuilder, noise, tcp, yamux};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::interval;

use crate::load::{Arrived, Counts, ECHO, IN_FLIGHT, LIMIT, Measured, Outcome, RECEIVER, check_answer, text};
use crate::peers::tasks::{Watch, runtime};
use crate::peers::until_the_end;

#[derive(Actor, RemoteActor, Default)]
struct Receiver(Arrived);

#[derive(Serialize, Deserialize)]
enum Notice {
    Item(u64, String),
}

#[derive(Serialize, Deserialize)]
struct Count;

#[derive(Serialize, Deserialize)]
struct Echo(u64);

#[derive(Serialize, Deserialize, Reply)]
struct Counted(Arrived);

#[remote_message]
impl Message<Notice> for Receiver {
    type Reply = ();

    async fn handle(&mut self, Notice::Item(number, text): Notice, _: &mut Context<Self, ()>) {
        self.0.message(number, &text);
    }
}

#[remote_message]
impl Message<Count> for Receiver {
    type Reply = Counted;

    async fn handle(&mut self, _: Count, _: &mut Context<Self, Counted>) -> Counted {
        Counted(self.0)
    }
}

#[remote_message]
impl Message<Echo> for Receiver {
    type Reply = u64;

    async fn handle(&mut self, Echo(number): Echo, _: &mut Context<Self, u64>) -> u64 {
        number + 1
    }
}

/// Starts the node, and returns its address when it listens. If there is another one, it connects to it.
async fn node(port: u16, other: Option<Multiaddr>) -> Outcome<Multiaddr> {
    let mut swarm = SwarmBuilder::with_new_identity()
        .with_tokio()
        .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, yamux::Config::default)?
        .with_behaviour(|key| Behaviour::new(key.public().to_peer_id(), messaging::Config::default()))?
        .with_swarm_config(|config| config.with_idle_connection_timeout(LIMIT * 10))
        .build();
    swarm.behaviour().try_init_global()?;
    swarm.listen_on(format!("/ip4/127.0.0.1/tcp/{port}").parse()?)?;
    let own = *swarm.local_peer_id();
    if let Some(other) = other.clone() {
        // The registry asks those whose addresses it knows.
        if let Some(Protocol::P2p(peer)) = other.iter().last() {
            swarm.add_peer_address(peer, other.clone());
        }
        swarm.dial(other)?;
    }
    let (tell, told) = oneshot::channel();
    tokio::spawn(async move {
        let mut tell = Some(tell);
        let (mut listens, mut is_connected) = (None, other.is_none());
        loop {
            match swarm.select_next_some().await {
                SwarmEvent::NewListenAddr { address, .. } => listens = Some(address),
                SwarmEvent::ConnectionEstablished { .. } => is_connected = true,
                _ => {}
            }
            if is_connected
                && let Some(address) = &listens
                && let Some(tell) = tell.take()
            {
                let _ = tell.send(address.clone());
            }
        }
    });
    let address = tokio::time::timeout(LIMIT, told).await??;
    address.with_p2p(own).map_err(|address| format!("{address} has no peer").into())
}

/// The node that is asked.
pub(crate) fn serve(port: u16) -> Outcome<()> {
    let runtime = runtime()?;
    let (address, _actors) = runtime.block_on(async {
        let address = node(port, None).await?;
        let mut actors = Vec::new();
        for name in [RECEIVER, ECHO] {
            let actor = Receiver::spawn_with_mailbox(Receiver::default(), mailbox::unbounded());
            actor.register(name).await?;
            actors.push(actor);
        }
        Outcome::Ok((address, actors))
    })?;
    until_the_end(&address.to_string())
}

/// The node that sends and asks.
pub(crate) fn measure(address: &str, counts: Counts) -> Outcome<Measured> {
    let address = address.parse()?;
    runtime()?.block_on(async { tokio::spawn(all(address, counts)).await? })
}

async fn all(address: Multiaddr, counts: Counts) -> Outcome<Measured> {
    node(0, Some(address)).await?;
    let (receiver, echo) = (find(RECEIVER).await?, find(ECHO).await?);
    let mut measured = Measured::default();

    asks(&echo, counts.asks / 10).await?;
    measured.asked(asks(&echo, counts.asks).await?);

    let begun = Instant::now();
    pipelined(&echo, counts.pipelined).await?;
    measured.in_flight(counts.pipelined, begun.elapsed());

    let begun = Instant::now();
    let (arrived, wasted) = send(&receiver, counts.messages).await?;
    measured.one_way(counts.messages, arrived, begun.elapsed().saturating_sub(wasted));
    Ok(measured)
}

/// Looks for the actor of the other node until it is known here.
async fn find(name: &'static str) -> Outcome<RemoteActorRef<Receiver>> {
    let (begun, mut ticks) = (Instant::now(), interval(Duration::from_millis(50)));
    loop {
        if let Ok(Some(actor)) = RemoteActorRef::lookup(name).await {
            return Ok(actor);
        }
        if begun.elapsed() > LIMIT {
            return Err(format!("{name} was not found").into());
        }
        ticks.tick().await;
    }
}

async fn ask(to: &RemoteActorRef<Receiver>, number: u64) -> Outcome<()> {
    check_answer(number, to.ask(&Echo(number)).await?)
}

async fn asks(to: &RemoteActorRef<Receiver>, questions: u64) -> Outcome<Vec<Duration>> {
    let mut watch = Watch::default();
    for number in 0..questions {
        watch.begin();
        ask(to, number).await?;
        watch.end();
    }
    Ok(watch.times)
}

/// As many tasks as questions are in flight, each with its share.
async fn pipelined(to: &RemoteActorRef<Receiver>, questions: u64) -> Outcome<()> {
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

/// Tells messages. Returns the time in which it has waited for those that were lost, too.
async fn send(to: &RemoteActorRef<Receiver>, messages: u64) -> Outcome<(Arrived, Duration)> {
    let mut arrived = Arrived::default();
    for number in 0..messages {
        to.tell(&Notice::Item(number, text())).send()?;
        if (number + 1) % IN_FLIGHT as u64 == 0 {
            arrived = to.ask(&Count).await?.0;
        }
    }
    // A request may overtake others. So the last ones are waited for as long as they come.
    let (mut last, mut seen) = (Instant::now(), arrived.messages);
    while arrived.messages < messages && last.elapsed() < PATIENCE {
        arrived = to.ask(&Count).await?.0;
        if arrived.messages != seen {
            (last, seen) = (Instant::now(), arrived.messages);
        }
    }
    Ok((arrived, if arrived.messages < messages { last.elapsed() } else { Duration::ZERO }))
}

/// How long messages that may be lost are waited for.
const PATIENCE: Duration = Duration::from_secs(1);
