//! Stores of each format of the files, which are checked in: each is read, or refused by name.
//!
//! `PROCESSION_BLESS=1` writes the store of the last format anew. A format that was released is not written again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procession::command::{Command, Responder, TimerFired};
use procession::durable::{Durable, DurableCommand, ErrorText, Query, Request, Store, operate};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::places::Directory;
use crate::wait::{LIMIT, until};
use crate::worker::end;

const FILES: [&str; 2] = ["log.db", "tables.db"];

/// The formats that this program reads.
const FORMATS: [i64; 1] = [1];

/// Nothing is removed, and no timer is due, when the store is read after years.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

#[derive(Serialize, Deserialize)]
struct Approve(u64);

impl Command for Approve {
    type Output = String;
}

impl DurableCommand for Approve {
    const NAME: &str = "approve";
    type Error = ErrorText;
}

/// Has something of everything that a store keeps.
#[derive(Default, Serialize, Deserialize)]
struct Clerk {
    value: u64,
    notes: Vec<String>,
    timer: Option<Tag<TimerFired>>,
    asked: Option<Tag<String>>,
    child: Option<Tag<u64>>,
}

#[derive(Serialize, Deserialize)]
enum ClerkMessage {
    Set(u64),
    SetTimer,
    Ask(u64),
    Run,
    TakeName(String),
    Fail,
    Over,
    Look(Reply<(u64, Vec<String>)>),
}

