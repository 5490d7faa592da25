//! A connection: an async process for the lines of a client, and another one for the lines to it.

use std::sync::Arc;
use std::time::Duration;

use procession::prelude::*;
use procession::{BoxError, CommandError};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Take};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::room::{HallMessage, Member, RoomMessage, bounded};

/// The longest line of a client, in bytes, with its end.
const MAX_LINE: u64 = 1024;

/// The limit of a write. A client that takes longer to accept a line is disconnected.
const LIMIT: Duration = Duration::from_secs(10);

type Lines = Take<BufReader<OwnedReadHalf>>;

/// Serves a client. If the writer fails, the connection ends with it, and the other way round.
pub(crate) async fn connection(
    context: Context<()>,
    socket: TcpStream,
    hall: Address<HallMessage>,
) -> Result<(), BoxError> {
    let (reader, writer) = socket.into_split();
    let writer = async_process(|context| write(context, writer));
    let writer = context.out(|out| out.spawn_with(writer, bounded().link()))?.address;
    let lines = BufReader::new(reader).take(MAX_LINE);
    match talk(&context, lines, writer, hall).await {
        Ok(why) => drop(context.out(|out| out.cancel(writer, why))),
        // The writer gets a request to stop, too. It tells the client.
        Err(_) if context.out(|out| out.is_shutting_down()) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Does what the lines of a client say, one after the other. Returns why there are no more.
async fn talk(
    context: &Context<()>,
    mut lines: Lines,
    writer: Address<Arc<str>>,
    hall: Address<HallMessage>,
) -> Result<&'static str, CommandError> {
    let tell = async |text| {
        let line: Arc<str> = format!("* {text}").into();
        context.perform(|out| out.send_timeout(writer, line, Duration::MAX)).await
    };
    let mut room = None;
    tell("hello: ROOM NAME").await?.ok();
    loop {
        let line;
        (line, lines) = match context.perform(|out| out.future(read(lines))).await? {
            Ok(read) => read,
            Err(why) => return Ok(why),
        };
        if let Some(room) = room {
            // The next line is read when the room has accepted this one.
            let said = context.perform(|out| out.send_timeout(room, RoomMessage::Say(line), Duration::MAX)).await?;
            if said.is_err() {
                return Ok("the room has closed");
            }
        } else if let Some((name_of_room, name)) = line.trim().split_once(' ') {
            let member = Member { pid: context.pid(), name: name.trim().into(), writer };
            let join = |reply| HallMessage::Admit(name_of_room.into(), member, reply);
            room = context.ask(hall, join, Duration::MAX).await?;
            tell(if room.is_some() { "welcome" } else { "somebody has this name" }).await?.ok();
        } else {
            tell("say which room you join, and your name: ROOM NAME").await?.ok();
        }
    }
}

/// Reads a line. If there is none, the error says why.
async fn read(mut lines: Lines) -> Result<(String, Lines), &'static str> {
    let mut bytes = Vec::new();
    lines.set_limit(MAX_LINE);
    match lines.read_until(b'\n', &mut bytes).await {
        Err(_) | Ok(0) => return Err("goodbye"),
        Ok(_) if lines.limit() == 0 => return Err("the line is too long"),
        Ok(_) => {}
    }
    let text = String::from_utf8(bytes).map_err(|_| "the line is not UTF-8")?;
    // Control characters would do harm in the terminals of others.
    Ok((text.chars().filter(|c| !c.is_control()).collect(), lines))
}

/// Writes lines to a client. The last line is the reason of the end.
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
