//! Sockets in a folder of its owner, and on the loopback.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
#[cfg(unix)]
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::TryRng as _;
use rand::rngs::SysRng;
use serde_json::Value;

use super::error::{ConsoleError, failed};
use crate::clock::Clock;
#[cfg(unix)]
use crate::primitives::{Mutex, lock};

/// Where clients come from.
#[derive(Debug)]
pub(super) enum Listener {
    #[cfg(unix)]
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// The way to a listener, and what is left of it on disk.
#[derive(Debug)]
pub(super) enum Place {
    #[cfg(unix)]
    Unix {
        path: PathBuf,
        /// The device and the number of the socket.
        identity: (u64, u64),
        ends: Ends,
        /// Locked until the console ends. So a socket whose file is not locked is one of a program that has ended.
        lock: Mutex<Option<std::fs::File>>,
    },
    Tcp {
        address: SocketAddr,
        ends: Ends,
        token: String,
        token_file: PathBuf,
    },
}

/// Ends a listener. Its way may be gone by then, and there may be no descriptor left to connect with.
#[derive(Debug)]
pub(super) struct Ends {
    #[cfg(unix)]
    listener: Mutex<Option<std::os::fd::OwnedFd>>,
}

impl Ends {
    #[cfg(unix)]
    fn of(listener: impl Into<std::os::fd::OwnedFd>) -> Ends {
        Ends { listener: Mutex::new(Some(listener.into())) }
    }

    #[cfg(not(unix))]
    fn of(_: TcpListener) -> Ends {
        Ends {}
    }

    /// Shuts the socket down, for all that have it. On Linux a thread that waits for clients returns.
    fn end(&self) {
        #[cfg(unix)]
        if let Some(listener) = lock(&self.listener).take() {
            // A call of the system that does not look at the family of the socket.
            _ = UnixStream::from(listener).shutdown(Shutdown::Both);
        }
    }
}

/// A connection with a client.
#[derive(Debug)]
pub(super) enum Stream {
    #[cfg(unix)]
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Runs a call of the stream that there is.
macro_rules! either {
    ($this:expr, $stream:ident => $call:expr) => {
        match $this {
            #[cfg(unix)]
            Stream::Unix($stream) => $call,
            Stream::Tcp($stream) => $call,
        }
    };
}

impl Stream {
    pub(super) fn try_clone(&self) -> io::Result<Stream> {
        match self {
            #[cfg(unix)]
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
        }
    }

    pub(super) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        either!(self, stream => stream.set_read_timeout(limit))
    }

    pub(super) fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        either!(self, stream => stream.set_write_timeout(limit))
    }

    fn write_timeout(&self) -> io::Result<Option<Duration>> {
        either!(self, stream => stream.write_timeout())
    }

    /// Ends the reading. A thread that reads returns.
    pub(super) fn close_reading(&self) {
        // It may be closed already.
        _ = either!(self, stream => stream.shutdown(Shutdown::Read));
    }

    /// Ends both directions. A thread that reads or writes returns.
    pub(super) fn close(&self) {
        // It may be closed already.
        _ = either!(self, stream => stream.shutdown(Shutdown::Both));
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        either!(*self, stream => (&mut &*stream).read(buffer))
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(*self, stream => (&mut &*stream).write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Listener {
    /// Waits for the next client.
    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            #[cfg(unix)]
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
        }
    }
}

impl Place {
    /// Ends the listening, so that the thread that waits for clients returns, and removes what is on disk.
    pub(super) fn close(&self) {
        // On some systems only a client wakes the thread. All that fails here has happened already.
        match self {
            #[cfg(unix)]
            Place::Unix { path, identity, ends, lock: locked } => {
                // In a folder that was made anew, another program may have its socket.
                let is_ours = identity_of(path).is_ok_and(|found| found == *identity);
                if is_ours && !cfg!(target_os = "linux") {
                    _ = UnixStream::connect(path);
                }
                ends.end();
                if is_ours {
                    _ = std::fs::remove_file(path);
                }
                drop(lock(locked).take());
            }
            Place::Tcp { address, ends, token, token_file } => {
                if !cfg!(target_os = "linux") {
                    _ = TcpStream::connect_timeout(address, Duration::from_secs(1));
                }
                ends.end();
                if std::fs::read_to_string(token_file).is_ok_and(|found| found == *token) {
                    _ = std::fs::remove_file(token_file);
                }
            }
        }
    }
}

#[cfg(unix)]
fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// The bytes of one call, for which a client has the limit of the stream.
const PART: usize = 4 << 10;

/// Writes a line. Returns whether the client may get more.
pub(super) fn write(client: &Stream, line: &Value) -> bool {
    let mut bytes = line.to_string().into_bytes();
    bytes.push(b'\n');
    let limit = client.write_timeout().ok().flatten().unwrap_or(Duration::MAX);
    write_parts(client, &bytes, limit, &Clock::system())
}

/// Writes in parts. Each call has a limit by itself. If it is over, a call returns how much it has written, and the
/// next one would have the whole limit again. So a part that has taken the limit is the last one.
fn write_parts(mut to: impl Write, bytes: &[u8], limit: Duration, clock: &Clock) -> bool {
    bytes.chunks(PART).all(|mut part| {
        let began = clock.now();
        while !part.is_empty() {
            match to.write(part) {
                Ok(written @ 1..) => part = part.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return false,
            }
            if !part.is_empty() && clock.now().saturating_duration_since(began) >= limit {
                return false;
            }
        }
        true
    })
}

/// The folder of the sockets of this user.
pub(super) fn usual_folder() -> Result<PathBuf, ConsoleError> {
    let set = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let runtime = set("XDG_RUNTIME_DIR").map(|path| path.join("procession"));
    runtime.or_else(|| set("HOME").map(|path| path.join(".procession"))).ok_or(ConsoleError::NoFolder)
}

/// Listens on a socket in a folder, which is made if it is not there. Only the owner of the folder gets at it.
#[cfg(unix)]
pub(super) fn listen_in(folder: &Path, name: &str) -> Result<(Listener, Place), ConsoleError> {
    use std::fs::{DirBuilder, OpenOptions, Permissions, TryLockError, set_permissions};
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};

