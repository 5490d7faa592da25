//! When a worker may fall asleep, and which thread wakes it.
//!
//! `docs/scheduling.md` has the protocol step by step, with the argument why no work waits while all workers sleep.
//! In short: one word holds how many workers *look* for work and how many *sleep*.
//!
//! - A thread that adds work: adds it, **fence**, reads the word. If no worker looks and one sleeps, it wakes one.
//!   The woken worker looks.
//! - A worker that finds nothing: enters the list of sleepers and stops looking (one change of the word), **fence**,
//!   checks once more whether there is work, and only then sleeps.
//! - A worker that finds work and was the last that looked: stops looking, **fence**, checks whether there is more,
//!   and if so wakes one.
//!
//! A closure says whether there is work, so that the model checker can see all of the protocol without the queues.

use crate::primitives::{AtomicUsize, Condvar, Mutex, OnceLock, Ordering, fence, lock, wait};

pub(crate) struct Sleep {
    /// The lower half counts the workers that look, and the upper half those that sleep.
    counts: AtomicUsize,
    sleepers: Mutex<Vec<usize>>,
    places: Box<[SleepingPlace]>,
    /// Called in the place of waking a worker, in a simulation.
    watch: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct SleepingPlace {
    woken: Mutex<bool>,
    wake: Condvar,
}

const HALF: u32 = usize::BITS / 2;
const LOOKS: usize = 1;
const SLEEPS: usize = 1 << HALF;

fn looking(counts: usize) -> usize {
    counts & (SLEEPS - 1)
}

fn sleeping(counts: usize) -> usize {
    counts >> HALF
}

impl Sleep {
    pub(crate) fn new(workers: usize) -> Sleep {
        Sleep {
            counts: AtomicUsize::new(0),
            sleepers: Mutex::new(Vec::with_capacity(workers)),
            places: std::iter::repeat_with(SleepingPlace::default).take(workers).collect(),
            watch: OnceLock::new(),
        }
    }

    /// Has `watch` called whenever work is added. There are no workers.
    pub(crate) fn watch(&self, watch: impl Fn() + Send + Sync + 'static) {
        if self.watch.set(Box::new(watch)).is_ok() {
            self.counts.fetch_add(SLEEPS, Ordering::SeqCst);
        }
    }

    /// Records that a worker has nothing to do and looks for work. It ends with [`work_found`](Self::work_found) or
    /// [`fall_asleep`](Self::fall_asleep).
    pub(crate) fn start_looking(&self) {
        self.counts.fetch_add(LOOKS, Ordering::SeqCst);
    }

    /// Records that a worker that looked has found work. Returns whether it woke another one.
    ///
    /// If no worker looks any longer, and there is more work, it wakes one. This is needed because a thread that adds
    /// work wakes no worker while one looks.
    pub(crate) fn work_found(&self, more: impl FnOnce() -> bool) -> bool {
        let before = self.counts.fetch_sub(LOOKS, Ordering::SeqCst);
        if looking(before) > 1 || sleeping(before) == 0 {
            return false;
        }
        // Ordering: pairs with the fence of `work_added`. Either that thread saw no worker look, or `more` sees its
        // work.
        fence(Ordering::SeqCst);
        more() && self.wake_one()
    }

    /// Records that work was added to a queue that every worker looks at. Returns whether a worker was woken for it.
    #[inline]
    pub(crate) fn work_added(&self) -> bool {
        // Ordering: pairs with the fences of `fall_asleep` and `work_found`. The work is in the queue before the word
        // is read here. They write the word before they check for work. One of the two sees the other.
        fence(Ordering::SeqCst);
        let counts = self.counts.load(Ordering::Relaxed);
        looking(counts) == 0 && sleeping(counts) > 0 && self.wake_one()
    }

    /// Puts a worker that has found nothing to sleep. Returns whether it slept.
    ///
    /// It returns when the worker has been woken, or when there is work after all. In either case the worker looks
    /// again.
    pub(crate) fn fall_asleep(&self, worker: usize, work: impl FnOnce() -> bool) -> bool {
        {
            let mut sleepers = lock(&self.sleepers);
            sleepers.push(worker);
            // One change, so that no thread ever sees a worker that neither looks nor sleeps.
            self.counts.fetch_add(SLEEPS - LOOKS, Ordering::SeqCst);
        }
        // Ordering: pairs with the fence of `work_added`. See there.
        fence(Ordering::SeqCst);
        if work() && self.get_up(worker) {
            return false;
        }
        let place = &self.places[worker];
        let mut woken = lock(&place.woken);
        while !std::mem::take(&mut *woken) {
            woken = wait(&place.wake, woken);
        }
        true
    }

