//! The service under check, on the loopback interface, for three clients.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

/// Answers `web` and `database` with a line each, and never answers `mirror`. It stops when it is dropped.
pub(crate) struct Service {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    pub(crate) fn start(healthy: bool) -> io::Result<Service> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let serve = move || {
            // Connections that are never answered stay open until the end.
            let mut open = Vec::new();
            for client in listener.incoming().flatten() {
                match answer(client, healthy) {
                    Ok(Answered::Quit) => return,
                    Ok(Answered::Waits(client)) => open.push(client),
                    // A client that has closed its connection is no reason to stop.
                    Ok(Answered::Done) | Err(_) => {}
                }
            }
        };
        let thread = std::thread::Builder::new().name("service".into()).spawn(serve)?;
        Ok(Service { address, thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

enum Answered {
    Done,
    Waits(TcpStream),
    Quit,
}

fn answer(client: TcpStream, healthy: bool) -> io::Result<Answered> {
    let mut question = String::new();
    BufReader::new(&client).read_line(&mut question)?;
    match question.trim_end() {
        "web" => writeln!(&client, "ok")?,
        "database" => writeln!(&client, "{}", if healthy { "ok" } else { "down for maintenance" })?,
        "quit" => return Ok(Answered::Quit),
        _ => return Ok(Answered::Waits(client)),
    }
    Ok(Answered::Done)
}

impl Drop for Service {
    fn drop(&mut self) {
        let told = TcpStream::connect(self.address).and_then(|mut stream| writeln!(stream, "quit"));
        if let (Ok(()), Some(thread)) = (told, self.thread.take()) {
            let _ = thread.join();
        }
    }
}
