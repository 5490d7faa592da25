//! Beyond the statements of the bridge: children whose output is the answer to a command.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::sync::Latch;
use procession::testing::{Driver, Outstanding, Status};
use procession::{
    BoxError, CommandError, EntryArgs, Event, Events, Exit, InitResult, Pid, Process, Reason, Runtime, SpawnError,
    SpawnOptions, Step, StepOutput, StepResult, Tag, Upgrade,
};

use crate::helpers::*;

/// An output that cannot be cloned.
#[derive(Debug, PartialEq)]
struct Result_(u64);

/// How a [`Child`] ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Done(u64),
    Fail,
    Panic,
    /// When it is asked to stop.
    Later,
    /// As `Done`, but another state machine is done in its place.
    Upgrade(u64),
    /// As `Done`, but its first step fails, and it recovers.
    Recover(u64),
}

/// Ends as it is told, and counts how many live.
struct Child {
    way: Way,
    alive: Alive,
}

/// So many children live.
#[derive(Clone, Default)]
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn child(&self, way: Way) -> Child {
        Child { way, alive: self.clone() }
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Process for Child {
    type Message = ();
    type Output = Result_;

    // Not in `start`: a process that is terminated before it is closed without it.
    fn init(&mut self, entry: EntryArgs) -> InitResult {
        let alive = &self.alive.0;
        let main = |(): ()| {
            alive.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        entry.method("main", main).finish()
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<Result_> {
        match self.way {
            Way::Done(n) => return Ok(Step::Done(Result_(n))),
            Way::Fail | Way::Recover(_) => return Err("a bad day".into()),
            Way::Panic => panic!("a bad day"),
            Way::Upgrade(n) => return Ok(Step::Upgrade(Upgrade::to(self.alive.child(Way::Done(n))))),
            Way::Later => {}
        }
        let stops = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if stops { Step::Done(Result_(0)) } else { Step::Idle })
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<Result_>> {
        let Way::Recover(n) = self.way else { return None };
        Some(Upgrade::to(self.alive.child(Way::Done(n))))
    }

    fn close(&mut self) {
        self.alive.0.fetch_sub(1, Ordering::SeqCst);
    }
}

type Answers = Vec<Result<Result_, CommandError>>;

/// Runs children in its start, and is done with the answers, in the order of the tags. Meanwhile it takes no messages.
struct Parent<F> {
    run: Option<F>,
    tags: Vec<Tag<Result_>>,
    answers: Vec<Option<Result<Result_, CommandError>>>,
}

fn parent<F: FnOnce(&mut StepOutput) -> Vec<Tag<Result_>> + Send + 'static>(run: F) -> Parent<F> {
    Parent { run: Some(run), tags: Vec::new(), answers: Vec::new() }
}

impl<F: FnOnce(&mut StepOutput) -> Vec<Tag<Result_>> + Send + 'static> Process for Parent<F> {
    type Message = ();
    type Output = Answers;

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.tags = self.run.take().map_or_else(Vec::new, |run| run(out));
        self.answers = self.tags.iter().map(|_| None).collect();
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<Answers> {
        for event in std::iter::from_fn(|| events.select(|()| false)) {
            let Event::Completed(done) = event else { continue };
            let place = self.tags.iter().position(|tag| done.is(*tag)).expect("each answer has a command");
            let answer = done.take(self.tags[place]).expect("it is taken once");
            assert!(self.answers[place].replace(answer).is_none(), "each is answered once");
        }
        if self.answers.iter().any(Option::is_none) {
            return Ok(Step::Wait);
        }
        Ok(Step::Done(self.answers.drain(..).flatten().collect()))
    }
}

/// Runs children, and returns the answers as text, when all processes have ended.
fn answers(runtime: &Runtime, run: impl FnOnce(&mut StepOutput) -> Vec<Tag<Result_>> + Send + 'static) -> Vec<String> {
    let parent = runtime.spawn(parent(run)).unwrap();
    let text = |answer: &Result<Result_, CommandError>| match answer {
        Ok(Result_(n)) => n.to_string(),
        Err(error) => error.to_string(),
    };
    let answers = output(&parent).iter().map(text).collect();
    until("all has been stepped", || runtime.is_idle());
    answers
}

#[test]
fn the_answer_is_the_output_or_the_exit_of_the_child() {
    for workers in [1, 2] {
        let (runtime, alive) = (runtime(workers), Alive::default());
        let children = alive.clone();
        let ways = [Way::Done(1), Way::Fail, Way::Panic, Way::Upgrade(4), Way::Recover(5)];
        let answers = answers(&runtime, move |out| ways.map(|way| out.run(children.child(way))).to_vec());
        assert_eq!((&*answers[0], &*answers[3], &*answers[4]), ("1", "4", "5"));
        assert!(answers[1].starts_with("child <") && answers[1].ends_with("> failed: a bad day"), "{answers:?}");
        assert!(answers[2].ends_with("> panicked: a bad day"), "{answers:?}");
        assert_eq!((alive.count(), runtime.stats().processes), (0, 0));
        assert_accounted(&runtime);
    }
}

#[test]
fn ten_thousand_children_are_answered_once_each() {
    let (runtime, alive) = (runtime(2), Alive::default());
    let way = |n| if n % 3 == 0 { Way::Fail } else { Way::Done(n) };
    let answers = answers(&runtime, move |out| (0..10_000).map(|n| out.run(alive.child(way(n)))).collect());
    for (n, answer) in answers.iter().enumerate() {
        assert!(if n % 3 == 0 { answer.contains("bad day") } else { *answer == n.to_string() }, "{n}: {answer}");
    }
    assert_eq!((answers.len(), runtime.stats().processes), (10_000, 0));
}

#[test]
fn a_child_that_cannot_begin_is_answered_with_the_reason() {
    let (limited, alive) = (builder().workers(1).max_processes(1).start().unwrap(), Alive::default());
    let children = alive.clone();
    let all = move |out: &mut StepOutput| {
        let options = [
            SpawnOptions::new(),
            SpawnOptions::new().link(),
            SpawnOptions::new().monitor(),
            SpawnOptions::new().report_started(),
            SpawnOptions::new().step_events(0),
        ];
        options.into_iter().map(|options| out.run_with(children.child(Way::Later), options)).collect()
    };
    let answers_of = output(&limited.spawn(parent(all)).unwrap());
    let reasons: Vec<&SpawnError> =
        answers_of.iter().map(|answer| answer.as_ref().unwrap_err().downcast_ref().unwrap()).collect();
    assert!(matches!(reasons[0], SpawnError::Limit { limit: 1 }), "{reasons:?}");
    assert!(reasons[1..4].iter().all(|why| matches!(why, SpawnError::OutsideStep)), "{reasons:?}");
    assert!(matches!(reasons[4], SpawnError::ZeroStepEvents), "{reasons:?}");

    // A name that is taken and an `init` that fails are exits of the child.
    let runtime = runtime(1);
    runtime.spawn_with(sink::<()>(), SpawnOptions::new().name("taken")).unwrap();
    let children = alive.clone();
    let answers = answers(&runtime, move |out| {
        let options = [SpawnOptions::new().name("taken"), SpawnOptions::new().entry("nowhere", ())];
        options.map(|options| out.run_with(children.child(Way::Later), options)).to_vec()
    });
    assert!(answers[0].contains("the name \"taken\" is taken"), "{answers:?}");
    assert!(answers[1].contains("no entry method \"nowhere\""), "{answers:?}");
    assert_accounted(&runtime);
}

#[test]
fn a_child_that_is_ended_by_others_is_answered_too() {
    let (runtime, alive) = (runtime(2), Alive::default());
    let children = alive.clone();
    let named = |name| SpawnOptions::new().name(name);
    let parent = runtime.spawn(parent(move |out| {
        ["killed", "asked"].map(|name| out.run_with(children.child(Way::Later), named(name))).to_vec()
    }));
    let parent = parent.unwrap();
    until("both have started", || alive.count() == 2 && runtime.is_idle());
    runtime.send(parent.address(), ()).unwrap();
    let killed = runtime.whereis("killed").unwrap();
    runtime.terminate("killed").unwrap();
    runtime.cancel("asked", "enough").unwrap();
    let answers = output(&parent);
    let Err(CommandError::ChildExit { pid, exit: Exit::Terminated(Reason::Terminated) }) = &answers[0] else {
        panic!("{answers:?}")
    };
    assert_eq!((*pid, answers[1].as_ref().unwrap()), (killed, &Result_(0)));
    assert_accounted(&runtime);
}

/// How a process ends that runs children.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Done,
    Fail,
    Panic,
    Terminate,
    /// It does not end: its state machine is replaced after a failure.
    Recover,
}

