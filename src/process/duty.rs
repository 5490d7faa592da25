//! The duty to answer one command, and its end before the answer.
//!
//! A command may be answered by several threads at once: by its handler, by the timer of its limit, and by a later
//! step of its process that cancels it. One word decides:
//!
//! | the duty is | the handler answers | the limit is over, or the process cancels |
//! |---|---|---|
//! | **open** | **answered**: the answer is delivered | **given up**: an error is delivered, then the token cancelled |
//! | **answered** | the second answer is dropped | nothing |
//! | **given up** | the late answer is counted and dropped | nothing |
//!
//! Both arrows out of *open* are one compare-and-exchange. So the process gets one answer. The timer and the list of
//! the process hold the duty weakly. So a responder that is dropped is the last owner, and answers.
//!
//! The duty to answer with the output of a child (`output_answer.rs`) is of this kind as well. The child has it in the
//! place of a handler. A duty that is given up ends the child in the place of a cancelled token.

use super::attempt::Attempt;
use super::command::{Answer, CommandError};
use super::host::Host;
use crate::cancel::CancelToken;
use crate::outcome::{Reason, drop_contained};
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicU64, OnceLock, Ordering};
use crate::timer::TimerId;

const OPEN: u64 = 0;
const ANSWERED: u64 = 1;
const GIVEN_UP: u64 = 2;

/// The duty to answer one command. The responder and the call of the handler share it, because either may answer. A
/// handler that returns an error or panics drops its responder before the error or the panic is known. The error or
/// the panic must be the answer. So the drop of the responder does not answer. The drop of the last share does.
pub(crate) struct Duty {
    host: Arc<dyn Host>,
    to: Pid,
    tag: u64,
    state: AtomicU64,
    cancel: CommandCancel,
    /// The timer of the limit. Set before another thread can answer.
    timer: OnceLock<TimerId>,
    /// The child whose output is the answer, if there is one.
    child: Option<Pid>,
    /// Takes the answer in the place of the process: in a simulation, and for stored commands.
    relay: Option<Box<dyn Relay>>,
}

/// Takes an answer in the place of the process.
pub(crate) trait Relay: Send + Sync {
    fn pass(&self, answer: Answer);

    /// The attempt that is answered, if the command is stored.
    fn attempt(&self) -> Option<Attempt> {
        None
    }
}

impl<F: Fn(Answer) + Send + Sync> Relay for F {
    fn pass(&self, answer: Answer) {
        self(answer);
    }
}

impl Duty {
    /// The duty to answer the command `tag` of process `to`, whose commands are cancelled with this token.
    pub(crate) fn new(host: Arc<dyn Host>, to: Pid, tag: u64, of_process: CancelToken) -> Arc<Duty> {
        let (state, cancel) = (AtomicU64::new(OPEN), CommandCancel::below(of_process));
        Arc::new(Duty { host, to, tag, state, cancel, timer: OnceLock::new(), child: None, relay: None })
    }

    /// The duty to answer the command `tag` of process `to` with the output of this child.
    pub(crate) fn of_run(host: Arc<dyn Host>, to: Pid, tag: u64, child: Pid) -> Arc<Duty> {
        let cancel = CommandCancel::below(CancelToken::with_clock(host.clock().clone()));
        let (state, child) = (AtomicU64::new(OPEN), Some(child));
        Arc::new(Duty { host, to, tag, state, cancel, timer: OnceLock::new(), child, relay: None })
    }

    /// A duty in the place of this one, whose answer goes to `relay`.
    pub(crate) fn relayed(&self, relay: Box<dyn Relay>) -> Arc<Duty> {
        Duty::with_relay(self.host.clone(), (self.to, self.tag), self.cancel.token().clone(), relay)
    }

    /// The duty to answer the command `tag` of process `to`. Its answer goes to `relay`.
    pub(crate) fn with_relay(
        host: Arc<dyn Host>,
        (to, tag): (Pid, u64),
        above: CancelToken,
        relay: Box<dyn Relay>,
    ) -> Arc<Duty> {
        let (state, cancel) = (AtomicU64::new(OPEN), CommandCancel::below(above));
        Arc::new(Duty { host, to, tag, state, cancel, timer: OnceLock::new(), child: None, relay: Some(relay) })
    }

