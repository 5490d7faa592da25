//! Beyond the original: tails that cannot be forgotten, node and thread (or future) in one call, requests and hooks.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use procession::exit::Panic;
use procession::shutdown::{AddError, JobPanicError};
use procession::sync::Latch;
use procession::{BoxError, ShutdownNode, WaitError};

use crate::support::{LIMIT, ZERO, job, named};
use crate::wait::wait;
use crate::waker::WakeCounter;

#[test]
fn a_tail_that_is_forgotten_says_done() {
    let (state, tail) = job();
    let (above, above_tail) = ShutdownNode::job([state]);
    drop(tail);
    above.request_shutdown();
    assert!(above_tail.end().is_cancelled());
    assert!(above.err().is_none(), "an ordinary end is no error");
}

#[test]
fn a_tail_that_is_dropped_by_a_panic_says_so_and_is_done() {
    let (state, tail) = named("worker");
    // Without the hook, so that nothing is printed.
    let worker = std::thread::spawn(move || {
        let _tail = tail;
        std::panic::resume_unwind(Box::new("broken"));
    });
    assert!(wait(worker).is_err());
    assert!(state.is_closed());
    let error = state.err().unwrap();
    assert_eq!(error.downcast_ref(), Some(&JobPanicError));
    assert_eq!(error.to_string(), "worker: the job panicked");

    let (finished, tail) = job();
    let worker = std::thread::spawn(move || {
        tail.done();
        std::panic::resume_unwind(Box::new("after it was done"));
    });
    assert!(wait(worker).is_err());
    assert!(finished.err().is_none());
}

#[test]
fn a_thread_is_a_node_a_tail_and_an_error_in_one_call() {
    let state = ShutdownNode::thread("worker", |job| {
        assert_eq!(std::thread::current().name(), Some("worker"));
        wait(job.end());
        Ok(())
    })
    .unwrap();
    assert_eq!(state.name(), Some("worker"));
    state.shutdown_timeout(LIMIT).unwrap();
    assert!(state.err().is_none());

    let failed = ShutdownNode::thread("worker", |_| Err("no disk".into())).unwrap();
    assert_eq!(failed.failed_timeout(LIMIT).unwrap().to_string(), "worker: no disk");
    assert!(failed.wait_closed_timeout(LIMIT).is_ok());

    let panicked = ShutdownNode::thread("worker", |_| std::panic::resume_unwind(Box::new("at once"))).unwrap();
    let error = panicked.failed_timeout(LIMIT).unwrap();
    assert_eq!(error.downcast_ref::<Panic>().unwrap().message(), "at once");
    assert!(panicked.wait_closed_timeout(LIMIT).is_ok());
}