const ENDS: [End; 5] = [End::Done, End::Fail, End::Panic, End::Terminate, End::Recover];

/// Runs children at the first message, and ends at the second.
struct Ender {
    end: End,
    children: Vec<(Child, SpawnOptions)>,
    answers: Log<u64>,
}

impl Process for Ender {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(()) if !self.children.is_empty() => {
                    self.children.drain(..).for_each(|(child, options)| _ = out.run_with(child, options));
                }
                Event::Message(()) => match self.end {
                    End::Done => return Ok(Step::Done(())),
                    End::Fail | End::Recover => return Err("on purpose".into()),
                    End::Panic => panic!("on purpose"),
                    End::Terminate => drop(out.terminate(out.pid())),
                },
                Event::Completed(done) => self.answers.push(done.tag()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        let next = Ender { end: End::Done, children: Vec::new(), answers: self.answers.clone() };
        (self.end == End::Recover).then(|| Upgrade::to(next))
    }
}

#[test]
fn children_end_with_the_process_that_runs_them_however_it_ends() {
    for end in ENDS {
        let watcher = Watcher::new();
        let runtime = builder().workers(2).observer(watcher.clone()).start().unwrap();
        let (alive, answers) = (Alive::default(), Log::new());
        let children = (0..10).map(|_| (alive.child(Way::Later), SpawnOptions::new())).collect();
        let parent = runtime.spawn(Ender { end, children, answers: answers.clone() }).unwrap();
        runtime.send(parent.address(), ()).unwrap();
        until("all have started", || alive.count() == 10 && runtime.is_idle());
        runtime.send(parent.address(), ()).unwrap();
        let left = u64::from(end == End::Recover);
        until("all have ended", || runtime.stats().processes == left && runtime.is_idle());
        assert_eq!((alive.count(), answers.len()), (0, 0), "all are closed, and none is answered");
        let exits: Vec<_> = watcher.exits.take().into_iter().filter(|(pid, _)| *pid != parent.pid()).collect();
        let of_parent = format!("terminated (linked to {}, which ended: ", parent.pid());
        assert!(exits.len() == 10 && exits.iter().all(|(_, exit)| exit.starts_with(&of_parent)), "{end:?}: {exits:?}");
        runtime.terminate(parent.pid()).unwrap();
    }
}

