//! Tasklets and directives.

use procession::Exit;
use procession::tasklet::{Directive, Loop, Tasklet, TaskletContext, ready};

use crate::support::*;

/// The motivating example: home, pool, home.
struct ThreePhases {
    phase: usize,
    // Of its own, written by whatever thread runs it, without a lock.
    seen: Vec<(usize, ThreadId)>,
    told: Arc<Mutex<Vec<(usize, ThreadId)>>>,
}

impl Tasklet<Vec<usize>> for ThreePhases {
    fn home(&mut self, state: &mut Vec<usize>, _: &mut TaskletContext<'_, Vec<usize>>) -> Directive {
        state.push(self.phase);
        self.seen.push((self.phase, me()));
        self.phase += 1;
        if self.phase == 1 {
            return Directive::Pool;
        }
        self.told.lock().unwrap().append(&mut self.seen);
        Directive::Done
    }

    fn pool(&mut self, _: &mut TaskletContext<'_, Vec<usize>>) -> Directive {
        self.seen.push((self.phase, me()));
        self.phase += 1;
        Directive::Home
    }
}

#[test]
fn home_then_pool_then_home_and_run_returns_after_the_last_step() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut home = Loop::new(Vec::new());
    home.schedule(ThreePhases { phase: 0, seen: Vec::new(), told: told.clone() }, Directive::Home).unwrap();
    let report = home.run().unwrap();
    let seen = std::mem::take(&mut *told.lock().unwrap());
    assert_eq!(seen.iter().map(|(phase, _)| *phase).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((seen[0].1, seen[2].1), (me(), me()));
    assert_ne!(seen[1].1, me());
    assert_eq!(home.get(), &[0, 2]);
    assert_eq!((report.home_steps, report.pool_steps, report.finished), (2, 1, 1));
    assert_eq!(Arc::strong_count(&told), 1, "the tasklet is gone");
}

#[test]
fn each_directive_can_be_the_first_one() {
    let mut home = Loop::new(());
    let handle = home.handle();
    let thread_of_step = Arc::new(Mutex::new(Vec::new()));
    let tells = || {
        let (at_home, elsewhere) = (thread_of_step.clone(), thread_of_step.clone());
        ready::from_fns(
            move |(): &mut (), _: &mut TaskletContext<'_, ()>| {
                at_home.lock().unwrap().push(me());
                Directive::Done
            },
            move |_: &mut TaskletContext<'_, ()>| {
                elsewhere.lock().unwrap().push(me());
                Directive::Done
            },
        )
    };
    let done = handle.schedule(tells(), Directive::Done).unwrap();
    assert!(done.is_finished(), "without a step");
    let waits = handle.schedule(tells(), Directive::Wait).unwrap();
    let at_home = handle.schedule(tells(), Directive::Home).unwrap();
    let inside = tells();
    let mut inside = Some(inside);
    let starter = numbered(move |_, (), cx| {
        cx.schedule(inside.take().unwrap(), Directive::Pool).unwrap();
        waits.cancel("enough");
        Directive::Done
    });
    home.schedule(starter, Directive::Home).unwrap().run().unwrap();
    assert!(matches!(at_home.exit(), Some(Exit::Done(()))));
    let threads = thread_of_step.lock().unwrap();
    assert_eq!(threads.len(), 2, "only Home and Pool are stepped");
    assert_eq!(threads[0], me());
    assert_ne!(threads[1], me());
}

#[test]
fn each_directive_can_be_returned_at_home_and_on_the_pool() {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let (at_home, elsewhere) = (steps.clone(), steps.clone());
    let mut home_script = [Directive::Home, Directive::Pool, Directive::Done].into_iter();
    let mut pool_script = [Directive::Pool, Directive::Wait, Directive::Home].into_iter();
    let tasklet = ready::from_fns(
        move |(): &mut (), _: &mut TaskletContext<'_, ()>| {
            let next = home_script.next().unwrap();
            at_home.lock().unwrap().push(("home", next));
            next
        },
        move |cx: &mut TaskletContext<'_, ()>| {
            let next = pool_script.next().unwrap();
            if next == Directive::Wait {
                cx.suspend().resume(Directive::Pool);
            }
            elsewhere.lock().unwrap().push(("pool", next));
            next
        },
    );
    let mut home = Loop::new(());
    home.schedule(tasklet, Directive::Home).unwrap().run().unwrap();
    let expected = [
        ("home", Directive::Home),
        ("home", Directive::Pool),
        ("pool", Directive::Pool),
        ("pool", Directive::Wait),
        ("pool", Directive::Home),
        ("home", Directive::Done),
    ];
    assert_eq!(*steps.lock().unwrap(), expected);
}

#[test]
fn the_same_directive_again_is_another_step() {
    let mut home = Loop::new(0);
    let twice = numbered(|step, count: &mut usize, _| {
        *count += 1;
        if step < 2 { Directive::Home } else { Directive::Done }
    });
    let report = home.schedule(twice, Directive::Home).unwrap().run().unwrap();
    assert_eq!((*home.get(), report.home_steps), (3, 3));
}

#[test]
fn the_ready_made_tasklets_are_done_at_once_or_wait() {
    let mut home = Loop::new(());
    let report = home.schedule(ready::done(), Directive::Home).unwrap().run().unwrap();
    assert_eq!((report.home_steps, report.finished), (1, 1));
    let holds = home.handle().schedule(ready::wait(), Directive::Home).unwrap();
    let released = holds.clone();
    // The loop is held: only when another thread has found it so is it let go.
    let handle = home.handle();
    let other = std::thread::spawn(move || {
        until("it waits", || handle.tasklets().first().is_some_and(|holding| holding.directive == Directive::Wait));
        assert!(!released.is_finished());
        assert!(released.redirect(Directive::Done).unwrap());
    });
    let report = home.run().unwrap();
    wait(other).unwrap();
    assert_eq!((report.home_steps, report.finished), (1, 1));
    assert!(matches!(holds.exit(), Some(Exit::Done(()))));
}
