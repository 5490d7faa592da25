//! C. Questions: what a decided question leaves behind, and that nothing of it reaches the question that reuses its
//! memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use procession::observe::Observer;
use procession::{Address, Event, Events, Exit, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag, Upgrade};

use crate::helpers::*;

/// Counts that it is dropped, and panics then.
#[derive(Debug)]
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("in a destructor");
    }
}

impl Observer for Bomb {}

/// The orders to the process that outlives the asker's runtime.
enum Survivor {
    Keep(Reply<Bomb>),
    /// Yields the answer.
    Answer,
    /// The same, in a step that fails.
    Fail,
    Ping(Reply<u32>),
}

struct Keeper {
    kept: Option<Reply<Bomb>>,
    dropped: Arc<AtomicUsize>,
}

impl Process for Keeper {
    type Message = Survivor;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Survivor>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Survivor::Keep(reply)) => self.kept = Some(reply),
                Event::Message(Survivor::Answer) => out.reply(self.kept.take().unwrap(), Bomb(self.dropped.clone())),
                Event::Message(Survivor::Fail) => {
                    out.reply(self.kept.take().unwrap(), Bomb(self.dropped.clone()));
                    return Err("it failed after all".into());
                }
                Event::Message(Survivor::Ping(reply)) => out.reply(reply, 1),
                _ => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Keeper { kept: None, dropped: self.dropped.clone() }))
    }
}

#[test]
fn a_reply_that_outlives_its_runtime_harms_no_other_runtime() {
    for tell in [|| Survivor::Answer, || Survivor::Fail] {
        let (hooks, values) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let outlives = runtime(1);
        let keeper = outlives.spawn(Keeper { kept: None, dropped: values.clone() }).unwrap();
        let asks = builder().workers(1).observer(Bomb(hooks.clone())).start().unwrap();
        let (there, to) = (outlives.clone(), keeper.address());
        let bridge = script(move |events: &mut Events<'_, Reply<Bomb>>, _: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(reply) => there.send(to, Survivor::Keep(reply)).unwrap(),
                    _ => return Ok(Step::Done(())),
                }
            }
            Ok(Step::Idle)
        });
        let bridge = asks.spawn(bridge).unwrap().address();
        let asker = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            let _: Tag<Bomb> = out.ask(bridge, |reply| reply, Duration::MAX);
            Ok(Step::<()>::Wait)
        });
        let asker = asks.spawn(asker).unwrap();
        asks.send(asker.address(), ()).unwrap();
        until("it is asked", || outlives.stats().messages.stepped == 1);
        let _ = asks.shutdown(Duration::ZERO);
        drop((asker, asks));
        assert_eq!(hooks.load(Ordering::SeqCst), 0, "the reply knows of its runtime");
        outlives.send(keeper.address(), tell()).unwrap();
        until("the runtime is gone", || hooks.load(Ordering::SeqCst) == 1);
        assert_eq!(outlives.ask(keeper.address(), Survivor::Ping, LIMIT).wait().unwrap(), 1);
        // On a busy machine the asker may still be being ended, and the answer goes with what is left of it.
        until("the answer is gone", || values.load(Ordering::SeqCst) > 0);
        assert_eq!(values.load(Ordering::SeqCst), 1);
    }
}

/// As long as it is there, so is its runtime.
struct Known {
    _known: Arc<()>,
}

impl Observer for Known {}

