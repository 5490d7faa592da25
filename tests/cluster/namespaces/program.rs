//! The program that runs in each namespace. It is the test program, which starts itself.
//!
//! Each node has a `Book`. For each node that is up, it has a `Writer` that writes numbered notes to the book there. It
//! prints a line for each event. It also has a `Keeper` that claims a unique name, and another one when that has ended.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use procession::cluster::{Cluster, NodeEvent, NodeIdentity, Security, UniqueClaimEnd, Wire};
use procession::observe::{DeadLetter, Observer};
use procession::{
    Address, BoxError, Event, Events, Pid, Process, Reason, Reply, Runtime, SpawnOptions, Step, StepOutput, StepResult,
    Tag, remote,
};
use serde::{Deserialize, Serialize};

use super::place::NAMES;
use crate::wait::Mutex;

/// The variable that tells the test program to be a node. It has the name and the endpoint of the node, and the
/// endpoints of the others.
pub(super) const NODE: &str = "PROCESSION_TEST_NODE";

/// How many notes a writer writes between two questions.
const NOTES: u64 = 200;

const LIMIT: Duration = Duration::from_secs(5);

/// The time between two steps of a keeper.
const MOMENT: Duration = Duration::from_millis(20);

/// The writers that were started.
static WRITERS: AtomicU64 = AtomicU64::new(0);

#[derive(Serialize, Deserialize)]
enum Entry {
    /// A note with its number. The first number of a writer is 1.
    Note { writer: String, number: u64 },
    /// How many notes of the writer has the book?
    Count { writer: String, reply: Reply<u64> },
    /// The book is to say what it has.
    Tell,
}

remote!(Entry, "test::Entry", 1);

/// Keeps how many notes of each writer have come, and the number of the last one.
#[derive(Default)]
struct Book {
    notes: BTreeMap<String, (u64, u64)>,
}

impl Process for Book {
    type Message = Entry;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Entry>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Entry::Note { writer, number }) => {
                    let (count, last) = self.notes.entry(writer.clone()).or_default();
                    if number <= *last {
                        say(&format!("wrong: {writer} has written {number} after {last}"));
                    }
                    (*count, *last) = (*count + 1, number);
                }
                Event::Message(Entry::Count { writer, reply }) => {
                    let (count, last) = self.notes.get(&writer).copied().unwrap_or_default();
                    say(&format!("book {writer} {count} {last}"));
                    out.reply(reply, count);
                }
                Event::Message(Entry::Tell) => {
                    for (writer, (count, last)) in &self.notes {
                        say(&format!("book {writer} {count} {last}"));
                    }
                    say("book is told");
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Writes to a book on another node until that one is down.
struct Writer {
    name: String,
    book: Address<Entry>,
    written: u64,
    asked: u64,
    answered: u64,
    question: Option<Tag<u64>>,
    /// Whether it writes no more, and ends with the answer to its question.
    ends: bool,
    /// How often it was told that the book is down.
    downs: u64,
    lost: Lost,
}

impl Writer {
    fn write(&mut self, out: &mut StepOutput) {
        for _ in 0..NOTES {
            self.written += 1;
            out.send(self.book, Entry::Note { writer: self.name.clone(), number: self.written });
        }
        self.asked += 1;
        let writer = self.name.clone();
        self.question = Some(out.ask(self.book, |reply| Entry::Count { writer, reply }, LIMIT));
    }
}

impl Process for Writer {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        out.monitor(self.book.pid());
        self.write(out);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Completed(done) => {
                    if let Some(answer) = done.take(self.question) {
                        self.answered += 1;
                        if let Ok(count) = answer {
                            say(&format!("counted {} {count}", self.name));
                        }
                        if self.downs == 0 && !self.ends {
                            self.write(out);
                        }
                    } else {
                        say(&format!("wrong: {} has got a second answer", self.name));
                    }
                }
                Event::Down(down) => {
                    self.downs += 1;
                    say(&format!("told {} {} {}", self.name, self.downs, down.exit));
                }
                Event::Cancel(_) => self.ends = true,
                _ => {}
            }
        }
        if !(self.ends && self.answered == self.asked) {
            return Ok(Step::Idle);
        }
        let lost = self.lost.of(out.pid());
        let Writer { name, written, asked, answered, downs, .. } = self;
        say(&format!("writer {name} {written} {lost} {asked} {answered} {downs}"));
        Ok(Step::Done(()))
    }
}

/// Counts the dead letters of each sender.
#[derive(Clone, Default)]
struct Lost(Arc<Mutex<BTreeMap<Pid, u64>>>);

impl Lost {
    fn of(&self, pid: Pid) -> u64 {
        self.0.lock().unwrap().get(&pid).copied().unwrap_or_default()
    }
}

impl Observer for Lost {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        letter.from.into_iter().for_each(|from| *self.0.lock().unwrap().entry(from).or_default() += 1);
    }
}

