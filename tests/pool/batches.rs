//! D. Batches.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::*;

type Boxed = Box<dyn FnOnce() -> usize + Send>;

#[test]
fn a_batch_takes_what_is_in_a_queue_now_and_leaves_what_comes_later() {
    let pool = pool(2);
    let queue: Arc<Mutex<VecDeque<Boxed>>> = Arc::default();
    let fill = || {
        for n in 0..5 {
            let later = queue.clone();
            queue.lock().unwrap().push_back(Box::new(move || {
                later.lock().unwrap().push_back(Box::new(|| 99));
                n
            }));
        }
    };
    fill();
    // Jobs run, and want to put something there, while the queue is still being emptied.
    let handles = pool.spawn_all(queue.lock().unwrap().drain(..));
    let values: Vec<usize> = handles.into_iter().map(|handle| wait(handle.unwrap()).unwrap()).collect();
    assert_eq!((values, queue.lock().unwrap().len()), (vec![0, 1, 2, 3, 4], 5), "what they have put there is left");
    queue.lock().unwrap().clear();
    fill();
    let now: Vec<Boxed> = queue.lock().unwrap().drain(..).collect();
    let results: Vec<usize> = pool.run_all(now).into_iter().map(Result::unwrap).collect();
    assert_eq!(results, [0, 1, 2, 3, 4], "all have run when it returns, with the results in order");
    assert_eq!(queue.lock().unwrap().len(), 5);
}

#[test]
fn a_batch_asks_its_iterator_until_it_is_over_and_never_again() {
    let pool = pool(1);
    let held = hold(&pool);
    let (caller, asked) = (std::thread::current().id(), Cell::new(0));
    let jobs = std::iter::from_fn(|| {
        assert_eq!(std::thread::current().id(), caller);
        asked.set(asked.get() + 1);
        assert!(asked.get() <= 4, "it was over");
        // None of those before has run: they wait for the worker.
        assert_eq!(pool.stats().waiting, asked.get() - 1);
        let n = asked.get();
        (n < 4).then_some(move || n)
    });
    let handles = pool.spawn_all(jobs);
    held.release();
    let values: Vec<usize> = handles.into_iter().map(|handle| wait(handle.unwrap()).unwrap()).collect();
    assert_eq!((values, asked.get()), (vec![1, 2, 3], 4));
}

#[test]
fn a_batch_ends_when_another_taker_empties_its_queue() {
    let pool = pool(2);
    let queue = crossbeam_queue::SegQueue::new();
    (0..10).for_each(|n: usize| queue.push(n));
    let (asked, ran) = (Cell::new(0), Arc::new(AtomicUsize::new(0)));
    // It has counted ten, and finds three.
    let jobs = (0..queue.len()).map_while(|_| {
        if asked.replace(asked.get() + 1) == 3 {
            while queue.pop().is_some() {}
        }
        queue.pop().map(|n| {
            let ran = ran.clone();
            move || {
                add(&ran);
                n
            }
        })
    });
    let results: Vec<usize> = pool.run_all(jobs).into_iter().map(Result::unwrap).collect();
    assert_eq!((results, asked.get(), ran.load(Ordering::SeqCst)), (vec![0, 1, 2], 4, 3));
}

#[test]
fn an_empty_batch_is_nothing_to_do() {
    let pool = pool(2);
    assert!(pool.run_all(Vec::<fn()>::new()).is_empty());
    assert!(pool.spawn_all(None::<fn()>).is_empty());
    assert_eq!((pool.stats().submitted, pool.stats().workers), (0, 0));
}

#[test]
fn a_batch_without_waiting_gives_a_handle_for_each() {
    let pool = pool(1);
    let held = hold(&pool);
    let handles = pool.spawn_all((0..10).map(|n| move || n * n));
    assert_eq!(pool.stats().waiting, 10);
    held.release();
    let values: Vec<i32> = handles.into_iter().map(|handle| wait(handle.unwrap()).unwrap()).collect();
    assert_eq!(values, (0..10).map(|n| n * n).collect::<Vec<_>>());
}

#[test]
fn results_are_in_order_and_a_panic_is_one_of_them() {
    let pool = pool(2);
    let first = procession::sync::Latch::new();
    let jobs: Vec<Box<dyn FnOnce() -> u32 + Send>> = vec![
        Box::new({
            let first = first.clone();
            move || {
                wait(&first);
                1
            }
        }),
        Box::new(|| panic!("the second")),
        Box::new(move || {
            first.set(()).unwrap();
            3
        }),
    ];
    let results = pool.run_all(jobs);
    assert_eq!(results[0].as_ref().unwrap(), &1);
    assert_eq!(results[1].as_ref().unwrap_err().to_string(), "the job panicked: the second");
    assert_eq!(results[2].as_ref().unwrap(), &3);
}

#[test]
fn two_batches_share_a_queue_and_do_not_block() {
    let pool = pool(2);
    for _ in 0..50 {
        let queue = Arc::new(crossbeam_queue::SegQueue::new());
        (0..100).for_each(|n: usize| queue.push(n));
        let (ran, sum) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        together(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    // As many as are there now, and fewer if somebody else is quicker.
                    let jobs = (0..queue.len()).map_while(|_| queue.pop()).map(|n| {
                        let (ran, sum) = (ran.clone(), sum.clone());
                        move || {
                            add(&ran);
                            sum.fetch_add(n, Ordering::SeqCst);
                        }
                    });
                    pool.run_all(jobs).into_iter().for_each(|result| result.unwrap());
                });
            }
        });
        assert_eq!((ran.load(Ordering::SeqCst), sum.load(Ordering::SeqCst)), (100, 4_950));
    }
}

#[test]
fn an_iterator_that_panics_does_so_for_its_caller() {
    let pool = pool(1);
    let ran = Arc::new(AtomicUsize::new(0));
    let caller = std::thread::Builder::new().name(String::from("pool-caller")).spawn({
        let (pool, ran) = (pool.clone(), ran.clone());
        move || {
            pool.run_all((0..5).map(|n| {
                assert!(n < 3, "in the iterator");
                let ran = ran.clone();
                move || add(&ran)
            }));
        }
    });
    assert!(wait(caller.unwrap()).is_err());
    pool.drain_timeout(LIMIT).unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}
