//! A connection: one actor for the lines of a client, and one for the lines to it.

use std::sync::Arc;
use std::time::Duration;

use procession::BoxError;
use procession::command::CancelRequest;
use procession::feed::Feed;
use procession::prelude::*;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::room::{HallMessage, RoomMessage, bounded};

/// The longest line of a client, in bytes, with its end.
const MAX_LINE: u64 = 1024;

/// The limit of a write and of a question. A client that takes longer to accept a line is disconnected.
const LIMIT: Duration = Duration::from_secs(10);

/// Does what the lines of a client say, one after the other.
pub(crate) struct Connection {
    socket: Option<TcpStream>,
    hall: Address<HallMessage>,
    writer: Option<Address<WriterMessage>>,
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
            let show = WriterMessage::Show(format!("* {text}").into());
            out.send_timeout(writer, show, Duration::MAX).then_holding(out, |_, _, _| Ok(()));
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
        let writer = actor(Writer { socket: Some(writer), text: String::new(), ends: false });
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

/// Writes lines to a client. If a write fails, the writer fails, and its connection ends with it.
pub(crate) struct Writer {
    /// `None` during a write.
    socket: Option<OwnedWriteHalf>,
    text: String,
    ends: bool,
}

impl Writer {
    fn write(&mut self, out: &mut Actions<Self>) {
        if self.text.is_empty() && self.ends {
            return out.stop();
        }
        if let Some(mut socket) = self.socket.take_if(|_| !self.text.is_empty()) {
            let text = std::mem::take(&mut self.text);
            let write = async move { socket.write_all(text.as_bytes()).await.map(|()| socket) };
            // The next line waits until this one is written.
            out.future_timeout(LIMIT, write).then_holding(out, |writer, socket, out| {
                writer.socket = Some(socket??);
                writer.write(out);
                Ok(())
            });
        }
    }
}

#[actor]
impl Writer {
    pub(crate) fn show(&mut self, line: Arc<str>, out: &mut Actions<Self>) {
        self.text = format!("{line}\n");
        self.write(out);
    }

    /// The last line says why.
    #[on(stop)]
    fn stop(&mut self, request: CancelRequest, out: &mut Actions<Self>) {
        self.text = format!("* {}\n", request.reason);
        self.ends = true;
        self.write(out);
    }
}
