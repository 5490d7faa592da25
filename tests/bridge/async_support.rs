//! Futures that poll several others, as the libraries of others do.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::helpers::*;

/// The output of the one that was ready first.
#[derive(Debug, PartialEq)]
pub enum Either<A, B> {
    First(A),
    Second(B),
}

/// Polls both, and drops the one that is not ready first. The first is polled first.
pub async fn race<A: Future, B: Future>(a: A, b: B) -> Either<A::Output, B::Output> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|context| {
        if let Poll::Ready(output) = a.as_mut().poll(context) {
            return Poll::Ready(Either::First(output));
        }
        b.as_mut().poll(context).map(Either::Second)
    })
    .await
}

/// Polls both until both are ready.
pub async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            second = Some(output);
        }
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

/// Returns `Pending` once, and wakes itself.
pub async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Polls each with a waker of its own, and polls only those that were woken.
pub async fn all_with_own_wakers<'a, T>(futures: Vec<Pin<Box<dyn Future<Output = T> + Send + 'a>>>) -> Vec<T> {
    let shared = Arc::new(Mutex::new(None::<Waker>));
    let mut futures: Vec<_> = futures
        .into_iter()
        .map(|future| (future, Arc::new(Own { woken: AtomicBool::new(true), outer: shared.clone() })))
        .collect();
    let mut done = Vec::new();
    poll_fn(|context| {
        *shared.lock().unwrap() = Some(context.waker().clone());
        futures.retain_mut(|(future, own)| {
            if !own.woken.swap(false, Ordering::SeqCst) {
                return true;
            }
            match future.as_mut().poll(&mut Context::from_waker(&Waker::from(own.clone()))) {
                Poll::Ready(output) => {
                    done.push(output);
                    false
                }
                Poll::Pending => true,
            }
        });
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done
}

struct Own {
    woken: AtomicBool,
    outer: Arc<Mutex<Option<Waker>>>,
}

impl Wake for Own {
    fn wake(self: Arc<Own>) {
        self.woken.store(true, Ordering::SeqCst);
        let outer = self.outer.lock().unwrap().clone();
        outer.into_iter().for_each(Waker::wake);
    }
}
