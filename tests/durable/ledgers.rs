//! Stored commands of a program that is killed, and the ledgers of the world outside.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use procession::command::{Command, CommandKey, Responder, Retry, TimerFired};
use procession::durable::{Durable, DurableCommand, ErrorText, Store, StoreBuilder};
use procession::{Address, BoxError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::failpoints::{is_about_memory, reach};
use crate::places::{Directory, is_ahead};
use crate::script::{counts, draw};
use crate::torture::{last_number, lines, number_behind};
use crate::wait::{LIMIT, until, wait};

/// The variable that tells a test program to be the program that is killed. It has the directory of the world.
pub(crate) const WORLD: &str = "PROCESSION_LEDGERS";
/// The kills in one world. A program reads the effects of all earlier ones, so a world of thousands would take hours.
pub(crate) const IN_ONE_WORLD: usize = 250;
const BUYERS: u64 = 4;
const ATTEMPTS: u32 = 3;

#[derive(Serialize, Deserialize)]
struct Buy(u64);

impl Command for Buy {
    type Output = ();
}

impl DurableCommand for Buy {
    const NAME: &str = "buy";
    type Error = ErrorText;

    fn retry(&self) -> Retry {
        Retry::new().first_pause(Duration::from_millis(1)).attempts(ATTEMPTS)
    }
}

/// Buys things, and counts. A child buys each third one.
#[derive(Default, Serialize, Deserialize)]
struct Buyer {
    ordered: u64,
    bought: u64,
    failed: Vec<String>,
    open: Vec<Tag<()>>,
    stock: Option<Address<StockMessage>>,
}

#[derive(Serialize, Deserialize)]
enum BuyerMessage {
    Buy,
    Look(Reply<(u64, u64, Vec<String>)>),
}

impl Process for Buyer {
    type Message = BuyerMessage;
    type Output = ();

    fn close(&mut self) {
        reach("departure");
    }

    fn step(&mut self, events: &mut Events<'_, BuyerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(BuyerMessage::Buy) => {
                    self.ordered += 1;
                    let order = || Order { number: self.ordered, stock: self.stock, timer: None, paid: None };
                    let by_child = self.ordered.is_multiple_of(3);
                    self.open.push(if by_child { out.run(order()) } else { out.command(Buy(self.ordered)) });
                }
                Event::Message(BuyerMessage::Look(reply)) => {
                    out.reply(reply, (self.ordered, self.bought, self.failed.clone()));
                }
                Event::Completed(done) => {
                    let place = self.open.iter().position(|tag| done.is(*tag)).ok_or("it has two answers")?;
                    match done.take(self.open.swap_remove(place)) {
                        Some(Ok(())) => self.bought += 1,
                        other => self.failed.push(format!("{other:?}")),
                    }
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Buyer {
    const NAME: &str = "buyer";

    fn resumed(&mut self) {
        reach("return");
    }
}

/// Waits for a moment, and then buys one thing, which it takes from the stock.
#[derive(Serialize, Deserialize)]
struct Order {
    number: u64,
    stock: Option<Address<StockMessage>>,
    timer: Option<Tag<TimerFired>>,
    paid: Option<Tag<()>>,
}

impl Process for Order {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.timer = Some(out.after(Duration::from_millis(1)));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Completed(done) if done.is(self.timer) => {
                    reach("timer");
                    self.timer = None;
                    self.stock.into_iter().for_each(|stock| out.send(stock, StockMessage::Take));
                    self.paid = Some(out.command(Buy(self.number)));
                }
                Event::Completed(done) if done.is(self.paid) => {
                    reach("child");
                    return Ok(Step::Done(()));
                }
                other => return Err(format!("an order gets {other:?}").into()),
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Order {
    const NAME: &str = "order";
}

/// Counts what was taken.
#[derive(Default, Serialize, Deserialize)]
struct Stock(u64);

#[derive(Serialize, Deserialize)]
enum StockMessage {
    Take,
    Look(Reply<u64>),
}

impl Process for Stock {
    type Message = StockMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, StockMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(StockMessage::Take) => self.0 += 1,
                Event::Message(StockMessage::Look(reply)) => out.reply(reply, self.0),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Stock {
    const NAME: &str = "stock";
}

/// The world outside. It outlives the program.
struct World {
    /// The keys of all effects. A key is refused the second time.
    refusing: File,
    seen: HashSet<CommandKey>,
    /// The key and the number of the attempt of each effect.
    counting: File,
}

fn refusing(world: &Path) -> PathBuf {
    world.join("refusing")
}

fn counting(world: &Path) -> PathBuf {
    world.join("counting")
}

/// The keys in the ledger that refuses. Each is there once.
fn seen(world: &Path) -> HashSet<CommandKey> {
    let text = std::fs::read_to_string(refusing(world)).unwrap_or_default();
    let keys: Vec<CommandKey> = text.lines().map(|line| line.trim_end().parse().unwrap()).collect();
    let set: HashSet<CommandKey> = keys.iter().copied().collect();
    assert_eq!(set.len(), keys.len());
    set
}

impl World {
    fn open(world: &Path) -> World {
        std::fs::create_dir_all(world).unwrap();
        let append = |path| OpenOptions::new().create(true).append(true).open(path).unwrap();
        World { refusing: append(refusing(world)), seen: seen(world), counting: append(counting(world)) }
    }

    /// Has the effect. All lines have 64 bytes, so none lies across two pages, where a kill would tear it.
    fn buy(&mut self, key: CommandKey, attempt: u32) {
        let line = |text: String| format!("{text:<63}\n");
        self.counting.write_all(line(format!("{key} {attempt}")).as_bytes()).unwrap();
        if self.seen.insert(key) {
            self.refusing.write_all(line(key.to_string()).as_bytes()).unwrap();
        }
    }
}

/// A store in this world.
pub(crate) fn store_of(world: &Path) -> StoreBuilder {
    Store::open(world.join("store")).ahead(is_ahead())
}

type Started = (Store, Runtime, Vec<Address<BuyerMessage>>, Address<StockMessage>);

/// Starts the store. Another thread has the effects and answers.
fn start(world: &Path, store: StoreBuilder) -> Started {
    let (sender, orders) = mpsc::channel::<(Buy, Responder<()>)>();
    let mut outside = World::open(world);
    std::thread::spawn(move || {
        for (Buy(number), done) in orders {
            let is_first = done.attempt() == 1;
            reach("effect");
            match number % 5 {
                // It fails at first, before or after its effect.
                0 if is_first => done.fail("no stock"),
                1 if is_first => {
                    outside.buy(done.key().unwrap(), done.attempt());
                    done.fail("no receipt");
                }
                _ => {
                    outside.buy(done.key().unwrap(), done.attempt());
                    reach("answer");
                    done.ok(());
                    reach("answered");
                }
            }
        }
    });
    let builder = Runtime::builder().workers(2).handler(move |buy: Buy, done: Responder<()>| {
        reach("hand-out");
        // It is dropped when the thread has ended.
        drop(sender.send((buy, done)));
        Ok(())
    });
    let store = store.kind::<Buyer>().kind::<Order>().kind::<Stock>().command::<Buy>();
    let (store, runtime) = store.start(builder).unwrap();
    let stock = store.begin("stock", Stock::default()).unwrap().address();
    let buyer = || Buyer { stock: Some(stock), ..Buyer::default() };
    let buyers = (0..BUYERS).map(|n| store.begin(&n.to_string(), buyer()).unwrap().address()).collect::<Vec<_>>();
    (store, runtime, buyers, stock)
}

/// The program that is killed. Without the variable this is no test.
#[test]
fn child_program() {
    let Some(world) = std::env::var_os(WORLD) else { return };
    buy_on(Path::new(&world), store_of(Path::new(&world)));
}

/// Orders until the program is killed.
pub(crate) fn buy_on(world: &Path, store: StoreBuilder) {
    let (store, runtime, buyers, _) = start(world, store);
    for ordered in 1.. {
        let buyer = buyers[ordered as usize % buyers.len()];
        let receipt = store.send(buyer, BuyerMessage::Buy).unwrap();
        if ordered % 10 == 0 {
            receipt.wait(LIMIT).unwrap();
            reach("acknowledgement");
            if is_about_memory() {
                until("some have left memory", || runtime.processes().len() <= 2);
            }
            let mut out = std::io::stdout().lock();
            writeln!(out, "\nacknowledged {ordered}").and_then(|()| out.flush()).unwrap();
        }
    }
}

/// Checks the ledgers after so many purchases and kills.
pub(crate) fn check(world: &Path, bought: u64, kills: u64) {
    assert_eq!(seen(world).len() as u64, bought, "each effect is there once");
    let mut attempts = HashMap::<CommandKey, HashSet<u32>>::new();
    for line in std::fs::read_to_string(counting(world)).unwrap().lines() {
        assert_eq!(line.len(), 63, "a line is whole: {line}");
        let (key, attempt) = line.trim_end().split_once(' ').unwrap();
        let is_new = attempts.entry(key.parse().unwrap()).or_default().insert(attempt.parse().unwrap());
        assert!(is_new, "an attempt is handed out once: {line}");
    }
    for (key, numbers) in attempts {
        let last = numbers.iter().max().copied().unwrap_or_default();
        assert!(u64::from(last) <= u64::from(ATTEMPTS) + kills, "{key} has had attempt {last}");
    }
}

#[test]
fn each_effect_is_there_once_however_often_the_program_is_killed() {
    let kills = counts("kills", 30, 2_000);
    (0..kills).step_by(IN_ONE_WORLD).for_each(|kill| kill_at_instants(kill..kills.min(kill + IN_ONE_WORLD as u64)));
}

/// Makes a world, and kills its program so often.
fn kill_at_instants(kills: Range<u64>) {
    let directory = Directory::new();
    let world = directory.path();
    let mut total = 0;
    for kill in kills.clone() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "ledgers::child_program", "--nocapture", "--quiet"]).env(WORLD, world);
        // A backtrace takes so long that a kill would come before the status of a panic.
        command.env("RUST_BACKTRACE", "0");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = lines(&mut child);
        let first = std::iter::from_fn(|| lines.recv_timeout(LIMIT).ok());
        let mut acknowledged = first.filter_map(|line| number_behind("acknowledged", &line)).next().unwrap();
        let end = Instant::now() + Duration::from_micros(draw(9, kill, 2, 50_000));
        while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            acknowledged = number_behind("acknowledged", &line).unwrap_or(acknowledged);
        }
        child.kill().unwrap();
        let status = wait(&mut child);
        // A program that has panicked before has another status.
        assert_eq!(status.signal(), Some(9), "kill {kill}: it runs until it is killed: {status}");
        acknowledged = last_number(&mut child, &lines, "acknowledged", &format!("kill {kill}")).unwrap_or(acknowledged);

        // Others go on without an end between two kills.
        if kill % 3 == 1 && kill + 1 < kills.end {
            total += acknowledged;
            continue;
        }
        total = go_on(world, total + acknowledged);
        if kill % 50 == 49 || kill + 1 == kills.end {
            check(world, total, kill + 1 - kills.start);
        }
    }
}

/// Starts the program again, and waits until everything is bought. Returns how much that is.
pub(crate) fn go_on(world: &Path, acknowledged: u64) -> u64 {
    let (store, runtime, buyers, stock) = start(world, store_of(world));
    let mut looks = Vec::new();
    until("all is bought", || {
        let look = |buyer: &Address<_>| runtime.ask(*buyer, BuyerMessage::Look, LIMIT).wait().unwrap();
        looks = buyers.iter().map(look).collect();
        looks.iter().all(|(ordered, bought, failed)| *ordered == bought + failed.len() as u64)
    });
    let bought: u64 = looks.iter().map(|(_, bought, _)| bought).sum();
    looks.iter().for_each(|(.., failed)| assert_eq!(*failed, Vec::<String>::new(), "each error is repeated"));
    let taken = || runtime.ask(stock, StockMessage::Look, LIMIT).wait().unwrap();
    assert_eq!(taken(), looks.iter().map(|(ordered, ..)| ordered / 3).sum::<u64>(), "each child has taken one thing");
    assert!(bought >= acknowledged, "{acknowledged} were acknowledged, and {bought} bought");
    assert_eq!(store.check().unwrap(), []);
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    store.close().unwrap();
    bought
}
