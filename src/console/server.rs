//! The threads of a console: one that waits for clients, and one for each client.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::clients::Clients;
use super::lines::{Lines, NoLine};
use super::request::{self, Refused, Request};
use super::session::{Running, Session};
use super::socket::{Listener, Place, Stream, is_same_token, write};
use super::tree::{Questions, tree};
use super::views;
use super::waiting::from_now;
use crate::cancel::CancelCallback;
use crate::clock::Clock;
#[cfg(feature = "cluster")]
use crate::cluster::Cluster;
#[cfg(feature = "durable")]
use crate::durable::{Query, Store};
use crate::latch::Latch;
use crate::outcome::{contain, tell_log};
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicU64, Mutex, Ordering};
use crate::runtime::{Runtime, WeakRuntime};
use crate::shutdown::{ClosedFuture, JobGuard};
use crate::threads;

/// The version of the protocol.
const VERSION: u64 = 1;

/// The pause after an error of the listener.
const PAUSE: Duration = Duration::from_millis(100);

/// How often the events of a trace are taken.
const PUMP: Duration = Duration::from_millis(50);

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// For its hello.
    pub(super) hello: Duration,
    /// To read on, while there is something to read.
    pub(super) read: Duration,
    /// After a client has said something, if another one wants its place.
    pub(super) idle: Duration,
}

/// The things that a program lets clients see and do.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) name: String,
    /// Differs with each run of the program.
    pub(super) started: String,
    pub(super) actions: bool,
    /// Clients must have it.
    pub(super) token: Option<String>,
    pub(super) limits: Limits,
    #[cfg(feature = "durable")]
    pub(super) store: Option<Store>,
    #[cfg(feature = "cluster")]
    pub(super) cluster: Option<Cluster>,
}

/// A console that is being served.
pub(super) struct Server {
    pub(super) shown: Shown,
    pub(super) runtime: WeakRuntime,
    pub(super) place: Place,
    /// Says that the console has ended.
    pub(super) guard: JobGuard,
    /// Kept, so that their callbacks are: the runtime has ended, and the node was asked to shut down.
    pub(super) kept: Mutex<Option<(ClosedFuture, CancelCallback)>>,
    /// Set when the console ends.
    over: Latch<()>,
    pub(super) clients: Clients,
    next: AtomicU64,
    questions: Questions,
}

impl Server {
    pub(super) fn new(shown: Shown, runtime: WeakRuntime, place: Place, guard: JobGuard) -> Arc<Server> {
        let (kept, over, clients, next) = (Mutex::default(), Latch::new(), Clients::default(), AtomicU64::new(1));
        let questions = Questions::default();
        Arc::new(Server { shown, runtime, place, guard, kept, over, clients, next, questions })
    }

    /// Ends the console. Clients are disconnected. A second call does nothing.
    pub(super) fn end(&self) {
        if self.over.set(()).is_err() {
            return;
        }
        self.place.close();
        self.clients.close();
        self.guard.done();
    }

