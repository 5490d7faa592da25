//! The shape of the chat: its users, its rooms, and what each user does. It is a separate file, so that the programs
//! of other libraries (`benches/peers`) do exactly the same.

use super::measure::Setting;
use super::shape::Walk;

pub(crate) const USERS: u64 = 1_000;
pub(crate) const ROOMS: u64 = 100;

/// An action of a user.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Posts to the room in which the user always is.
    PostAtHome,
    /// Posts to the room that the user visits.
    PostAway,
    /// Joins this room, which is looked up by its name.
    Join(usize),
    /// Leaves the room that the user visits.
    Leave,
    /// Sends to this user, who is looked up by name.
    Whisper(usize),
    /// Asks this room, which is looked up by its name, how many members it has.
    AskMembers(usize),
}

/// The actions of one user. They depend on nothing but the number of the user.
pub(crate) struct Actions {
    walk: Walk,
    home: usize,
    visits: bool,
    left: u64,
}

impl Actions {
    pub(crate) fn of(user: u64, setting: &Setting) -> Actions {
        Actions { walk: Walk::new(user), home: home_of(user), visits: false, left: setting.share(user, USERS) }
    }

    /// A room other than the home.
    fn other_room(&mut self) -> usize {
        (self.home + 1 + self.walk.next(ROOMS as usize - 1)) % ROOMS as usize
    }
}

impl Iterator for Actions {
    type Item = Action;

    /// Of 100 actions, 60 are posts, 30 are joins and leaves, 8 are whispers, and 2 are questions.
    fn next(&mut self) -> Option<Action> {
        self.left = self.left.checked_sub(1)?;
        Some(match self.walk.next(100) {
            0..60 if self.visits && self.walk.next(2) == 0 => Action::PostAway,
            0..60 => Action::PostAtHome,
            60..90 => {
                self.visits = !self.visits;
                if self.visits { Action::Join(self.other_room()) } else { Action::Leave }
            }
            90..98 => Action::Whisper(self.walk.next(USERS as usize)),
            _ => Action::AskMembers(self.walk.next(ROOMS as usize)),
        })
    }
}

/// The room in which a user always is.
pub(crate) fn home_of(user: u64) -> usize {
    (user % ROOMS) as usize
}

/// The names of all users and of all rooms.
pub(crate) struct Names {
    pub(crate) users: Vec<String>,
    pub(crate) rooms: Vec<String>,
}

impl Names {
    pub(crate) fn new() -> Names {
        Names {
            users: (0..USERS).map(|user| format!("user-{user}")).collect(),
            rooms: (0..ROOMS).map(|room| format!("room-{room}")).collect(),
        }
    }
}

/// The counts at the end of the chat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    /// The posts that the rooms have got.
    pub(crate) posts: u64,
    /// The posts that the rooms have sent to their members.
    pub(crate) forwarded: u64,
    /// The posts and whispers that the users have got.
    pub(crate) received: u64,
}

impl Totals {
    /// Checks that all users have done everything, and that nothing was lost.
    pub(crate) fn check(&self, setting: &Setting) -> Result<(), String> {
        let (mut posts, mut whispers) = (0, 0);
        for action in (0..USERS).flat_map(|user| Actions::of(user, setting)) {
            posts += u64::from(matches!(action, Action::PostAtHome | Action::PostAway));
            whispers += u64::from(matches!(action, Action::Whisper(_)));
        }
        if self.posts == posts && self.received == self.forwarded + whispers {
            return Ok(());
        }
        Err(format!("the chat has counted {self:?}, and there were {posts} posts and {whispers} whispers"))
    }
}