/// A step that fails, of the parent or of the child, ends nothing that it should not.
#[test]
fn a_child_that_recovers_or_is_upgraded_still_ends_with_its_parent() {
    /// Says when it has been replaced, and stays.
    struct Stays {
        replaced: Log<()>,
        fails: bool,
        upgrades: bool,
    }
    impl Stays {
        fn next(&self) -> Upgrade<Result_> {
            Upgrade::to(Stays { replaced: self.replaced.clone(), fails: false, upgrades: false })
        }
    }
    impl Process for Stays {
        type Message = ();
        type Output = Result_;

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<Result_> {
            if self.fails {
                return Err("on purpose".into());
            }
            if self.upgrades {
                return Ok(Step::Upgrade(self.next()));
            }
            self.replaced.push(());
            Ok(Step::Idle)
        }

        fn recover(&mut self, _: &Exit) -> Option<Upgrade<Result_>> {
            Some(self.next())
        }
    }
    for fails in [false, true] {
        let (runtime, replaced) = (runtime(2), Log::new());
        let child = Stays { replaced: replaced.clone(), fails, upgrades: !fails };
        let parent = runtime.spawn(parent(move |out| vec![out.run(child)])).unwrap();
        until("it is replaced", || replaced.len() == 1 && runtime.is_idle());
        assert_eq!(runtime.stats().processes, 2);
        runtime.terminate(parent.pid()).unwrap();
        until("both have ended", || runtime.stats().processes == 0);
    }
}

