//! The limit of the futures that work on stored commands at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::sync::Latch;
use procession::{BoxError, Runtime};

use crate::payer::{Pay, Payer, PayerMessage, kill, notes, start};
use crate::script::counts;
use crate::wait::{LIMIT, Mutex, until};
use crate::worker::end;

/// How many handlers are at work, and have been at once.
#[derive(Default)]
struct AtWork {
    now: AtomicUsize,
    most: AtomicUsize,
    /// The numbers of the attempts of each amount.
    attempts: Mutex<BTreeMap<u64, Vec<u32>>>,
}

/// Counts a handler while it is at work.
struct Here(Arc<AtWork>);

impl Here {
    fn enter(at_work: &Arc<AtWork>) -> Here {
        let now = at_work.now.fetch_add(1, Ordering::SeqCst) + 1;
        at_work.most.fetch_max(now, Ordering::SeqCst);
        Here(at_work.clone())
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

const MOST: usize = 32;
const PROCESSES: u64 = 50;

#[test]
fn a_limit_of_handlers_holds_after_a_restart_with_many_outstanding() {
    let outstanding = counts("outstanding commands", 1_000, 100_000);
    let disk = MemoryDisk::new();
    let at_work = Arc::new(AtWork::default());
    let run = |opens: Latch<()>| {
        let at_work = at_work.clone();
        let builder = Runtime::builder().handler_async(move |pay: Pay| {
            let (here, opens) = (Here::enter(&at_work), opens.clone());
            let number = pay.attempt.unwrap().number;
            at_work.attempts.lock().unwrap().entry(pay.amount).or_default().push(number);
            async move {
                opens.await;
                drop(here);
                Ok::<u64, BoxError>(pay.amount)
            }
        });
        start(MemoryJournal::new(&disk), builder.at_most(MOST).workers(2))
    };
    let (store, runtime) = run(Latch::new());
    let payers: Vec<_> =
        (0..PROCESSES).map(|n| store.begin(&n.to_string(), Payer::default()).unwrap().address()).collect();
    for n in 0..outstanding {
        runtime.send(payers[(n % PROCESSES) as usize], PayerMessage::Pay(Pay::once(n))).unwrap();
    }
    for payer in &payers {
        store.send(*payer, PayerMessage::Mark).unwrap().wait(LIMIT).unwrap();
    }
    until("the limit is reached", || at_work.now.load(Ordering::SeqCst) == MOST);
    kill((store, runtime), &disk);
    assert_eq!(at_work.now.load(Ordering::SeqCst), 0);

    let opens = Latch::new();
    let (store, runtime) = run(opens.clone());
    until("the limit is reached again", || at_work.now.load(Ordering::SeqCst) == MOST);
    opens.set(()).unwrap();
    let all = || payers.iter().map(|payer| notes(&runtime, *payer).len() as u64).sum::<u64>();
    until("all are answered", || all() == outstanding);
    assert_eq!(at_work.most.load(Ordering::SeqCst), MOST);
    let attempts = at_work.attempts.lock().unwrap();
    assert_eq!(attempts.len() as u64, outstanding);
    // Those that waited for the handler have lost no attempt.
    let is_sound = |numbers: &Vec<u32>| *numbers == [1] || *numbers == [1, 2] || *numbers == [2];
    assert!(attempts.values().all(is_sound), "{attempts:?}");
    let second = attempts.values().filter(|numbers| numbers.contains(&2)).count();
    assert!(second <= MOST, "{second} have had a second attempt");
    drop(attempts);
    end((store, runtime));
}
