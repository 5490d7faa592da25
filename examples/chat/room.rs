//! Rooms, and the hall that knows them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use procession::feed::Feed;
use procession::prelude::*;
use procession::spawn::Overflow;
use procession::{BoxError, Down};
use tokio::net::{TcpListener, TcpStream};

use crate::connection::Connection;

/// The pause after an error of `accept`.
const PAUSE: Duration = Duration::from_millis(100);

/// Bounded mailboxes: senders wait for room.
pub(crate) fn bounded() -> SpawnOptions {
    SpawnOptions::new().mailbox(64, Overflow::Refuse)
}

/// Spawns the connections and the rooms.
pub(crate) struct Hall {
    listener: Option<TcpListener>,
    rooms: HashMap<String, Address<RoomMessage>>,
}

impl Hall {
    pub(crate) fn new(listener: TcpListener) -> Hall {
        Hall { listener: Some(listener), rooms: HashMap::new() }
    }
}

/// Puts each client into the feed of the hall, until `accept` fails.
async fn accept(listener: TcpListener, hall: Feed<HallMessage>) -> TcpListener {
    while let Ok((socket, _)) = listener.accept().await {
        drop(hall.put(HallMessage::Enter(socket)).await);
    }
    listener
}

#[actor]
impl Hall {
    #[on(start)]
    fn open(&mut self, out: &mut Actions<Self>) {
        let feed = out.feed(16);
        let Some(listener) = self.listener.take() else { return };
        out.future(accept(listener, feed)).then(out, |hall, listener, out| {
            hall.listener = Some(listener?);
            // For example because too many files are open. Some may be closed soon.
            out.after(PAUSE).then(out, |hall, _, out| {
                hall.open(out);
                Ok(())
            });
            Ok(())
        });
    }

    /// Spawns a connection. If there are too many processes, the client is disconnected.
    pub(crate) fn enter(&mut self, socket: TcpStream, out: &mut Actions<Self>) {
        let connection = Connection::new(socket, out.address());
        drop(out.spawn(actor(connection)));
    }

    /// The room of this name. If there is none, it is opened.
    pub(crate) fn room(&mut self, name: String, out: &mut Actions<Self>) -> Result<Address<RoomMessage>, BoxError> {
        if let Some(room) = self.rooms.get(&name) {
            return Ok(*room);
        }
        let room = out.spawn_with(actor(Room::default()), bounded().monitor())?.address;
        self.rooms.insert(name, room);
        Ok(room)
    }

    #[on(down)]
    fn closed(&mut self, down: Down) {
        self.rooms.retain(|_, room| room.pid() != down.pid);
    }
}

/// Shows each line to all members, in one order.
#[derive(Default)]
pub(crate) struct Room {
    members: HashMap<Pid, Member>,
}

struct Member {
    name: String,
    writer: Address<Arc<str>>,
}

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
    /// The sender becomes a member, unless another one has the name.
    pub(crate) fn admit(&mut self, name: String, writer: Address<Arc<str>>, out: &mut Actions<Self>) -> bool {
        let Some(sender) = out.sender().filter(|_| self.members.values().all(|member| member.name != name)) else {
            return false;
        };
        self.show(format!("* {name} has come"), out);
        out.monitor(sender);
        self.members.insert(sender, Member { name, writer });
        true
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
