//! Steps of many processes in a random order, and the longest commit meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use procession::durable::journal::SqliteJournal;
use procession::durable::{Durable, Format, Store};
use procession::sync::Latch;
use procession::{Address, Event, Events, Process, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::watched::{Longest, Watch, Watched};

const LIMIT: Duration = Duration::from_secs(600);
/// How many tokens are on their way at a time.
const TOKENS: u64 = 10_000;
/// The pause between two checks whether all steps are made.
const PAUSE: Duration = Duration::from_millis(1);

/// All processes of this measurement.
static MEMBERS: RwLock<Vec<Address<u64>>> = RwLock::new(Vec::new());
static STEPPED: AtomicU64 = AtomicU64::new(0);

/// A process with a state of about 200 bytes. It passes a token on to any other one, as often as the token says.
#[derive(Serialize, Deserialize)]
struct Wanderer {
    filling: String,
    taken: u64,
}

impl Process for Wanderer {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        let members = MEMBERS.read().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            let Event::Message(left) = event else { continue };
            self.taken += 1;
            let number = STEPPED.fetch_add(1, Ordering::Relaxed);
            if left > 0 {
                out.send(members[any(number, members.len())], left - 1);
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Wanderer {
    const NAME: &str = "wanderer";
    const FORMAT: Format = Format::Postcard;
}

/// A random place.
fn any(number: u64, places: usize) -> usize {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)) as usize % places
}

/// The figures of one measurement.
pub(crate) struct AtRandom {
    /// Until everything is on disk.
    pub(crate) steps_a_second: f64,
    pub(crate) longest: Longest,
}

/// Tokens go from process to process at random. Each arrival is a message and a step. At most
/// `resident` processes are in memory.
pub(crate) fn at_random(directory: &Path, processes: u64, resident: usize, steps: u64) -> AtRandom {
    let watch = Watch::default();
    let journal = Watched(SqliteJournal::new(directory), watch.clone());
    let store = Store::with_journal(journal).kind::<Wanderer>().max_resident(resident);
    let (store, runtime) = store.start(Runtime::builder()).expect("a store can be started");
    let begin_one = |n: u64| {
        let wanderer = Wanderer { filling: "x".repeat(190), taken: 0 };
        store.begin(&n.to_string(), wanderer).expect("it begins")
    };
    let begun: Vec<_> = (0..processes).map(begin_one).collect();
    begun.last().into_iter().for_each(|last| last.wait(LIMIT).expect("it is on disk"));
    runtime.wait_idle().expect("it comes to rest");
    let members: Vec<_> = begun.iter().map(|begun| begun.address()).collect();
    members.clone_into(&mut MEMBERS.write().unwrap_or_else(PoisonError::into_inner));
    STEPPED.store(0, Ordering::Relaxed);
    watch.take_longest();
    let begin = Instant::now();
    let tokens = TOKENS.min(steps);
    for token in 0..tokens {
        let to = members[any(u64::MAX / 2 + token, members.len())];
        runtime.send(to, steps / tokens - 1).expect("it lives");
    }
    // Processes that wait for room in front of the disk are idle, too. So the steps are counted.
    let all = steps / tokens * tokens;
    while STEPPED.load(Ordering::Relaxed) < all {
        assert!(begin.elapsed() < LIMIT, "{} of {all} steps are made", STEPPED.load(Ordering::Relaxed));
        let _ = Latch::<()>::new().wait_timeout(PAUSE);
    }
    runtime.wait_idle().expect("it comes to rest");
    let longest = watch.take_longest();
    runtime.shutdown(LIMIT).expect("it can be shut down");
    store.close().expect("everything is on disk");
    let took = begin.elapsed();
    assert_eq!(STEPPED.load(Ordering::Relaxed), all, "no token is stepped twice");
    AtRandom { steps_a_second: all as f64 / took.as_secs_f64(), longest }
}