impl Process for Clerk {
    type Message = ClerkMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, ClerkMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(ClerkMessage::Set(value)) => self.value = value,
                Event::Message(ClerkMessage::SetTimer) => self.timer = Some(out.after(CENTURY)),
                Event::Message(ClerkMessage::Ask(number)) => self.asked = Some(out.command(Approve(number))),
                Event::Message(ClerkMessage::Run) => self.child = Some(out.run(Clerk { value: 9, ..Clerk::default() })),
                Event::Message(ClerkMessage::TakeName(name)) => drop(out.register(name, out.pid())),
                Event::Message(ClerkMessage::Fail) => return Err("the till is stuck".into()),
                Event::Message(ClerkMessage::Over) => return Ok(Step::Done(self.value)),
                Event::Message(ClerkMessage::Look(reply)) => out.reply(reply, (self.value, self.notes.clone())),
                Event::Completed(done) => {
                    if let Some(Ok(answer)) = self.asked.and_then(|tag| done.take(tag)) {
                        self.notes.push(answer);
                    } else if let Some(Ok(answer)) = self.child.and_then(|tag| done.take(tag)) {
                        self.notes.push(answer.to_string());
                    }
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Clerk {
    const NAME: &str = "clerk";
}

fn start(folder: &Path) -> Result<(Store, Runtime), procession::durable::StoreError> {
    let builder = Runtime::builder().workers(2).handler(|_: Approve, done: Responder<String>| {
        done.later();
        Ok(())
    });
    Store::open(folder).kind::<Clerk>().command::<Approve>().keep(CENTURY).start(builder)
}

fn checked_in(format: i64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durable/stores").join(format.to_string())
}

/// Makes the store that is checked in.
fn make(folder: &Path) {
    let place = Directory::new();
    let (store, runtime) = start(place.path()).unwrap();
    let begin = |id: &str| store.begin(id, Clerk::default()).unwrap().address();
    let tell = |to: Address<_>, message| store.send(to, message).unwrap().wait(LIMIT).unwrap();
    let [busy, parked, ended] = ["busy", "parked", "ended"].map(begin);
    for message in [ClerkMessage::Set(5), ClerkMessage::SetTimer, ClerkMessage::Ask(3), ClerkMessage::Run] {
        tell(busy, message);
    }
    tell(busy, ClerkMessage::TakeName("front desk".into()));
    tell(ended, ClerkMessage::Set(7));
    tell(ended, ClerkMessage::Over);
    assert_eq!(store.result::<Clerk>("ended").unwrap().wait(LIMIT).unwrap(), 7);
    tell(parked, ClerkMessage::Fail);
    tell(parked, ClerkMessage::Set(8));
    until("it is parked", || store.count(&Query::all().parked()).unwrap() == 1);
    until("the command is left for later", || {
        store.show(busy.pid()).unwrap().commands.iter().any(|command| command.phase == "later")
    });
    drop(runtime.shutdown(LIMIT).unwrap());
    store.close().unwrap();
    drop((store, runtime));
    // Now the tables have everything.
    end(start(place.path()).unwrap());
    fs::create_dir_all(folder).unwrap();
    for name in FILES {
        let file = rusqlite::Connection::open(place.path().join(name)).unwrap();
        file.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
        drop(file);
        fs::copy(place.path().join(name), folder.join(name)).unwrap();
    }
}

/// A copy of the store that is checked in.
fn copy(format: i64) -> Directory {
    let (from, place) = (checked_in(format), Directory::new());
    fs::create_dir_all(place.path()).unwrap();
    for name in FILES {
        fs::copy(from.join(name), place.path().join(name)).unwrap();
    }
    place
}

#[test]
fn a_store_of_each_format_is_read() {
    if std::env::var_os("PROCESSION_BLESS").is_some() {
        make(&checked_in(FORMATS[FORMATS.len() - 1]));
    }
    for format in FORMATS {
        let place = copy(format);
        // Its tables have no counts.
        assert_eq!(operate(place.path(), &Request::Check).unwrap(), Value::Array(Vec::new()));
        let waiting = operate(place.path(), &Request::Mail).unwrap();
        assert_eq!((&waiting["accepted"], &waiting["queued"]), (&Value::from(2), &Value::from(2)), "{waiting}");
        let (store, runtime) = start(place.path()).unwrap();
        assert_eq!(store.check().unwrap(), []);
        let counts = store.mail_counts().unwrap();
        assert_eq!(counts.accepted, counts.stepped + counts.dead_letters + counts.queued);
        assert!(counts.queued > 0, "the parked process has a message: {counts:?}");
        assert_eq!(store.count(&Query::all()).unwrap(), 4);
        let look = |to: Address<_>| runtime.ask(to, ClerkMessage::Look, LIMIT).wait().unwrap();
        let busy = store.find::<Clerk>("busy").unwrap();
        assert_eq!(runtime.whereis("front desk"), Some(busy.pid()));
        assert_eq!(look(busy), (5, vec![]));
        let shown = store.show(busy.pid()).unwrap();
        assert_eq!((shown.timers.len(), shown.commands.len()), (1, 1), "{shown:?}");
        store.answer::<Approve>(shown.commands[0].key.parse().unwrap(), Ok("yes".into())).unwrap();
        let child = store.list(&Query::all()).unwrap().into_iter().find(|listed| listed.id.is_none()).unwrap();
        store.send(child.pid.typed::<ClerkMessage>(), ClerkMessage::Over).unwrap();
        let mut notes = Vec::new();
        until("both answers have come", || {
            notes = look(busy).1;
            notes.len() == 2
        });
        notes.sort();
        assert_eq!(notes, ["9", "yes"]);
        let parked = store.list(&Query::all().error("the till is stuck")).unwrap();
        let shown = store.show(parked[0].pid).unwrap();
        assert_eq!((parked[0].id.as_deref(), shown.mail.len()), (Some("parked"), 2), "{shown:?}");
        store.skip(parked[0].pid).unwrap();
        assert_eq!(look(store.find::<Clerk>("parked").unwrap()).0, 8);
        assert_eq!(store.dead_letters(None, 10).unwrap().len(), 1);
        assert_eq!(store.result::<Clerk>("ended").unwrap().wait(LIMIT).unwrap(), 7);
        assert_eq!(store.mail_counts().unwrap().dead_letters, 1);
        end((store, runtime));
        counts_begin_again(place.path());
    }
}

/// The counts of a store with a dead letter are missing, or are damaged.
fn counts_begin_again(folder: &Path) {
    let row = "names WHERE class = 255 AND name = 'entries'";
    let position = "UPDATE names SET position = 9000000000000000000 WHERE class = 255 AND name = 'entries'";
    for (damage, found) in [(&*format!("DELETE FROM {row}"), 0), (position, 1)] {
        let file = rusqlite::Connection::open(folder.join("tables.db")).unwrap();
        assert_eq!(file.execute(damage, []).unwrap(), 1);
        drop(file);
        let damaged = operate(folder, &Request::Check).unwrap();
        assert_eq!(damaged.as_array().unwrap().len(), found, "{damaged}");
        assert_eq!(operate(folder, &Request::Mail).unwrap()["dead_letters"], 0);
        let (store, runtime) = start(folder).unwrap();
        assert_eq!(store.check().unwrap(), []);
        let counts = store.mail_counts().unwrap();
        assert_eq!((counts.accepted, counts.dead_letters), (counts.stepped + counts.queued, 0));
        end((store, runtime));
    }
}

#[test]
fn a_store_of_the_next_format_is_refused_by_its_number() {
    let next = FORMATS[FORMATS.len() - 1] + 1;
    for name in FILES {
        let place = copy(next - 1);
        let file = rusqlite::Connection::open(place.path().join(name)).unwrap();
        file.pragma_update(None, "user_version", next).unwrap();
        drop(file);
        let refused = start(place.path()).map(drop).unwrap_err().to_string();
        assert!(refused.contains(&format!("has the format {next}")), "{refused}");
    }
}
