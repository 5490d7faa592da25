//! The places of the clients of a console.
//!
//! A client is *new* until it has said hello, *served* then, and *leaving* when another one has got its place. Its own
//! thread tells a client that it leaves, so no two threads write to one client.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::request::Refused;
use super::socket::Stream;
use crate::primitives::{Mutex, lock};

/// The most clients that are served.
pub(super) const SERVED: usize = 8;

/// The most clients that have not said hello. A hello comes at once, so one that is pushed out had time for it.
pub(super) const NEW: usize = 16;

/// The most clients with those that are leaving. They take a moment to leave.
pub(super) const ALL: usize = SERVED + 2 * NEW;

/// The clients by their numbers. Later ones have greater numbers.
#[derive(Default)]
pub(super) struct Clients(Mutex<HashMap<u64, Client>>);

struct Client {
    stream: Stream,
    stage: Stage,
}

enum Stage {
    New,
    /// With the time of its last request, while it has none.
    Served(Option<Instant>),
    Leaving(Refused),
}

impl Client {
    /// Its thread finds no further line, and tells it why it leaves.
    fn dismiss(&mut self, why: Refused) {
        self.stage = Stage::Leaving(why);
        self.stream.close_reading();
    }
}

impl Clients {
    /// Takes a client that has just come. If too many are new, the oldest of them leaves. Returns whether there was a
    /// place.
    pub(super) fn enter(&self, number: u64, stream: Stream) -> bool {
        let clients = &mut *lock(&self.0);
        if clients.len() >= ALL {
            return false;
        }
        let new = clients.iter_mut().filter(|(_, client)| matches!(client.stage, Stage::New));
        let new: Vec<(&u64, &mut Client)> = new.collect();
        if new.len() >= NEW
            && let Some((_, oldest)) = new.into_iter().min_by_key(|(number, _)| **number)
        {
            oldest.dismiss(Refused::new("busy", format!("{NEW} later clients have said no hello, either")));
        }
        clients.insert(number, Client { stream, stage: Stage::New });
        true
    }

    /// A client has said hello. If all places are taken, the one that has said nothing for longest leaves, if that is
    /// at least so long.
    pub(super) fn admit(&self, number: u64, now: Instant, idle: Duration) -> Result<(), Refused> {
        let clients = &mut *lock(&self.0);
        let served = clients.values_mut().filter_map(|client| match client.stage {
            Stage::Served(since) => Some((since, client)),
            Stage::New | Stage::Leaving(_) => None,
        });
        let served: Vec<_> = served.collect();
        if served.len() >= SERVED {
            let idlers = served.into_iter().filter_map(|(since, client)| Some((since?, client)));
            let longest = idlers.min_by_key(|(since, _)| *since);
            match longest.filter(|(since, _)| now.saturating_duration_since(*since) >= idle) {
                Some((_, idler)) => {
                    idler
                        .dismiss(Refused::new("idle", "another client has got the place of this one: it said nothing"));
                }
                None => {
                    let text = format!("the console has {SERVED} clients already: try again later");
                    return Err(Refused::new("busy", text));
                }
            }
        }
        stay(clients, number, Some(now))
    }

    /// A client has said something, and is at work until `rests` is called. Fails if it leaves.
    pub(super) fn works(&self, number: u64) -> Result<(), Refused> {
        stay(&mut lock(&self.0), number, None)
    }

    /// A client has its answer. Fails if it leaves.
    pub(super) fn rests(&self, number: u64, now: Instant) -> Result<(), Refused> {
        stay(&mut lock(&self.0), number, Some(now))
    }

    /// Why a client leaves, if another one has got its place.
    pub(super) fn why_it_leaves(&self, number: u64) -> Option<Refused> {
        match &lock(&self.0).get(&number)?.stage {
            Stage::Leaving(why) => Some(why.clone()),
            Stage::New | Stage::Served(_) => None,
        }
    }

    /// A client has gone.
    pub(super) fn remove(&self, number: u64) {
        lock(&self.0).remove(&number);
    }

    /// Disconnects all.
    pub(super) fn close(&self) {
        lock(&self.0).drain().for_each(|(_, client)| client.stream.close());
    }

    #[cfg(all(test, unix, not(loom)))]
    pub(super) fn count(&self) -> usize {
        lock(&self.0).len()
    }

    /// The number of those that are served and say nothing.
    #[cfg(all(test, unix, not(loom)))]
    pub(super) fn idle(&self) -> usize {
        lock(&self.0).values().filter(|client| matches!(client.stage, Stage::Served(Some(_)))).count()
    }
}

fn stay(clients: &mut HashMap<u64, Client>, number: u64, since: Option<Instant>) -> Result<(), Refused> {
    match clients.get_mut(&number) {
        Some(Client { stage: Stage::Leaving(why), .. }) => Err(why.clone()),
        Some(client) => {
            client.stage = Stage::Served(since);
            Ok(())
        }
        // The console has ended.
        None => Ok(()),
    }
}
