//! A. The process: what a step has yielded is done in the order in which it was written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::command::{Command, Responder};
use procession::observe::ProcessState;
use procession::{Address, Event, Events, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult};

use crate::helpers::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// Has what can be seen from outside counted, between two other yields.
struct Look;

impl Command for Look {
    type Output = ();
}

/// The things that are counted, in the order of `Scene::look`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Numbers,
    Texts,
    Questions,
    Child,
    Dead,
    Spawned,
    Timers,
    Replied,
    Cancelled,
    Terminated,
    Closed,
}

const SEEN: [Seen; 11] = [
    Seen::Numbers,
    Seen::Texts,
    Seen::Questions,
    Seen::Child,
    Seen::Dead,
    Seen::Spawned,
    Seen::Timers,
    Seen::Replied,
    Seen::Cancelled,
    Seen::Terminated,
    Seen::Closed,
];

/// The processes that a step has to do with. All rest, so that nothing but its yields changes what is counted.
struct Scene {
    runtime: Runtime,
    watcher: Watcher,
    numbers: Address<u32>,
    texts: Address<String>,
    questions: Address<Reply<u8>>,
    asker: Pid,
    cancelled: Pid,
    terminated: Pid,
    closed: Arc<AtomicUsize>,
}

impl Scene {
    fn look(&self) -> [usize; SEEN.len()] {
        let runtime = &self.runtime;
        let waiting = |pid| runtime.process(pid).map_or(0, |info| info.mailbox);
        let is_ready = |pid| usize::from(runtime.process_state(pid) == Some(ProcessState::Ready));
        let spawned = self.watcher.spawned.to_vec();
        [
            waiting(self.numbers.pid()),
            waiting(self.texts.pid()),
            waiting(self.questions.pid()),
            // The child is the first that was spawned by a process.
            spawned.get(FROM_OUTSIDE).map_or(0, |child| waiting(*child)),
            self.watcher.dead.len(),
            spawned.len(),
            runtime.stats().timers,
            is_ready(self.asker),
            is_ready(self.cancelled),
            usize::from(!runtime.is_alive(self.terminated)),
            self.closed.load(Ordering::SeqCst),
        ]
    }
}

/// Where the scene is, as long as there is one.
type Place = Log<Arc<Scene>>;

/// Processes that the test spawns.
const FROM_OUTSIDE: usize = 7;

/// Yields everything there is in one step, with a look after each.
struct Actor {
    scene: Place,
    last: bool,
    over: bool,
}

impl Actor {
    fn act(&self, reply: Reply<u8>, out: &mut StepOutput) -> StepResult<()> {
        let scene = self.scene.to_vec().pop().ok_or("no scene")?;
        let look = |out: &mut StepOutput| out.command(Look);
        look(out);
        out.send(scene.numbers, 1);
        look(out);
        out.reply(reply, 1);
        look(out);
        out.send(scene.texts, String::from("one"));
        look(out);
        let child = out.spawn(sink::<u32>())?;
        look(out);
        out.send(scene.numbers, 2);
        out.send(scene.numbers, 3);
        look(out);
        out.terminate(scene.terminated);
        look(out);
        out.send(child, 4);
        look(out);
        let timer = out.after(HOUR);
        look(out);
        out.send(scene.texts.pid(), 5_u8);
        look(out);
        out.ask(scene.questions, |reply: Reply<u8>| reply, Duration::MAX);
        look(out);
        out.send(scene.texts, String::from("two"));
        look(out);
        out.cancel(scene.cancelled, "enough");
        look(out);
        out.send(scene.numbers, 6);
        look(out);
        out.cancel_timer(timer);
        look(out);
        out.send(scene.numbers, 7);
        look(out);
        Ok(Step::Idle)
    }
}

