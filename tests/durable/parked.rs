//! Parked processes: they take what comes, run nothing, and hold up nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Responder, TimerFired};
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Query, Store};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::script::counts;
use crate::wait::{LIMIT, Mutex, until};
use crate::worker::Charge;

const HOUR: Duration = Duration::from_secs(3_600);

/// Notes what comes, and fails at poison until it is healed.
#[derive(Default, Serialize, Deserialize)]
struct Patient {
    notes: Vec<String>,
    timer: Option<Tag<TimerFired>>,
}

#[derive(Serialize, Deserialize)]
enum Drug {
    /// Sets a timer of an hour, and charges something.
    Wait,
    /// Fails until the patient of the first test is healed.
    Poison,
    /// Fails each time.
    Deadly,
    Note(u64),
    Look(Reply<Vec<String>>),
}

/// The steps that have taken poison.
static STEPS: AtomicU32 = AtomicU32::new(0);
static IS_HEALED: AtomicBool = AtomicBool::new(false);

impl Process for Patient {
    type Message = Drug;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Drug>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Drug::Wait) => {
                    self.timer = Some(out.after(HOUR));
                    out.command(Charge);
                }
                Event::Message(Drug::Poison) => {
                    STEPS.fetch_add(1, Ordering::SeqCst);
                    if !IS_HEALED.load(Ordering::SeqCst) {
                        return Err("poison".into());
                    }
                    self.notes.push("poison".into());
                }
                Event::Message(Drug::Deadly) => return Err("deadly".into()),
                Event::Message(Drug::Note(number)) => self.notes.push(number.to_string()),
                Event::Message(Drug::Look(reply)) => out.reply(reply, self.notes.clone()),
                Event::Completed(answer) => {
                    let is_timer = self.timer.is_some_and(|timer| answer.is(timer));
                    self.notes.push(if is_timer { "timer" } else { "answer" }.into());
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Patient {
    const NAME: &str = "patient";
}

/// The handlers that have not answered.
type Open = Arc<Mutex<Vec<Responder<u64>>>>;

fn open(clock: &ManualClock) -> (Store, Runtime, Open) {
    let open = Open::default();
    let kept = open.clone();
    let builder = Runtime::builder().workers(2).clock(clock.clock()).handler(move |_: Charge, done: Responder<u64>| {
        kept.lock().unwrap().push(done);
        Ok(())
    });
    let store = store_in(MemoryJournal::new(&MemoryDisk::new())).kind::<Patient>().command::<Charge>();
    let (store, runtime) = store.start(builder).unwrap();
    (store, runtime, open)
}

fn look(runtime: &Runtime, patient: Address<Drug>) -> Vec<String> {
    runtime.ask(patient, Drug::Look, Duration::MAX).wait().unwrap()
}

fn end(store: Store, runtime: Runtime) {
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn a_parked_process_takes_mail_and_timers_and_runs_nothing() {
    let clock = ManualClock::new();
    let (store, runtime, open) = open(&clock);
    let patient = store.begin("a", Patient::default()).unwrap();
    patient.wait(LIMIT).unwrap();
    let send = |drug| store.send(patient.address(), drug).unwrap().wait(LIMIT).unwrap();
    send(Drug::Wait);
    until("the handler is called", || open.lock().unwrap().len() == 1);
    send(Drug::Poison);
    let parked = || store.count(&Query::all().parked()).unwrap();
    for (attempt, pause) in (1..).zip([1, 2, 4, 8, 0]) {
        until("it has tried", || STEPS.load(Ordering::SeqCst) == attempt && runtime.is_idle());
        clock.advance(Duration::from_secs(pause));
    }
    until("it is parked", || parked() == 1);
    open.lock().unwrap().pop().unwrap().ok(7);
    clock.advance(2 * HOUR);
    send(Drug::Note(1));
    runtime.wait_idle().unwrap();
    assert_eq!((STEPS.load(Ordering::SeqCst), parked()), (5, 1), "it runs nothing");
    IS_HEALED.store(true, Ordering::SeqCst);
    store.retry(patient.pid()).unwrap();
    // No step has taken the answer, so the command is handed out again.
    until("the handler is called again", || open.lock().unwrap().len() == 1);
    open.lock().unwrap().pop().unwrap().ok(7);
    until("it has taken all", || look(&runtime, patient.address()).len() == 4);
    let mut notes = look(&runtime, patient.address());
    notes.sort_unstable();
    assert_eq!(notes, ["1", "answer", "poison", "timer"]);
    end(store, runtime);
}

#[test]
fn processes_that_always_fail_hold_up_nobody() {
    let sick = counts("processes that always fail", 100, 1_000);
    let clock = ManualClock::new();
    let (store, runtime, _) = open(&clock);
    let well = store.begin("well", Patient::default()).unwrap();
    for number in 0..sick {
        let one = store.begin(&number.to_string(), Patient::default()).unwrap();
        drop(store.send(one.address(), Drug::Deadly).unwrap());
    }
    let mut noted = 0;
    let mut works = || {
        for _ in 0..10 {
            drop(store.send(well.address(), Drug::Note(noted)).unwrap());
            noted += 1;
        }
        // The clock does not move, so nobody else has a turn meanwhile.
        until("it goes on", || look(&runtime, well.address()).len() as u64 == noted);
    };
    for pause in [1, 2, 4, 8, 16] {
        works();
        clock.advance(Duration::from_secs(pause));
        runtime.wait_idle().unwrap();
    }
    until("they are parked", || store.count(&Query::all().parked()).unwrap() == sick);
    works();
    let parked = store.list(&Query::all().parked().limit(sick as usize)).unwrap();
    assert!(parked.iter().all(|one| one.error.as_deref() == Some("deadly")), "{parked:?}");
    end(store, runtime);
}
