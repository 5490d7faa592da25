//! The connection to a program: where it is found, and its lines.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use crate::request::hello;

/// The longest line of a program, in bytes. A thousand types with all their figures take some megabytes.
pub(crate) const LONGEST_LINE: usize = 16 << 20;

/// The time that a program has to take a connection or a request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most entries of the folder of sockets that are looked at.
const MOST_SOCKETS: usize = 1_000;

/// News for the main thread.
pub(crate) enum News {
    /// The hello is sent. Requests go here.
    Connected(Box<dyn Stream>),
    Line(String),
    /// The connection has ended, or there was none.
    Gone(String),
    Terminal(ratatui::crossterm::event::Event),
    TerminalGone(io::Error),
}

/// A connection that can be closed while another thread reads from it.
pub(crate) trait Stream: Write + Send {
    fn close(&self);
}

impl Stream for TcpStream {
    fn close(&self) {
        // It may be closed already.
        let _ = self.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(unix)]
impl Stream for UnixStream {
    fn close(&self) {
        let _ = self.shutdown(std::net::Shutdown::Both);
    }
}

/// Both directions of a connection.
type Connection = (Box<dyn Read + Send>, Box<dyn Stream>);

/// The place of a program's console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Socket(PathBuf),
    Tcp { address: String, token_file: PathBuf },
}

impl Place {
    pub(crate) fn text(&self) -> String {
        match self {
            Place::Socket(path) => path.display().to_string(),
            Place::Tcp { address, .. } => address.clone(),
        }
    }

    fn dial(&self) -> Result<Connection, String> {
        match self {
            Place::Socket(path) => {
                let advice = "has the program ended, or has it no console?";
                dial_socket(path).map_err(|error| format!("cannot connect to `{}`: {error}: {advice}", path.display()))
            }
            Place::Tcp { address, token_file } => {
                // Another run of the program has written another token.
                let token = fs::read_to_string(token_file).map_err(|error| {
                    format!("cannot read the token for `{address}` in `{}`: {error}", token_file.display())
                })?;
                let stream = dial_tcp(address)?;
                let begin = |stream: TcpStream| -> io::Result<Connection> {
                    stream.set_write_timeout(Some(PATIENCE))?;
                    stream.set_nodelay(true)?;
                    let (reader, mut writer) = (stream.try_clone()?, stream);
                    greet(&mut writer, Some(token.trim()));
                    Ok((Box::new(reader), Box::new(writer)))
                };
                begin(stream).map_err(|error| format!("cannot talk to `{address}`: {error}"))
            }
        }
    }
}

/// Sends the hello. A program that serves too many clients may have disconnected before. The reader sees why.
fn greet(writer: &mut impl Write, token: Option<&str>) {
    let _ = writeln!(writer, "{}", hello(token));
}

#[cfg(unix)]
fn dial_socket(path: &Path) -> io::Result<Connection> {
    let reader = UnixStream::connect(path)?;
    reader.set_write_timeout(Some(PATIENCE))?;
    let mut writer = reader.try_clone()?;
    greet(&mut writer, None);
    Ok((Box::new(reader), Box::new(writer)))
}

#[cfg(not(unix))]
fn dial_socket(_: &Path) -> io::Result<Connection> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no such sockets, use HOST:PORT"))
}

/// Connects to a port of this machine. A token is not sent to another machine, because nothing encrypts it.
fn dial_tcp(address: &str) -> Result<TcpStream, String> {
    let found = address.to_socket_addrs().map_err(|error| format!("`{address}` is no HOST:PORT: {error}"))?;
    let local: Vec<SocketAddr> = found.filter(|found| found.ip().is_loopback()).collect();
    let mut error = format!("`{address}` is not on this machine: use a tunnel, for example `ssh -L`");
    for address in local {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(failed) => error = format!("cannot connect to `{address}`: {failed}: has the program ended?"),
        }
    }
    Err(error)
}

/// Starts a thread that connects and reads. Its last news is that the connection is gone.
pub(crate) fn start(place: &Place, news: &SyncSender<News>) -> io::Result<()> {
    let (place, news) = (place.clone(), news.clone());
    let work = move || {
        let gone = match place.dial() {
            Err(reason) => reason,
            Ok((reader, writer)) => {
                if news.send(News::Connected(writer)).is_err() {
                    return;
                }
                read_lines(BufReader::new(reader), LONGEST_LINE, |line| news.send(News::Line(line)).is_ok())
            }
        };
        // The main thread may have ended.
        let _ = news.send(News::Gone(gone));
    };
    thread::Builder::new().name("connection".into()).spawn(work).map(|_| ())
}

/// Hands each line to `take`, until it returns false, or the lines end. Returns why they have ended.
fn read_lines(mut reader: impl BufRead, longest: usize, mut take: impl FnMut(String) -> bool) -> String {
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(longest as u64 + 1).read_until(b'\n', &mut line) {
            Err(error) => return format!("the connection is broken: {error}"),
            Ok(_) if line.last() == Some(&b'\n') => line.pop(),
            Ok(read) if read > longest => return format!("the program sent a line of more than {longest} bytes"),
            // A line without an end is no line.
            Ok(_) => return "the program has closed the connection".into(),
        };
        if !take(String::from_utf8_lossy(&line).into_owned()) {
            return "nobody takes the lines".into();
        }
    }
}