    /// Takes a worker off the list again, unless another thread has just woken it.
    fn get_up(&self, worker: usize) -> bool {
        let mut sleepers = lock(&self.sleepers);
        let Some(place) = sleepers.iter().position(|other| *other == worker) else { return false };
        sleepers.remove(place);
        self.counts.fetch_sub(SLEEPS - LOOKS, Ordering::SeqCst);
        true
    }

    /// Wakes the worker that fell asleep last, unless a worker looks already. The woken worker looks from then on.
    fn wake_one(&self) -> bool {
        if let Some(watch) = self.watch.get() {
            watch();
            return false;
        }
        let worker = {
            let mut sleepers = lock(&self.sleepers);
            if looking(self.counts.load(Ordering::SeqCst)) > 0 {
                return false;
            }
            let Some(worker) = sleepers.pop() else { return false };
            self.counts.fetch_sub(SLEEPS - LOOKS, Ordering::SeqCst);
            worker
        };
        self.rouse(worker);
        true
    }

    /// Wakes all workers, for the end.
    pub(crate) fn wake_all(&self) {
        let woken: Vec<usize> = {
            let mut sleepers = lock(&self.sleepers);
            self.counts.fetch_sub((SLEEPS - LOOKS) * sleepers.len(), Ordering::SeqCst);
            sleepers.drain(..).collect()
        };
        woken.into_iter().for_each(|worker| self.rouse(worker));
    }

    fn rouse(&self, worker: usize) {
        let place = &self.places[worker];
        *lock(&place.woken) = true;
        place.wake.notify_one();
    }

    /// Wakes this worker, if it sleeps, for something other than work. Returns whether it was woken.
    ///
    /// The worker looks from then on, like any woken worker. Before it does anything else it must call
    /// [`work_found`](Self::work_found).
    pub(crate) fn wake(&self, worker: usize) -> bool {
        let slept = self.get_up(worker);
        if slept {
            self.rouse(worker);
        }
        slept
    }

    /// Returns how many workers look or sleep.
    pub(crate) fn resting(&self) -> usize {
        let counts = self.counts.load(Ordering::SeqCst);
        looking(counts) + sleeping(counts)
    }

    /// Returns how many workers sleep.
    pub(crate) fn sleeping(&self) -> usize {
        sleeping(self.counts.load(Ordering::SeqCst))
    }

