//! Durable processes in the files of SQLite: steps a second, and the time until a begun process is on disk.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use procession::durable::{Durable, Format, Store};
use procession::sync::Latch;
use procession::{Address, Event, Events, Process, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

const LIMIT: Duration = Duration::from_secs(600);
/// The pause between two checks whether all members have ended.
const PAUSE: Duration = Duration::from_millis(1);

/// How many members have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// A process with a state of about 200 bytes. It passes a number on to the next one until the number is zero.
#[derive(Serialize, Deserialize)]
pub(crate) struct Member<const JSON: bool> {
    filling: String,
    taken: u64,
    next: Option<Address<Message<JSON>>>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Message<const JSON: bool> {
    Next(Address<Message<JSON>>),
    Pass(u64),
    /// Fails, again and again until the process is parked.
    Fail,
}

impl<const JSON: bool> Process for Member<JSON> {
    type Message = Message<JSON>;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, Message<JSON>>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(Message::Next(next)) => self.next = Some(next),
                Event::Message(Message::Pass(0)) => {
                    ENDED.fetch_add(1, Ordering::SeqCst);
                    return Ok(Step::Done(self.taken));
                }
                Event::Message(Message::Pass(left)) => {
                    self.taken += 1;
                    let me: Address<Message<JSON>> = out.pid().typed();
                    out.send(self.next.unwrap_or(me), Message::Pass(left - 1));
                }
                Event::Message(Message::Fail) => return Err("as it was told".into()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Member<true> {
    const NAME: &str = "json member";
}

impl Durable for Member<false> {
    const NAME: &str = "postcard member";
    const FORMAT: Format = Format::Postcard;
}

fn member<const JSON: bool>() -> Member<JSON> {
    Member { filling: "x".repeat(170), taken: 0, next: None }
}

fn open(directory: &Path) -> (Store, Runtime) {
    let store = Store::open(directory).kind::<Member<true>>().kind::<Member<false>>();
    store.start(Runtime::builder()).expect("a store can be started")
}

fn end((store, runtime): (Store, Runtime)) {
    runtime.shutdown(LIMIT).expect("it can be shut down");
    store.close().expect("everything is on disk");
}

/// One token goes round 1,000 processes. Returns the hops a second.
pub(crate) fn ring(directory: &Path, hops: u64) -> f64 {
    let (store, runtime) = open(directory);
    let members: Vec<_> = (0..1_000)
        .map(|n| store.begin(&format!("ring {n}"), member::<false>()).expect("it begins").address())
        .collect();
    for (member, next) in members.iter().zip(members.iter().cycle().skip(1)) {
        runtime.send(*member, Message::Next(*next)).expect("it lives");
    }
    runtime.wait_idle().expect("it comes to rest");
    let last = (hops % 1_000) as usize;
    let result = store.result::<Member<false>>(&format!("ring {last}")).expect("it is there");
    let begin = Instant::now();
    runtime.send(members[0], Message::Pass(hops)).expect("it lives");
    result.wait(LIMIT).expect("the token arrives");
    let rate = hops as f64 / begin.elapsed().as_secs_f64();
    end((store, runtime));
    rate
}

/// Each of many processes makes as many steps, one after the other, beside others that always fail. Returns the steps a
/// second, until all are on disk.
pub(crate) fn steps<const JSON: bool>(directory: &Path, (processes, failing): (u64, u64), steps: u64) -> f64
where
    Member<JSON>: Durable + Process<Message = Message<JSON>>,
{
    let (store, runtime) = open(directory);
    let begin_one = |n| store.begin(&format!("{JSON} {n}"), member::<JSON>()).expect("it begins");
    let members: Vec<_> = (0..processes).map(begin_one).collect();
    members.last().into_iter().for_each(|member| member.wait(LIMIT).expect("it is on disk"));
    runtime.wait_idle().expect("it comes to rest");
    for n in 0..failing {
        let fails = store.begin(&format!("fails {n}"), member::<JSON>()).expect("it begins");
        store.send(fails.address(), Message::Fail).expect("it lives");
    }
    ENDED.store(0, Ordering::SeqCst);
    let begin = Instant::now();
    for member in &members {
        runtime.send(member.address(), Message::Pass(steps)).expect("it lives");
    }
    // Processes that wait for room in front of the disk are idle, too. So the ends are counted.
    while ENDED.load(Ordering::SeqCst) < processes {
        assert!(begin.elapsed() < LIMIT, "{} of {processes} have ended", ENDED.load(Ordering::SeqCst));
        let _ = Latch::<()>::new().wait_timeout(PAUSE);
    }
    end((store, runtime));
    (processes * (steps + 1)) as f64 / begin.elapsed().as_secs_f64()
}

/// The time of `begin` with its wait, again and again while `goes_on` says so. Returns the times in order.
fn begin_while(store: &Store, name: &str, mut goes_on: impl FnMut() -> bool) -> Vec<Duration> {
    let mut times = Vec::new();
    while times.is_empty() || goes_on() {
        let begin = Instant::now();
        let begun = store.begin(&format!("{name} {}", times.len()), member::<false>()).expect("it begins");
        begun.wait(LIMIT).expect("it is on disk");
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    times
}

/// The median time of `begin` with its wait.
pub(crate) fn begins(directory: &Path, limit: Duration) -> Duration {
    let (store, runtime) = open(directory);
    let begin = Instant::now();
    let times = begin_while(&store, "one", || begin.elapsed() < limit);
    end((store, runtime));
    times[times.len() / 2]
}

/// The time of a commit in a store of many processes.
pub(crate) struct BesideBackups {
    /// The 99th percentile without a backup.
    pub(crate) alone: Duration,
    /// That while backups are made, one after the other.
    pub(crate) beside: Duration,
    pub(crate) backups: usize,
    /// The time that the backups took.
    pub(crate) took: Duration,
}

/// Commits beside backups.
pub(crate) fn backups(directory: &Path, processes: u64, limit: Duration) -> BesideBackups {
    let (store, runtime) = open(directory);
    let members: Vec<_> =
        (0..processes).map(|n| store.begin(&format!("old {n}"), member::<false>()).expect("it begins")).collect();
    members.last().into_iter().for_each(|member| member.wait(LIMIT).expect("it is on disk"));
    runtime.wait_idle().expect("it comes to rest");
    let percentile = |times: &[Duration]| times[times.len() * 99 / 100];
    let begin = Instant::now();
    let alone = percentile(&begin_while(&store, "alone", || begin.elapsed() < limit));
    let is_over = AtomicBool::new(false);
    let (beside, backups, took) = std::thread::scope(|scope| {
        let copies = scope.spawn(|| {
            let (begin, mut backups) = (Instant::now(), 0);
            while backups == 0 || begin.elapsed() < limit {
                let copy = directory.with_extension("copy");
                store.backup(&copy).expect("it is copied");
                std::fs::remove_dir_all(copy).expect("it is there");
                backups += 1;
            }
            let took = begin.elapsed();
            is_over.store(true, Ordering::SeqCst);
            (backups, took)
        });
        let times = begin_while(&store, "beside", || !is_over.load(Ordering::SeqCst));
        let (backups, took) = copies.join().expect("backups are made");
        (percentile(&times), backups, took)
    });
    end((store, runtime));
    BesideBackups { alone, beside, backups, took }
}
