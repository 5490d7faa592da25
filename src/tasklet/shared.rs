//! The state that the home thread, the pool's threads and resumptions share. It has the slots with their lock. It
//! does the work that follows when the lock has been released.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use super::current::{self, LoopBuilder};
use super::directive::{Directive, ScheduleError, TaskletId};
use super::report::{InterruptedError, Interruption, Report};
use super::slots::{Begun, Effects, Over, Slots, Ticket, Wake};
use crate::clock::Clock;
use crate::inside::{deadline_here, is_step, refuse_step_timeout};
use crate::latch::Latch;
use crate::outcome::{Exit, Panic, Reason, Rejected, contain, drop_contained, tell_log};
use crate::pool::{Pool, PoolError, SHUTDOWN_GRACE};
use crate::primitives::{Arc, Condvar, Mutex, OnceLock, Weak, lock};
use crate::shutdown::Part;
use crate::timer::{Action, TimerId, Timers};

/// The most threads of a loop's own pool. Tokio has as many for blocking work. A pool step may block for long, and
/// threads are started only when needed.
const MAX_POOL_THREADS: usize = 512;

const POOL_NAME: &str = "procession-tasklet";
const TIMERS_NAME: &str = "procession-tasklet-timers";

/// A body that can be stepped on a thread of the pool. A panic of the step is contained.
pub(super) trait Elsewhere: Send + Sized + 'static {
    fn step_elsewhere(
        &mut self,
        shared: &Arc<Shared<Self>>,
        id: TaskletId,
        timed_out: bool,
    ) -> Result<Directive, Panic>;
}

pub(super) struct Shared<B> {
    pub(super) slots: Mutex<Slots<B>>,
    /// The home thread sleeps here.
    pub(super) home: Condvar,
    /// Set when the loop is closed and empty.
    ended: Latch<()>,
    pub(super) clock: Clock,
    timers: Timers,
    pool: OnceLock<Pool>,
    pub(super) has_own_pool: bool,
    /// The options for new loops of the thread that was last in the loop.
    pub(super) builder: Mutex<Option<Arc<LoopBuilder>>>,
    /// The loop's place in a shutdown tree, if a node was requested.
    pub(super) part: Part,
}

/// A loop of any state, as used by resumptions, handles and timers.
pub(super) trait Control: Send + Sync {
    fn resume(self: Arc<Self>, ticket: Ticket, directive: Directive, timed_out: bool);
    /// Sets a timer that is cancelled when the wait ends. Returns the action if no thread can be started for it.
    fn set_timer(&self, ticket: Ticket, delay: Duration, action: Action) -> Result<(), Action>;
    fn release(self: Arc<Self>, ticket: Ticket);
    fn cancel(self: Arc<Self>, id: TaskletId, reason: Reason) -> bool;
    fn redirect(self: Arc<Self>, id: TaskletId, directive: Directive) -> Result<bool, ScheduleError>;
}

impl<B: Elsewhere> Shared<B> {
    pub(super) fn new(builder: LoopBuilder) -> Arc<Shared<B>> {
        let LoopBuilder { pool, clock, policy, shutdown_limit, .. } = builder;
        Arc::new(Shared {
            slots: Mutex::new(Slots::new(RandomState::new().hash_one(0), policy, clock.clone())),
            home: Condvar::new(),
            ended: Latch::new(),
            timers: Timers::new(clock.clone(), TIMERS_NAME),
            clock,
            has_own_pool: pool.is_none(),
            pool: pool.map_or_else(OnceLock::new, OnceLock::from),
            builder: Mutex::new(None),
            part: Part::new(shutdown_limit),
        })
    }

    /// Adds a tasklet. If the pool refuses its step, the tasklet is handed back.
    pub(super) fn schedule(
        self: &Arc<Shared<B>>,
        name: Cow<'static, str>,
        ended: Option<Latch<Exit>>,
        body: B,
        directive: Directive,
    ) -> Result<TaskletId, (B, ScheduleError)> {
        let (id, mut effects) = lock(&self.slots).insert((name, ended), body, directive)?;
        let start = effects.start.take();
        self.carry_out(effects);
        // The refused job is dropped last, because its drop ends a tasklet that is still in its slot.
        if let Some(Err(refused)) = start.map(|id| self.hand_over(id, false))
            && let Some(body) = self.take_back(id, false)
        {
            return Err((body, ScheduleError::Pool(refused.into_parts().1)));
        }
        Ok(id)
    }

