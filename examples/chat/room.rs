//! Rooms, and the hall that knows them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use procession::Down;
use procession::command::Retry;
use procession::feed::Feed;
use procession::prelude::*;
use procession::spawn::Overflow;
use tokio::net::{TcpListener, TcpStream};

use crate::connection::connection;

/// The pause after an error of `accept`.
const PAUSE: Duration = Duration::from_millis(100);

/// Bounded mailboxes: senders wait for room.
pub(crate) fn bounded() -> SpawnOptions {
    SpawnOptions::new().mailbox(64, Overflow::Refuse)
}

/// Spawns the connections and the rooms. The name of a room is the name of its process.
pub(crate) struct Hall {
    pub(crate) listener: Arc<TcpListener>,
}

/// Puts each client into the feed of the hall, until `accept` fails.
async fn accept(listener: Arc<TcpListener>, hall: Feed<HallMessage>) -> std::io::Result<()> {
    loop {
        let (socket, _) = listener.accept().await?;
        drop(hall.put(HallMessage::Enter(socket)).await);
    }
}

#[actor]
impl Hall {
    #[on(start)]
    fn open(&mut self, out: &mut Actions<Self>) {
        let (listener, feed) = (self.listener.clone(), out.feed(16));
        // `accept` fails if too many files are open, for example. Some may be closed soon.
        let retry = Retry::new().attempts(u32::MAX).first_pause(PAUSE).cap(PAUSE);
        out.retry(retry, move |out, _| out.try_future(accept(listener.clone(), feed.clone())));
    }

    /// Spawns a connection. If there are too many processes, the client is disconnected.
    pub(crate) fn enter(&mut self, socket: TcpStream, out: &mut Actions<Self>) {
        let hall = out.address();
        drop(out.spawn(async_process(move |context| connection(context, socket, hall))));
    }

    /// Passes the question on to the room of this name. If there is none, it is opened.
    pub(crate) fn admit(&mut self, room: String, member: Member, joined: Reply<Joined>, out: &mut Actions<Self>) {
        if out.whereis(&room).is_none() {
            drop(out.spawn_with(actor(Room::default()), bounded().name(&*room)));
        }
        // The mailbox of a busy room is full, and refuses questions. A message waits for its turn.
        out.send_timeout(&*room, RoomMessage::Admit(member, joined), Duration::MAX);
    }
}

/// Shows each line to all members, in one order.
#[derive(Default)]
pub(crate) struct Room {
    members: HashMap<Pid, Member>,
}

pub(crate) struct Member {
    pub(crate) pid: Pid,
    pub(crate) name: String,
    pub(crate) writer: Address<Arc<str>>,
}

/// The room that a member has joined. `None` if another member has its name.
pub(crate) type Joined = Option<Address<RoomMessage>>;

impl Room {
    fn show(&self, line: String, out: &mut Actions<Self>) {
        let line: Arc<str> = line.into();
        for member in self.members.values() {
            // The next message waits until all members have accepted this line. A member that is too slow ends.
            out.send_timeout(member.writer, line.clone(), Duration::MAX).then_holding(out, |_, _, _| Ok(()));
        }
    }
}

#[actor]
impl Room {
    pub(crate) fn admit(&mut self, member: Member, out: &mut Actions<Self>) -> Joined {
        if self.members.values().any(|other| other.name == member.name) {
            return None;
        }
        self.show(format!("* {} has come", member.name), out);
        out.monitor(member.pid);
        self.members.insert(member.pid, member);
        Some(out.address())
    }

    /// The sender says this to all members.
    pub(crate) fn say(&mut self, text: String, out: &mut Actions<Self>) {
        if let Some(member) = out.sender().and_then(|sender| self.members.get(&sender)) {
            self.show(format!("{}: {text}", member.name), out);
        }
    }

    #[on(down)]
    fn ended(&mut self, down: Down, out: &mut Actions<Self>) {
        if let Some(member) = self.members.remove(&down.pid) {
            self.show(format!("* {} has left", member.name), out);
        }
    }
}
