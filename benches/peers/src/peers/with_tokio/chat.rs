//! A chat on raw tokio: a task for each user and each room, and a concurrent map of names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::ours::chat_shape::{Action, Actions, Names, Totals, USERS, home_of};
use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::tokio_runtime_with_timers;

/// The limit of an answer.
const LIMIT: Duration = Duration::from_secs(10);

/// A user is identified by its number, because channel senders are not compared.
enum RoomMessage {
    Join {
        user: u64,
        to: UnboundedSender<UserMessage>,
    },
    Leave {
        user: u64,
    },
    Post(Arc<str>),
    Members(oneshot::Sender<usize>),
    /// No more posts come.
    Close(oneshot::Sender<Totals>),
}

/// Forwards posts to its members, until it is closed.
async fn keep_room(mut inbox: UnboundedReceiver<RoomMessage>) {
    let mut members: Vec<(u64, UnboundedSender<UserMessage>)> = Vec::new();
    let mut totals = Totals::default();
    while let Some(message) = inbox.recv().await {
        match message {
            RoomMessage::Join { user, to } => members.push((user, to)),
            RoomMessage::Leave { user } => {
                if let Some(place) = members.iter().position(|(member, _)| *member == user) {
                    members.swap_remove(place);
                }
            }
            RoomMessage::Post(text) => {
                totals.posts += 1;
                totals.forwarded += members.len() as u64;
                for (_, member) in &members {
                    // A post that is lost makes the totals wrong.
                    let _ = member.send(UserMessage::Text(text.clone()));
                }
            }
            RoomMessage::Members(reply) => drop(reply.send(members.len())),
            RoomMessage::Close(reply) => {
                let _ = reply.send(totals);
                break;
            }
        }
    }
}

enum UserMessage {
    Begin,
    /// A post or a whisper.
    Text(Arc<str>),
    /// Nothing more comes.
    Count(oneshot::Sender<u64>),
}

/// Everybody who can be found by name.
struct Directory {
    names: Names,
    users: DashMap<String, UnboundedSender<UserMessage>>,
    rooms: DashMap<String, UnboundedSender<RoomMessage>>,
}

impl Directory {
    fn room(&self, name: &str) -> Option<UnboundedSender<RoomMessage>> {
        self.rooms.get(name).map(|room| room.clone())
    }
}

struct User {
    number: u64,
    directory: Arc<Directory>,
    inbox: UnboundedReceiver<UserMessage>,
    me: UnboundedSender<UserMessage>,
    home: UnboundedSender<RoomMessage>,
    /// The room that it visits.
    away: Option<UnboundedSender<RoomMessage>>,
    received: u64,
}

impl User {
    /// Takes its texts, and then does one thing, before it yields. Returns `None` if something is not there.
    async fn act(&mut self, actions: Actions) -> Option<()> {
        for action in actions {
            while let Ok(UserMessage::Text(text)) = self.inbox.try_recv() {
                self.received += u64::from(!text.is_empty());
            }
            match action {
                Action::PostAtHome => self.home.send(RoomMessage::Post(Arc::from("What a day!"))).ok()?,
                Action::PostAway => self.away.as_ref()?.send(RoomMessage::Post(Arc::from("Hello, all!"))).ok()?,
                Action::Join(room) => {
                    let room = self.directory.room(&self.directory.names.rooms[room])?;
                    room.send(RoomMessage::Join { user: self.number, to: self.me.clone() }).ok()?;
                    self.away = Some(room);
                }
                Action::Leave => self.away.take()?.send(RoomMessage::Leave { user: self.number }).ok()?,
                Action::Whisper(user) => {
                    let user = self.directory.users.get(&self.directory.names.users[user])?;
                    user.send(UserMessage::Text(Arc::from("Psst!"))).ok()?;
                }
                Action::AskMembers(room) => {
                    let (reply, answer) = oneshot::channel();
                    let room = self.directory.room(&self.directory.names.rooms[room])?;
                    room.send(RoomMessage::Members(reply)).ok()?;
                    timeout(LIMIT, answer).await.ok()?.ok()?;
                }
            }
            yield_now().await;
        }
        Some(())
    }

    async fn live(mut self, actions: Actions, finished: UnboundedSender<()>) {
        // A user that has begun may whisper to one that has not.
        loop {
            match self.inbox.recv().await {
                Some(UserMessage::Begin) => break,
                Some(UserMessage::Text(text)) => self.received += u64::from(!text.is_empty()),
                Some(UserMessage::Count(_)) | None => return,
            }
        }
        let _ = self.home.send(RoomMessage::Join { user: self.number, to: self.me.clone() });
        if self.act(actions).await.is_none() {
            return;
        }
        let _ = finished.send(());
        while let Some(message) = self.inbox.recv().await {
            match message {
                UserMessage::Text(text) => self.received += u64::from(!text.is_empty()),
                UserMessage::Count(reply) => {
                    let _ = reply.send(self.received);
                    break;
                }
                UserMessage::Begin => {}
            }
        }
    }
}

/// Lets the users begin. When all have finished, it closes the rooms. Then it lets the users count.
async fn moderate(directory: Arc<Directory>, mut finished: UnboundedReceiver<()>) -> Option<Totals> {
    for user in &directory.users {
        user.send(UserMessage::Begin).ok()?;
    }
    for _ in 0..USERS {
        finished.recv().await?;
    }
    let (mut closed, mut counted, mut totals) = (Vec::new(), Vec::new(), Totals::default());
    for room in &directory.rooms {
        let (reply, answer) = oneshot::channel();
        room.send(RoomMessage::Close(reply)).ok()?;
        closed.push(answer);
    }
    for room in closed {
        let Totals { posts, forwarded, .. } = room.await.ok()?;
        totals.posts += posts;
        totals.forwarded += forwarded;
    }
    for user in &directory.users {
        let (reply, answer) = oneshot::channel();
        user.send(UserMessage::Count(reply)).ok()?;
        counted.push(answer);
    }
    for user in counted {
        totals.received += user.await.ok()?;
    }
    Some(totals)
}

pub(crate) fn mixed(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime_with_timers(setting)?;
    let directory = Arc::new(Directory { names: Names::new(), users: DashMap::new(), rooms: DashMap::new() });
    let mut rooms = Vec::new();
    for name in &directory.names.rooms {
        let (room, inbox) = unbounded_channel();
        runtime.spawn(keep_room(inbox));
        directory.rooms.insert(name.clone(), room.clone());
        rooms.push(room);
    }
    let (finished, finishes) = unbounded_channel();
    for (number, name) in (0..USERS).zip(&directory.names.users) {
        let (me, inbox) = unbounded_channel();
        directory.users.insert(name.clone(), me.clone());
        let (directory, home) = (directory.clone(), rooms[home_of(number)].clone());
        let user = User { number, directory, inbox, me, home, away: None, received: 0 };
        runtime.spawn(user.live(Actions::of(number, setting), finished.clone()));
    }
    drop(finished);
    let began = Instant::now();
    let totals = runtime.block_on(runtime.spawn(moderate(directory, finishes)))?.ok_or("a user or a room has gone")?;
    let measured = Measured::since(began, setting.n);
    totals.check(setting)?;
    Ok(measured)
}
