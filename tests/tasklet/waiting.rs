//! Wait, suspending and resuming.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::sync::Latch;
use procession::tasklet::{Directive, Loop, Resume, Tasklet, TaskletContext, TurnOutcome, ready};
use procession::{Exit, Reason};

use crate::support::*;

type Log = Vec<&'static str>;

/// Suspends in its first step and sends the resumption away; its next step, wherever it is, is written down.
fn waits(resumes: mpsc::Sender<Resume>, woken: Arc<Mutex<Log>>) -> impl Tasklet<Log> {
    let elsewhere = woken.clone();
    let mut resumes = Some(resumes);
    ready::from_fns(
        move |log: &mut Log, cx: &mut TaskletContext<'_, Log>| {
            if let Some(resumes) = resumes.take() {
                resumes.send(cx.suspend()).unwrap();
                return Directive::Wait;
            }
            log.push("home");
            woken.lock().unwrap().push("home");
            Directive::Done
        },
        move |_: &mut TaskletContext<'_, Log>| {
            elsewhere.lock().unwrap().push("pool");
            Directive::Done
        },
    )
}

#[test]
fn a_waiting_tasklet_holds_the_loop_until_it_is_resumed() {
    for (directive, expected) in
        [(Directive::Home, vec!["home"]), (Directive::Pool, vec!["pool"]), (Directive::Done, vec![])]
    {
        let (sender, receiver) = mpsc::channel();
        let woken = Arc::new(Mutex::new(Log::new()));
        let mut home = Loop::new(Log::new());
        home.schedule(waits(sender, woken.clone()), Directive::Home).unwrap();
        assert_eq!(home.turn(10), TurnOutcome::Ran(1));
        assert_eq!(home.turn(10), TurnOutcome::Idle, "it waits");
        let handle = home.handle();
        let other = std::thread::spawn(move || {
            let resume: Resume = wait(&receiver).unwrap();
            assert_eq!(handle.tasklets()[0].id, resume.id());
            resume.resume(directive);
        });
        let report = home.run().unwrap();
        wait(other).unwrap();
        assert_eq!(*woken.lock().unwrap(), expected, "{directive:?}");
        assert_eq!(report.finished, 1);
    }
}

#[test]
fn run_does_not_return_while_a_tasklet_waits() {
    let (sender, receiver) = mpsc::channel();
    let mut home = Loop::new(Log::new());
    home.schedule(waits(sender, Arc::default()), Directive::Home).unwrap();
    let returned = Arc::new(Latch::new());
    let seen = returned.clone();
    let handle = home.handle();
    let other = std::thread::spawn(move || {
        let resume: Resume = wait(&receiver).unwrap();
        until("it waits", || handle.tasklets()[0].directive == Directive::Wait);
        assert!(!seen.is_set());
        resume.resume(Directive::Home);
    });
    home.run().unwrap();
    returned.set(()).unwrap();
    wait(other).unwrap();
    assert_eq!(home.get(), &["home"]);
}

#[test]
fn a_resumption_can_be_a_plain_callback() {
    let (sender, receiver) = mpsc::channel();
    let mut home = Loop::new(Log::new());
    home.schedule(waits(sender, Arc::default()), Directive::Home).unwrap();
    let _ = home.turn(1);
    let callback: Box<dyn FnOnce() + Send> = Box::new(wait(&receiver).unwrap().resume_later(Directive::Home));
    wait(std::thread::spawn(callback)).unwrap();
    home.run().unwrap();
    assert_eq!(home.get(), &["home"]);
    // A callback that is thrown away is a resumption that is.
    let (sender, receiver) = mpsc::channel();
    home.schedule(waits(sender, Arc::default()), Directive::Home).unwrap();
    let _ = home.turn(1);
    drop(wait(&receiver).unwrap().resume_later(Directive::Home));
    assert_eq!(home.run().unwrap().abandoned, 1);
}

#[test]
fn a_resumption_before_wait_is_returned_is_not_lost() {
    for (elsewhere, directive) in
        [(false, Directive::Home), (true, Directive::Home), (false, Directive::Pool), (true, Directive::Pool)]
    {
        let steps = counter();
        let (at_home, on_pool) = (steps.clone(), steps.clone());
        let mut first = true;
        let tasklet = ready::from_fns(
            move |(): &mut (), cx: &mut TaskletContext<'_, ()>| {
                at_home.fetch_add(1, Ordering::SeqCst);
                if !std::mem::take(&mut first) {
                    return Directive::Done;
                }
                let resume = cx.suspend();
                if elsewhere {
                    // Another thread has done it before this step goes on.
                    wait(std::thread::spawn(move || resume.resume(directive))).unwrap();
                } else {
                    resume.resume(directive);
                }
                Directive::Wait
            },
            move |_: &mut TaskletContext<'_, ()>| {
                on_pool.fetch_add(1, Ordering::SeqCst);
                Directive::Done
            },
        );
        let mut home = Loop::new(());
        let report = home.schedule(tasklet, Directive::Home).unwrap().run().unwrap();
        assert_eq!((count(&steps), report.finished), (2, 1));
    }
}