/// Holds a unique name, and prints the token of its holding, and when its first and its last step have begun.
struct Keeper {
    cluster: Cluster,
    claim: Option<Tag<Result<u64, UniqueClaimEnd>>>,
    /// The token, and when the first step has begun.
    holding: Option<(u64, u128)>,
}

impl Keeper {
    fn keep(&mut self, (token, first): (u64, u128), now: u128, out: &mut StepOutput) {
        self.holding = Some((token, first));
        say(&format!("keeps {token} {first} {now}"));
        out.after(MOMENT);
    }
}

impl Process for Keeper {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.claim = Some(out.future(self.cluster.claim_unique("keeper", out.pid())?));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        // All programs of the test have this clock.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros();
        for event in events {
            match event {
                Event::Completed(done) if self.holding.is_none() => match done.take(self.claim) {
                    Some(Ok(Ok(token))) => self.keep((token, now), now, out),
                    _ => return Ok(Step::Done(())),
                },
                Event::Completed(_) => self.holding.into_iter().for_each(|holding| self.keep(holding, now, out)),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Starts keepers, one after the other, until the runtime ends.
fn keep(runtime: &Runtime, cluster: &Cluster) {
    while let Ok(keeper) = runtime.spawn(Keeper { cluster: cluster.clone(), claim: None, holding: None }) {
        let _ = keeper.join();
    }
}

/// Prints a line. The test program has printed the beginning of another one.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "\n{text}").and_then(|()| out.flush());
}

/// Writes to the book of a node for as long as that is up.
fn write_to(runtime: &Runtime, cluster: &Cluster, there: &NodeIdentity, lost: Lost) {
    while cluster.nodes().contains(there) {
        // A node that has just been started has no book for a moment.
        let Ok(book) = cluster.whereis(there.name(), "book", LIMIT).wait() else { continue };
        // Ordering: Relaxed: only the numbers differ.
        let number = WRITERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{:x}>{:x}/{number}", cluster.here().incarnation(), there.incarnation());
        let (book, question) = (book.typed(), None);
        let writer = Writer { name, book, written: 0, asked: 0, answered: 0, question, ends: false, downs: 0, lost };
        let _ = runtime.spawn_with(writer, SpawnOptions::new().group("writers"));
        return;
    }
}

/// Runs the node until the test says that it is to end.
pub(super) fn run(node: &str) -> Result<(), BoxError> {
    let mut words = node.split(' ');
    let mut next = || words.next().ok_or("a word is missing");
    let (name, endpoint) = (next()?, next()?);
    let lost = Lost::default();
    let runtime = Runtime::builder().observer(lost.clone()).start()?;
    let book = runtime.spawn(Book::default())?;
    runtime.register("book", &book)?;
    let wire = Wire::new().message::<Entry>();
    let builder = Cluster::named(name, wire).listen(endpoint).security(Security::TrustedNetwork).voters(NAMES);
    let cluster = words.fold(builder, |builder, other| builder.join(other)).start(&runtime)?;
    cluster.join_group("books", name, &book)?;
    cluster.claim("first", &book)?;
    say(&format!("started {:x}", cluster.here().incarnation()));
    let (of_keepers, at) = (runtime.clone(), cluster.clone());
    std::thread::spawn(move || keep(&of_keepers, &at));
    let mut events = cluster.events();
    let (of_events, at) = (runtime.clone(), cluster.clone());
    let events = std::thread::spawn(move || {
        while let Ok(Some(event)) = events.recv() {
            match event {
                NodeEvent::Up(there) => {
                    say(&format!("up {}", there.name()));
                    let (runtime, cluster, lost) = (of_events.clone(), at.clone(), lost.clone());
                    std::thread::spawn(move || write_to(&runtime, &cluster, &there, lost));
                }
                NodeEvent::Down(there, why) => say(&format!("down {} {why:?}", there.name())),
                other => say(&format!("event {other:?}")),
            }
        }
    });
    for line in std::io::stdin().lock().lines() {
        match line?.as_str() {
            // The tables, as this node sees them.
            "look" => {
                let members = cluster.group_members("books");
                let mut labels: Vec<_> = members.iter().map(|member| member.label.clone()).collect();
                labels.sort();
                let holder = cluster.holder("first");
                let holder = members.iter().find(|member| Some(member.pid) == holder).map(|member| &*member.label);
                say(&format!("sees {} {}", labels.join(","), holder.unwrap_or("nobody")));
            }
            // All writers say what they have done, and end.
            "rest" => {
                for pid in runtime.group_members("writers") {
                    let _ = runtime.cancel(pid, Reason::Cancelled);
                }
            }
            "tell" => _ = runtime.send(book.address(), Entry::Tell).is_ok(),
            _ => break,
        }
    }
    drop(runtime.shutdown(LIMIT));
    let _ = events.join();
    Ok(())
}