impl Process for Actor {
    type Message = Reply<u8>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<u8>>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(reply) => {
                    self.act(reply, out)?;
                    self.over = self.last;
                }
                Event::Cancel(_) => self.over = true,
                _ => {}
            }
        }
        Ok(if self.over { Step::Done(()) } else { Step::Idle })
    }

    fn close(&mut self) {
        if let Some(scene) = self.scene.to_vec().pop() {
            scene.closed.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Asks when it is told to, waits, and is done when it is told anything else.
fn asker(to: Address<Reply<u8>>) -> impl Process<Message = (), Output = ()> {
    script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| match events.next() {
        None => Ok(Step::Idle),
        Some(Event::Message(())) => {
            out.ask(to, |reply: Reply<u8>| reply, Duration::MAX);
            Ok(Step::Wait)
        }
        Some(_) => Ok(Step::Done(())),
    })
}

/// The changes from one look to the next.
fn changes(looks: &[[usize; SEEN.len()]]) -> Vec<Vec<(Seen, isize)>> {
    let change = |pair: &[[usize; SEEN.len()]]| {
        let all = SEEN.iter().zip(pair[0].iter().zip(&pair[1]));
        all.map(|(seen, (before, after))| (*seen, *after as isize - *before as isize))
            .filter(|(_, by)| *by != 0)
            .collect()
    };
    looks.windows(2).map(change).collect()
}

#[test]
fn yields_of_all_kinds_are_performed_in_their_written_order() {
    // With one worker, nobody but the step acts while its yields are performed. In its last step it is closed before.
    for last in [false, true] {
        let (watcher, looks, scene) = (Watcher::new(), Log::new(), Place::new());
        let (seen, at) = (looks.clone(), scene.clone());
        let handler = move |_: Look, done: Responder<()>| {
            seen.push(at.to_vec().pop().ok_or("no scene")?.look());
            done.ok(());
            Ok(())
        };
        let runtime = builder().workers(1).observer(watcher.clone()).handler(handler).start().unwrap();
        let actor = runtime.spawn(Actor { scene: scene.clone(), last, over: false }).unwrap();
        let asker = runtime.spawn(asker(actor.address())).unwrap();
        let victims = [runtime.spawn(sink::<()>()).unwrap(), runtime.spawn(sink::<()>()).unwrap()];
        let set = Arc::new(Scene {
            runtime: runtime.clone(),
            watcher: watcher.clone(),
            numbers: runtime.spawn(sink()).unwrap().address(),
            texts: runtime.spawn(sink()).unwrap().address(),
            questions: runtime.spawn(sink()).unwrap().address(),
            asker: asker.pid(),
            cancelled: victims[0].pid(),
            terminated: victims[1].pid(),
            closed: Arc::default(),
        });
        assert_eq!(watcher.spawned.len(), FROM_OUTSIDE);
        scene.push(set);
        until("all rest", || runtime.is_idle());
        runtime.send(asker.address(), ()).unwrap();
        until("the step is over", || looks.len() == 16 && runtime.is_idle());
        let looks = looks.take();
        assert_eq!(looks[0][SEEN.len() - 1], usize::from(last), "it is closed before its last yields are performed");
        let expected = [
            vec![(Seen::Numbers, 1)],
            vec![(Seen::Replied, 1)],
            vec![(Seen::Texts, 1)],
            vec![(Seen::Spawned, 1)],
            vec![(Seen::Numbers, 2)],
            vec![(Seen::Terminated, 1)],
            vec![(Seen::Child, 1)],
            vec![(Seen::Timers, 1)],
            vec![(Seen::Dead, 1)],
            vec![(Seen::Questions, 1)],
            vec![(Seen::Texts, 1)],
            vec![(Seen::Cancelled, 1)],
            vec![(Seen::Numbers, 1)],
            vec![(Seen::Timers, -1)],
            vec![(Seen::Numbers, 1)],
        ];
        assert_eq!(changes(&looks), expected, "last: {last}");
        if !last {
            runtime.cancel(actor.pid(), "over").unwrap();
        }
        output(&actor);
        join(&asker);
        assert_accounted(&runtime);
        // It has a handle of the runtime, which has the handler, which has it.
        scene.take();
    }
}

#[test]
fn sends_of_a_step_to_itself_come_in_the_order_of_its_yields() {
    let (runtime, log) = (runtime(1), Log::new());
    let seen = log.clone();
    let victims = [runtime.spawn(sink::<()>()).unwrap().pid(), runtime.spawn(sink::<()>()).unwrap().pid()];
    let mut begun = false;
    let process = runtime.spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
        if !std::mem::replace(&mut begun, true) {
            let me = out.pid().typed::<u32>();
            out.send(me, 1);
            out.terminate(victims[0]);
            out.send(me, 2);
            out.send(me, 3);
            out.cancel(victims[1], "enough");
            out.cancel(victims[0], "too late");
            out.send(me, 4);
            return Ok(Step::Idle);
        }
        for event in events {
            match event {
                Event::Message(n) => seen.push(n.to_string()),
                Event::Completed(done) => seen.push(format!("answer {}", done.tag())),
                _ => {}
            }
        }
        Ok(if seen.len() == 7 { Step::Done(()) } else { Step::Idle })
    }));
    output(&process.unwrap());
    assert_eq!(log.take(), ["1", "answer 1", "2", "3", "answer 2", "answer 3", "4"]);
}

