//! The state that the home thread, the pool's threads and resumptions share. It has the slots with their lock. It
//! does the work that follows when the lock has been released.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use super::current::{self, LoopBuilder};
use super::directive::{Directive, ScheduleError, TaskletId};
use super::report::{InterruptedError, Interruption, Report, TaskletInfo};
use super::slots::{Begun, Effects, Over, Retired, Slots, Ticket, Wake};
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::inside::{deadline_here, is_step, refuse_step_timeout};
use crate::latch::Latch;
use crate::outcome::{Exit, Reason, contain, drop_contained, tell_log};
use crate::pool::{Pool, PoolError, SHUTDOWN_GRACE};
use crate::primitives::{Arc, Condvar, Mutex, OnceLock, Weak, lock};
use crate::shutdown::Part;
use crate::timer::{Kept, Timers};

/// The most threads of a loop's own pool. Tokio has as many for blocking work. A pool step may block for long, and
/// threads are started only when needed.
const MAX_POOL_THREADS: usize = 512;

const POOL_NAME: &str = "procession-tasklet";
const TIMERS_NAME: &str = "procession-tasklet-timers";

/// A body that can be stepped on a thread of the pool.
pub(super) trait Elsewhere: Send + Sized + 'static {
    fn step_elsewhere(&mut self, shared: &Arc<Shared<Self>>, id: TaskletId, timed_out: bool) -> Directive;
}

pub(super) struct Shared<B> {
    pub(super) slots: Mutex<Slots<B>>,
    /// The home thread sleeps here.
    pub(super) home: Condvar,
    /// Notified when the last tasklet has ended.
    quiet: Condvar,
    pub(super) clock: Clock,
    pub(super) timers: Timers,
    given_pool: Option<Pool>,
    own_pool: OnceLock<Pool>,
    /// The options for new loops of the thread that was last in the loop.
    builder: Mutex<Option<Arc<LoopBuilder>>>,
    /// The loop's place in a shutdown tree, if a node was requested.
    pub(super) part: Part,
}

/// A loop of any state, as used by resumptions, handles and timers.
pub(super) trait Control: Send + Sync {
    fn resume(self: Arc<Self>, ticket: Ticket, directive: Directive, timed_out: bool);
    fn resume_after(self: Arc<Self>, ticket: Ticket, delay: Duration, resume: Box<dyn FnOnce() + Send>);
    fn release(self: Arc<Self>, ticket: Ticket);
    fn cancel(self: Arc<Self>, id: TaskletId, reason: Reason) -> bool;
    fn redirect(self: Arc<Self>, id: TaskletId, directive: Directive) -> Result<bool, ScheduleError>;
}

