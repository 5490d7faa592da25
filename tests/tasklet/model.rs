//! Random directive sequences from several threads against a plain model of the loop.
//!
//! A program is a set of plans: what a tasklet says at each of its steps. The tasklets carry out their plans on a
//! real loop. Several threads schedule, resume and cancel them. The model says for each of them, from its plan alone,
//! how many steps it takes at home and on the pool, and how it ends.
//!
//! The seed is printed; `PROCESSION_SEED=...` runs the same programs again (the interleaving is the machine's).

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};

use procession::tasklet::{
    Directive, Loop, LoopHandle, Report, Resume, Tasklet, TaskletContext, TaskletHandle, TurnOutcome, ready,
};
use procession::{Exit, Reason};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::seeded::random_programs;
use crate::support::*;

/// The acts of a tasklet in a step.
#[derive(Clone, Debug)]
enum Act {
    Say(Directive),
    /// Suspends, is resumed with this (before it returns, or by another thread at any time), and says that it waits.
    Resumed {
        early: bool,
        with: Directive,
        resumptions: usize,
    },
    /// Suspends, and the resumption is dropped.
    Forgotten {
        early: bool,
    },
    /// Schedules another one, of a later plan, and says this.
    Spawn(usize, Directive),
    Panic,
}

#[derive(Clone, Debug)]
struct Program {
    plans: Vec<Vec<Act>>,
    /// Which plans are scheduled from outside, by which thread, and with which directive first.
    roots: Vec<(usize, usize, Directive)>,
    /// Which of the tasklets are cancelled by yet another thread.
    cancelled: Vec<usize>,
    /// How many steps a turn takes; with none, the loop is run.
    turns: Option<usize>,
}

/// How a tasklet ends, if nobody cancels it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Done,
    Panicked,
    Abandoned,
}

/// The model: steps at home and on the pool, and the end.
fn predict(plan: &[Act], first: Directive) -> (usize, usize, End) {
    let (mut at_home, mut on_pool, mut where_next) = (0, 0, first);
    for act in plan.iter().chain([&Act::Say(Directive::Done)]) {
        match where_next {
            Directive::Home => at_home += 1,
            _ => on_pool += 1,
        }
        where_next = match act {
            Act::Say(directive) | Act::Spawn(_, directive) => *directive,
            Act::Resumed { with, .. } => *with,
            Act::Forgotten { .. } => return (at_home, on_pool, End::Abandoned),
            Act::Panic => return (at_home, on_pool, End::Panicked),
        };
        if where_next == Directive::Done {
            break;
        }
    }
    (at_home, on_pool, End::Done)
}

#[derive(Default)]
struct Record {
    inside: AtomicUsize,
    at_home: AtomicUsize,
    on_pool: AtomicUsize,
    drops: AtomicUsize,
}

/// A tasklet that was scheduled: its plan, its first directive, what it wrote down, and its end.
type Known = (usize, Directive, Arc<Record>, TaskletHandle);

struct World {
    plans: Vec<Vec<Act>>,
    known: Mutex<Vec<Known>>,
    faults: Mutex<Vec<String>>,
    resumer: Mutex<Sender<(Vec<Resume>, Option<Directive>)>>,
    home: Mutex<Option<ThreadId>>,
}

type State = Rc<Cell<usize>>;

struct Actor {
    world: Arc<World>,
    plan: usize,
    next: usize,
    record: Arc<Record>,
}

impl Actor {
    fn act(&mut self, cx: &TaskletContext<'_, State>) -> Directive {
        if self.record.inside.fetch_add(1, Ordering::SeqCst) != 0 {
            self.world.faults.lock().unwrap().push("one tasklet in two steps".into());
        }
        let act = self.world.plans[self.plan].get(self.next).cloned().unwrap_or(Act::Say(Directive::Done));
        self.next += 1;
        let says = match act {
            Act::Say(directive) => directive,
            Act::Spawn(plan, directive) => {
                schedule(&self.world, &cx.handle(), plan, Directive::Home);
                directive
            }
            Act::Resumed { early, with, resumptions } => {
                let mut resumes: Vec<_> = (0..resumptions).map(|_| cx.suspend()).collect();
                if early {
                    resumes.remove(0).resume(with);
                    // Made after that, it belongs to a wait that is over, and does nothing, whenever it is used.
                    let late = cx.suspend();
                    let _ = self.world.resumer.lock().unwrap().send((vec![late], Some(Directive::Done)));
                } else {
                    let _ = self.world.resumer.lock().unwrap().send((resumes, Some(with)));
                }
                Directive::Wait
            }
            Act::Forgotten { early } => {
                let resume = cx.suspend();
                if early {
                    drop(resume);
                } else {
                    let _ = self.world.resumer.lock().unwrap().send((vec![resume], None));
                }
                Directive::Wait
            }
            Act::Panic => {
                self.record.inside.fetch_sub(1, Ordering::SeqCst);
                std::panic::panic_any(ON_PURPOSE)
            }
        };
        self.record.inside.fetch_sub(1, Ordering::SeqCst);
        says
    }
}