#[test]
fn a_runtime_whose_processes_rest_with_questions_of_all_kinds_is_freed() {
    for workers in [1, 2] {
        let hook = Arc::new(());
        let known: Weak<()> = Arc::downgrade(&hook);
        let kept: Log<Reply<u32>> = Log::new();
        let runtime = builder().workers(workers).observer(Known { _known: hook }).start().unwrap();
        let keep = kept.clone();
        let mut turn = 0;
        let keeper = script(move |events: &mut Events<'_, Reply<u32>>, out: &mut StepOutput| {
            for event in events {
                turn += 1;
                match event {
                    Event::Message(reply) if turn % 2 == 0 => out.reply(reply, 1),
                    Event::Message(reply) => keep.push(reply),
                    _ => {}
                }
            }
            Ok(Step::<()>::Idle)
        });
        let keeper = runtime.spawn(keeper).unwrap().address();
        for waits in [true, false] {
            for limit in [Duration::MAX, LIMIT, Duration::from_millis(1)] {
                let mut asked = false;
                let asker = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
                    if events.any(|event| matches!(event, Event::Message(()))) {
                        for _ in 0..20 {
                            let _: Tag<u32> = out.ask(keeper, |reply| reply, limit);
                        }
                        asked = true;
                    }
                    Ok(if asked && waits { Step::<()>::Wait } else { Step::Idle })
                });
                let asker = runtime.spawn(asker).unwrap();
                runtime.send(asker.address(), ()).unwrap();
            }
        }
        until("all are asked", || runtime.stats().messages.stepped >= 6 * 21);
        drop(runtime);
        kept.take().into_iter().for_each(drop);
        until("it is freed", || known.upgrade().is_none());
    }
}

/// A question with its number. The right answer is twice the number.
enum Chaos {
    Begin,
    Asked(u64, Reply<u64>),
    Release,
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Asks at random, and does with what it is asked whatever can be done.
struct Member {
    random: Random,
    all: Arc<Mutex<Vec<Address<Chaos>>>>,
    numbers: Arc<AtomicUsize>,
    open: Vec<(Tag<u64>, u64)>,
    kept: VecDeque<(u64, Reply<u64>)>,
    elsewhere: Sender<(u64, Reply<u64>)>,
    wrong: Log<String>,
    over: Arc<AtomicUsize>,
    rounds: usize,
    begun: bool,
}

impl Member {
    fn is_asked(&mut self, n: u64, reply: Reply<u64>, out: &mut StepOutput) {
        match self.random.below(12) {
            0 => drop(reply),
            1 => drop(reply.send(n * 2)),
            2 => self.elsewhere.send((n, reply.delegate())).unwrap(),
            3 => self.elsewhere.send((n, reply)).unwrap(),
            4 | 5 => {
                if self.kept.is_empty() {
                    out.send(out.pid().typed(), Chaos::Release);
                }
                self.kept.push_back((n, reply));
            }
            _ => out.reply(reply, n * 2),
        }
    }

    fn is_told(&mut self, done: procession::Completion) {
        let Some(place) = self.open.iter().position(|(tag, _)| done.is(*tag)) else {
            return self.wrong.push(format!("a second answer: {done:?}"));
        };
        let (tag, n) = self.open.swap_remove(place);
        match done.take(tag).unwrap() {
            Ok(answer) if answer != n * 2 => self.wrong.push(format!("{answer} to {n}")),
            _ => {}
        }
    }
}

impl Process for Member {
    type Message = Chaos;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Chaos>, out: &mut StepOutput) -> StepResult<()> {
        let mut released = false;
        for event in events {
            match event {
                Event::Message(Chaos::Begin) => self.begun = true,
                Event::Message(Chaos::Asked(n, reply)) => self.is_asked(n, reply, out),
                Event::Message(Chaos::Release) => released = true,
                Event::Completed(done) => self.is_told(done),
                _ => return Ok(Step::Done(())),
            }
        }
        if released {
            while let Some((n, reply)) = self.kept.pop_front() {
                out.reply(reply, n * 2);
            }
        }
        if self.rounds > 0 && self.begun && self.open.len() < 6 {
            self.rounds -= 1;
            let all = self.all.lock().unwrap().clone();
            let before = self.open.len();
            let asks = 1 + self.random.below(3);
            // Only a question that is asked alone has no limit. Members that wait for several answers of each other
            // go on when a limit is over.
            let longest = if asks == 1 && before == 0 { Duration::MAX } else { Duration::from_millis(1) };
            for _ in 0..asks {
                let n = self.numbers.fetch_add(1, Ordering::Relaxed) as u64;
                let limit =
                    [longest, longest, Duration::ZERO, Duration::from_micros(80)][self.random.below(4) as usize];
                let to = all[self.random.below(all.len() as u64) as usize];
                self.open.push((out.ask(to, |reply| Chaos::Asked(n, reply), limit), n));
            }
            if self.random.below(10) == 0 {
                self.open.truncate(before);
                assert_ne!(self.random.below(2), 0, "it fails in one of two ways");
                return Err("it fails".into());
            }
            if self.rounds == 0 {
                self.over.fetch_add(1, Ordering::SeqCst);
            }
        }
        Ok(match self.random.below(8) {
            0 | 1 if self.rounds > 0 && self.begun => Step::Continue,
            2 if self.rounds > 0 && self.begun => Step::Blocking,
            _ if !self.open.is_empty() => Step::Wait,
            _ if self.rounds > 0 && self.begun => Step::Continue,
            _ => Step::Idle,
        })
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        if self.rounds == 0 {
            self.over.fetch_add(1, Ordering::SeqCst);
        }
        Some(Upgrade::to(Member {
            random: Random(self.random.0),
            all: self.all.clone(),
            numbers: self.numbers.clone(),
            open: std::mem::take(&mut self.open),
            // The message that would have them answered may be lost.
            kept: VecDeque::new(),
            elsewhere: self.elsewhere.clone(),
            wrong: self.wrong.clone(),
            over: self.over.clone(),
            rounds: self.rounds,
            begun: self.begun,
        }))
    }
}