    /// The attempt that is answered, if the command is stored.
    pub(crate) fn attempt(&self) -> Option<Attempt> {
        self.relay.as_ref().and_then(|relay| relay.attempt())
    }

    pub(crate) fn pid(&self) -> Pid {
        self.to
    }

    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    pub(crate) fn cancel(&self) -> &CommandCancel {
        &self.cancel
    }

    /// Whether the command has no answer yet.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OPEN
    }

    /// Records the timer of the limit. Call it before another thread can answer.
    pub(crate) fn set_timer(&self, timer: TimerId) {
        let _ = self.timer.set(timer);
    }

    /// Cancels the timer of the limit, if there is one.
    pub(crate) fn forget_timer(&self) {
        if let Some(timer) = self.timer.get() {
            self.host.forget_timer(*timer);
        }
    }

    fn leaves_open(&self, to: u64) -> Result<u64, u64> {
        // Ordering: AcqRel: one read-modify-write wins. The answer itself travels under the lock of the receiver.
        self.state.compare_exchange(OPEN, to, Ordering::AcqRel, Ordering::Acquire)
    }

    /// Answers, if the command is open. A late answer is dropped, and counted if the command was given up.
    pub(crate) fn answer(&self, answer: Answer) {
        if self.claim(true) {
            match &self.relay {
                None => self.host.answer(self.to, self.tag, answer),
                Some(relay) => relay.pass(answer),
            }
        } else {
            drop_contained(answer);
        }
    }

    /// Takes the right to answer, if the command is open. The caller answers. If the command was given up, the late
    /// answer is counted, unless it `counts` for nothing.
    pub(crate) fn claim(&self, counts: bool) -> bool {
        match self.leaves_open(ANSWERED) {
            Ok(_) => {
                self.forget_timer();
                true
            }
            Err(state) => {
                if counts && state == GIVEN_UP {
                    self.host.discarded_answer();
                }
                false
            }
        }
    }

    /// Gives the command up, if it is open. The caller delivers the error, and then stops the work.
    pub(crate) fn give_up(&self) -> bool {
        let is_first = self.leaves_open(GIVEN_UP).is_ok();
        if is_first {
            self.forget_timer();
        }
        is_first
    }

    /// Ends the command because its limit is over.
    pub(crate) fn time_out(&self) {
        if self.leaves_open(GIVEN_UP).is_ok() {
            self.host.answer(self.to, self.tag, Err(CommandError::TimedOut));
            self.stop_work(Reason::TimedOut);
        }
    }

    /// Stops the work for a command that was given up: cancels its token, or ends its child.
    pub(crate) fn stop_work(&self, reason: Reason) {
        match self.child {
            Some(child) => self.host.end_run(child, reason),
            None => self.cancel.cancel(reason),
        }
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        // Nothing else has the duty now.
        if self.is_open() {
            self.answer(Err(CommandError::Dropped));
        }
    }
}

/// Takes over the duty to answer a command.
pub(crate) type Entrust = Box<dyn FnOnce(Arc<Duty>) + Send>;

/// The cancel token of one command. It is made when it is first needed, below the token of its process.
pub(crate) struct CommandCancel {
    of_process: CancelToken,
    own: OnceLock<CancelToken>,
}

impl CommandCancel {
    pub(crate) fn below(of_process: CancelToken) -> CommandCancel {
        CommandCancel { of_process, own: OnceLock::new() }
    }

    pub(crate) fn token(&self) -> &CancelToken {
        self.own.get_or_init(|| self.of_process.child())
    }

    /// Cancels the command alone.
    pub(crate) fn cancel(&self, reason: Reason) {
        self.token().cancel(reason);
    }

