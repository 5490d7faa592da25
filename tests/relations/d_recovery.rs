//! D. Supervisors: what stays and what goes when a state machine is replaced in place after a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{Event, Events, GroupChange, Process, Step, StepOutput, StepResult, Tag};

use crate::helpers::*;
use crate::node::*;
use crate::worker::*;

const BEAT: Duration = Duration::from_millis(100);

/// Sets a timer in its first step, and again whenever one of its commands is answered. A message is a crash.
struct Heart {
    beats: Arc<AtomicUsize>,
    begun: bool,
}

impl Process for Heart {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if !std::mem::replace(&mut self.begun, true) {
            out.after(BEAT);
        }
        for event in events {
            match event {
                Event::Message(()) => return Err("a crash".into()),
                Event::Completed(_) => {
                    self.beats.fetch_add(1, Ordering::SeqCst);
                    out.after(BEAT);
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_heartbeat_has_the_same_rate_and_one_timer_after_three_crashes() {
    let (clock, beats) = (ManualClock::new(), Arc::new(AtomicUsize::new(0)));
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let count = beats.clone();
    let spec = ChildSpec::in_place("heart", move || Heart { beats: count.clone(), begun: false });
    let boss = supervise(&runtime, Supervisor::builder().intensity(3, 1_000 * BEAT).child(spec).build().unwrap());
    let heart = boss.pid("heart");
    let advance = |beats: u32| {
        for _ in 0..2 * beats {
            clock.advance(BEAT / 2);
            until("the beat is counted", || runtime.is_at_rest());
        }
    };
    advance(10);
    assert_eq!(beats.load(Ordering::SeqCst), 10);
    for crash in 1..=3 {
        clock.advance(BEAT / 4);
        runtime.send_to(heart, ()).unwrap();
        boss.restarted("heart", crash);
        until("it has begun anew", || runtime.is_at_rest());
        assert_eq!(runtime.stats().timers, 1, "after {crash} crashes");
    }
    beats.store(0, Ordering::SeqCst);
    advance(10);
    assert_eq!(beats.load(Ordering::SeqCst), 10);
    assert_eq!((runtime.stats().timers, boss.pid("heart")), (1, heart));
    boss.stop();
}

/// Names itself, subscribes to a group and joins it in its first step, and writes down what it is told. A message is a crash.
struct Member {
    told: Log<GroupChange>,
    named: Option<Tag<()>>,
}

impl Process for Member {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let me = out.pid();
        let named = *self.named.get_or_insert_with(|| {
            out.subscribe("crew");
            out.join_group("crew", me);
            out.register("member", me)
        });
        for event in events {
            match event {
                Event::Message(()) => return Err("a crash".into()),
                Event::Group(event) => self.told.push(event.change.clone()),
                Event::Completed(done) => done.take(named).transpose().map(drop)?,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn one_that_joins_and_subscribes_in_its_first_step_is_a_member_once_and_told_once_after_a_crash() {
    let (runtime, told) = (runtime(2), Log::new());
    let log = told.clone();
    let spec = ChildSpec::in_place("member", move || Member { told: log.clone(), named: None });
    let boss = supervise(&runtime, Supervisor::builder().intensity(3, 1_000 * BEAT).child(spec).build().unwrap());
    let member = boss.pid("member");
    let watching = Log::new();
    let outside = crate::c_groups::mirror(&runtime, "crew", &watching);
    until("both have joined", || runtime.is_at_rest());
    for crash in 1..=3 {
        told.take();
        watching.take();
        runtime.send_to(member, ()).unwrap();
        boss.restarted("member", crash);
        until("it has begun anew", || runtime.is_at_rest());
        assert_eq!(runtime.group_members("crew"), [member], "after {crash} crashes");
        assert_eq!(runtime.whereis("member"), Some(member));
        assert_eq!(told.to_vec(), [GroupChange::Members(vec![]), GroupChange::Joined(member)]);
        assert_eq!(watching.to_vec(), [GroupChange::Left(member), GroupChange::Joined(member)]);
    }
    told.take();
    let other = node(&runtime);
    runtime.join_group("crew", other.pid()).unwrap();
    other.ends(&runtime, Way::Done);
    until("all is told", || runtime.is_at_rest());
    assert_eq!(told.to_vec(), [GroupChange::Joined(other.pid()), GroupChange::Left(other.pid())], "each change once");
    assert_eq!(boss.child("member").unwrap().restarts, 3, "the name that it has already was no failure");
    boss.stop();
    drop(outside);
}