/// It is told, with the exit of the parent, also if that is done.
#[test]
fn a_child_that_traps_exits_is_told_the_end_of_its_parent() {
    /// Is done when it is told.
    struct Traps(Log<String>);
    impl Process for Traps {
        type Message = ();
        type Output = Result_;

        fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<Result_> {
            let told = events.find_map(|event| match event {
                Event::Exit(exit) => Some(format!("{} {}", exit.pid, exit.exit)),
                _ => None,
            });
            self.0.push(told.clone().unwrap_or_else(|| String::from("stepped")));
            Ok(if told.is_some() { Step::Done(Result_(1)) } else { Step::Idle })
        }
    }
    for (end, exit) in [(false, "terminated (terminated)"), (true, "done")] {
        let (runtime, told) = (runtime(2), Log::new());
        let notes = told.clone();
        let mut child = Some(Traps(notes));
        let parent = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            if let Some(child) = child.take() {
                out.run_with(child, SpawnOptions::new().trap_exits());
            }
            Ok(if events.next().is_some() { Step::Done(()) } else { Step::Idle })
        }));
        let parent = parent.unwrap();
        until("the child is there", || told.len() == 1);
        if end {
            runtime.send(parent.address(), ()).unwrap();
        } else {
            runtime.terminate(parent.pid()).unwrap();
        }
        until("both have ended", || runtime.stats().processes == 0);
        assert_eq!(told.take(), [String::from("stepped"), format!("{} {exit}", parent.pid())]);
    }
}

/// The next state machine has commands of its own, and is not given the answers of the failed one.
#[test]
fn what_a_recovered_process_runs_is_answered_and_nothing_else() {
    struct Again {
        alive: Alive,
        is_second: bool,
        tag: Option<Tag<Result_>>,
    }
    impl Process for Again {
        type Message = ();
        type Output = Result_;

        fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
            let way = if self.is_second { Way::Done(2) } else { Way::Done(1) };
            self.tag = Some(out.run(self.alive.child(way)));
            Ok(())
        }

        fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<Result_> {
            if !self.is_second {
                return Err("on purpose".into());
            }
            let Some(Event::Completed(done)) = events.next() else { return Ok(Step::Wait) };
            Ok(Step::Done(done.take(self.tag).expect("it is the answer of this state machine")?))
        }

        fn recover(&mut self, _: &Exit) -> Option<Upgrade<Result_>> {
            Some(Upgrade::to(Again { alive: self.alive.clone(), is_second: true, tag: None }))
        }
    }
    for _ in 0..100 {
        let (runtime, alive) = (runtime(2), Alive::default());
        let again = runtime.spawn(Again { alive: alive.clone(), is_second: false, tag: None }).unwrap();
        assert_eq!(*output(&again), Result_(2));
        until("all have ended", || runtime.stats().processes == 0);
        assert_eq!(alive.count(), 0);
    }
}

#[test]
fn a_failed_step_runs_no_child() {
    let (runtime, alive) = (runtime(1), Alive::default());
    let children = alive.clone();
    let parent = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.run(children.child(Way::Later));
        Err::<Step<()>, _>("on purpose".into())
    }));
    assert_eq!(join(&parent.unwrap()).without_output().to_string(), "failed: on purpose");
    until("all is at rest", || runtime.is_idle());
    let stats = runtime.stats();
    assert_eq!((stats.spawned, stats.processes, stats.discarded_answers, alive.count()), (1, 0, 0, 0));
}

/// The name of the child is free when its parent is told, and the event of a monitor comes after that.
#[test]
fn the_answer_comes_when_the_child_is_gone_and_before_its_down_event() {
    let (runtime, alive) = (runtime(2), Alive::default());
    let (mut tag, mut told, mut rounds, mut missed) = (None::<Tag<Result_>>, Vec::new(), 0, 0);
    let parent = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let mut runs = tag.is_none();
        for event in events {
            match event {
                Event::Completed(done) => match done.take(tag) {
                    Some(answer) => {
                        told.push(format!("answer {}", answer?.0));
                        rounds += 1;
                        runs = true;
                    }
                    None => told.push(String::from("other")),
                },
                // The child had lost its name before it was monitored. Its answer may be on its way.
                Event::Down(down) if matches!(down.exit, Exit::Terminated(Reason::NoSuchProcess)) => missed += 1,
                Event::Down(_) => told.push(String::from("down")),
                _ => {}
            }
        }
        if rounds == 50 && told.len() + missed == 100 {
            return Ok(Step::Done(std::mem::take(&mut told)));
        }
        if runs && rounds < 50 {
            tag = Some(out.run_with(alive.child(Way::Done(rounds)), SpawnOptions::new().name("child")));
            out.monitor("child");
        }
        Ok(Step::Idle)
    }));
    let told = output(&parent.unwrap());
    let answers: Vec<&String> = told.iter().filter(|one| *one != "down").collect();
    assert!(answers.iter().enumerate().all(|(n, answer)| **answer == format!("answer {n}")), "{told:?}");
    let mut downs = 0;
    for (place, one) in told.iter().enumerate() {
        downs += usize::from(one == "down");
        assert!(downs <= place + 1 - downs, "a down event comes after the answer: {told:?}");
    }
}

