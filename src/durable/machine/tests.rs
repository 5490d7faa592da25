//! Tests of the turns of a machine whose yields are released later.

use std::any::Any;
use std::fmt;

use super::{Head, Kind, LastWord, Machine, StepOutput, Stepped, Successor};
use crate::outcome::Exit;
use crate::pid::Pid;
use crate::primitives::{Arc, AtomicUsize, Ordering, Weak};
use crate::process::step_activity::Sight;
use crate::process::{Events, Process, Step, StepResult};
use crate::runtime::{Core, Runtime};
use crate::sched::body::{Begun, Body};
use crate::sched::feeds::{AnyFeeds, AnyNewFeed, FeedHost};
use crate::sched::machine::{Typed, new_body};
use crate::sched::mailbox::AnyMailbox;
use crate::sched::resident_waker::PollRequests;
use crate::wait::until;

struct Idler;

impl Process for Idler {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

/// A machine that is asked for what is released. A record is released when it has just said for the first time that
/// nothing is.
struct Asked {
    typed: Typed<Idler>,
    core: Weak<Core>,
    pid: Pid,
    asked: Arc<AtomicUsize>,
    /// Whether a call has come for which the process is not held.
    is_called: bool,
}

impl Machine for Asked {
    fn release(&mut self, _: &mut StepOutput) -> bool {
        if self.asked.fetch_add(1, Ordering::SeqCst) == 0
            && let Some(core) = self.core.upgrade()
        {
            core.road.request_poll(self.pid);
        }
        false
    }

    fn passes_hold(&self) -> bool {
        self.is_called
    }

    fn is_due(&self) -> bool {
        self.typed.is_due()
    }

    fn keep_stored(&mut self, inbox: &mut dyn AnyMailbox) {
        self.typed.keep_stored(inbox);
    }

    fn kind(&self) -> &'static Kind {
        self.typed.kind()
    }

    fn mailbox(&mut self) -> &mut dyn AnyMailbox {
        self.typed.mailbox()
    }

    fn enter(&mut self) -> Result<(), Exit> {
        self.typed.enter()
    }

    fn begin(&mut self, head: &mut Head, out: &mut StepOutput, dooms: &AtomicUsize) -> Begun {
        self.typed.begin(head, out, dooms)
    }

    fn start(&mut self, head: &mut Head, out: &mut StepOutput) -> Begun {
        self.typed.start(head, out)
    }

    fn step(&mut self, head: &mut Head, out: &mut StepOutput, budget: u32, sight: Option<&Sight>) -> Stepped {
        self.typed.step(head, out, budget, sight)
    }

    fn held(&self) -> usize {
        self.typed.held()
    }

    fn keeps_unseen(&self) -> bool {
        self.typed.keeps_unseen()
    }

    fn push_out(&mut self, most: usize) -> Option<Box<dyn AnyMailbox>> {
        self.typed.push_out(most)
    }

    fn recover(&mut self, exit: &Exit) -> Option<Box<Successor>> {
        self.typed.recover(exit)
    }

    fn close(&mut self) {
        self.typed.close();
    }

    fn take_output(&mut self) -> Option<Box<dyn Any + Send>> {
        self.typed.take_output()
    }

    fn last_word(&mut self, exit: &Exit) -> Option<LastWord> {
        self.typed.last_word(exit)
    }

    fn left(&mut self) -> &mut dyn AnyMailbox {
        self.typed.left()
    }

    fn take_mailbox(&mut self) -> Box<dyn AnyMailbox> {
        self.typed.take_mailbox()
    }

    fn clear(&mut self) {
        self.typed.clear();
    }

    fn attach(&mut self, feed: Box<dyn AnyNewFeed>, host: Weak<dyn FeedHost>) {
        self.typed.attach(feed, host);
    }

    fn feeds(&mut self) -> Option<&mut dyn AnyFeeds> {
        self.typed.feeds()
    }

    fn take_feeds(&mut self) -> Option<Box<dyn AnyFeeds>> {
        self.typed.take_feeds()
    }

    fn take_exit(&mut self) -> Option<Box<dyn Any + Send>> {
        self.typed.take_exit()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.typed.describe(f)
    }

    fn process(&self) -> Option<&dyn Any> {
        Machine::process(&self.typed)
    }

    fn show_messages<'a>(&'a self, show: &mut dyn FnMut(Option<Pid>, &'a dyn Any)) {
        self.typed.show_messages(show);
    }
}

#[test]
fn a_release_after_the_look_for_it_is_looked_for_again() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let core = runtime.core();
    let (pid, asked) = (core.vacancy().unwrap(), Arc::new(AtomicUsize::new(0)));
    let Body { head, machine } = *new_body(Idler, pid, None, None);
    let machine = Asked { typed: machine, core: Arc::downgrade(core), pid, asked: asked.clone(), is_called: false };
    let body = core.install_body((Box::new(Body { head, machine }), 0));
    core.began_body(body.unwrap_or_else(|_| panic!("it is installed")));
    runtime.wait_idle().unwrap();
    core.road.request_poll(pid);
    until("it is asked again", || asked.load(Ordering::SeqCst) == 2);
    runtime.wait_idle().unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    runtime.terminate(pid).unwrap();
    drop(runtime.shutdown(std::time::Duration::MAX).unwrap());
}

/// The call arrives during the last step before the hold. So the process must not be held: nothing would release it.
#[cfg(feature = "cluster")]
#[test]
fn a_call_in_the_step_before_a_hold_is_not_held_up() {
    use crate::sched::body::Verdict;
    use crate::sched::cell::{Birth, Cell, Settled};

    for is_called in [false, true] {
        let pid = Pid::FIRST;
        let Body { head, machine } = *new_body(Idler, pid, None, None);
        let machine = Asked { typed: machine, core: Weak::new(), pid, asked: Arc::default(), is_called };
        let cell = Cell::new();
        assert!(cell.install(1, machine.kind(), Birth::default(), 0, || false));
        cell.hold_after_step(pid);
        assert!(cell.poll_even_if_held(pid).is_none(), "it is in its step");
        let stepped = Stepped { verdict: Verdict::Continue, unseen: false, signals: false, taken: 0 };
        let goes_on = matches!(cell.settle(Box::new(Body { head, machine }), stepped), Settled::Again(_));
        assert_eq!(goes_on, is_called);
    }
}