    /// Takes back a tasklet whose pool step has not begun, or a held one.
    pub(super) fn take_back(self: &Arc<Shared<B>>, id: TaskletId, is_held: bool) -> Option<B> {
        let (body, effects) = lock(&self.slots).take_back(id, is_held)?;
        self.carry_out(effects);
        Some(body)
    }

    /// Makes a transition.
    fn change(self: &Arc<Shared<B>>, transition: impl FnOnce(&mut Slots<B>) -> Effects<B>) {
        let effects = transition(&mut lock(&self.slots));
        self.carry_out(effects);
    }

    /// Does the work that follows a transition, with no lock held.
    pub(super) fn carry_out(self: &Arc<Shared<B>>, effects: Effects<B>) {
        let Effects { start, wake, cancel, deadlines, panicked, over } = effects;
        // Callbacks and hooks run as part of the loop. If one waited for the loop, it would wait for itself.
        let tells = cancel.is_some() || panicked.is_some() || matches!(wake, Some(Wake::Hook(_)));
        let _inside = (over.is_some() && tells).then(|| current::enter_if_elsewhere(self));
        self.cancel_timers(deadlines);
        if let Some((cancel, reason)) = cancel {
            cancel.cancel(reason);
        }
        if let Some((policy, panic)) = panicked {
            policy.tell(&panic);
            drop_contained(policy);
            drop_contained(panic);
        }
        if let Some(id) = start {
            self.start(id);
        }
        self.wake(wake);
        if let Some(over) = over {
            let shared = self.clone();
            current::end_in_turn(move || shared.finish(over));
        }
    }

    /// Drops an ended tasklet, reports its end, and frees its slot.
    fn finish(self: &Arc<Shared<B>>, over: Over<B>) {
        let Over { id, body, exit, ended, cancel } = over;
        let _inside = current::enter_if_elsewhere(self);
        drop_contained(body);
        drop_contained(cancel);
        if let Some(ended) = ended {
            let _ = ended.set(exit);
        }
        let ((gone, wake), is_closed) = {
            let mut slots = lock(&self.slots);
            (slots.retire(id), slots.closed)
        };
        drop_contained(gone);
        if is_closed {
            self.tell_if_ended();
        }
        self.wake(wake);
    }

    pub(super) fn wake(&self, wake: Option<Wake>) {
        match wake {
            None => {}
            Some(Wake::Home) => self.home.notify_one(),
            Some(Wake::Hook(hook)) => {
                if let Err(panic) = contain(|| hook()) {
                    tell_log(|| tracing::error!(%panic, "the wake-up hook of a loop panicked"));
                }
                // The hook may have been replaced meanwhile, and this may be the last reference.
                drop_contained(hook);
            }
        }
    }

