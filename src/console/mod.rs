//! A console: questions about a running program, and their answers, on a socket.
//!
//! Needs the feature `console`. `procession-console`, a program of its own, shows the answers on a terminal. The
//! protocol is lines of JSON, so that `nc` and `jq` suffice, too. `docs/console.md` in the repository has it.
//!
//! ```no_run
//! use procession::Runtime;
//! use procession::console::Console;
//!
//! let runtime = Runtime::builder().start()?;
//! let console = Console::named("shop").serve(&runtime)?;
//! println!("look at it with: procession-console {}", console.place());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Only the owner of the program gets at the socket: its folder has the mode 0700. Clients can look, and nothing else,
//! unless [`actions`](ConsoleBuilder::actions) are allowed. Names of processes and types, and what processes say of
//! themselves, are seen by clients. Messages are not.

mod error;
mod socket;
mod lines;
mod request;
mod clients;
mod waiting;
mod views;
mod tree;
mod session;
mod server;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use rand::TryRng as _;
use rand::rngs::SysRng;

pub use self::error::ConsoleError;
use self::error::failed;
use self::server::{Limits, Server, Shown};
use self::socket::{Place, listen_in, listen_on, usual_folder};
#[cfg(feature = "cluster")]
use crate::cluster::Cluster;
#[cfg(feature = "durable")]
use crate::durable::Store;
use crate::primitives::{Arc, lock};
use crate::runtime::Runtime;
use crate::shutdown::ShutdownNode;
use crate::threads;

/// How long a client has for its hello and to read on, and may say nothing while others want its place.
const LIMITS: Limits =
    Limits { hello: Duration::from_secs(5), read: Duration::from_secs(10), idle: Duration::from_secs(60) };

/// A console that is served. It ends with its runtime, or when its [node](Self::shutdown_node) is shut down, and not
/// when this is dropped.
///
/// It has one thread that waits for clients, and one for each client. At most 8 clients are served. If another one
/// comes, it gets the place of one that has said nothing for a minute. At most 16 more may be about to say hello.
/// Without a client no thread wakes.
#[derive(Clone)]
pub struct Console {
    server: Arc<Server>,
    node: ShutdownNode,
}

/// Options of a console, made by [`Console::named`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `serve` is called"]
pub struct ConsoleBuilder {
    name: String,
    folder: Option<PathBuf>,
    tcp: Option<(SocketAddr, PathBuf)>,
    actions: bool,
    limits: Limits,
    #[cfg(feature = "durable")]
    store: Option<Store>,
    #[cfg(feature = "cluster")]
    cluster: Option<Cluster>,
}

/// Ends a console when its runtime is closed.
struct RuntimeEnd {
    server: Weak<Server>,
    runtime: ShutdownNode,
}

impl Wake for RuntimeEnd {
    fn wake(self: Arc<Self>) {
        if let Some(server) = self.server.upgrade().filter(|_| self.runtime.is_closed()) {
            server.end();
        }
    }
}

impl Console {
    /// Options of a console with this name, which is that of its socket, too. A name has 1 to 64 ASCII letters,
    /// digits, `-`, `_` or `.`, and no dot first.
    pub fn named(name: impl Into<String>) -> ConsoleBuilder {
        ConsoleBuilder {
            name: name.into(),
            folder: None,
            tcp: None,
            actions: false,
            limits: LIMITS,
            #[cfg(feature = "durable")]
            store: None,
            #[cfg(feature = "cluster")]
            cluster: None,
        }
    }

    /// Where it is served: the path of its socket, or its address.
    pub fn place(&self) -> String {
        match &self.server.place {
            #[cfg(unix)]
            Place::Unix { path, .. } => path.display().to_string(),
            Place::Tcp { address, .. } => address.to_string(),
        }
    }

    /// The node of the console in a [shutdown tree](crate::shutdown). Each call returns the same node. A request to it
    /// ends the console. If the console is to be there while a runtime shuts down, leave the node out: it ends with
    /// the runtime in any case.
    pub fn shutdown_node(&self) -> ShutdownNode {
        self.node.clone()
    }
}

