//! How PIDs, addresses, tags and replies are written and read.
//!
//! They mean something only in a place: within a store, or between two nodes. So they are written and read only while
//! code of the store or of the connection runs, which says what they mean there. Anywhere else it is an error.
//!
//! One may run within the other: an encoder may send to a durable process. The inner one counts. A connection hides the
//! run of the store in which it runs. So if there is a run, it is within the scope of the connection.

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[cfg(feature = "cluster")]
use crate::cluster;
#[cfg(feature = "durable")]
use crate::durable;
use crate::pid::{Address, Pid};
use crate::process::{Monitor, Reply, Subscription, Tag};

#[cfg(not(feature = "cluster"))]
const OUTSIDE: &str = "PIDs, tags and replies can be stored only within a durable process or a message to one";
#[cfg(feature = "cluster")]
const OUTSIDE: &str =
    "PIDs and replies can be encoded only within a durable process, a message to one, or a message to another node";

impl Serialize for Pid {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[cfg(feature = "durable")]
        if let Some(run) = durable::run() {
            return run.note(*self).serialize(to);
        }
        #[cfg(feature = "cluster")]
        if let Some(scope) = cluster::scope::here() {
            return scope.write(*self, to);
        }
        Err(S::Error::custom(OUTSIDE))
    }
}

impl<'a> Deserialize<'a> for Pid {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Pid, D::Error> {
        #[cfg(feature = "durable")]
        if let Some(run) = durable::run() {
            let noted = Deserialize::deserialize(from)?;
            return run.read(noted).ok_or_else(|| D::Error::custom("a stored PID is zero"));
        }
        #[cfg(feature = "cluster")]
        if let Some(scope) = cluster::scope::here() {
            return scope.read(from);
        }
        let _ = from;
        Err(D::Error::custom(OUTSIDE))
    }
}

impl Serialize for Monitor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.id(), self.pid()).serialize(to)
    }
}

impl<'a> Deserialize<'a> for Monitor {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Monitor, D::Error> {
        let (id, pid) = Deserialize::deserialize(from)?;
        Ok(Monitor::new(id, pid))
    }
}

impl Serialize for Subscription {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.id(), self.group()).serialize(to)
    }
}

impl<'a> Deserialize<'a> for Subscription {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Subscription, D::Error> {
        let (id, group): (u64, String) = Deserialize::deserialize(from)?;
        Ok(Subscription::new(id, group.into()))
    }
}

impl<M> Serialize for Address<M> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.pid().serialize(to)
    }
}

impl<'a, M> Deserialize<'a> for Address<M> {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Address<M>, D::Error> {
        Ok(Pid::deserialize(from)?.typed())
    }
}

impl<T> Serialize for Tag<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.id().serialize(to)
    }
}

impl<'a, T> Deserialize<'a> for Tag<T> {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Tag<T>, D::Error> {
        Ok(Tag::new(u64::deserialize(from)?))
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Serialize for Reply<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[cfg(feature = "durable")]
        if let Some(run) = durable::run() {
            return run.write_reply(self, to);
        }
        #[cfg(feature = "cluster")]
        if let Some(scope) = cluster::scope::here() {
            return scope.export(self, to);
        }
        let _ = to;
        Err(S::Error::custom(OUTSIDE))
    }
}

impl<'a, T: Serialize + DeserializeOwned + Send + 'static> Deserialize<'a> for Reply<T> {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Reply<T>, D::Error> {
        #[cfg(feature = "durable")]
        if let Some(run) = durable::run() {
            return run.read_reply(from);
        }
        #[cfg(feature = "cluster")]
        if let Some(scope) = cluster::scope::here() {
            return scope.import(from);
        }
        let _ = from;
        Err(D::Error::custom(OUTSIDE))
    }
}