    /// A function that makes a sleeping home thread look again. It does not keep the loop alive.
    pub(super) fn waker(self: &Arc<Shared<B>>) -> impl Fn() + Send + Sync + 'static {
        let weak = Arc::downgrade(self);
        move || {
            if let Some(shared) = Weak::upgrade(&weak) {
                let _slots = lock(&shared.slots);
                shared.home.notify_one();
            }
        }
    }

    fn cancel_timers(&self, timers: Vec<TimerId>) {
        for kept in timers {
            drop_contained(self.timers.take_back(kept));
        }
    }

    /// Reports that the loop is closed and empty, if it is. It is called wherever that may be, also more than once.
    pub(super) fn tell_if_ended(&self) {
        let is_ended = lock(&self.slots).is_finished();
        if !is_ended {
            return;
        }
        let _ = self.ended.set(());
        self.part.over(None);
        // Nothing more will be handed to the pool.
        self.close_own_pool();
    }

    /// Hands a tasklet to the pool. If the pool refuses it, the tasklet ends.
    fn start(self: &Arc<Shared<B>>, id: TaskletId) {
        // The tasklet was accepted before. If a step of a process resumes it, that step cannot wait for room.
        if let Err(refused) = self.hand_over(id, is_step()) {
            let reason = match refused.reason() {
                PoolError::NoThread(_) => Reason::NoThread,
                PoolError::Stopped(_) => Reason::Shutdown,
                why => Reason::from(why.to_string()),
            };
            self.change(|slots| slots.refuse(id, reason));
        }
    }

    /// Hands a tasklet to the pool, perhaps beyond the bound of its queue. The refused job ends the tasklet when it is
    /// dropped, unless the caller has ended it or has taken it back.
    fn hand_over(
        self: &Arc<Shared<B>>,
        id: TaskletId,
        beyond_bound: bool,
    ) -> Result<(), Rejected<impl FnOnce() + use<B>, PoolError>> {
        let errand = Errand { shared: self.clone(), id, is_done: false };
        let (pool, job) = (self.pool(), move || errand.run());
        if beyond_bound { pool.submit_beyond_bound(job).map(drop) } else { pool.execute(job) }
    }

    /// Hands all tasklets to the pool that were held until a thread entered the loop.
    pub(super) fn start_held(self: &Arc<Shared<B>>) {
        loop {
            let next = lock(&self.slots).release_held();
            let Some(id) = next else { return };
            self.start(id);
        }
    }

    pub(super) fn pool(&self) -> &Pool {
        self.pool.get_or_init(|| {
            let builder = Pool::builder().max(MAX_POOL_THREADS).name(POOL_NAME).clock(self.clock.clone());
            // The pool is asked to end when the loop's limit has passed. Jobs that wait then do nothing.
            let hurries = self.part.has_limit();
            let builder = if hurries { builder.shutdown_limit(SHUTDOWN_GRACE) } else { builder };
            builder.build().expect("the options are constants, and good ones")
        })
    }

    fn close_own_pool(&self) {
        if self.has_own_pool
            && let Some(pool) = self.pool.get()
        {
            pool.close();
        }
    }

    /// Runs a step on a thread of the pool.
    pub(super) fn step_elsewhere(self: &Arc<Shared<B>>, id: TaskletId) {
        let begun = lock(&self.slots).begin_elsewhere(id);
        let Some(Begun { id, mut body, timed_out }) = begun else { return };
        let outcome = body.step_elsewhere(self, id, timed_out);
        self.change(|slots| slots.settle(id, body, outcome));
    }

    /// Accepts no more tasklets, and cancels all that there are.
    pub(super) fn close(self: &Arc<Shared<B>>, reason: &Reason) {
        let left = lock(&self.slots).close();
        {
            // If a callback waited for the loop, it would wait for the tasklets that are cancelled after it.
            let _inside = current::enter_if_elsewhere(self);
            for id in left {
                self.clone().cancel(id, reason.clone());
            }
        }
        self.tell_if_ended();
    }

    /// Waits, after a close, until all steps have returned. If the calling thread is in such a step itself, it does
    /// not wait.
    pub(super) fn wait_until_empty(self: &Arc<Shared<B>>, limit: Duration) -> Result<Report, InterruptedError> {
        let is_inside = current::is_inside(self);
        if !is_inside {
            self.ended.wait_until(&self.clock, deadline_here(&self.clock, self.clock.deadline(limit)));
        }
        let (report, is_empty, holding) = {
            let mut slots = lock(&self.slots);
            (std::mem::take(&mut slots.report), slots.live() == 0, slots.tasklets())
        };
        self.tell_if_ended();
        // All tasklets may have ended, except for the one whose destructor made this call.
        if is_empty || is_inside && holding.is_empty() {
            return Ok(report);
        }
        let why = if refuse_step_timeout(limit).is_err() { Interruption::InsideStep } else { Interruption::TimedOut };
        Err(InterruptedError::new(why, report, holding))
    }

    /// Drops the timers with their thread, the hook and the handler. The hook may hold the loop. Then the loop would
    /// keep itself alive.
    pub(super) fn end(&self) {
        let (hook, policy) = {
            let mut slots = lock(&self.slots);
            (slots.set_hook(None), std::mem::take(&mut slots.policy))
        };
        drop_contained(hook);
        drop_contained(policy);
        let (pending, _thread) = self.timers.halt();
        pending.into_iter().for_each(drop_contained);
        // Handles may keep the pool for long.
        self.close_own_pool();
    }

    /// Ends a wait when its limit has passed.
    pub(super) fn set_deadline(self: &Arc<Shared<B>>, ticket: Ticket, limit: Duration, directive: Directive) {
        let weak = Arc::downgrade(self);
        let action = Box::new(move || {
            if let Some(shared) = Weak::upgrade(&weak) {
                shared.resume(ticket, directive, true);
            }
        });
        // A wait that ends at once is better than one that never ends.
        self.set_timer(ticket, limit, action).unwrap_or_else(|action| action());
    }
}

impl<B: Elsewhere> Control for Shared<B> {
    fn resume(self: Arc<Self>, ticket: Ticket, directive: Directive, timed_out: bool) {
        self.change(|slots| slots.resume(ticket, directive, timed_out));
    }