impl Tasklet<State> for Actor {
    fn home(&mut self, state: &mut State, cx: &mut TaskletContext<'_, State>) -> Directive {
        state.set(state.get() + 1);
        self.record.at_home.fetch_add(1, Ordering::SeqCst);
        if *self.world.home.lock().unwrap() != Some(me()) {
            self.world.faults.lock().unwrap().push("a home step away from home".into());
        }
        self.act(cx)
    }

    fn pool(&mut self, cx: &mut TaskletContext<'_, State>) -> Directive {
        self.record.on_pool.fetch_add(1, Ordering::SeqCst);
        if *self.world.home.lock().unwrap() == Some(me()) {
            self.world.faults.lock().unwrap().push("a pool step at home".into());
        }
        self.act(cx)
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.record.drops.fetch_add(1, Ordering::SeqCst);
    }
}

fn schedule(world: &Arc<World>, handle: &LoopHandle<State>, plan: usize, first: Directive) {
    let record = Arc::new(Record::default());
    let actor = Actor { world: world.clone(), plan, next: 0, record: record.clone() };
    let (first, tasklet) = match handle.schedule(actor, first) {
        Ok(tasklet) => (first, tasklet),
        // Nobody is there yet, for the pool: it comes back, and goes home first.
        Err(refused) => match handle.schedule(refused.into_inner(), Directive::Home) {
            Ok(tasklet) => (Directive::Home, tasklet),
            Err(refused) => panic!("{}", refused.reason()),
        },
    };
    world.known.lock().unwrap().push((plan, first, record, tasklet));
}

fn run(program: &Program) -> Result<(), String> {
    quiet_panics();
    let (sender, receiver) = mpsc::channel::<(Vec<Resume>, Option<Directive>)>();
    let world = Arc::new(World {
        plans: program.plans.clone(),
        known: Mutex::new(Vec::new()),
        faults: Mutex::new(Vec::new()),
        resumer: Mutex::new(sender),
        home: Mutex::new(Some(me())),
    });
    let mut home = Loop::new(State::default());
    let handle = home.handle();
    // Holds the loop open until all threads have scheduled what they have to.
    let open = handle.schedule(ready::wait(), Directive::Wait).map_err(|why| why.to_string())?;
    let receiver = Arc::new(Mutex::new(receiver));
    let resumers: Vec<_> = (0..2)
        .map(|_| {
            let receiver = receiver.clone();
            std::thread::spawn(move || {
                loop {
                    let next = wait(&*receiver.lock().unwrap());
                    let Ok((mut resumes, with)) = next else { return };
                    if let Some(with) = with {
                        // One by one, so that the others come late.
                        resumes.drain(..).for_each(|resume| resume.resume(with));
                    }
                    drop(resumes);
                }
            })
        })
        .collect();
    let schedulers: Vec<_> = (0..3)
        .map(|thread| {
            let (world, handle) = (world.clone(), handle.clone());
            let roots: Vec<_> = program.roots.iter().copied().filter(|(_, by, _)| by % 3 == thread).collect();
            std::thread::spawn(move || {
                for (plan, _, first) in roots {
                    schedule(&world, &handle, plan % world.plans.len(), first);
                }
            })
        })
        .collect();
    let canceller = std::thread::spawn({
        let (world, which) = (world.clone(), program.cancelled.clone());
        move || {
            schedulers.into_iter().for_each(|thread| wait(thread).unwrap());
            for n in which {
                let chosen = {
                    let known = world.known.lock().unwrap();
                    known.get(n % known.len().max(1)).map(|(.., tasklet)| tasklet.clone())
                };
                if let Some(tasklet) = chosen {
                    tasklet.cancel(Reason::Cancelled);
                }
            }
            open.redirect(Directive::Done).unwrap();
        }
    });
    let report = match program.turns {
        None => home.run().map_err(|cut| cut.to_string())?,
        Some(steps) => turn(&mut home, steps),
    };
    wait(canceller).unwrap();
    // Nobody sends any more: what is still on its way is for tasklets that were cancelled.
    drop(std::mem::replace(&mut *world.resumer.lock().unwrap(), mpsc::channel().0));
    resumers.into_iter().for_each(|thread| wait(thread).unwrap());
    check(&world, &home, &report)
}

/// As a foreign main loop does, which comes only when it is told to.
fn turn(home: &mut Loop<State>, steps: usize) -> Report {
    let (sender, wakes) = mpsc::channel();
    home.on_wake(move || {
        let _ = sender.send(());
    });
    loop {
        match home.turn(steps) {
            TurnOutcome::Ran(_) => {}
            TurnOutcome::Idle => wakes.recv_timeout(LIMIT).expect("somebody has to tell"),
            TurnOutcome::Finished => return home.take_report(),
            TurnOutcome::Stopped(panic) => panic!("{panic}"),
        }
    }
}