    let of = |what: &str, path: &Path| failed(format!("{what} {}", path.display()));
    // With this mode from the beginning. An existing folder is left as it is, and is looked at below.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(of("the folder of the socket", folder))?;
    let found = std::fs::symlink_metadata(folder).map_err(of("the folder of the socket", folder))?;
    if !found.is_dir() || found.mode() & 0o077 != 0 {
        return Err(ConsoleError::OpenFolder(folder.into()));
    }
    // A file that is new is one of this user. So the folder must be, too.
    let number = SysRng.try_next_u64().map_err(|error| io::Error::other(error.to_string()));
    let new = folder.join(format!(".{name}.{:016x}", number.map_err(failed("random bits"))?));
    let probe = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new);
    let probe = probe.and_then(|probe| probe.metadata()).map_err(of("a file in the folder of the socket", &new));
    _ = std::fs::remove_file(&new);
    if probe?.uid() != found.uid() {
        return Err(ConsoleError::OpenFolder(folder.into()));
    }
    let lock_path = folder.join(format!("{name}.lock"));
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
    let lock = lock.map_err(of("the lock", &lock_path))?;
    let path = folder.join(format!("{name}.sock"));
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ConsoleError::InUse(path)),
        Err(TryLockError::Error(error)) => return Err(ConsoleError::Io(format!("the lock {lock_path:?}"), error)),
    }
    let listener = UnixListener::bind(&new).map_err(of("the socket", &new))?;
    let made = set_permissions(&new, Permissions::from_mode(0o600))
        .and_then(|()| identity_of(&new))
        .and_then(|identity| Ok((identity, listener.try_clone()?)))
        // It replaces one that is left of a program that has ended.
        .and_then(|made| std::fs::rename(&new, &path).map(|()| made));
    let (identity, clone) = made.map_err(|error| {
        _ = std::fs::remove_file(&new);
        of("the socket", &path)(error)
    })?;
    let lock = Mutex::new(Some(lock));
    Ok((Listener::Unix(listener), Place::Unix { path, identity, ends: Ends::of(clone), lock }))
}

#[cfg(not(unix))]
pub(super) fn listen_in(_: &Path, _: &str) -> Result<(Listener, Place), ConsoleError> {
    Err(ConsoleError::NoFolder)
}

/// Listens on the loopback, and writes a new token into a file that only its owner can read. Also returns the token.
pub(super) fn listen_on(address: SocketAddr, token_file: &Path) -> Result<(Listener, Place, String), ConsoleError> {
    if !address.ip().is_loopback() {
        return Err(ConsoleError::NotLoopback(address));
    }
    let listener = TcpListener::bind(address).map_err(failed(format!("the address {address}")))?;
    let address = listener.local_addr().map_err(failed(format!("the address {address}")))?;
    let random = || SysRng.try_next_u64().map_err(|error| io::Error::other(error.to_string()));
    let drawn = random().and_then(|first| Ok((first, random()?)));
    let (first, second) = drawn.map_err(failed("random bits for the token"))?;
    let token = format!("{first:016x}{second:016x}");
    write_private(token_file, &token).map_err(failed(format!("the file of the token {}", token_file.display())))?;
    let clone = listener.try_clone().map_err(failed(format!("the address {address}")))?;
    let place = Place::Tcp { address, ends: Ends::of(clone), token: token.clone(), token_file: token_file.into() };
    Ok((Listener::Tcp(listener), place, token))
}

/// Writes a file that is new, so that nobody has it open, and that only its owner can read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    options.open(path)?.write_all(text.as_bytes())
}

/// Compares in a time that depends on the lengths alone.
pub(super) fn is_same_token(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    /// Takes a byte when the limit of a call is over.
    struct Slow {
        clock: ManualClock,
        per_call: Duration,
        calls: u32,
    }

    impl Write for &mut Slow {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            self.clock.advance(self.per_call);
            Ok(1)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_of_a_part_of_a_line_has_the_limit_once() {
        let second = Duration::from_secs(1);
        let write = |per_call| {
            let clock = ManualClock::new();
            let mut slow = Slow { clock: clock.clone(), per_call, calls: 0 };
            let is_written = write_parts(&mut slow, &[b'x'; PART + 1], 10 * second, &clock.clock());
            (is_written, slow.calls)
        };
        assert_eq!(write(10 * second), (false, 1));
        assert_eq!(write(4 * second), (false, 3));
        assert_eq!(write(Duration::ZERO), (true, PART as u32 + 1));
    }
}
