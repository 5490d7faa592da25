//! The link between nodes of several programs, over zenoh.
//!
//! Each node has a session of its own, as a peer of the zenoh network. It says with a *liveliness token* that it is
//! there: `procession/alive/CLUSTER/NAME/INCARNATION`. The network removes the token when the session ends or its
//! connection breaks. Frames for a node are published under `procession/to/CLUSTER/NAME/FROM`, which the node has
//! subscribed to. So nodes of different clusters see each other's tokens, and get no frames of each other.
//!
//! zenoh may drop what it cannot send for a while, and does not say so. The connection above finds that.

use serde_json::json;
use zenoh::bytes::ZBytes;
use zenoh::qos::CongestionControl;
use zenoh::sample::{Locality, Sample, SampleKind};
use zenoh::{Config, Session, Wait};

use super::link::{CLOSE, Link, LinkError, Upward, note_call};
use super::peer::LONGEST_FRAME;
use super::security::Endpoints;
use crate::outcome::{BoxError, tell_log};
use crate::primitives::{Arc, OnceLock, Weak};
use crate::threads;

/// How long a frame may block before zenoh closes the connection, in microseconds.
const LONGEST_SEND: u64 = 500_000;

/// The longest message that zenoh puts together from its own fragments: a frame, with its key. It drops longer ones.
const LONGEST_MESSAGE: usize = LONGEST_FRAME + (4 << 10);

/// The link of one node over zenoh.
pub(crate) struct ZenohLink {
    cluster: Arc<str>,
    name: Arc<str>,
    incarnation: u64,
    endpoints: Endpoints,
    session: OnceLock<Session>,
}

impl ZenohLink {
    pub(crate) fn new((cluster, name): (&str, &str), incarnation: u64, endpoints: Endpoints) -> ZenohLink {
        ZenohLink { cluster: cluster.into(), name: name.into(), incarnation, endpoints, session: OnceLock::new() }
    }

    pub(super) fn config(&self) -> Result<Config, BoxError> {
        let mut config = Config::default();
        let Endpoints { listen, join, .. } = &self.endpoints;
        let settings = [
            ("mode", json!("peer")),
            ("listen/endpoints", json!(listen)),
            ("connect/endpoints", json!(join)),
            // Nodes that are not there yet are looked for again and again, in the background.
            ("connect/exit_on_failure", json!(false)),
            ("connect/timeout_ms", json!(-1)),
            ("connect/retry", json!({ "period_init_ms": 100, "period_max_ms": 1_000, "period_increase_factor": 2 })),
            ("scouting/multicast/enabled", json!(false)),
            ("transport/link/tx/queue/congestion_control/block/wait_before_close", json!(LONGEST_SEND)),
            // By default, a program could make it take 1 GiB.
            ("transport/link/rx/max_message_size", json!(LONGEST_MESSAGE)),
        ];
        for (key, value) in settings {
            config.insert_json5(key, &value.to_string())?;
        }
        if let Some(certificates) = self.endpoints.certificates() {
            for file in certificates.files() {
                // The error of the engine does not name the file.
                std::fs::File::open(file).map_err(|error| format!("{}: {error}", file.display()))?;
            }
            config.insert_json5("transport/link/tls", &certificates.transport().to_string())?;
            config.insert_json5("access_control", &certificates.access_control().to_string())?;
        }
        Ok(config)
    }

    fn begin(&self, upward: Weak<dyn Upward>) -> Result<Session, BoxError> {
        let session = zenoh::open(self.config()?).wait()?;
        let receiver = upward.clone();
        let frame = move |sample: Sample| {
            if let (Some(receiver), Some(from)) = (receiver.upgrade(), sample.key_expr().as_str().rsplit('/').next()) {
                receiver.frame(from, sample.payload().to_bytes().into_owned());
            }
        };
        let frames =
            session.declare_subscriber(format!("procession/to/{}/{}/*", self.cluster, self.name)).callback(frame);
        frames.allowed_origin(Locality::Remote).background().wait()?;
        let here = self.cluster.clone();
        let alive = move |sample: Sample| {
            if let (Some(upward), Some((cluster, name, incarnation))) =
                (upward.upgrade(), read_alive(sample.key_expr().as_str()))
            {
                match sample.kind() {
                    SampleKind::Put if *cluster != *here => upward.foreign(cluster, name),
                    SampleKind::Put => upward.seen(name, incarnation),
                    SampleKind::Delete if *cluster != *here => {}
                    SampleKind::Delete => upward.gone(name, incarnation),
                }
            }
        };
        let liveliness = session.liveliness();
        liveliness.declare_subscriber("procession/alive/*/*/*").history(true).callback(alive).background().wait()?;
        let token = format!("procession/alive/{}/{}/{:016x}", self.cluster, self.name, self.incarnation);
        // It lasts until the session is closed.
        std::mem::forget(liveliness.declare_token(token).wait()?);
        Ok(session)
    }
}

/// Reads the key of a token.
fn read_alive(key: &str) -> Option<(&str, &str, u64)> {
    let (cluster, rest) = key.strip_prefix("procession/alive/")?.split_once('/')?;
    let (name, incarnation) = rest.split_once('/')?;
    Some((cluster, name, u64::from_str_radix(incarnation, 16).ok()?))
}

impl Link for ZenohLink {
    fn open(&self, upward: Arc<dyn Upward>) -> Result<(), LinkError> {
        note_call();
        // On a thread of its own, because zenoh refuses to wait on a thread of some async runtimes.
        let upward = Arc::downgrade(&upward);
        let session = std::thread::scope(|scope| {
            // It ends before this call returns, so it is no thread of the runtime.
            let begun = std::thread::Builder::new()
                .name(format!("procession-open-{}", self.name))
                .spawn_scoped(scope, || self.begin(upward))?;
            begun.join().unwrap_or_else(|_| Err("the engine panicked".into()))
        })?;
        let _ = self.session.set(session);
        Ok(())
    }

    fn send(&self, to: &str, frame: &[u8]) {
        note_call();
        let Some(session) = self.session.get() else { return };
        let put = session.put(format!("procession/to/{}/{to}/{}", self.cluster, self.name), ZBytes::from(frame));
        // The frames are batches already.
        if let Err(error) = put.congestion_control(CongestionControl::Block).express(true).wait() {
            tell_log(|| tracing::debug!(to, %error, "a frame was not sent"));
        }
    }

    fn close(&self) {
        note_call();
        let Some(session) = self.session.get().cloned() else { return };
        let closed = threads::on_helper_thread("procession-close", move || {
            if let Err(error) = session.close().wait() {
                tell_log(|| tracing::debug!(%error, "the session was not closed in order"));
            }
        });
        closed.wait_timeout(CLOSE);
    }
}