#[test]
fn each_question_gets_its_own_answer_when_memory_is_reused() {
    for seed in 0..40 {
        chaos(seed, 1 + seed as usize % 3);
    }
}

/// Answers some at once, some later, and some not at all.
fn answers_from_elsewhere(questions: &Receiver<(u64, Reply<u64>)>) {
    let mut late = VecDeque::new();
    loop {
        match questions.recv_timeout(Duration::from_micros(200)) {
            Ok((n, reply)) if n % 3 == 0 => drop(reply.send(n * 2)),
            Ok((n, reply)) if n % 3 == 1 => drop((n, reply)),
            Ok(one) => late.push_back(one),
            Err(RecvTimeoutError::Timeout) => {
                if let Some((n, reply)) = late.pop_front() {
                    let _ = reply.send(n * 2);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn chaos(seed: u64, workers: usize) {
    let runtime: Runtime = runtime(workers);
    let (all, wrong) = (Arc::default(), Log::new());
    let (numbers, over) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicUsize::new(0)));
    let (elsewhere, questions) = channel();
    let answers = std::thread::spawn(move || answers_from_elsewhere(&questions));
    let member = |place: u64| {
        let member = Member {
            random: Random(seed * 1_000 + place),
            all: Arc::clone(&all),
            numbers: numbers.clone(),
            open: Vec::new(),
            kept: VecDeque::new(),
            elsewhere: elsewhere.clone(),
            wrong: wrong.clone(),
            over: over.clone(),
            rounds: 200,
            begun: false,
        };
        runtime.spawn(member).unwrap()
    };
    let members: Vec<_> = (0..8).map(member).collect();
    all.lock().unwrap().extend(members.iter().map(|member| member.address()));
    members.iter().for_each(|member| runtime.send(member.address(), Chaos::Begin).unwrap());
    let began = std::time::Instant::now();
    while over.load(Ordering::SeqCst) < members.len() {
        let wrong = wrong.to_vec();
        assert!(wrong.is_empty(), "{wrong:?}, seed {seed}");
        assert!(
            began.elapsed() < LIMIT,
            "somebody waits for ever, seed {seed}: {:?} {:?}",
            runtime.stats(),
            runtime.processes()
        );
        std::thread::yield_now();
    }
    let wrong = wrong.to_vec();
    assert!(wrong.is_empty(), "{wrong:?}, seed {seed}");
    drop(elsewhere);
    drop(runtime);
    drop(members);
    wait(answers).unwrap();
}