#[test]
fn a_process_that_is_done_is_closed_before_its_last_yields_are_performed() {
    struct Last {
        open: Arc<AtomicUsize>,
        to: Address<u32>,
    }
    impl Process for Last {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
            let open = self.open.clone();
            out.blocking(move || assert_eq!(open.load(Ordering::SeqCst), 0));
            out.command(Look);
            out.send(self.to, 1);
            Ok(Step::Done(()))
        }

        fn close(&mut self) {
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (open, log) = (Arc::new(AtomicUsize::new(0)), Log::new());
    let (at, seen) = (open.clone(), log.clone());
    let handler = move |_: Look, done: Responder<()>| {
        seen.push(at.load(Ordering::SeqCst));
        done.ok(());
        Ok(())
    };
    let runtime = builder().workers(1).handler(handler).start().unwrap();
    let (at, seen) = (open.clone(), log.clone());
    let listener = runtime.spawn(script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        if events.count() == 0 {
            return Ok(Step::Idle);
        }
        seen.push(at.load(Ordering::SeqCst));
        Ok(Step::Done(()))
    }));
    let listener = listener.unwrap();
    open.store(1, Ordering::SeqCst);
    let last = runtime.spawn(Last { open, to: listener.address() }).unwrap();
    output(&last);
    output(&listener);
    assert_eq!(log.take(), [0, 0], "the handler and the receiver of the message find it closed");
}

/// The messages of `flood`, and the least number of those that tell of one of them.
const FLOOD: u64 = 100_000;

/// Sends very many numbered messages to three others in turn. Now and then it spawns a child, which sends the number of
/// the last one to the next receiver.
fn flood(to: [Address<u64>; 3], fails: bool) -> impl Process<Message = (), Output = ()> {
    script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        for number in 0..FLOOD {
            let receiver = |number: u64| to[(number % 3) as usize];
            out.send(receiver(number), number);
            if number % 1_000 == 500 {
                let next = receiver(number + 1);
                out.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                    out.send(next, FLOOD + number);
                    Ok(Step::Done(()))
                }))?;
            }
        }
        if fails { Err("after all yields".into()) } else { Ok(Step::Done(())) }
    })
}

#[test]
fn very_many_yields_of_a_step_are_performed_in_their_written_order() {
    let runtime = runtime(2);
    // A receiver ends when all numbers and all children are accounted for.
    let receiver = |_| {
        let mut had = Vec::new();
        script(move |events: &mut Events<'_, u64>, _: &mut StepOutput| {
            had.extend(events.filter_map(|event| if let Event::Message(number) = event { Some(number) } else { None }));
            Ok(if had.contains(&u64::MAX) { Step::Done(std::mem::take(&mut had)) } else { Step::Idle })
        })
    };
    let receivers = [0, 1, 2].map(|number| runtime.spawn(receiver(number)).unwrap());
    let to = [0, 1, 2].map(|number: usize| receivers[number].address());
    assert!(matches!(wait(&runtime.spawn(flood(to, true)).unwrap()), procession::Exit::Failed(_)));
    output(&runtime.spawn(flood(to, false)).unwrap());
    until("all children are done", || runtime.stats().processes == 3);
    to.iter().for_each(|to| runtime.send(*to, u64::MAX).unwrap());
    for (which, receiver) in (0..).zip(&receivers) {
        let had = output(receiver);
        let sent: Vec<u64> = had.iter().copied().filter(|number| *number < FLOOD).collect();
        assert!(sent.iter().copied().eq((0..FLOOD).filter(|number| number % 3 == which)), "once, and in order");
        // The message of a child comes after everything that was sent before its birth.
        let told = had.iter().enumerate().filter(|(_, number)| (FLOOD..u64::MAX).contains(*number));
        let mut children = 0;
        for (at, number) in told {
            children += 1;
            let before = had[..at].iter().filter(|earlier| **earlier < number - FLOOD).count();
            assert_eq!(before, (0..number - FLOOD).filter(|earlier| earlier % 3 == which).count(), "{number}");
        }
        assert!(children > 30);
    }
}
