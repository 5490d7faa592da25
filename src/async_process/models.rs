//! Models of the wake flag of an async process, with the real turn and the real cell. `mod.rs` has the protocol.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use super::{Context, async_process};
use crate::primitives::{Arc, AtomicBool, Mutex, Ordering, lock, thread};
use crate::testing::{Driver, Status};

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// A future that is ready when it was told so.
#[derive(Default)]
struct Told {
    is_ready: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Told {
    /// Makes the future ready and wakes it.
    fn tell(&self, waker: Waker) {
        // Ordering: Relaxed: the wake itself must make this visible to the next poll.
        self.is_ready.store(true, Ordering::Relaxed);
        waker.wake();
    }

    fn poll(&self, waker: &Waker) -> Poll<()> {
        // First, because the lock would make it visible, too.
        let is_ready = self.is_ready.load(Ordering::Relaxed);
        *lock(&self.waker) = Some(waker.clone());
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    }

    fn take_waker(&self) -> Option<Waker> {
        lock(&self.waker).take()
    }
}

/// Fails if the step does not look at the wake flag after it has counted its owners, or if the listener does not look
/// at it.
#[test]
fn an_async_process_is_woken_while_its_first_step_ends() {
    model(|| {
        let told = Arc::new(Told::default());
        let teller = Arc::new(Mutex::new(None));
        let (future, place) = (told.clone(), teller.clone());
        let mut driver = Driver::new(async_process(move |_: Context<()>| async move {
            poll_fn(|context| {
                let polled = future.poll(context.waker());
                // The last one is woken by value. It is no owner any more then.
                if let (Poll::Pending, Some(waker)) = (polled, future.take_waker())
                    && lock(&place).is_none()
                {
                    let told = future.clone();
                    *lock(&place) = Some(thread::spawn(move || told.tell(waker)));
                }
                polled
            })
            .await;
            Ok(())
        }));
        driver.run();
        let teller = lock(&teller).take();
        teller.expect("it was polled").join().unwrap();
        assert_eq!(driver.run(), Status::Ended, "the wake was lost");
        assert!(driver.exit().is_some_and(|exit| exit.is_done()), "the wake came too late");
    });
}

/// Fails if the wake flag is cleared after the poll, or if a listener that waits is not woken.
#[test]
fn an_async_process_is_woken_while_it_comes_to_wait() {
    model(|| {
        let told = Arc::new(Told::default());
        let future = told.clone();
        let mut driver = Driver::new(async_process(move |_: Context<()>| async move {
            poll_fn(|context| future.poll(context.waker())).await;
            Ok(())
        }));
        assert_eq!(driver.run(), Status::Blocked);
        let waker = told.take_waker().expect("it was polled");
        let teller = thread::spawn(move || told.tell(waker));
        driver.cancel("a test");
        driver.step();
        teller.join().unwrap();
        assert_eq!(driver.run(), Status::Ended, "the wake was lost");
        assert!(driver.exit().is_some_and(|exit| exit.is_done()), "the wake came too late");
    });
}