    /// Waits for clients until the console ends.
    pub(super) fn accept(self: &Arc<Self>, listener: &Listener) {
        // Without descriptors, one error follows the other. The first one is logged.
        let mut has_failed = false;
        loop {
            let client = listener.accept();
            if self.over.is_set() {
                return;
            }
            match client {
                Ok(client) => {
                    has_failed = false;
                    self.begin(client);
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        tell_log(|| tracing::warn!(%error, "a client of the console was not accepted"));
                    }
                    _ = self.over.wait_timeout(PAUSE);
                }
            }
        }
    }

    /// Serves a client on a thread of its own.
    fn begin(self: &Arc<Self>, client: Stream) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let prepared = client.set_write_timeout(Some(self.shown.limits.read)).and_then(|()| client.try_clone());
        let Ok(kept) = prepared else { return };
        if !self.clients.enter(number, kept) {
            let busy = Refused::new("busy", "too many clients come at once: try again later");
            // There is room for a line in the socket, so this does not wait.
            _ = write(&client, &json!({ "error": busy.as_json() }));
            return;
        }
        if self.over.is_set() {
            // It has come in between.
            client.close();
        }
        let leaves = Leaves(self.clone(), number);
        let served = threads::start(format!("procession-console-{number}"), move || {
            let Leaves(server, number) = &leaves;
            server.serve(&client, *number);
            client.close();
        });
        if let Err(error) = served {
            tell_log(|| tracing::warn!(%error, "there is no thread for a client of the console"));
        }
    }

    /// Answers a client until it goes.
    fn serve(&self, client: &Stream, number: u64) {
        let refused = self.serve_until(client, number).err();
        // A client whose place another one has got finds its reading ended.
        if let Some(refused) = self.clients.why_it_leaves(number).or(refused) {
            _ = write(client, &json!({ "error": refused.as_json() }));
        }
    }

    /// Answers a client until it goes, or until it is refused.
    fn serve_until(&self, client: &Stream, number: u64) -> Result<(), Refused> {
        let (mut lines, clock, limits) = (Lines::of(client), Clock::system(), self.shown.limits);
        let hello = match lines.next(Some(limits.hello)) {
            Ok(line) => self.hello(&line)?,
            Err(NoLine::Gone) => return Ok(()),
            Err(NoLine::Late) => return Err(Refused::new("hello", "the first line, a hello, did not come in time")),
            Err(NoLine::TooLong) => return Err(too_long()),
        };
        self.clients.admit(number, clock.now(), limits.idle)?;
        if !write(client, &hello) {
            return Ok(());
        }
        let mut session = Session { client, number, trace: None };
        loop {
            // The events of a trace are taken in between.
            let pause = session.trace.as_ref().map(|_| PUMP);
            let goes_on = match lines.next(pause) {
                Ok(line) => {
                    self.clients.works(number)?;
                    line.iter().all(u8::is_ascii_whitespace) || self.answer(&line, &mut session)
                }
                Err(NoLine::Late) => true,
                Err(NoLine::TooLong) => return Err(too_long()),
                Err(NoLine::Gone) => return Ok(()),
            };
            if !goes_on || !session.pump() {
                return Ok(());
            }
            // The client of a trace says nothing, and gets something.
            if session.trace.is_none() {
                self.clients.rests(number, clock.now())?;
            }
        }
    }

    /// Checks a hello, and answers it.
    fn hello(&self, line: &[u8]) -> Result<Value, Refused> {
        let Shown { name, started, actions, token, .. } = &self.shown;
        let hello = request::object(line)?;
        if hello.get("hello").and_then(Value::as_u64).is_none_or(|version| version == 0) {
            return Err(Refused::new("hello", "the first line is a hello with a version: {\"hello\":1}"));
        }
        if let Some(token) = token
            && !hello.get("token").and_then(Value::as_str).is_some_and(|given| is_same_token(token, given.trim()))
        {
            return Err(Refused::new("token", "the hello must have the token, which is in a file of the program"));
        }
        let has_types = self.runtime.upgrade().is_some_and(|runtime| runtime.core().road.directory.is_some());
        Ok(json!({
            "hello": VERSION,
            "program": name,
            "version": env!("CARGO_PKG_VERSION"),
            "process_id": std::process::id(),
            "started": started,
            "actions": actions,
            "metrics": has_types,
        }))
    }

    /// Answers a line. Returns whether the client may get more.
    fn answer(&self, line: &[u8], session: &mut Session<'_>) -> bool {
        let object = match request::object(line) {
            Ok(object) => object,
            Err(refused) => return session.answer(None, json!({ "error": refused.as_json() })),
        };
        let (id, result) = match request::id(&object) {
            Ok(id) => (id, self.result(&object, session)),
            Err(refused) => (None, Err(refused)),
        };
        match result {
            Ok((name, result)) => session.answer(id, json!({ name: result })),
            Err(refused) => session.answer(id, json!({ "error": refused.as_json() })),
        }
    }

    fn result(&self, object: &Map<String, Value>, session: &mut Session<'_>) -> Result<(String, Value), Refused> {
        let (name, request) = request::request(object)?;
        if matches!(request, Request::Trace { .. }) && !session.end_trace() {
            return Err(Refused::new("no_answer", "the client reads nothing"));
        }
        // Names of types are code of users.
        let result = contain(|| self.carry_out(&request, session));
        let result = result.unwrap_or_else(|panic| Err(Refused::new("no_answer", format!("a panic: {panic}"))));
        Ok((name, result?))
    }

    /// A handle of the runtime. While it is there, a drop of the program's last handle does not end the runtime.
    fn runtime(&self) -> Result<Runtime, Refused> {
        self.runtime.upgrade().ok_or_else(|| Refused::new("no_answer", "the runtime has ended"))
    }

    fn carry_out(&self, request: &Request, session: &mut Session<'_>) -> Result<Value, Refused> {
        let client = session.number;
        match request {
            // The first two wait. A handle of the runtime would keep it alive in the meantime.
            Request::Tree => tree(&self.runtime, &self.questions),
            Request::Describe(pid) => {
                let question = self.runtime()?.describe(*pid, Duration::MAX);
                views::describe(*pid, question)
            }
            Request::Overview => {
                let runtime = self.runtime()?;
                let mut overview = views::overview(&runtime, &runtime.snapshot())?;
                if let Ok(nodes) = self.nodes() {
                    overview["node"] = json!({ "name": nodes["name"], "peers": nodes["up"] });
                }
                if let Ok(count) = self.parked_count() {
                    overview["store"] = json!({ "parked": count });
                }
                Ok(overview)
            }
            Request::Snapshot => views::as_json(&self.snapshot(&self.runtime()?)),
            Request::Types => Ok(json!({ "types": views::as_json(&self.runtime()?.snapshot().types)? })),
            Request::Top { by, limit, filter } => {
                let (of, processes) = self.runtime()?.core().top(*by, *limit, filter);
                Ok(json!({ "of": of, "processes": processes.iter().map(views::process).collect::<Vec<_>>() }))
            }
            Request::Process(pid) => {
                let runtime = self.runtime()?;
                let info = runtime.process(*pid).ok_or_else(|| not_found(*pid))?;
                let mut process = views::process(&info);
                process["names"] = json!(info.names.iter().map(|name| &**name).collect::<Vec<&str>>());
                let (monitors, links) = runtime.core().related(*pid);
                (process["monitors"], process["links"]) = (json!(monitors), json!(links));
                Ok(process)
            }
            Request::Waits => Ok(views::waits(&self.runtime()?)),
            Request::Stuck => Ok(json!({ "stuck": views::as_json(&self.runtime()?.snapshot().stuck)? })),
            Request::Nodes => self.nodes(),
            Request::Parked => self.parked(),
            Request::Trace { pid, limit } => {
                let trace = self.runtime()?.trace(*pid, *limit).map_err(|_| not_found(*pid))?;
                session.trace = Some(Running::new(trace, from_now(*limit)));
                Ok(json!({ "for": limit.as_secs() }))
            }
            Request::Cancel(pid) => {
                let runtime = self.runtime()?;
                self.act(client, "cancel", *pid, || runtime.cancel(*pid, "asked for on a console"))
            }
            Request::Terminate(pid) => {
                let runtime = self.runtime()?;
                self.act(client, "terminate", *pid, || runtime.terminate(*pid))
            }
        }
    }

    /// Carries out an action, if actions are allowed, and logs it.
    fn act<E: std::fmt::Display>(
        &self,
        client: u64,
        action: &str,
        pid: Pid,
        act: impl FnOnce() -> Result<bool, E>,
    ) -> Result<Value, Refused> {
        if !self.shown.actions {
            tell_log(|| tracing::warn!(client, action, %pid, "a client of the console may not do this"));
            let text = format!("this program allows no actions on its console, and so no {action:?}");
            return Err(Refused::new("not_allowed", text));
        }
        let done = act().map_err(|error| Refused::new("not_found", error.to_string()));
        let outcome = match &done {
            Ok(true) => "done",
            Ok(false) => "it has ended",
            Err(_) => "there is no such process",
        };
        tell_log(|| tracing::info!(client, action, %pid, outcome, "a client of the console acts"));
        Ok(json!({ "done": done? }))
    }

    /// The figures of the runtime, the store and the node.
    fn snapshot(&self, runtime: &Runtime) -> crate::runtime::Snapshot {
        let snapshot = runtime.snapshot();
        #[cfg(feature = "cluster")]
        let snapshot = match &self.shown.cluster {
            Some(cluster) => snapshot.with_cluster(cluster.stats()),
            None => snapshot,
        };
        #[cfg(feature = "durable")]
        let snapshot = match &self.shown.store {
            Some(store) => snapshot.with_store(store.stats()),
            None => snapshot,
        };
        snapshot
    }

    #[cfg(feature = "cluster")]
    fn nodes(&self) -> Result<Value, Refused> {
        let cluster = self.shown.cluster.as_ref().ok_or_else(no_node)?;
        let stats = cluster.stats();
        let peer = |peer: &crate::runtime::PeerStats| {
            let state = if peer.is_up { "up" } else { "down" };
            let mut shown = json!({ "state": state });
            if let (Value::Object(shown), Ok(Value::Object(stats))) = (&mut shown, serde_json::to_value(peer)) {
                shown.extend(stats);
            }
            shown
        };
        Ok(json!({
            "name": cluster.here().name(),
            "up": stats.peers.iter().filter(|peer| peer.is_up).count(),
            "held_processes": stats.held_processes,
            "waiting_sends": stats.waiting_sends,
            "peers": stats.peers.iter().map(peer).collect::<Vec<_>>(),
        }))
    }

    #[cfg(not(feature = "cluster"))]
    fn nodes(&self) -> Result<Value, Refused> {
        Err(no_node())
    }

    #[cfg(feature = "durable")]
    fn parked_count(&self) -> Result<u64, Refused> {
        let store = self.shown.store.as_ref().ok_or_else(no_store)?;
        store.count(&Query::all().parked()).map_err(|error| Refused::new("no_answer", error.to_string()))
    }

    #[cfg(not(feature = "durable"))]
    fn parked_count(&self) -> Result<u64, Refused> {
        Err(no_store())
    }

    #[cfg(feature = "durable")]
    fn parked(&self) -> Result<Value, Refused> {
        let store = self.shown.store.as_ref().ok_or_else(no_store)?;
        let listed = store.list(&Query::all().parked().limit(request::MOST));
        let listed = listed.map_err(|error| Refused::new("no_answer", error.to_string()))?;
        let parked = listed.iter().map(|one| {
            json!({
                "pid": one.pid.to_string(),
                "key": one.id,
                "kind": one.kind,
                "reason": one.error,
                "attempts": one.attempts,
            })
        });
        Ok(json!({ "of": self.parked_count()?, "parked": parked.collect::<Vec<_>>() }))
    }

    #[cfg(not(feature = "durable"))]
    fn parked(&self) -> Result<Value, Refused> {
        Err(no_store())
    }
}

/// A client that leaves when this is dropped.
struct Leaves(Arc<Server>, u64);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.clients.remove(self.1);
    }
}

fn too_long() -> Refused {
    Refused::new("too_long", format!("a line has at most {} bytes", super::lines::LONGEST))
}

fn not_found(pid: Pid) -> Refused {
    Refused::new("not_found", format!("there is no process {pid}, or it has ended"))
}

fn no_node() -> Refused {
    Refused::new("not_here", "this console was given no node of a cluster")
}

fn no_store() -> Refused {
    Refused::new("not_here", "this console was given no store")
}
