//! A chat: users post to rooms, which forward to their members. Users also come and go, whisper to each other, and
//! ask how many members a room has. Rooms and users are found by their names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use procession::{Address, Event, Events, Pid, Process, Reply, SpawnOptions, Step, StepOutput, StepResult, Tag};

use super::chat_shape::{Action, Actions, Names, Totals, USERS, home_of};
use super::measure::{Measured, Outcome, Setting};
use super::runtime::{done, finish};

/// The limit of an answer.
const LIMIT: Duration = Duration::from_secs(10);

enum RoomMessage {
    Join(Address<UserMessage>),
    Leave(Address<UserMessage>),
    Post(Arc<str>),
    Members(Reply<usize>),
    /// No more posts come.
    Close(Address<Report>),
}

/// Forwards posts to its members.
struct Room {
    members: Vec<Address<UserMessage>>,
    posts: u64,
    forwarded: u64,
}

impl Process for Room {
    type Message = RoomMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<RoomMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(RoomMessage::Join(user)) => self.members.push(user),
                Event::Message(RoomMessage::Leave(user)) => {
                    let place = self.members.iter().position(|member| *member == user).ok_or("no such member")?;
                    self.members.swap_remove(place);
                }
                Event::Message(RoomMessage::Post(text)) => {
                    self.posts += 1;
                    self.forwarded += self.members.len() as u64;
                    for member in &self.members {
                        out.send(*member, UserMessage::Text(text.clone()));
                    }
                }
                Event::Message(RoomMessage::Members(reply)) => out.reply(reply, self.members.len()),
                Event::Message(RoomMessage::Close(to)) => {
                    out.send(to, Report::Closed { posts: self.posts, forwarded: self.forwarded });
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

enum UserMessage {
    Begin,
    /// A post or a whisper.
    Text(Arc<str>),
    /// Nothing more comes.
    Count,
}

/// Takes its texts, and then does one thing in each step.
struct User {
    actions: Actions,
    acts: bool,
    names: Arc<Names>,
    home: Address<RoomMessage>,
    /// The room that it visits.
    away: Option<Pid>,
    question: Option<Tag<usize>>,
    received: u64,
    moderator: Address<Report>,
}

impl User {
    fn act(&mut self, action: Action, out: &mut StepOutput) -> StepResult<()> {
        let me: Address<UserMessage> = out.pid().typed();
        match action {
            Action::PostAtHome => out.send(self.home, RoomMessage::Post(Arc::from("What a day!"))),
            Action::PostAway => out.send(self.away.ok_or("not away")?, RoomMessage::Post(Arc::from("Hello, all!"))),
            Action::Join(room) => {
                let room = out.whereis(&self.names.rooms[room]).ok_or("no such room")?;
                out.send(room, RoomMessage::Join(me));
                self.away = Some(room);
            }
            Action::Leave => out.send(self.away.take().ok_or("not away")?, RoomMessage::Leave(me)),
            Action::Whisper(user) => out.send(&self.names.users[user], UserMessage::Text(Arc::from("Psst!"))),
            Action::AskMembers(room) => {
                self.question = Some(out.ask(&self.names.rooms[room], RoomMessage::Members, LIMIT));
                return Ok(Step::Wait);
            }
        }
        Ok(Step::Continue)
    }
}

impl Process for User {
    type Message = UserMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<UserMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(UserMessage::Begin) => {
                    self.acts = true;
                    out.send(self.home, RoomMessage::Join(out.pid().typed()));
                }
                Event::Message(UserMessage::Text(text)) => self.received += u64::from(!text.is_empty()),
                Event::Message(UserMessage::Count) => out.send(self.moderator, Report::Counted(self.received)),
                Event::Completed(done) => {
                    if let Some(answer) = done.take(self.question) {
                        answer?;
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if !self.acts {
            return Ok(Step::Idle);
        }
        if let Some(action) = self.actions.next() {
            return self.act(action, out);
        }
        self.acts = false;
        out.send(self.moderator, Report::Finished);
        Ok(Step::Idle)
    }
}

enum Report {
    /// All users, who are to begin.
    Open(Vec<Address<UserMessage>>),
    /// A user has done everything.
    Finished,
    /// The counts of a room.
    Closed { posts: u64, forwarded: u64 },
    /// The number of texts that a user has got.
    Counted(u64),
}

/// Lets the users begin. When all have finished, it closes the rooms. Then it lets the users count, and ends.
struct Moderator {
    rooms: Vec<Address<RoomMessage>>,
    users: Vec<Address<UserMessage>>,
    finished: usize,
    closed: usize,
    counted: usize,
    totals: Totals,
}

impl Process for Moderator {
    type Message = Report;
    type Output = Totals;

    fn step(&mut self, events: &mut Events<Report>, out: &mut StepOutput) -> StepResult<Totals> {
        for event in events {
            match event {
                Event::Message(Report::Open(users)) => {
                    users.iter().for_each(|user| out.send(*user, UserMessage::Begin));
                    self.users = users;
                }
                Event::Message(Report::Finished) => {
                    self.finished += 1;
                    if self.finished == self.users.len() {
                        let me = out.pid().typed();
                        self.rooms.iter().for_each(|room| out.send(*room, RoomMessage::Close(me)));
                    }
                }
                Event::Message(Report::Closed { posts, forwarded }) => {
                    self.totals.posts += posts;
                    self.totals.forwarded += forwarded;
                    self.closed += 1;
                    if self.closed == self.rooms.len() {
                        self.users.iter().for_each(|user| out.send(*user, UserMessage::Count));
                    }
                }
                Event::Message(Report::Counted(received)) => {
                    self.totals.received += received;
                    self.counted += 1;
                }
                Event::Cancel(_) => return Ok(Step::Done(self.totals)),
                _ => {}
            }
        }
        let is_over = self.counted > 0 && self.counted == self.users.len();
        Ok(if is_over { Step::Done(self.totals) } else { Step::Idle })
    }
}

pub(crate) fn mixed(setting: &Setting) -> Outcome<Measured> {
    let runtime = setting.runtime()?;
    let names = Arc::new(Names::new());
    let mut rooms = Vec::new();
    for name in &names.rooms {
        let room = Room { members: Vec::new(), posts: 0, forwarded: 0 };
        rooms.push(runtime.spawn_with(room, SpawnOptions::new().name(name.as_str()))?.address());
    }
    let (finished, closed, counted, totals) = (0, 0, 0, Totals::default());
    let moderator = Moderator { rooms: rooms.clone(), users: Vec::new(), finished, closed, counted, totals };
    let moderator = runtime.spawn(moderator)?;
    let mut users = Vec::new();
    for (number, name) in (0..USERS).zip(&names.users) {
        let user = User {
            actions: Actions::of(number, setting),
            acts: false,
            names: names.clone(),
            home: rooms[home_of(number)],
            away: None,
            question: None,
            received: 0,
            moderator: moderator.address(),
        };
        users.push(runtime.spawn_with(user, SpawnOptions::new().name(name.as_str()))?.address());
    }
    let began = Instant::now();
    runtime.send(moderator.address(), Report::Open(users))?;
    let totals = done(&moderator)?;
    let measured = Measured::since(began, setting.n);
    totals.check(setting)?;
    finish(&runtime)?;
    Ok(measured)
}