impl ConsoleBuilder {
    /// The folder of the socket. It is made if it is not there. It must be one of this user alone, with the mode 0700.
    ///
    /// Without it, the folder is `$XDG_RUNTIME_DIR/procession`, or `$HOME/.procession` where there is no such variable.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> ConsoleBuilder {
        self.folder = Some(folder.into());
        self
    }

    /// Listens on this address of the loopback, and not on a socket in a folder. With the port 0, one that is free is
    /// taken. Clients must have a token of 128 random bits, which is written to a file that only its owner can read.
    pub fn tcp(mut self, address: SocketAddr, token_file: impl Into<PathBuf>) -> ConsoleBuilder {
        self.tcp = Some((address, token_file.into()));
        self
    }

    /// Sets whether clients can ask processes to stop, and terminate them. Each such action is logged. Without this
    /// option they cannot.
    pub fn actions(mut self, are_allowed: bool) -> ConsoleBuilder {
        self.actions = are_allowed;
        self
    }

    /// Shows the parked processes of this store, too.
    #[cfg(feature = "durable")]
    pub fn store(mut self, store: &Store) -> ConsoleBuilder {
        self.store = Some(store.clone());
        self
    }

    /// Shows the peers of this node, too.
    #[cfg(feature = "cluster")]
    pub fn cluster(mut self, cluster: &Cluster) -> ConsoleBuilder {
        self.cluster = Some(cluster.clone());
        self
    }

    /// Serves the console until the runtime has ended.
    ///
    /// # Errors
    /// See [`ConsoleError`].
    pub fn serve(self, runtime: &Runtime) -> Result<Console, ConsoleError> {
        let ConsoleBuilder { name, folder, tcp, actions, limits, .. } = self;
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if !(1..=64).contains(&name.len()) || name.starts_with('.') || !name.chars().all(is_letter) {
            return Err(ConsoleError::BadName(name));
        }
        let started = SysRng.try_next_u64().map_err(|error| std::io::Error::other(error.to_string()));
        let started = format!("{:016x}", started.map_err(failed("random bits"))?);
        let (listener, place, token) = match tcp {
            Some((address, token_file)) => {
                let (listener, place, token) = listen_on(address, &token_file)?;
                (listener, place, Some(token))
            }
            None => {
                let folder = folder.map_or_else(usual_folder, Ok)?;
                let (listener, place) = listen_in(&folder, &name)?;
                (listener, place, None)
            }
        };
        let shown = Shown {
            name,
            started,
            actions,
            token,
            limits,
            #[cfg(feature = "durable")]
            store: self.store,
            #[cfg(feature = "cluster")]
            cluster: self.cluster,
        };
        let (node, guard) = ShutdownNode::builder().name("console").job();
        let server = Server::new(shown, runtime.downgrade(), place, guard);
        let accepts = server.clone();
        if let Err(error) = threads::start("procession-console".into(), move || accepts.accept(&listener)) {
            server.end();
            return Err(ConsoleError::Io("the thread of the console".into(), error));
        }
        let weak = Arc::downgrade(&server);
        let asked = weak.clone();
        let asked = server.guard.end().on_cancel(move |_| asked.upgrade().into_iter().for_each(|server| server.end()));
        // The waker is kept by the node of the runtime for as long as the future is there.
        let of_runtime = runtime.shutdown_node();
        let mut closed = of_runtime.closed();
        let waker = Waker::from(Arc::new(RuntimeEnd { server: weak, runtime: of_runtime }));
        let is_closed = Pin::new(&mut closed).poll(&mut Context::from_waker(&waker)).is_ready();
        *lock(&server.kept) = Some((closed, asked));
        if is_closed {
            server.end();
        }
        Ok(Console { server, node })
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("place", &self.place()).finish_non_exhaustive()
    }
}

#[cfg(all(test, unix, not(loom)))]
mod tests;
