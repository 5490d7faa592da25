//! Traces of commands, and of async processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::async_process::{Context, async_process};
use procession::clock::ManualClock;
use procession::command::{Command, Responder, Retry};
use procession::{Address, BoxError, Event, Events, Exit, Pid, Process, Reply, Step, StepOutput, StepResult, Tag};

use super::*;

#[derive(Debug)]
struct Elsewhere;

impl Command for Elsewhere {
    type Output = ();
}

/// Yields one command of each kind for each message, and notes within which spans things run.
struct Yields {
    echo: Address<Reply<u32>>,
    spans: Log<(&'static str, Option<usize>)>,
    open: Vec<(u64, &'static str)>,
}

impl Yields {
    fn note<T>(&mut self, what: &'static str, tag: Tag<T>) {
        self.open.push((tag.id(), what));
    }
}

impl Process for Yields {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(()) => {
                    self.spans.push(("step", Traces::current()));
                    let tag = out.ask(self.echo, |reply| reply, Duration::MAX);
                    self.note("ask", tag);
                    let tag = out.after(SECOND);
                    self.note("timer", tag);
                    let spans = self.spans.clone();
                    let tag = out.blocking(move || spans.push(("in the closure", Traces::current())));
                    self.note("blocking", tag);
                    let spans = self.spans.clone();
                    let tag = out.future(async move { spans.push(("in the future", Traces::current())) });
                    self.note("future", tag);
                    let tag = out.command(Elsewhere);
                    self.note("command", tag);
                    let tag = out.register("a name", self.echo);
                    self.note("name", tag);
                }
                Event::Completed(done) => {
                    let what = self.open.iter().find(|(tag, _)| *tag == done.tag()).unwrap().1;
                    self.spans.push((what, Traces::current()));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn commands_go_on_in_the_trace_in_which_they_were_yielded() {
    let (clock, spans) = (ManualClock::new(), Log::new());
    let in_handler = spans.clone();
    let handler = move |_: Elsewhere, done: Responder<()>| {
        in_handler.push(("in the handler", Traces::current()));
        done.ok(());
        Ok(())
    };
    let (runtime, traces) = traced_by(builder().workers(2).clock(clock.clock()).handler(handler));
    let echo = runtime.spawn(echo()).unwrap().address();
    let yields = runtime.spawn(Yields { echo, spans: spans.clone(), open: Vec::new() }).unwrap();
    let root = traces.root(|| runtime.send(yields.address(), ()).unwrap());
    until("the commands are answered", || spans.len() == 9 && runtime.is_idle());
    clock.advance(SECOND);
    until("the timer is answered", || spans.len() == 10);
    rest(&runtime);
    let step = only_child(&traces, root).number;
    let below = traces.children(step);
    assert_eq!(below.len(), 7, "six answers, and the question at the other process: {below:?}");
    for (what, span) in spans.take() {
        match what {
            "step" | "in the closure" | "in the future" | "in the handler" => assert_eq!(span, Some(step), "{what}"),
            _ => {
                let below = below.iter().find(|below| Some(below.number) == span);
                assert!(below.unwrap_or_else(|| panic!("{what}: {span:?}")).event.starts_with("command "), "{what}");
            }
        }
    }
    // The same without a trace.
    runtime.send(yields.address(), ()).unwrap();
    until("the commands are answered", || spans.len() == 9 && runtime.is_idle());
    clock.advance(SECOND);
    until("the timer is answered", || spans.len() == 10);
    rest(&runtime);
    assert!(spans.take().iter().all(|(_, span)| span.is_none()));
    close(runtime, &traces);
}

#[test]
fn an_async_process_keeps_its_trace_over_its_waits() {
    let clock = ManualClock::new();
    let (runtime, traces) = traced_by(builder().workers(1).clock(clock.clock()));
    let seen = Log::new();
    let log = seen.clone();
    let process = runtime
        .spawn(async_process(move |context: Context<u32>| async move {
            loop {
                let Some(number) = context.next().await else { return Ok::<_, BoxError>(()) };
                log.push((number, Traces::current()));
                if number == 2 {
                    context.sleep(SECOND).await?;
                    log.push((20, Traces::current()));
                    let sum = context.blocking(|| 21).await?;
                    log.push((sum, Traces::current()));
                }
                if number == 9 {
                    return Ok(());
                }
            }
        }))
        .unwrap();
    runtime.send(process.address(), 1).unwrap();
    let root = traces.root(|| runtime.send(process.address(), 2).unwrap());
    runtime.send(process.address(), 3).unwrap();
    until("it waits for the timer", || runtime.is_idle() && runtime.stats().timers == 1);
    clock.advance(SECOND);
    until("it has taken the last message", || seen.len() == 5);
    rest(&runtime);
    let step = only_child(&traces, root).number;
    let timer = only_child(&traces, step).number;
    let blocking = only_child(&traces, timer).number;
    let expected = [(1, None), (2, Some(step)), (20, Some(timer)), (21, Some(blocking)), (3, None)];
    assert_eq!(seen.take(), expected);
    runtime.send(process.address(), 9).unwrap();
    join(&process);
    close(runtime, &traces);
}

#[test]
fn a_feed_does_not_keep_a_traced_message_waiting() {
    let (runtime, traces) = traced(1);
    let (seen, feeds) = (Log::new(), Log::new());
    let (log, made) = (seen.clone(), feeds.clone());
    let mut has_begun = false;
    let process = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            if !std::mem::replace(&mut has_begun, true) {
                made.push(out.feed::<u32>(1_000));
            }
            let mut taken = Vec::new();
            for event in events {
                match event {
                    Event::Message(number) => taken.push(number),
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            log.push((taken, Traces::current().is_some()));
            Ok(Step::Idle)
        }))
        .unwrap();
    until("it has begun", || seen.len() > 0 && runtime.is_idle());
    let feed = feeds.take().pop().unwrap();
    seen.take();
    let (holder, blocker) = hold_up(&runtime);
    (0..1_000).for_each(|item| feed.try_put(item).unwrap());
    traces.root(|| runtime.send(process.address(), 5_000).unwrap());
    blocker.release();
    join(&holder);
    rest(&runtime);
    let seen = seen.take();
    let place = seen.iter().position(|step| *step == (vec![5_000], true)).unwrap();
    assert!(place < 3, "it was stepped behind {place} steps with items");
    assert_eq!(seen.iter().map(|(taken, _)| taken.len()).sum::<usize>(), 1_001);
    close(runtime, &traces);
}

#[test]
fn control_signals_do_not_keep_a_traced_message_waiting() {
    let (runtime, traces) = traced(1);
    let ended = runtime.spawn(sink::<u32>()).unwrap();
    runtime.terminate(ended.pid()).unwrap();
    join(&ended);
    let (nobody, ends) = (ended.pid(), Arc::new(AtomicUsize::new(0)));
    let counted = ends.clone();
    let process = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            // The end comes at once. So each step has one.
            out.monitor(nobody);
            for event in events {
                match event {
                    Event::Message(_) => return Ok(Step::Done(Traces::current().is_some())),
                    Event::Down(_) if counted.fetch_add(1, Ordering::Relaxed) > 100_000 => {
                        return Err("the message does not come".into());
                    }
                    Event::Cancel(_) => return Ok(Step::Done(false)),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }))
        .unwrap();
    until("ends come", || ends.load(Ordering::Relaxed) > 10);
    traces.root(|| runtime.send(process.address(), 1).unwrap());
    assert!(*output(&process));
    close(runtime, &traces);
}

#[test]
fn a_step_that_fails_in_a_question_leaves_no_context_behind() {
    let (runtime, traces) = traced(1);
    let to = runtime.spawn(echo()).unwrap().address();
    let fails = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            for event in events.by_ref() {
                if let Event::Message(_) = event {
                    out.ask(to, |_: Reply<u32>| -> Reply<u32> { panic!("on purpose") }, SECOND);
                }
            }
            Ok::<_, BoxError>(Step::<()>::Idle)
        }))
        .unwrap();
    let root = traces.root(|| runtime.send(fails.address(), 1).unwrap());
    assert!(matches!(join(&fails), Exit::Panicked(_)));
    // On the same worker.
    let plain = runtime.spawn(Yields { echo: to, spans: Log::new(), open: Vec::new() }).unwrap();
    runtime.send(plain.address(), ()).unwrap();
    rest(&runtime);
    until("no context is left", || traces.contexts() == 0);
    assert_eq!(traces.children(only_child_of(&traces, root, fails.pid())), [], "the commands of another process");
    close(runtime, &traces);
}