    fn set_timer(&self, ticket: Ticket, delay: Duration, action: Action) -> Result<(), Action> {
        let kept = self.timers.after_or_never(delay, action)?;
        let late = lock(&self.slots).set_deadline(ticket, kept);
        self.cancel_timers(Vec::from_iter(late));
        Ok(())
    }

    fn release(self: Arc<Self>, ticket: Ticket) {
        self.change(|slots| slots.release(ticket));
    }

    fn cancel(self: Arc<Self>, id: TaskletId, reason: Reason) -> bool {
        let effects = lock(&self.slots).cancel(id, reason);
        effects.map(|effects| self.carry_out(effects)).is_some()
    }

    fn redirect(self: Arc<Self>, id: TaskletId, directive: Directive) -> Result<bool, ScheduleError> {
        let effects = lock(&self.slots).redirect(id, directive)?;
        Ok(effects.map(|effects| self.carry_out(effects)).is_some())
    }
}

/// A job of the pool that steps one tasklet. If a stopped pool drops it, the tasklet ends.
struct Errand<B: Elsewhere> {
    shared: Arc<Shared<B>>,
    id: TaskletId,
    is_done: bool,
}

impl<B: Elsewhere> Errand<B> {
    fn run(mut self) {
        self.is_done = true;
        self.shared.step_elsewhere(self.id);
    }
}

impl<B: Elsewhere> Drop for Errand<B> {
    fn drop(&mut self) {
        if !self.is_done {
            self.shared.change(|slots| slots.refuse(self.id, Reason::Shutdown));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::super::{Directive, Loop, ready};
    use crate::outcome::{Exit, Reason};
    use crate::primitives::lock;
    use crate::threads;

    /// Adds a tasklet that needs a thread of the pool, one that waits for a timer, and one that waits with a limit.
    /// Counts those whose limit has passed.
    fn fill(home: &mut Loop<u32>) {
        let moment = Duration::from_millis(1);
        let on_the_pool = ready::from_fns(|_: &mut u32, _| Directive::Pool, |_| Directive::Done);
        let mut is_woken = false;
        let for_a_timer = ready::from_fn(move |_: &mut u32, cx| {
            if std::mem::replace(&mut is_woken, true) {
                return Directive::Done;
            }
            cx.suspend().resume_after(moment, Directive::Home);
            Directive::Wait
        });
        let mut kept = Vec::new();
        let with_a_limit = ready::from_fn(move |late: &mut u32, cx| {
            if cx.timed_out() {
                *late += 1;
                return Directive::Done;
            }
            kept.push(cx.suspend_for(moment, Directive::Home));
            Directive::Wait
        });
        home.schedule(on_the_pool, Directive::Home).unwrap();
        home.schedule(for_a_timer, Directive::Home).unwrap();
        home.schedule(with_a_limit, Directive::Home).unwrap();
    }

    #[test]
    fn a_tasklet_without_a_thread_for_its_pool_step_says_so_in_its_exit() {
        let mut home = Loop::new(());
        let on_the_pool = ready::from_fns(|(): &mut (), _| Directive::Pool, |_| Directive::Done);
        let ended = home.handle().schedule(on_the_pool, Directive::Home).unwrap();
        threads::refuse(true);
        let report = home.run();
        threads::refuse(false);
        assert_eq!(report.unwrap().refused, 1);
        assert!(matches!(ended.exit(), Some(Exit::Terminated(Reason::NoThread))), "{:?}", ended.exit());
    }

    /// A thread that waits for the end may wake before the thread that ended the loop has told the node.
    #[test]
    fn a_wait_for_the_end_returns_with_the_node_closed() {
        let home = Loop::new(());
        let (handle, node) = (home.handle(), home.shutdown_node());
        lock(&handle.shared.slots).close();
        handle.shared.ended.set(()).unwrap();
        handle.shared.wait_until_empty(Duration::ZERO).unwrap();
        assert!(node.is_closed());
    }

    #[test]
    fn a_loop_without_threads_ends_what_needs_one_and_goes_on() {
        let mut home = Loop::new(0);
        fill(&mut home);
        threads::refuse(true);
        let report = home.run();
        threads::refuse(false);
        let report = report.unwrap();
        assert_eq!((report.refused, report.abandoned, report.finished), (1, 1, 1), "{report}");
        assert_eq!(*home.get(), 1, "better a wait that ends at once than one that never does");
        fill(&mut home);
        let report = home.run().unwrap();
        assert_eq!((report.refused, report.abandoned, report.finished, *home.get()), (0, 0, 3, 2), "{report}");
        assert!(home.tasklets().is_empty());
    }
}