#[test]
fn a_resumption_on_the_pool_before_wait_is_not_lost() {
    let mut home = Loop::new(0);
    let tasklet = ready::from_fns(
        {
            let mut steps = 0;
            move |sum: &mut u32, _: &mut TaskletContext<'_, u32>| {
                steps += 1;
                *sum = steps;
                if steps == 1 { Directive::Pool } else { Directive::Done }
            }
        },
        |cx: &mut TaskletContext<'_, u32>| {
            let resume = cx.suspend();
            wait(std::thread::spawn(move || resume.resume(Directive::Home))).unwrap();
            Directive::Wait
        },
    );
    home.schedule(tasklet, Directive::Home).unwrap().run().unwrap();
    assert_eq!(*home.get(), 2);
}

#[test]
fn a_suspension_stays_open_until_a_step_waits() {
    let mut home = Loop::new(0);
    let tasklet = ready::from_fns(
        numbered_steps(),
        // The resumption that was made at home came while the tasklet was on its way here.
        |_: &mut TaskletContext<'_, u32>| Directive::Wait,
    );
    home.schedule(tasklet, Directive::Home).unwrap().run().unwrap();
    assert_eq!(*home.get(), 2);

    fn numbered_steps() -> impl FnMut(&mut u32, &mut TaskletContext<'_, u32>) -> Directive + Send + 'static {
        |steps, cx| {
            *steps += 1;
            if *steps == 2 {
                return Directive::Done;
            }
            cx.suspend().resume(Directive::Home);
            Directive::Pool
        }
    }
}

#[test]
fn the_first_of_several_resumptions_counts() {
    let (sender, receiver) = mpsc::channel();
    let mut home = Loop::new(0);
    let tasklet = numbered(move |step, steps: &mut u32, cx| {
        *steps += 1;
        match step {
            0 => {
                sender.send([cx.suspend(), cx.suspend(), cx.suspend()]).unwrap();
                Directive::Wait
            }
            1 => {
                // It waits again: what resumed the first wait must not end this one.
                sender.send([cx.suspend(), cx.suspend(), cx.suspend()]).unwrap();
                Directive::Wait
            }
            _ => Directive::Done,
        }
    });
    home.schedule(tasklet, Directive::Home).unwrap();
    assert_eq!(home.run_until_idle(), TurnOutcome::Ran(1));
    let [one, two, three] = wait(&receiver).unwrap();
    one.resume(Directive::Home);
    two.resume(Directive::Home);
    assert_eq!(home.run_until_idle(), TurnOutcome::Ran(1), "two resumptions are one step");
    three.resume(Directive::Home);
    assert_eq!(home.run_until_idle(), TurnOutcome::Idle, "it is of the wait before");
    let [one, two, three] = wait(&receiver).unwrap();
    drop((one, two));
    assert_eq!(home.run_until_idle(), TurnOutcome::Idle, "one is left");
    three.resume(Directive::Home);
    assert_eq!(home.run().unwrap().finished, 1);
    assert_eq!(*home.get(), 3);
}

#[test]
fn resuming_a_tasklet_that_is_over_does_nothing() {
    let (sender, receiver) = mpsc::channel();
    let mut home = Loop::new(0);
    let tasklet = ready::from_fn(move |steps: &mut u32, cx| {
        *steps += 1;
        sender.send(cx.suspend()).unwrap();
        Directive::Done
    });
    home.schedule(tasklet, Directive::Home).unwrap().run().unwrap();
    let late = wait(&receiver).unwrap();
    // Another one has its slot now.
    let next = home.handle().schedule(ready::wait(), Directive::Wait).unwrap();
    late.resume(Directive::Home);
    assert_eq!((home.turn(1), *home.get()), (TurnOutcome::Idle, 1));
    next.cancel("over");
    // And of a loop that is gone.
    let (sender, receiver) = mpsc::channel();
    let mut gone = Loop::new(Log::new());
    gone.schedule(waits(sender, Arc::default()), Directive::Home).unwrap();
    let _ = gone.turn(1);
    drop(gone);
    wait(&receiver).unwrap().resume(Directive::Home);
}

#[test]
fn a_dropped_resumption_finishes_its_tasklet_and_is_reported() {
    // Before the step has returned, and after.
    for early in [true, false] {
        let (sender, receiver) = mpsc::channel();
        let drops = counter();
        let token = Dropped(drops.clone());
        let tasklet = ready::from_fn(move |(): &mut (), cx| {
            let _ = &token;
            let resume = cx.suspend();
            if early {
                drop(resume);
            } else {
                sender.send(resume).unwrap();
            }
            Directive::Wait
        });
        let mut home = Loop::new(());
        let ended = home.handle().schedule(ready::named(tasklet, "forgotten"), Directive::Home).unwrap();
        let other = std::thread::spawn(move || drop(wait(&receiver)));
        let report = home.run().unwrap();
        wait(other).unwrap();
        assert_eq!((report.abandoned, report.ended(), count(&drops)), (1, 1, 1));
        assert_eq!(report.abandoned_waits[0].name, "forgotten");
        assert_eq!(report.abandoned_waits[0].id, ended.id());
        assert!(report.to_string().contains("forgotten"), "{report}");
        let reason = Reason::from("its resumption was dropped unused");
        assert!(matches!(ended.exit(), Some(Exit::Terminated(why)) if why == reason));
    }
}

#[test]
fn a_queued_tasklet_given_wait_or_done_leaves_the_queue() {
    let mut home = Loop::new(Vec::new());
    let handle = home.handle();
    let pushes = |n: u32| {
        ready::from_fn(move |order: &mut Vec<u32>, _| {
            order.push(n);
            Directive::Done
        })
    };
    let tasklets: Vec<_> = (0..5).map(|n| handle.schedule(pushes(n), Directive::Home).unwrap()).collect();
    assert!(tasklets[1].redirect(Directive::Wait).unwrap());
    assert!(tasklets[3].redirect(Directive::Done).unwrap());
    assert!(matches!(tasklets[3].exit(), Some(Exit::Done(()))));
    // Home again, for one that is queued: one step.
    assert!(tasklets[2].redirect(Directive::Home).unwrap());
    assert!(tasklets[4].redirect(Directive::Pool).is_err(), "nobody runs the loop, and it stays where it is");
    while home.turn(1) == TurnOutcome::Ran(1) {}
    assert_eq!(home.get(), &[0, 2, 4]);
    assert!(tasklets[1].redirect(Directive::Home).unwrap());
    assert!(tasklets[1].redirect(Directive::Home).unwrap());
    let report = home.run().unwrap();
    assert_eq!(home.get(), &[0, 2, 4, 1]);
    assert_eq!((report.finished, report.home_steps), (5, 4));
    assert!(!tasklets[1].redirect(Directive::Home).unwrap(), "it is over");
}

#[test]
fn a_resumption_for_the_pool_is_held_until_the_loop_runs() {
    let (sender, receiver) = mpsc::channel();
    let woken = Arc::new(Mutex::new(Log::new()));
    let mut home = Loop::new(Log::new());
    home.schedule(waits(sender, woken.clone()), Directive::Home).unwrap();
    let _ = home.turn(1);
    wait(&receiver).unwrap().resume(Directive::Pool);
    let held = home.tasklets();
    assert_eq!((held[0].directive, held[0].running), (Directive::Pool, false));
    assert_eq!(home.run().unwrap().pool_steps, 1);
    assert_eq!(*woken.lock().unwrap(), ["pool"]);
}

#[test]
fn a_delayed_resumption_goes_by_the_clock_of_the_loop() {
    let manual = ManualClock::new();
    let mut home = Loop::<u32>::builder().clock(manual.clock()).build(0);
    let sleeps = numbered(|step, steps: &mut u32, cx| {
        *steps += 1;
        if step == 2 {
            return Directive::Done;
        }
        cx.suspend().resume_after(Duration::from_secs(10), Directive::Home);
        Directive::Wait
    });
    home.schedule(sleeps, Directive::Home).unwrap();
    for expected in 1..=3 {
        assert_eq!(home.run_until_idle(), TurnOutcome::Ran(1));
        assert_eq!(*home.get(), expected);
        manual.advance(Duration::from_millis(9_999));
        assert_eq!(home.turn(1) == TurnOutcome::Finished, expected == 3);
        manual.advance(Duration::from_millis(1));
    }
    // Zero is at once, and the greatest delay is never.
    for (delay, ended) in [(Duration::ZERO, true), (Duration::MAX, false)] {
        let mut home = Loop::<u32>::builder().clock(manual.clock()).build(0);
        let sleeps = numbered(move |step, _: &mut u32, cx| {
            if step == 1 {
                return Directive::Done;
            }
            cx.suspend().resume_after(delay, Directive::Home);
            Directive::Wait
        });
        home.schedule(sleeps, Directive::Home).unwrap();
        let _ = home.run_until_idle();
        manual.advance(Duration::from_secs(1_000_000));
        let _ = home.run_until_idle();
        assert_eq!(home.tasklets().is_empty(), ended);
    }
    assert_eq!(manual.next_due(), None);
}

#[test]
fn a_wait_with_a_limit_ends_and_says_that_it_timed_out() {
    let manual = ManualClock::new();
    let (sender, receiver) = mpsc::channel();
    let mut home = Loop::<Vec<bool>>::builder().clock(manual.clock()).build(Vec::new());
    let tasklet = numbered(move |step, timed_out: &mut Vec<bool>, cx| {
        timed_out.push(cx.timed_out());
        if step == 3 {
            return Directive::Done;
        }
        if step == 2 {
            // A step that follows no wait has not timed out.
            return Directive::Home;
        }
        sender.send(cx.suspend_for(Duration::from_secs(5), Directive::Home)).unwrap();
        Directive::Wait
    });
    home.schedule(tasklet, Directive::Home).unwrap();
    let _ = home.run_until_idle();
    manual.advance(Duration::from_millis(4_999));
    assert_eq!(home.run_until_idle(), TurnOutcome::Idle);
    manual.advance(Duration::from_millis(1));
    assert_eq!(home.run_until_idle(), TurnOutcome::Ran(1));
    // The resumption of a wait that has timed out does nothing; that of the next one takes its timer with it.
    wait(&receiver).unwrap().resume(Directive::Home);
    assert_eq!(home.run_until_idle(), TurnOutcome::Idle);
    assert!(manual.next_due().is_some());
    wait(&receiver).unwrap().resume(Directive::Home);
    assert_eq!(manual.next_due(), None, "the timer is gone");
    home.run().unwrap();
    assert_eq!(home.get(), &[false, true, false, false]);
}

#[test]
fn a_timer_of_the_system_wakes_a_sleeping_loop() {
    let mut home = Loop::new(0);
    let sleeps = numbered(|step, steps: &mut u32, cx| {
        *steps += 1;
        if step == 3 {
            return Directive::Done;
        }
        cx.suspend().resume_after(Duration::from_millis(1), Directive::Home);
        Directive::Wait
    });
    assert_eq!(home.schedule(sleeps, Directive::Home).unwrap().run().unwrap().finished, 1);
    assert_eq!(*home.get(), 4);
}

#[test]
fn a_limit_of_a_wait_that_was_over_at_once_leaves_nothing() {
    let manual = ManualClock::new();
    let (sender, receiver) = mpsc::channel();
    let mut home = Loop::<u32>::builder().clock(manual.clock()).build(0);
    // The resumption is there before the tasklet has set the time limits of its wait: by a delay, and by a wait with
    // a limit.
    let asks = numbered(move |step, steps: &mut u32, cx| {
        *steps += 1;
        match step {
            0 => {
                cx.suspend().resume(Directive::Home);
                cx.suspend().resume_after(Duration::from_secs(5), Directive::Home);
                sender.send(cx.suspend_for(Duration::from_secs(5), Directive::Home)).unwrap();
            }
            1 => sender.send(cx.suspend()).unwrap(),
            _ => return Directive::Done,
        }
        Directive::Wait
    });
    home.schedule(asks, Directive::Home).unwrap();
    assert_eq!(home.run_until_idle(), TurnOutcome::Ran(2));
    assert_eq!(manual.next_due(), None, "the timers have gone with their wait");
    manual.advance(Duration::from_secs(10));
    wait(&receiver).unwrap().resume(Directive::Home);
    assert_eq!((home.run_until_idle(), *home.get()), (TurnOutcome::Idle, 2), "nobody has resumed the second wait");
    wait(&receiver).unwrap().resume(Directive::Home);
    home.run().unwrap();
    assert_eq!(*home.get(), 3);
}

#[test]
fn a_delay_goes_with_the_wait_that_it_is_for_however_that_ends() {
    let manual = ManualClock::new();
    let mut home = Loop::<()>::builder().clock(manual.clock()).build(());
    for delay in [Duration::from_secs(3_600), Duration::MAX] {
        let (sender, receiver) = mpsc::channel();
        let waits = move || {
            let sender = sender.clone();
            numbered(move |step, _: &mut (), cx| {
                if step > 0 {
                    return Directive::Done;
                }
                sender.send(cx.suspend()).unwrap();
                cx.suspend().resume_after(delay, Directive::Home);
                Directive::Wait
            })
        };
        let handles = [(); 4].map(|()| home.handle().schedule(waits(), Directive::Home).unwrap());
        assert_eq!(home.run_until_idle(), TurnOutcome::Ran(4));
        assert_eq!(manual.next_due().is_some(), delay != Duration::MAX);
        // That of the first tasklet.
        wait(&receiver).unwrap().resume(Directive::Home);
        handles[1].cancel("not wanted any more");
        handles[2].redirect(Directive::Home).unwrap();
        handles[3].redirect(Directive::Done).unwrap();
        assert_eq!(manual.next_due(), None);
        assert_eq!(home.run().unwrap().ended(), 4);
    }
}
