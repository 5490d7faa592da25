//! Models of the races of the watchdog: the real word of resting workers, the real decisions, no queue.

use std::time::Duration;

use super::Scene;
use super::StepWatcher;
use super::{FoundStep, Record};
use super::{StuckSteps, WorkerView};
use crate::primitives::{Arc, AtomicBool, AtomicUsize, Ordering, lock};
use crate::process::{Pid, StepActivity};
use crate::sched::search::{Searcher, find, search};
use crate::sched::sleep::Sleep;

/// Counts the looks that are to come.
struct Looks(AtomicUsize);

impl StepWatcher for Looks {
    fn look_later(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn tell(&self) {}
}

/// A worker begins to work while a look finds that all rest: there is always exactly one next look. Fails without the
/// fence of either side, or if `goes_on` does not check again after it has taken `armed` back.
#[test]
fn a_worker_gets_to_work_while_a_look_finds_that_all_rest() {
    loom::model(|| {
        let (sleep, stuck_steps) = (Arc::new(Sleep::new(1)), Arc::new(StuckSteps::new(1, 0, 1)));
        let looks = Arc::new(Looks(AtomicUsize::new(1)));
        let step_watcher: Arc<dyn StepWatcher> = looks.clone();
        stuck_steps.step_watcher.get_or_init(|| Arc::downgrade(&step_watcher));
        stuck_steps.armed.store(true, Ordering::Relaxed);
        sleep.start_looking();
        let worker = loom::thread::spawn({
            let (sleep, stuck_steps) = (sleep.clone(), stuck_steps.clone());
            move || {
                sleep.work_found(|| false);
                stuck_steps.works();
            }
        });
        let scene = Scene {
            now: 0,
            views: &[],
            exact: false,
            identify: &|_| (None, None),
            work: &|| false,
            resting: &|| sleep.resting(),
        };
        if !stuck_steps.look(&scene).again {
            looks.0.fetch_sub(1, Ordering::SeqCst);
        }
        worker.join().unwrap();
        assert_eq!(looks.0.load(Ordering::SeqCst), 1);
        assert!(stuck_steps.armed.load(Ordering::SeqCst));
    });
}

fn take(work: &AtomicUsize) -> bool {
    work.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}

/// Things that a worker and a spare share.
struct Shared {
    sleep: Sleep,
    stuck_steps: StuckSteps,
    work: AtomicUsize,
    over: AtomicBool,
}

impl Shared {
    /// The loop of a worker or a spare. A worker's ends when the work is done, a spare's when it is surplus.
    fn works(&self, me: usize) {
        let mut searches = Searches { shared: self, me };
        while find(&mut searches).is_some() {
            // There is one piece, and it is done.
            self.over.store(true, Ordering::SeqCst);
            self.sleep.wake_all();
        }
    }
}

/// Searches as workers do, in a queue that is a count.
struct Searches<'a> {
    shared: &'a Shared,
    me: usize,
}

impl Searches<'_> {
    fn is_spare(&self) -> bool {
        self.me == 1
    }
}

impl Searcher for Searches<'_> {
    type Work = ();

    fn at_hand(&mut self) -> Option<()> {
        self.look()
    }

    fn search(&mut self) -> Option<()> {
        search(&self.shared.sleep, self.me, self)
    }

    fn look(&mut self) -> Option<()> {
        take(&self.shared.work).then_some(())
    }

    fn has_work(&self) -> bool {
        self.shared.work.load(Ordering::Relaxed) > 0
    }

    fn is_stopped(&self) -> bool {
        // A spare would exit then, too. Here it has to exit because it is surplus.
        !self.is_spare() && self.shared.over.load(Ordering::SeqCst)
    }

    fn is_surplus(&self) -> bool {
        self.is_spare() && self.shared.stuck_steps.has_surplus()
    }

    fn leaves(&mut self) -> bool {
        self.shared.stuck_steps.leaves()
    }

    fn sleeps(&mut self) {}

    fn has_woken(&mut self) {}
}

/// Work arrives while a spare is told that it is surplus, and exits. The work must be done, and the spare must exit.
/// Otherwise a worker sleeps for ever, which the model reports. Fails in three cases: a spare that looks exits
/// without the check of `work_found` for more, the spare is not woken, or it falls asleep without checking whether it
/// is surplus.
#[test]
fn a_spare_leaves_while_work_arrives() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new(Shared {
            sleep: Sleep::new(2),
            stuck_steps: StuckSteps::new(1, 1, 1),
            work: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        {
            // The worker is stuck, and the spare runs.
            let mut state = lock(&shared.stuck_steps.state);
            (state.stuck, state.running) = (1, 1);
            let (pid, doing, running_for) = (Pid::FIRST, StepActivity::Step, Duration::ZERO);
            let step = FoundStep { pid, kind: None, name: None, doing, running_for };
            state.seen[0].record = Some(Box::new(Record { step, untold: true }));
        }
        let spare = loom::thread::spawn({
            let shared = shared.clone();
            move || shared.works(1)
        });
        let worker = loom::thread::spawn({
            let shared = shared.clone();
            move || {
                // The step is over.
                shared.stuck_steps.returned(0, &WorkerView::default(), 1);
                shared.stuck_steps.dismiss_surplus(|spare| shared.sleep.wake(spare));
                shared.works(0);
            }
        });
        shared.work.fetch_add(1, Ordering::Relaxed);
        shared.sleep.work_added();
        worker.join().unwrap();
        spare.join().unwrap();
        assert_eq!(shared.work.load(Ordering::SeqCst), 0);
    });
}