impl<B: Elsewhere> Shared<B> {
    pub(super) fn new(builder: LoopBuilder) -> Arc<Shared<B>> {
        let timers = Timers::new(builder.clock.clone(), TIMERS_NAME);
        Arc::new(Shared {
            slots: Mutex::new(Slots::new(RandomState::new().hash_one(0), builder.policy)),
            home: Condvar::new(),
            quiet: Condvar::new(),
            clock: builder.clock,
            timers,
            given_pool: builder.pool,
            own_pool: OnceLock::new(),
            builder: Mutex::new(None),
            part: Part::new(builder.shutdown_limit),
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
        let (id, mut effects) = lock(&self.slots).insert((name, ended), body, directive, &self.clock)?;
        let start = effects.start.take();
        self.carry_out(effects);
        match start.map(|id| self.hand_over(id, false)) {
            Some(Err((why, Some(body)))) => {
                self.retire(id);
                Err((body, ScheduleError::Pool(why)))
            }
            _ => Ok(id),
        }
    }

    /// Does the work that follows a transition, with no lock held.
    pub(super) fn carry_out(self: &Arc<Shared<B>>, effects: Effects<B>) {
        let Effects { start, wake, cancel, deadlines, panicked, over } = effects;
        // Callbacks and hooks run as part of the loop. If one waited for the loop, it would wait for itself.
        let tells = cancel.is_some() || panicked.is_some() || matches!(wake, Some(Wake::Hook(_)));
        let _inside = (over.is_some() && tells).then(|| current::enter_if_elsewhere(self));
        for kept in deadlines {
            drop_contained(self.timers.take_back(kept));
        }
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
            current::in_turn(move || shared.finish(over));
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
        self.retire(id);
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

    /// Frees the slot of a dropped tasklet.
    pub(super) fn retire(&self, id: TaskletId) {
        let (Retired { wake, slot_left }, is_empty) = {
            let mut slots = lock(&self.slots);
            (slots.retire(id), slots.live() == 0)
        };
        if let Some((cancel, deadlines)) = slot_left {
            drop_contained(cancel);
            for kept in deadlines {
                drop_contained(self.timers.take_back(kept));
            }
        }
        if is_empty {
            self.quiet.notify_all();
            self.tell_tree();
        }
        self.wake(wake);
    }

    /// Closes the node if the loop has ended. It is called wherever the loop may have ended.
    pub(super) fn tell_tree(&self) {
        if !self.part.is_wanted() {
            return;
        }
        let is_finished = {
            let slots = lock(&self.slots);
            slots.is_closed() && slots.live() == 0
        };
        if is_finished {
            self.part.over(None);
            // Nothing more will be handed to the pool.
            if let Some(pool) = self.own_pool.get() {
                pool.close();
            }
        }
    }

    /// Hands a tasklet to the pool. If the pool refuses it, the tasklet ends.
    fn start(self: &Arc<Shared<B>>, id: TaskletId) {
        // The tasklet was accepted before. If a step of a process resumes it, that step cannot wait for room.
        if let Err((why, Some(body))) = self.hand_over(id, is_step()) {
            let reason = if let PoolError::NoThread(_) = why {
                Reason::NoThread
            } else if let PoolError::Stopped(_) = why {
                Reason::Shutdown
            } else {
                Reason::from(why.to_string())
            };
            let effects = lock(&self.slots).refused(id, body, reason);
            self.carry_out(effects);
        }
    }

    /// Hands a tasklet to the pool, perhaps beyond the bound of its queue. If the pool refuses it, its body is
    /// returned, unless another thread has taken it.
    fn hand_over(self: &Arc<Shared<B>>, id: TaskletId, beyond_bound: bool) -> Result<(), (PoolError, Option<B>)> {
        let errand = Errand { shared: self.clone(), id, is_done: false };
        let (pool, errand) = (self.pool(), move || errand.run());
        let taken = if beyond_bound { pool.submit_beyond_bound(errand).map(drop) } else { pool.execute(errand) };
        taken.map_err(|refused| {
            let (job, why) = refused.into_parts();
            // This must precede the drop of the errand, which would end the tasklet.
            let body = lock(&self.slots).take_handed(id);
            drop(job);
            (why, body)
        })
    }

    /// Hands all tasklets to the pool that were held until a thread entered the loop.
    pub(super) fn start_held(self: &Arc<Shared<B>>) {
        loop {
            let next = lock(&self.slots).release_held(&self.clock);
            let Some(id) = next else { return };
            self.start(id);
        }
    }

    pub(super) fn has_own_pool(&self) -> bool {
        self.given_pool.is_none()
    }

    pub(super) fn pool(&self) -> &Pool {
        self.given_pool.as_ref().unwrap_or_else(|| {
            self.own_pool.get_or_init(|| {
                let builder = Pool::builder().max(MAX_POOL_THREADS).name(POOL_NAME).clock(self.clock.clone());
                // The pool is asked to end when the loop's limit has passed. Jobs that wait then do nothing.
                let hurries = self.part.has_limit();
                let builder = if hurries { builder.shutdown_limit(SHUTDOWN_GRACE) } else { builder };
                builder.build().expect("the options are constants, and good ones")
            })
        })
    }

    /// Runs a step on a thread of the pool.
    pub(super) fn step_elsewhere(self: &Arc<Shared<B>>, id: TaskletId) {
        let begun = lock(&self.slots).begin_elsewhere(id);
        let Some(Begun { id, mut body, timed_out }) = begun else { return };
        let outcome = contain(|| body.step_elsewhere(self, id, timed_out));
        let effects = {
            let mut slots = lock(&self.slots);
            match outcome {
                Ok(directive) => slots.settle(id, body, directive, &self.clock),
                Err(panic) => slots.panicked(id, body, panic, false),
            }
        };
        self.carry_out(effects);
    }

    /// The token of a tasklet in a step.
    pub(super) fn token(&self, id: TaskletId) -> CancelToken {
        let (token, doomed) = lock(&self.slots).token(id, &self.clock);
        if let Some(reason) = doomed {
            token.cancel(reason);
        }
        token
    }

    /// Accepts no more tasklets, and cancels all that there are.
    pub(super) fn close(self: &Arc<Shared<B>>, reason: &Reason) {
        lock(&self.slots).close();
        {
            // If a callback waited for the loop, it would wait for the tasklets that are cancelled after it.
            let _inside = current::enter_if_elsewhere(self);
            let mut place = 0;
            loop {
                let next = lock(&self.slots).cancel_next(&mut place, reason);
                let Some(effects) = next else { break };
                self.carry_out(effects);
            }
        }
        self.tell_tree();
    }

    /// Waits, after a close, until all steps have returned. If the calling thread is in such a step itself, it does
    /// not wait.
    pub(super) fn wait_until_empty(self: &Arc<Shared<B>>, limit: Duration) -> Result<Report, InterruptedError> {
        let deadline = deadline_here(&self.clock, self.clock.deadline(limit));
        let weak = Arc::downgrade(self);
        let _watch = self.clock.watch(move || {
            if let Some(shared) = Weak::upgrade(&weak) {
                let _slots = lock(&shared.slots);
                shared.quiet.notify_all();
            }
        });
        let waits = !current::is_inside(self);
        let mut slots = lock(&self.slots);
        while waits && slots.live() > 0 && !deadline.has_passed(&self.clock) {
            slots = self.clock.wait(&self.quiet, slots, deadline);
        }
        let report = std::mem::take(&mut slots.report);
        if slots.live() == 0 {
            drop(slots);
            self.tell_tree();
            return Ok(report);
        }
        let holding = slots.tasklets(&self.clock);
        drop(slots);
        if !waits && holding.is_empty() {
            // All tasklets have ended, except for the one whose destructor made this call.
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
        if let Some(pool) = self.own_pool.get() {
            pool.close();
        }
    }

    /// The tasklets that hold the loop.
    pub(super) fn tasklets(&self) -> Vec<TaskletInfo> {
        lock(&self.slots).tasklets(&self.clock)
    }

    /// The options for loops made in pool steps. They are those of the thread in the loop.
    pub(super) fn builder(&self) -> Option<Arc<LoopBuilder>> {
        lock(&self.builder).clone()
    }

    pub(super) fn set_builder(&self, builder: Option<Arc<LoopBuilder>>) {
        let before = std::mem::replace(&mut *lock(&self.builder), builder);
        drop_contained(before);
    }

    /// Ends a wait when its limit has passed.
    pub(super) fn set_deadline(self: &Arc<Shared<B>>, ticket: Ticket, limit: Duration, directive: Directive) {
        let weak = Arc::downgrade(self);
        let action = Box::new(move || {
            if let Some(shared) = Weak::upgrade(&weak) {
                shared.resume(ticket, directive, true);
            }
        });
        match self.timers.after_or_never(limit, action) {
            Ok(kept) => self.note_timer(ticket, kept),
            // A wait that ends at once is better than one that never ends.
            Err(action) => action(),
        }
    }

    /// Stores the timer of a wait, so that it is removed when the wait ends.
    fn note_timer(&self, ticket: Ticket, kept: Kept) {
        let late = lock(&self.slots).set_deadline(ticket, kept);
        if let Some(kept) = late {
            drop_contained(self.timers.take_back(kept));
        }
    }
}

impl<B: Elsewhere> Control for Shared<B> {
    fn resume(self: Arc<Self>, ticket: Ticket, directive: Directive, timed_out: bool) {
        let effects = lock(&self.slots).resume(ticket, directive, timed_out, &self.clock);
        self.carry_out(effects);
    }

    fn resume_after(self: Arc<Self>, ticket: Ticket, delay: Duration, resume: Box<dyn FnOnce() + Send>) {
        match self.timers.after_or_never(delay, resume) {
            Ok(kept) => self.note_timer(ticket, kept),
            Err(resume) => drop_contained(resume),
        }
    }

    fn release(self: Arc<Self>, ticket: Ticket) {
        let effects = lock(&self.slots).release(ticket);
        self.carry_out(effects);
    }

    fn cancel(self: Arc<Self>, id: TaskletId, reason: Reason) -> bool {
        let effects = lock(&self.slots).cancel(id, reason);
        effects.map(|effects| self.carry_out(effects)).is_some()
    }

    fn redirect(self: Arc<Self>, id: TaskletId, directive: Directive) -> Result<bool, ScheduleError> {
        let effects = lock(&self.slots).redirect(id, directive, &self.clock)?;
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
            let effects = lock(&self.shared.slots).refuse(self.id, Reason::Shutdown);
            self.shared.carry_out(effects);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::super::{Directive, Loop, ready};
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