    /// Whether `all` workers sleep, which is their total number, and there is no work.
    pub(crate) fn all_sleep(&self, all: usize, work: impl FnOnce() -> bool) -> bool {
        // Checked first, because it needs no lock.
        if self.sleeping() != all {
            return false;
        }
        // A worker that has entered the list may find work at its last look. It cannot take it, because waking needs
        // the lock that we hold. Otherwise it could count as sleeping here, with the only piece of work in hand.
        let sleepers = lock(&self.sleepers);
        sleepers.len() == all && !work()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wait::until;

    #[test]
    fn who_adds_work_wakes_one_sleeper_and_nobody_while_somebody_looks() {
        let sleep = std::sync::Arc::new(Sleep::new(2));
        let sleeps = sleep.clone();
        let sleeper = std::thread::spawn(move || {
            sleeps.start_looking();
            let slept = sleeps.fall_asleep(0, || false);
            let woke_another = sleeps.work_found(|| true);
            (slept, woke_another)
        });
        until("the other one sleeps", || sleep.sleeping() == 1);
        sleep.start_looking();
        assert!(!sleep.work_added(), "somebody looks");
        assert!(sleep.work_found(|| true), "the last who looks passes it on");
        assert_eq!(crate::wait::wait(sleeper).unwrap(), (true, false));
        assert!(!sleep.work_added(), "nobody sleeps");
    }

    /// Otherwise the only worker could have the only piece of work in hand during the check.
    #[test]
    #[cfg(not(procession_sanitize_thread))]
    fn nobody_gets_up_while_it_is_asked_whether_all_is_at_rest() {
        let sleep = Sleep::new(1);
        sleep.start_looking();
        let slept = sleep.fall_asleep(0, || {
            // The worker is in the list, and makes its last look.
            let none = || sleep.sleepers.try_lock().is_ok();
            assert!(sleep.all_sleep(1, none), "the list is locked");
            assert!(!sleep.all_sleep(1, || true) && !sleep.all_sleep(2, || false));
            true
        });
        assert!(!slept && !sleep.all_sleep(1, || false), "it looks");
    }

    #[test]
    fn who_finds_work_at_the_last_look_does_not_sleep() {
        let sleep = Sleep::new(1);
        sleep.start_looking();
        assert!(!sleep.fall_asleep(0, || true));
        assert_eq!(sleep.sleeping(), 0);
        assert!(!sleep.work_found(|| false));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitives::Arc;
    use crate::sched::search::{Searcher, find, search};

    /// A queue that is only a count.
    fn take(work: &AtomicUsize) -> bool {
        work.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
    }

    /// A worker that searches. `look` takes a piece of work, and `has_work` asks whether there is one.
    struct Searches<L, H> {
        sleep: Arc<Sleep>,
        me: usize,
        look: L,
        has_work: H,
    }

    impl<L: FnMut() -> bool, H: Fn() -> bool> Searcher for Searches<L, H> {
        type Work = ();

        /// Always `None`, so that each piece is found by a search.
        fn at_hand(&mut self) -> Option<()> {
            None
        }

        fn search(&mut self) -> Option<()> {
            search(&self.sleep.clone(), self.me, self)
        }

        fn look(&mut self) -> Option<()> {
            (self.look)().then_some(())
        }

        fn has_work(&self) -> bool {
            (self.has_work)()
        }

        fn is_stopped(&self) -> bool {
            false
        }

        fn is_surplus(&self) -> bool {
            false
        }

        fn leaves(&mut self) -> bool {
            false
        }

        fn sleeps(&mut self) {}

        fn has_woken(&mut self) {}
    }

    fn worker(sleep: Arc<Sleep>, work: Arc<AtomicUsize>, me: usize, share: usize) {
        let (look, has_work) = (|| take(&work), || work.load(Ordering::Relaxed) > 0);
        let mut searches = Searches { sleep, me, look, has_work };
        for _ in 0..share {
            find(&mut searches).unwrap();
        }
    }

    /// Work arrives while the only worker falls asleep. A lost wake-up is a deadlock, which the model reports. Fails
    /// if `fall_asleep` does not check for work after it has entered the list.
    #[test]
    fn a_worker_falls_asleep_while_work_arrives() {
        loom::model(|| {
            let (sleep, work) = (Arc::new(Sleep::new(1)), Arc::new(AtomicUsize::new(0)));
            let thread = loom::thread::spawn({
                let (sleep, work) = (sleep.clone(), work.clone());
                move || worker(sleep, work, 0, 2)
            });
            for _ in 0..2 {
                work.fetch_add(1, Ordering::Relaxed);
                sleep.work_added();
            }
            thread.join().unwrap();
        });
    }

    /// Two pieces of work, two workers that each do one: the second piece must not be left to a worker that sleeps.
    /// Fails if `work_found` wakes no worker.
    #[test]
    fn the_last_who_looks_passes_the_search_on() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (sleep, work) = (Arc::new(Sleep::new(2)), Arc::new(AtomicUsize::new(0)));
            let threads: Vec<_> = (0..2)
                .map(|me| {
                    let (sleep, work) = (sleep.clone(), work.clone());
                    loom::thread::spawn(move || worker(sleep, work, me, 1))
                })
                .collect();
            for _ in 0..2 {
                work.fetch_add(1, Ordering::Relaxed);
                sleep.work_added();
            }
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    /// The only worker falls asleep while work moves from one queue to another, as a batch and stolen processes do.
    /// Two counts stand in for the queues of `crossbeam-deque`. The worker may look into the target queue before the
    /// work arrives there, and into the source queue after the work has left it. The model fails if the thread that
    /// moved the work does not report it.
    #[test]
    fn a_worker_falls_asleep_while_work_changes_its_queue() {
        for from in 0..2 {
            loom::model(move || {
                let (sleep, queues) = (Arc::new(Sleep::new(1)), Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]));
                queues[from].fetch_add(1, Ordering::Relaxed);
                let thread = loom::thread::spawn({
                    let (sleep, queues) = (sleep.clone(), queues.clone());
                    move || {
                        let look = || queues.iter().any(take);
                        let has_work = || queues.iter().any(|work| work.load(Ordering::Relaxed) > 0);
                        find(&mut Searches { sleep, me: 0, look, has_work }).unwrap();
                    }
                });
                if take(&queues[from]) {
                    queues[1 - from].fetch_add(1, Ordering::Relaxed);
                    sleep.work_added();
                }
                thread.join().unwrap();
            });
        }
    }
}