/// The folders of the sockets of this user's programs. A program that was not started from a login has no
/// XDG_RUNTIME_DIR, and so another folder than this one.
fn folders() -> Result<Vec<PathBuf>, String> {
    let set = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let runtime = set("XDG_RUNTIME_DIR").map(|path| path.join("procession"));
    let home = set("HOME").map(|path| path.join(".procession"));
    let folders: Vec<PathBuf> = runtime.into_iter().chain(home).collect();
    if folders.is_empty() {
        return Err("neither XDG_RUNTIME_DIR nor HOME is set: give the path of the program's socket".into());
    }
    Ok(folders)
}

/// The socket of this name: in the first folder that has one, or where it would be.
fn named_socket(folders: &[PathBuf], name: &str) -> PathBuf {
    let mut paths: Vec<PathBuf> = folders.iter().map(|folder| folder.join(format!("{name}.sock"))).collect();
    let found = paths.iter().position(|path| path.exists()).unwrap_or(0);
    paths.swap_remove(found)
}

/// Finds the place that a user means: a name, a path, a host and a port, or nothing if there is only one program.
pub(crate) fn place(given: Option<&str>, token_file: Option<PathBuf>) -> Result<Place, String> {
    let Some(given) = given else {
        return match token_file {
            Some(_) => Err("`--token-file` is for HOST:PORT, which is missing".into()),
            None => only_socket(&folders()?).map(Place::Socket),
        };
    };
    let is_path = given.contains('/') || given.ends_with(".sock");
    let is_address = !is_path && given.contains(':');
    match (is_address, token_file) {
        (true, Some(token_file)) => Ok(Place::Tcp { address: given.into(), token_file }),
        (true, None) => Err(format!("`{given}` needs `--token-file`: the program says where it has written its token")),
        (false, Some(_)) => Err(format!("`--token-file` is for HOST:PORT, and `{given}` is none")),
        (false, None) if is_path => Ok(Place::Socket(given.into())),
        (false, None) => Ok(Place::Socket(named_socket(&folders()?, given))),
    }
}

/// The socket of the only program that serves a console.
fn only_socket(folders: &[PathBuf]) -> Result<PathBuf, String> {
    let none = || {
        let folders: Vec<String> = folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
        format!("no program serves a console in {}: start one, or give its socket", folders.join(" or "))
    };
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let paths = entries.take(MOST_SOCKETS).filter_map(|entry| Some(entry.ok()?.path()));
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "sock");
    // A program that was killed has left its socket.
    let mut living: Vec<PathBuf> = paths.filter(is_socket).filter(|path| dial_socket(path).is_ok()).collect();
    living.sort();
    match &living[..] {
        [] => Err(none()),
        [only] => Ok(only.clone()),
        several => {
            let names = several.iter().filter_map(|path| path.file_stem()).map(|name| name.to_string_lossy());
            let names: Vec<String> = names.map(|name| format!("\n  {name}")).collect();
            Err(format!("{} programs serve a console. Give the name of one:{}", several.len(), names.concat()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], longest: usize) -> (Vec<String>, String) {
        let mut lines = Vec::new();
        let why = read_lines(text, longest, |line| {
            lines.push(line);
            true
        });
        (lines, why)
    }

    #[test]
    fn lines_are_read_until_the_connection_ends() {
        let (lines, why) = read(b"{}\n\xff\nhalf", 100);
        assert_eq!((lines, &why[..]), (vec!["{}".into(), "\u{fffd}".into()], "the program has closed the connection"));
    }

    #[test]
    fn a_line_that_is_too_long_ends_the_connection() {
        let (lines, why) = read(b"123\n1234\n", 4);
        assert_eq!((lines.len(), &why[..]), (2, "the program has closed the connection"));
        let (lines, why) = read(b"123\n12345\n", 4);
        assert_eq!((lines.len(), &why[..]), (1, "the program sent a line of more than 4 bytes"));
    }

    #[test]
    fn a_place_is_a_socket_or_a_port_with_a_token() {
        let file = || Some(PathBuf::from("token"));
        assert_eq!(place(Some("/tmp/a.sock"), None), Ok(Place::Socket("/tmp/a.sock".into())));
        assert_eq!(place(Some("a.sock"), None), Ok(Place::Socket("a.sock".into())));
        let tcp = Place::Tcp { address: "localhost:7000".into(), token_file: "token".into() };
        assert_eq!(place(Some("localhost:7000"), file()), Ok(tcp));
        assert!(place(Some("localhost:7000"), None).unwrap_err().contains("needs `--token-file`"));
        assert!(place(Some("shop"), file()).unwrap_err().contains("`shop` is none"));
    }

    #[test]
    fn a_token_goes_to_no_other_machine() {
        let error = dial_tcp("192.0.2.1:7000").unwrap_err();
        assert!(error.contains("not on this machine"), "{error}");
    }
}
