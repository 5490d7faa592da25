//! A connection: an actor for the lines of a client, and an async process for the lines to it.

use std::sync::Arc;
use std::time::Duration;

use procession::BoxError;
use procession::feed::Feed;
use procession::prelude::*;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::room::{HallMessage, RoomMessage, bounded};

/// The longest line of a client, in bytes, with its end.
const MAX_LINE: u64 = 1024;

/// The limit of a write and of a question. A client that takes longer to accept a line is disconnected.
const LIMIT: Duration = Duration::from_secs(10);

/// Does what the lines of a client say, one after the other.
pub(crate) struct Connection {
    socket: Option<TcpStream>,
    hall: Address<HallMessage>,
    writer: Option<Address<Arc<str>>>,
    room: Option<Address<RoomMessage>>,
}

/// Puts the lines of a client into the feed of its connection. If the feed is full, the socket is not read.
async fn read(socket: OwnedReadHalf, feed: Feed<ConnectionMessage>) {
    let (mut lines, mut bytes) = (BufReader::new(socket).take(MAX_LINE), Vec::new());
    let why = loop {
        match lines.read_until(b'\n', &mut bytes).await {
            Err(_) | Ok(0) => break "goodbye",
            Ok(_) if lines.limit() == 0 => break "the line is too long",
            Ok(_) => {}
        }
        let Ok(text) = std::str::from_utf8(&bytes) else { break "the line is not UTF-8" };
        // Control characters would do harm in the terminals of others.
        let line = text.chars().filter(|c| !c.is_control()).collect();
        if feed.put(ConnectionMessage::Line(line)).await.is_err() {
            return;
        }
        bytes.clear();
        lines.set_limit(MAX_LINE);
    };
    drop(feed.put(ConnectionMessage::End(why)).await);
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, hall: Address<HallMessage>) -> Connection {
        Connection { socket: Some(socket), hall, writer: None, room: None }
    }

    fn tell(&self, text: &str, out: &mut Actions<Self>) {
        if let Some(writer) = self.writer {
            let line = format!("* {text}").into();
            out.send_timeout::<Arc<str>>(writer, line, Duration::MAX).then_holding(out, |_, _, _| Ok(()));
        }
    }

    /// Joins the room that the line names, under the name in the line.
    fn join(&mut self, line: &str, out: &mut Actions<Self>) {
        let (Some(writer), Some((room, name))) = (self.writer, line.trim().split_once(' ')) else {
            return self.tell("say which room you join, and your name: ROOM NAME", out);
        };
        let (room, name) = (room.to_owned(), name.trim().to_owned());
        let find = |reply| HallMessage::Room(room, reply);
        out.ask(self.hall, find, LIMIT).then_holding(out, move |_, room, out| {
            let room = room??;
            let admit = move |admitted| RoomMessage::Admit(name, writer, admitted);
            out.ask(room, admit, LIMIT).then_holding(out, move |connection, admitted, out| {
                connection.room = admitted?.then_some(room);
                connection.tell(if connection.room.is_some() { "welcome" } else { "somebody has this name" }, out);
                Ok(())
            });
            Ok(())
        });
    }
}

#[actor]
impl Connection {
    #[on(start)]
    #[fails]
    fn begin(&mut self, out: &mut Actions<Self>) -> Result<(), BoxError> {
        let (reader, writer) = self.socket.take().ok_or("a connection cannot be restarted")?.into_split();
        let writer = async_process(|context| write(context, writer));
        self.writer = Some(out.spawn_with(writer, bounded().link())?.address);
        let feed = out.feed(16);
        out.future(read(reader, feed));
        self.tell("hello: ROOM NAME", out);
        Ok(())
    }

    pub(crate) fn line(&mut self, line: String, out: &mut Actions<Self>) {
        let Some(room) = self.room else { return self.join(&line, out) };
        // The next line waits until the room has accepted this one.
        out.send_timeout(room, RoomMessage::Say(line), Duration::MAX).then_holding(out, |_, said, _| Ok(said??));
    }

    /// The client sends no more, or has sent something wrong.
    pub(crate) fn end(&mut self, why: &'static str, out: &mut Actions<Self>) {
        if let Some(writer) = self.writer {
            out.cancel(writer, why);
        }
        out.stop();
    }
}

/// Writes lines to a client. The last line is the reason of the end. If a write fails, the writer fails, and its
/// connection ends with it.
async fn write(context: Context<Arc<str>>, mut socket: OwnedWriteHalf) -> Result<(), BoxError> {
    loop {
        let (line, is_last) = match context.receive().await {
            Event::Message(line) => (format!("{line}\n"), false),
            Event::Cancel(request) => (format!("* {}\n", request.reason), true),
            _ => continue,
        };
        timeout(LIMIT, socket.write_all(line.as_bytes())).await??;
        if is_last {
            return Ok(());
        }
    }
}