/// A tree of processes that each run others ends whole, however deep it is.
#[test]
fn a_tree_ends_with_its_root() {
    /// Runs so many of the next level, and waits for them.
    struct Level {
        below: &'static [usize],
        alive: Alive,
    }
    impl Process for Level {
        type Message = ();
        type Output = ();

        fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
            self.alive.0.fetch_add(1, Ordering::SeqCst);
            if let [here, below @ ..] = self.below {
                (0..*here).for_each(|_| _ = out.run(Level { below, alive: self.alive.clone() }));
            }
            Ok(())
        }

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            Ok(if self.below.is_empty() { Step::Idle } else { Step::Wait })
        }

        fn close(&mut self) {
            self.alive.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    const DEEP: [usize; 2_000] = [1; 2_000];
    for (below, all) in [(&[10, 10, 10][..], 1_111), (&DEEP[..], 2_001)] {
        let (runtime, alive) = (runtime(2), Alive::default());
        let root = runtime.spawn(Level { below, alive: alive.clone() }).unwrap();
        until("all have started", || alive.count() == all && runtime.is_idle());
        runtime.terminate(root.pid()).unwrap();
        until("all have ended", || runtime.stats().processes == 0);
        assert_eq!(alive.count(), 0);
    }
}

/// Parents and children end at the same time, on two workers.
#[test]
fn parents_and_children_that_end_at_once_end_once() {
    let (runtime, alive) = (runtime(2), Alive::default());
    for round in 0..500_u64 {
        let (children, go) = (alive.clone(), Latch::new());
        let gate = go.clone();
        let parent = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            for n in 0..4 {
                out.run(children.child(if n % 2 == round % 2 { Way::Done(n) } else { Way::Later }));
            }
            let _ = gate.set(());
            Ok::<Step<()>, _>(Step::Idle)
        }));
        wait(&go);
        runtime.terminate(parent.unwrap().pid()).unwrap();
    }
    until("all have ended", || runtime.stats().processes == 0);
    until("all are closed", || alive.count() == 0);
    assert_accounted(&runtime);
}

#[test]
fn a_child_that_is_yielded_with_the_last_step_ends_with_it() {
    let (runtime, alive) = (runtime(1), Alive::default());
    let children = alive.clone();
    let parent = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.run(children.child(Way::Later));
        Ok(Step::Done(()))
    }));
    output(&parent.unwrap());
    until("both have ended", || runtime.stats().processes == 0);
    assert_eq!((alive.count(), runtime.stats().spawned), (0, 2));
}

#[test]
fn a_driver_takes_the_children_that_a_process_runs() {
    let alive = Alive::default();
    let children = alive.clone();
    let ways = [Way::Done(1), Way::Done(2), Way::Done(3)];
    let mut driver = Driver::new(parent(move |out| ways.map(|way| out.run(children.child(way))).to_vec()));
    assert_eq!(driver.run(), Status::Blocked);
    let waiting: Vec<u64> = driver
        .outstanding()
        .into_iter()
        .map(|one| match one {
            Outstanding::Child { tag, .. } => tag,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(waiting, [1, 2, 3]);
    assert!(driver.child::<Closing>().is_none(), "there is no child of this type");
    // The first child is driven, and the others are answered in its place.
    let (first, child) = driver.child::<Child>().unwrap();
    let mut of_child = Driver::new(child);
    assert_eq!(of_child.run(), Status::Ended);
    let Result_(n) = **of_child.exit().unwrap().output().unwrap();
    driver.answer(first, Ok(Result_(n)));
    let (second, _) = driver.child::<Child>().unwrap();
    let exit = Exit::Terminated(Reason::Terminated);
    driver.answer(second, Err(CommandError::ChildExit { pid: "<0.9.1>".parse::<Pid>().unwrap(), exit }));
    assert_eq!((driver.run(), driver.outstanding().len()), (Status::Blocked, 1));
    assert_eq!(driver.spawned().unwrap().1, std::any::type_name::<Child>(), "a child that was not taken");
}
