//! Why a console cannot be served.

use std::io;
use std::path::PathBuf;

/// Why a console cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsoleError {
    /// The name is empty, longer than 64 bytes, begins with a dot, or has other characters than ASCII letters, digits,
    /// `-`, `_` and `.`.
    #[error("{0:?} is no name of a console: use 1 to 64 ASCII letters, digits, `-`, `_` or `.`, and no dot first")]
    BadName(String),
    /// There is no folder for the socket, because neither `XDG_RUNTIME_DIR` nor `HOME` is set. On other systems than
    /// Unix there are no sockets in folders.
    #[error("there is no folder for the socket: set XDG_RUNTIME_DIR, or use `folder` or `tcp`")]
    NoFolder,
    /// Others than its owner may use the folder, or somebody else owns it.
    #[error("the folder {0:?} of the socket is not for its owner alone: its mode must be 0700, and you must own it")]
    OpenFolder(PathBuf),
    /// A living program has the socket of this name.
    #[error("another program serves the console {0:?}: give this one another name")]
    InUse(PathBuf),
    /// The address is not one of this machine alone.
    #[error("a console listens on the loopback only, and {0} is another address: use a tunnel")]
    NotLoopback(std::net::SocketAddr),
    /// The socket, the folder, the file of the token, or the thread could not be made.
    #[error("{0}: {1}")]
    Io(String, io::Error),
}

/// Says what has failed.
pub(super) fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> ConsoleError {
    let what = what.into();
    move |error| ConsoleError::Io(what, error)
}