fn check(world: &World, home: &Loop<State>, report: &Report) -> Result<(), String> {
    let mut faults = world.faults.lock().unwrap().clone();
    let (mut at_home, mut on_pool) = (0, 0);
    // The one that held the loop open was finished.
    let (mut finished, mut panicked, mut abandoned, mut cancelled) = (1, 0, 0, 0);
    for (plan, first, record, tasklet) in world.known.lock().unwrap().iter() {
        let took = (record.at_home.load(Ordering::SeqCst), record.on_pool.load(Ordering::SeqCst));
        at_home += took.0;
        on_pool += took.1;
        let (expected_home, expected_pool, expected_end) = predict(&world.plans[*plan], *first);
        let end = match tasklet.exit() {
            Some(Exit::Done(())) => {
                finished += 1;
                Some(End::Done)
            }
            Some(Exit::Panicked(_)) => {
                panicked += 1;
                Some(End::Panicked)
            }
            Some(Exit::Terminated(Reason::Cancelled)) => {
                cancelled += 1;
                None
            }
            Some(Exit::Terminated(_)) => {
                abandoned += 1;
                Some(End::Abandoned)
            }
            other => return Err(format!("{tasklet:?} has not ended: {other:?}")),
        };
        let as_expected = match end {
            Some(end) => end == expected_end && took == (expected_home, expected_pool),
            None => took.0 <= expected_home && took.1 <= expected_pool,
        };
        if !as_expected {
            faults.push(format!(
                "plan {plan}: {took:?} and {end:?} instead of {:?}",
                predict(&world.plans[*plan], *first)
            ));
        }
        if record.drops.load(Ordering::SeqCst) != 1 {
            faults.push(format!("plan {plan} was not dropped once"));
        }
    }
    if home.get().get() != at_home {
        faults.push(format!("{} unguarded changes of {at_home}", home.get().get()));
    }
    let counted =
        [report.home_steps, report.pool_steps, report.finished, report.panicked, report.abandoned, report.cancelled];
    let expected = [at_home as u64, on_pool as u64, finished, panicked, abandoned, cancelled];
    if counted != expected {
        faults.push(format!("the report says {counted:?}, and it was {expected:?}"));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

fn somewhere() -> impl Strategy<Value = Directive> {
    prop_oneof![3 => Just(Directive::Home), 2 => Just(Directive::Pool)]
}

fn act(plan: usize, plans: usize) -> BoxedStrategy<Act> {
    let with = prop_oneof![3 => Just(Directive::Home), 2 => Just(Directive::Pool), 1 => Just(Directive::Done)];
    let resumed = (any::<bool>(), with, 1..4_usize).prop_map(|(early, with, resumptions)| Act::Resumed {
        early,
        with,
        resumptions,
    });
    let common = prop_oneof![
        6 => somewhere().prop_map(Act::Say),
        6 => resumed,
        1 => any::<bool>().prop_map(|early| Act::Forgotten { early }),
        1 => Just(Act::Panic),
        1 => Just(Act::Say(Directive::Done)),
    ];
    if plan + 1 < plans {
        // Only later plans, so that every program ends.
        prop_oneof![8 => common, 1 => (plan + 1..plans, somewhere()).prop_map(|(plan, says)| Act::Spawn(plan, says))]
            .boxed()
    } else {
        common.boxed()
    }
}

fn program() -> impl Strategy<Value = Program> {
    const PLANS: usize = 5;
    let plans: Vec<_> = (0..PLANS).map(|plan| proptest::collection::vec(act(plan, PLANS), 0..7)).collect();
    let roots = proptest::collection::vec((0..PLANS, 0..3_usize, somewhere()), 1..25);
    let cancelled = proptest::collection::vec(0..40_usize, 0..4);
    let turns = prop_oneof![2 => Just(None), 1 => (1..6_usize).prop_map(Some)];
    (plans, roots, cancelled, turns).prop_map(|(plans, roots, cancelled, turns)| Program {
        plans,
        roots,
        cancelled,
        turns,
    })
}

#[test]
fn random_directives_from_several_threads_agree_with_the_model() {
    random_programs(150, Config { max_shrink_iters: 200, ..Config::default() }, program(), run);
}

#[test]
fn the_model_itself_knows_where_steps_run_and_how_plans_end() {
    use Directive::{Done, Home, Pool};
    let resumed = |with| Act::Resumed { early: true, with, resumptions: 1 };
    assert_eq!(predict(&[], Home), (1, 0, End::Done));
    assert_eq!(predict(&[Act::Say(Pool), Act::Say(Home)], Home), (2, 1, End::Done));
    assert_eq!(predict(&[resumed(Pool), resumed(Done), Act::Panic], Home), (1, 1, End::Done));
    assert_eq!(predict(&[Act::Say(Pool), Act::Panic], Home), (1, 1, End::Panicked));
    assert_eq!(predict(&[Act::Forgotten { early: false }, Act::Panic], Pool), (0, 1, End::Abandoned));
}