/// A future that somebody else completes.
#[derive(Clone, Default)]
struct Foreign(Arc<Mutex<(u32, Option<std::task::Waker>)>>);

impl Foreign {
    fn complete(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap();
            state.0 += 1;
            state.1.take()
        };
        waker.into_iter().for_each(|waker| waker.wake());
    }

    async fn completed(&self, at: u32) {
        std::future::poll_fn(|context| {
            let mut state = self.0.lock().unwrap();
            state.1 = Some(context.waker().clone());
            if state.0 >= at { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

#[test]
fn an_event_of_another_runtime_has_the_trace_of_its_wait_alone() {
    use futures_util::future::{Either, select};

    let (runtime, traces) = traced(1);
    let (foreign, seen) = (Foreign::default(), Log::new());
    let (other, log) = (foreign.clone(), seen.clone());
    let other_process = runtime.spawn(sink::<u32>()).unwrap();
    let monitored = other_process.pid();
    let process = runtime
        .spawn(async_process(move |context: Context<u32>| async move {
            context.out(|out| _ = out.monitor(monitored));
            for at in 1.. {
                let next = std::pin::pin!(context.next());
                let completed = std::pin::pin!(other.completed(at));
                match select(next, completed).await {
                    Either::Left((Some(0) | None, _)) => break,
                    Either::Left((Some(number), _)) => {
                        log.push((number, Traces::current().is_some()));
                        // This wait is for nothing else.
                        other.completed(at).await;
                        log.push((10, Traces::current().is_some()));
                    }
                    Either::Right(_) => log.push((20, Traces::current().is_some())),
                }
            }
            Ok::<_, BoxError>(())
        }))
        .unwrap();
    rest(&runtime);
    traces.root(|| runtime.send(process.address(), 1).unwrap());
    rest(&runtime);
    // An event for which it does not wait.
    runtime.terminate(other_process.pid()).unwrap();
    join(&other_process);
    rest(&runtime);
    foreign.complete();
    until("it goes on in its trace", || seen.len() == 2 && runtime.is_idle());
    foreign.complete();
    until("it goes on outside", || seen.len() == 3 && runtime.is_idle());
    assert_eq!(seen.take(), [(1, true), (10, true), (20, false)]);
    runtime.send(process.address(), 0).unwrap();
    join(&process);
    close(runtime, &traces);
}

#[test]
fn an_answer_to_an_async_process_has_its_trace_in_whatever_order_it_waits() {
    use futures_util::future::{Either, select};

    for answer_first in [true, false] {
        let clock = ManualClock::new();
        let (runtime, traces) = traced_by(builder().workers(1).clock(clock.clock()));
        let seen = Log::new();
        let log = seen.clone();
        let process = runtime
            .spawn(async_process(move |context: Context<u32>| async move {
                while let Some(number) = context.next().await {
                    log.push((number, Traces::current()));
                    let answer = std::pin::pin!(context.sleep(SECOND));
                    let next = std::pin::pin!(context.next());
                    let is_answered = match answer_first {
                        true => matches!(select(answer, next).await, Either::Left(_)),
                        false => matches!(select(next, answer).await, Either::Right(_)),
                    };
                    log.push((u32::from(is_answered), Traces::current()));
                }
                Ok::<_, BoxError>(())
            }))
            .unwrap();
        let root = traces.root(|| runtime.send(process.address(), 7).unwrap());
        until("it waits", || seen.len() == 1 && runtime.is_idle() && runtime.stats().timers == 1);
        clock.advance(SECOND);
        until("it is answered", || seen.len() == 2 && runtime.is_idle());
        let step = only_child(&traces, root).number;
        let answered = only_child(&traces, step).number;
        // If it was not polled with the answer, the next step goes on.
        let goes_on = traces.children(answered).first().map_or(answered, |next| next.number);
        let seen = seen.take();
        assert_eq!(seen[0], (7, Some(step)));
        assert!([(1, Some(answered)), (1, Some(goes_on))].contains(&seen[1]), "{answer_first}: {seen:?}");
        close(runtime, &traces);
    }
}

#[test]
fn attempts_of_a_retry_are_within_the_trace() {
    let (runtime, traces) = traced(1);
    let spans = Log::new();
    let log = spans.clone();
    let process = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(_) => {
                        let log = log.clone();
                        let retry = Retry::new().first_pause(Duration::ZERO).attempts(3);
                        out.retry(retry, move |out, attempt| {
                            log.push(Traces::current());
                            out.try_future(async move { if attempt < 3 { Err("on purpose") } else { Ok(()) } })
                        });
                    }
                    Event::Completed(_) => return Ok(Step::Done(Traces::current())),
                    Event::Cancel(_) => return Ok(Step::Done(None)),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }))
        .unwrap();
    let root = traces.root(|| runtime.send(process.address(), 1).unwrap());
    assert!(output(&process).is_some());
    let step = only_child_of(&traces, root, process.pid());
    assert_eq!(spans.take(), [Some(step); 3]);
    close(runtime, &traces);
}

/// The number of the single span of a process below this one.
#[track_caller]
fn only_child_of(traces: &Traces, parent: usize, pid: Pid) -> usize {
    let of_process: Vec<_> = traces.children(parent).into_iter().filter(|span| span.pid == Some(pid)).collect();
    assert_eq!(of_process.len(), 1, "{of_process:?}");
    of_process[0].number
}

/// Two waits at once, of which the second takes the answer of the first.
#[test]
fn an_async_process_that_goes_on_in_its_trace_keeps_its_yields() {
    use futures_util::future::join;

    let (runtime, traces) = traced(1);
    let (seen, ended) = (Log::new(), runtime.spawn(sink::<u32>()).unwrap());
    let receiver = runtime.spawn(batches(&seen)).unwrap().address();
    let (monitored, answered, log) = (ended.pid(), Log::new(), Log::new());
    let (answers, spans) = (answered.clone(), log.clone());
    let both = async_process(move |context: Context<u32>| async move {
        let Some(_) = context.next().await else { return Ok::<_, BoxError>(()) };
        context.out(|out| _ = out.monitor(monitored));
        let first = async {
            context.blocking(|| ()).await.unwrap();
            answers.push(Traces::current().is_some());
            context.send(receiver, 2_u32);
        };
        let second = async {
            let mut left = 2;
            while left > 0 {
                if let Event::Down(_) = context.receive().await {
                    context.send(receiver, 1_u32);
                }
                spans.push(Traces::current());
                left -= 1;
            }
        };
        join(first, second).await;
        Ok(())
    });
    let both = runtime.spawn(both).unwrap();
    // Another one on the same worker, which yields nothing of the first.
    let other = runtime
        .spawn(async_process(|context: Context<u32>| async move {
            while context.next().await.is_some() {}
            Ok::<_, BoxError>(())
        }))
        .unwrap();
    traces.root(|| runtime.send(both.address(), 7).unwrap());
    rest(&runtime);
    runtime.terminate(ended.pid()).unwrap();
    until("the answer has come", || answered.len() == 1);
    rest(&runtime);
    traces.root(|| runtime.send(other.address(), 1).unwrap());
    rest(&runtime);
    runtime.send(both.address(), 8).unwrap();
    until("the answer is in its trace", || seen.len() == 2 && runtime.is_idle());
    assert_eq!(answered.take(), [true]);
    let mut numbers: Vec<_> = seen.take().into_iter().flat_map(|(numbers, _)| numbers).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
    drop(log);
    close(runtime, &traces);
}

#[test]
fn an_async_process_that_selects_is_in_the_trace_of_the_message() {
    let (runtime, traces) = traced(1);
    let seen = Log::new();
    let receiver = runtime.spawn(batches(&seen)).unwrap().address();
    let selects = runtime
        .spawn(async_process(move |context: Context<u32>| async move {
            let number = context.select(|number| *number > 1).await?;
            let here = Traces::current().is_some();
            context.send(receiver, number);
            Ok::<_, BoxError>(here)
        }))
        .unwrap();
    runtime.send(selects.address(), 1).unwrap();
    let root = traces.root(|| runtime.send(selects.address(), 2).unwrap());
    assert!(*output(&selects));
    rest(&runtime);
    assert_eq!(seen.take(), [(vec![2], true)]);
    let step = only_child_of(&traces, root, selects.pid());
    assert_eq!(only_child(&traces, step).pid, Some(receiver.pid()));
    close(runtime, &traces);
}