    /// The reason, if the command or its process is cancelled.
    pub(crate) fn check(&self) -> Result<(), Reason> {
        self.own.get().unwrap_or(&self.of_process).check()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::host::Clerk;
    use super::*;
    use crate::primitives::lock;

    #[test]
    fn a_token_made_late_is_cancelled_with_its_command() {
        let all = CancelToken::new();
        let (early, late) = (CommandCancel::below(all.clone()), CommandCancel::below(all.clone()));
        let token = early.token().clone();
        early.cancel(Reason::TimedOut);
        late.cancel(Reason::Cancelled);
        assert_eq!(token.check(), Err(Reason::TimedOut));
        assert_eq!((early.check(), late.token().check()), (Err(Reason::TimedOut), Err(Reason::Cancelled)));
        let other = CommandCancel::below(all.clone());
        assert!(all.check().is_ok() && other.check().is_ok());
        all.cancel(Reason::Ended);
        assert_eq!(other.token().check(), Err(Reason::Ended));
    }

    #[test]
    fn one_of_answer_limit_and_cancel_wins() {
        let clerk = Arc::new(Clerk::default());
        let duty = |tag| Duty::new(clerk.clone(), Pid::FIRST, tag, CancelToken::new());
        let answered = duty(1);
        answered.answer(Ok(Box::new(())));
        answered.time_out();
        assert!(!answered.give_up() && answered.cancel().check().is_ok());
        let late = duty(2);
        late.time_out();
        late.answer(Ok(Box::new(())));
        assert_eq!(late.cancel().check(), Err(Reason::TimedOut));
        let cancelled = duty(3);
        assert!(cancelled.give_up());
        cancelled.time_out();
        drop((answered, late, cancelled, duty(4)));
        let answers: Vec<_> = lock(&clerk.answers).iter().map(|(tag, answer)| (*tag, answer.is_ok())).collect();
        assert_eq!(answers, [(1, true), (2, false), (4, false)]);
        assert_eq!(*lock(&clerk.discarded), 1, "an answer that comes late is counted, a drop is not");
    }

    #[test]
    fn a_run_that_is_given_up_ends_its_child_and_claims_nothing() {
        let clerk = Arc::new(Clerk::default());
        let duty = |tag| Duty::of_run(clerk.clone(), Pid::FIRST, tag, Pid::FIRST);
        let (claimed, late) = (duty(1), duty(2));
        assert!(claimed.claim(true) && !claimed.claim(true));
        claimed.time_out();
        assert!(lock(&clerk.ended_runs).is_empty());
        late.time_out();
        assert!(!late.claim(true) && !late.claim(false));
        assert_eq!(*lock(&clerk.ended_runs), [(Pid::FIRST, Reason::TimedOut)]);
        assert_eq!((lock(&clerk.answers).len(), *lock(&clerk.discarded)), (1, 1));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::super::host::Clerk;
    use super::*;
    use crate::primitives::{lock, thread};

    /// A handler answers while the limit of its command is over. Fails if either looks first and writes afterwards.
    #[test]
    fn a_command_that_is_answered_while_it_times_out_has_one_answer() {
        loom::model(|| {
            let clerk = Arc::new(Clerk::default());
            let duty = Duty::new(clerk.clone(), Pid::FIRST, 1, CancelToken::new());
            let late = duty.clone();
            let timer = thread::spawn(move || late.time_out());
            duty.answer(Ok(Box::new(())));
            timer.join().unwrap();
            let answers = lock(&clerk.answers);
            assert_eq!(answers.len(), 1);
            let discarded = *lock(&clerk.discarded);
            assert_eq!(discarded, u64::from(answers[0].1.is_err()), "a late answer is counted");
        });
    }

    /// A child ends while the limit of its run is over. Fails if either looks first and writes afterwards.
    #[test]
    fn a_run_whose_child_ends_while_it_times_out_has_one_answer() {
        loom::model(|| {
            let clerk = Arc::new(Clerk::default());
            let duty = Duty::of_run(clerk.clone(), Pid::FIRST, 1, Pid::FIRST);
            let late = duty.clone();
            let timer = thread::spawn(move || late.time_out());
            let is_claimed = duty.claim(true);
            timer.join().unwrap();
            let timed_out = lock(&clerk.answers).len();
            assert_eq!(usize::from(is_claimed) + timed_out, 1);
            assert_eq!((lock(&clerk.ended_runs).len(), *lock(&clerk.discarded)), (timed_out, timed_out as u64));
        });
    }
}