#[test]
fn a_thread_that_cannot_be_started_gives_the_work_back() {
    let token = Arc::new(());
    let held = token.clone();
    let refused = ShutdownNode::thread("a\0b", move |_| {
        drop(held);
        Ok(())
    })
    .unwrap_err();
    assert_eq!(refused.reason().kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(Arc::strong_count(&token), 2);
    let again = ShutdownNode::thread("ab", refused.into_inner()).unwrap();
    assert!(again.wait_closed_timeout(LIMIT).is_ok());
}

#[test]
fn a_thread_closes_after_its_children() {
    let (child, tail) = job();
    let told = Latch::new();
    let set = told.clone();
    let parent = ShutdownNode::builder().name("parent").children([child]).thread(move |job| {
        wait(job.end());
        let _ = set.set(());
        Ok(())
    });
    let parent = parent.unwrap();
    parent.request_shutdown();
    assert!(tail.end().is_cancelled() && !told.is_set());
    tail.done();
    parent.shutdown_timeout(LIMIT).unwrap();
    assert!(told.is_set());
}

#[test]
fn a_future_is_a_job_too() {
    let flag = Arc::new(WakeCounter::default());
    let waker = Waker::from(flag.clone());
    let mut cx = Context::from_waker(&waker);

    let (state, work) = ShutdownNode::builder().name("mailer").future(|job| async move {
        job.end().cancelled().await;
        Err(BoxError::from("unsent mail"))
    });
    let mut work = pin!(work);
    assert!(work.as_mut().poll(&mut cx).is_pending());
    let mut closed = pin!(state.closed());
    assert!(closed.as_mut().poll(&mut cx).is_pending());
    state.request_shutdown();
    assert_eq!(flag.times(), 1);
    assert!(!state.is_closed());
    assert_eq!(work.as_mut().poll(&mut cx), Poll::Ready(()));
    assert_eq!(flag.times(), 2);
    assert_eq!(closed.as_mut().poll(&mut cx), Poll::Ready(()));
    assert_eq!(state.err().unwrap().to_string(), "mailer: unsent mail");
    assert_eq!(work.as_mut().poll(&mut cx), Poll::Ready(()), "and it may be polled again");

    let (dropped, work) = ShutdownNode::builder().future(|_| std::future::pending());
    assert!(!dropped.is_closed());
    drop(work);
    assert!(dropped.is_closed() && dropped.err().is_none());

    let (panicked, work) =
        ShutdownNode::builder().future(|_| async { std::panic::resume_unwind(Box::new("in a future")) });
    assert_eq!(pin!(work).poll(&mut cx), Poll::Ready(()));
    assert_eq!(panicked.err().unwrap().to_string(), "panicked: in a future");
    assert!(panicked.is_closed());
}

#[test]
fn what_a_future_holds_is_dropped_before_it_is_done() {
    struct Last(ShutdownNode, Arc<AtomicUsize>);
    impl Drop for Last {
        fn drop(&mut self) {
            assert!(!self.0.is_closed());
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let (slot, count) = (Arc::new(std::sync::OnceLock::<ShutdownNode>::new()), drops.clone());
    let get = slot.clone();
    let (state, work) = ShutdownNode::builder().future(move |_| {
        let held = async move { Last(get.get().unwrap().clone(), count) };
        async move {
            let _last = held.await;
            std::future::pending().await
        }
    });
    slot.set(state.clone()).unwrap();
    let mut work = Box::pin(work);
    assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(work);
    assert!(state.is_closed());
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn a_request_does_not_wait_and_hooks_hear_of_it_before_any_job() {
    let (child, tail) = job();
    let all = ShutdownNode::merge([child]);
    let order = Arc::new(crate::support::Mutex::new(Vec::new()));
    let say = |what: &'static str| {
        let order = order.clone();
        move || order.lock().unwrap().push(what)
    };
    let hook = all.on_shutdown(say("hook"));
    drop(all.on_shutdown(say("taken back")));
    all.on_shutdown(|| std::panic::resume_unwind(Box::new("contained"))).keep();
    let end = say("end");
    let _end = tail.end().on_cancel(move |_| end());
    all.request_shutdown();
    assert!(all.is_shutting_down() && !all.is_closed());
    let _late = all.on_shutdown(say("late"));
    all.request_shutdown();
    assert_eq!(*order.lock().unwrap(), ["hook", "end", "late"]);
    drop((hook, tail));
    assert!(all.is_closed() && all.wait_closed_timeout(ZERO).is_ok());
}

#[test]
fn errors_wake_those_who_wait_for_one() {
    let (child, tail) = named("child");
    let (below, _group) = ShutdownNode::group([child]);
    let all = ShutdownNode::merge([below]).annotate("all");
    assert!(all.failed_timeout(ZERO).is_err());
    let heard = Arc::new(crate::support::Mutex::new(Vec::new()));
    let hears = heard.clone();
    let _early = all.on_error(move |error| hears.lock().unwrap().push(error.to_string()));
    let waiting = std::thread::spawn({
        let all = all.clone();
        move || all.failed_timeout(LIMIT)
    });
    tail.fail("no paper");
    tail.fail("no ink");
    assert_eq!(wait(waiting).unwrap().unwrap().to_string(), "all: child: no paper");
    let hears = heard.clone();
    let _late = all.on_error(move |error| hears.lock().unwrap().push(format!("late: {error}")));
    assert_eq!(*heard.lock().unwrap(), ["all: child: no paper", "late: all: child: no paper"]);
}

#[test]
fn an_error_can_shut_the_whole_tree_down() {
    let ((one, one_tail), (two, two_tail)) = (job(), job());
    let all = ShutdownNode::merge([one, two]).shutdown_on_error();
    assert!(!two_tail.end().is_cancelled());
    one_tail.fail("broken");
    assert!(two_tail.end().is_cancelled() && all.is_shutting_down());
    drop((one_tail, two_tail));
    all.shutdown_timeout(ZERO).unwrap();

    let late = ShutdownNode::merge([ShutdownNode::error("broken before", []), job().0]).shutdown_on_error();
    assert!(late.is_shutting_down());
}

#[test]
fn a_group_that_is_closed_or_below_gives_the_state_back() {
    let (state, group) = ShutdownNode::group([]);
    let (above, _tail) = ShutdownNode::job([state.clone()]);
    let refused = group.add(above).unwrap_err();
    assert_eq!(*refused.reason(), AddError::Cycle);
    assert!(!refused.into_inner().is_closed());
    assert_eq!(*group.add(state.clone()).unwrap_err().reason(), AddError::Cycle);
    state.shutdown_timeout(ZERO).unwrap();
    assert!(group.is_closed());
    let (child, child_tail) = job();
    let refused = group.add(child).unwrap_err();
    assert_eq!(*refused.reason(), AddError::Closed);
    assert!(!child_tail.end().is_cancelled());
}

#[test]
fn a_thread_that_waits_for_its_own_tree_gets_an_error() {
    for in_a_group in [false, true] {
        let (above, tail) = ShutdownNode::job([]);
        let (tree, told) = (Latch::<ShutdownNode>::new(), Latch::new());
        let (all, tell) = (tree.clone(), told.clone());
        let job = ShutdownNode::thread("job", move |_| {
            let all = wait(&all);
            let error = all.shutdown().unwrap_err();
            assert!(tell.set((error.why() == WaitError::Inside, error.to_string(), all.wait_closed().is_ok())).is_ok());
            Ok(())
        });
        let below = if in_a_group {
            let (below, group) = ShutdownNode::group([]);
            group.add(job.unwrap()).unwrap();
            below
        } else {
            job.unwrap()
        };
        let all = above.depends_on([below]).annotate("all");
        assert!(tree.set(all.clone()).is_ok());
        let text = String::from("all: job: called from inside, and would wait for its own caller");
        assert_eq!(wait(&told), (true, text, false));
        wait(tail.end());
        tail.done();
        all.shutdown_timeout(LIMIT).unwrap();
    }
}

#[test]
fn a_thread_for_which_a_tree_does_not_wait_may_wait_for_the_tree() {
    let (other, tail) = job();
    let ends = other.clone();
    let no_part_of_it = ShutdownNode::thread("ends", move |_| Ok(ends.shutdown_timeout(LIMIT)?)).unwrap();
    wait(tail.end());
    tail.done();
    assert!(no_part_of_it.wait_closed_timeout(LIMIT).is_ok() && no_part_of_it.err().is_none());

    let (tree, over) = (Latch::<ShutdownNode>::new(), Latch::new());
    let (all, tell) = (tree.clone(), over.clone());
    let is_done = ShutdownNode::thread("is done", move |job| {
        job.done();
        assert!(tell.set(wait(&all).shutdown_timeout(LIMIT).is_ok()).is_ok());
        Ok(())
    });
    let (other, tail) = job();
    assert!(tree.set(ShutdownNode::merge([is_done.unwrap(), other])).is_ok());
    wait(tail.end());
    tail.done();
    assert!(wait(&over), "it waits for the other one");
}

#[test]
fn who_waits_for_a_state_keeps_it() {
    let (store, tail) = job();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
    let mut closed = store.clone().annotate("one").closed();
    let failed = ShutdownNode::merge([store]).on_error(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut closed).poll(&mut cx).is_pending());
    tail.fail("broken");
    assert_eq!(heard.load(Ordering::SeqCst), 1);
    tail.done();
    assert!(Pin::new(&mut closed).poll(&mut cx).is_ready());
    drop(failed);
}
