//! E. Ending: of a runtime whose last handle is dropped, wherever that is.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use procession::command::{Command, Responder};
use procession::config::RuntimeBuilder;
use procession::observe::{DeadLetter, Observer, ProcessIdentity, UncleanShutdown};
use procession::spawn::Overflow;
use procession::sync::Latch;
use procession::{
    EntryArgs, Event, Events, Exit, Handle, InitResult, Pid, Process, Reason, Reply, Runtime, SpawnOptions, Step,
    StepOutput, StepResult,
};

use crate::helpers::*;

/// The last handle of a runtime, to be dropped somewhere.
#[derive(Clone)]
struct Last(Arc<Mutex<Option<Runtime>>>);

impl Last {
    fn new() -> Last {
        Last(Arc::default())
    }

    fn drop_it(&self) {
        let last = self.0.lock().unwrap().take();
        drop(last);
    }
}

/// Processes that do nothing, and must be closed when the last handle is gone.
const BYSTANDERS: usize = 20;

/// Starts a runtime, has the last handle of it put where it is to be dropped, and has that happen. However it happens,
/// the processes are closed.
fn ends(
    options: RuntimeBuilder,
    last: &Last,
    prepare: impl FnOnce(&Runtime) -> Box<dyn FnOnce()>,
) -> Vec<Handle<Closing>> {
    let (runtime, closed) = (options.start().unwrap(), Arc::new(AtomicUsize::new(0)));
    let bystanders: Vec<_> = (0..BYSTANDERS).map(|_| runtime.spawn(Closing(closed.clone())).unwrap()).collect();
    let happen = prepare(&runtime);
    *last.0.lock().unwrap() = Some(runtime);
    assert_eq!(closed.load(Ordering::SeqCst), 0);
    happen();
    for bystander in &bystanders {
        assert!(matches!(join(bystander), Exit::Terminated(Reason::Shutdown)));
    }
    assert_eq!(closed.load(Ordering::SeqCst), BYSTANDERS);
    assert!(last.0.lock().unwrap().is_none());
    bystanders
}

fn both(test: impl Fn(RuntimeBuilder)) {
    for workers in [1, 2] {
        test(builder().workers(workers));
    }
}

/// Something that is let go.
fn opens(gate: &Latch<()>) -> Box<dyn FnOnce()> {
    let gate = gate.clone();
    Box::new(move || gate.set(()).unwrap())
}

#[test]
fn in_a_step() {
    both(|options| {
        let (last, gate) = (Last::new(), Latch::new());
        ends(options, &last.clone(), |runtime| {
            let hold = gate.clone();
            let process = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                wait(&hold);
                last.drop_it();
                StepResult::<()>::Ok(Step::Idle)
            });
            runtime.spawn(process).unwrap();
            opens(&gate)
        });
    });
}

#[test]
fn in_a_blocking_step() {
    both(|options| {
        let (last, gate) = (Last::new(), Latch::new());
        ends(options, &last.clone(), |runtime| {
            let (hold, mut steps) = (gate.clone(), 0);
            let process = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                steps += 1;
                if steps == 2 {
                    wait(&hold);
                    last.drop_it();
                }
                StepResult::<()>::Ok(if steps == 1 { Step::Blocking } else { Step::Idle })
            });
            runtime.spawn(process).unwrap();
            opens(&gate)
        });
    });
}

#[test]
fn in_a_blocking_closure() {
    both(|options| {
        let (last, gate) = (Last::new(), Latch::new());
        ends(options, &last.clone(), |runtime| {
            let (last, hold) = (last.clone(), gate.clone());
            let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                let (last, hold) = (last.clone(), hold.clone());
                out.blocking(move || {
                    wait(&hold);
                    last.drop_it();
                });
                StepResult::<()>::Ok(Step::Idle)
            });
            runtime.spawn(process).unwrap();
            opens(&gate)
        });
    });
}

/// Held up in its step until the gate opens; drops the last handle in `init`, in `close`, or when it is dropped itself.
struct Holder {
    at: At,
    last: Last,
    gate: Latch<()>,
}

#[derive(Clone, Copy, PartialEq)]
enum At {
    Init,
    Close,
    Drop,
}

impl Holder {
    fn is_at(&self, at: At) {
        if self.at == at {
            self.last.drop_it();
        }
    }
}

impl Process for Holder {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        if self.at == At::Init {
            wait(&self.gate);
        }
        self.is_at(At::Init);
        Ok(())
    }

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        wait(&self.gate);
        Ok(Step::Done(()))
    }

    fn close(&mut self) {
        self.is_at(At::Close);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.is_at(At::Drop);
    }
}

#[test]
fn in_the_init_of_a_child_in_close_and_in_the_destructor_of_a_process() {
    for at in [At::Init, At::Close, At::Drop] {
        both(|options| {
            let (last, gate) = (Last::new(), Latch::new());
            ends(options, &last.clone(), |runtime| {
                let mut child = Some(Holder { at, last, gate: gate.clone() });
                let parent = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                    out.spawn(child.take().ok_or("once")?)?;
                    Ok(Step::Done(()))
                }));
                output(&parent.unwrap());
                opens(&gate)
            });
        });
    }
}

/// Drops the last handle when it is told of something for the first time.
struct Keeper {
    last: Last,
    at: Told,
}

#[derive(Clone, Copy, PartialEq)]
enum Told {
    Exit,
    DeadLetter,
    Spawn,
}

impl Keeper {
    fn told(&self, at: Told, type_name: &str) {
        if self.at == at && !type_name.contains("Closing") {
            self.last.drop_it();
        }
    }
}

impl Observer for Keeper {
    fn spawned(&self, process: &ProcessIdentity) {
        self.told(Told::Spawn, process.type_name);
    }

    fn exited(&self, process: &ProcessIdentity, _: &Exit) {
        self.told(Told::Exit, process.type_name);
    }

    fn dead_letter(&self, _: &DeadLetter<'_>) {
        self.told(Told::DeadLetter, "");
    }
}

#[test]
fn in_a_hook() {
    for at in [Told::Exit, Told::DeadLetter, Told::Spawn] {
        both(|options| {
            let (last, gate) = (Last::new(), Latch::new());
            ends(options.observer(Keeper { last: last.clone(), at }), &last, |runtime| {
                let hold = gate.clone();
                let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                    wait(&hold);
                    out.send("<0.9.9>".parse::<Pid>()?, ());
                    out.spawn(sink::<()>())?;
                    Ok(Step::Done(()))
                });
                runtime.spawn(process).unwrap();
                opens(&gate)
            });
        });
    }
}

/// Carried out by a handler that drops the last handle.
struct Let;

impl Command for Let {
    type Output = ();
}

#[test]
fn in_a_handler_and_in_what_its_cancel_calls() {
    for later in [false, true] {
        both(|options| {
            let (last, gate) = (Last::new(), Latch::new());
            let (inner, registered) = (last.clone(), Log::new());
            let keeps = registered.clone();
            let handler = move |_: Let, done: Responder<()>| {
                if later {
                    // Called by the worker when the process has ended.
                    let inner = inner.clone();
                    keeps.push(done.cancel().on_cancel(move |_| inner.drop_it()));
                } else {
                    inner.drop_it();
                }
                Ok(())
            };
            ends(options.handler(handler), &last, |runtime| {
                let hold = gate.clone();
                let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
                    if events.count() > 0 {
                        return Ok(Step::Done(()));
                    }
                    wait(&hold);
                    out.command(Let);
                    Ok(Step::Wait)
                });
                runtime.spawn(process).unwrap();
                opens(&gate)
            });
        });
    }
}

/// Drops the last handle when it is called.
struct Alarm(Last);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.drop_it();
    }
}

#[test]
fn in_a_waker_that_a_worker_calls() {
    both(|options| {
        let (last, gate) = (Last::new(), Latch::new());
        ends(options, &last.clone(), |runtime| {
            let hold = gate.clone();
            let process = runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                wait(&hold);
                Ok(Step::Done(()))
            }));
            let mut over = process.unwrap();
            let waker = Waker::from(Arc::new(Alarm(last)));
            assert!(pin!(&mut over).poll(&mut Context::from_waker(&waker)).is_pending());
            let open = opens(&gate);
            // Dropped, the future would take its waker back.
            Box::new(move || {
                open();
                output(&over);
            })
        });
    });
}

#[test]
fn in_a_waker_that_the_thread_of_the_timers_calls() {
    both(|options| {
        let last = Last::new();
        ends(options, &last.clone(), |runtime| {
            let kept = Log::new();
            let keeper = runtime.spawn(recorder::<Reply<u8>>(&kept)).unwrap();
            let mut asking = Box::pin(runtime.ask(keeper.address(), |reply| reply, Duration::from_millis(20)));
            Box::new(move || {
                let waker = Waker::from(Arc::new(Alarm(last.clone())));
                if asking.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    // The time was over before it could be waited for.
                    last.drop_it();
                }
                until("it is dropped", || last.0.lock().unwrap().is_none());
                drop(kept.take());
            })
        });
    });
}

#[test]
fn in_a_thread_outside_also_one_that_panics() {
    for panics in [false, true] {
        both(|options| {
            let last = Last::new();
            ends(options, &last.clone(), |_| {
                Box::new(move || {
                    let thread = std::thread::Builder::new().name(String::from("procession-outside"));
                    let thread = thread.spawn(move || {
                        let handle = last.0.lock().unwrap().take();
                        assert!(!panics, "with the last handle");
                        drop(handle);
                    });
                    assert_eq!(wait(thread.unwrap()).is_err(), panics);
                })
            });
        });
    }
}

/// Has the last handle dropped by a closure, while a process is held that the closure releases after the drop. If the
/// drop waited, the process would be reported as stuck.
fn drop_does_not_wait(run: impl Fn(&Runtime, Box<dyn FnOnce() + Send>)) {
    let is_in_time = || {
        let runtime = runtime(1);
        let (last, ready, node) = (Last::new(), Latch::new(), runtime.shutdown_node());
        let (drops, filled, released) = (last.clone(), ready.clone(), Latch::new());
        let release = released.clone();
        run(
            &runtime,
            Box::new(move || {
                wait(&filled);
                drops.drop_it();
                release.set(()).unwrap();
            }),
        );
        let (held, block) = hold_up(&runtime);
        *last.0.lock().unwrap() = Some(runtime);
        ready.set(()).unwrap();
        wait(&released);
        block.release();
        join(&held);
        node.wait_closed_timeout(LIMIT).unwrap();
        node.err().is_none_or(|error| error.downcast_ref::<UncleanShutdown>().unwrap().report().stuck.is_empty())
    };
    // A machine that is too busy to run a thread for 150 ms makes a process look stuck.
    assert!((0..10).any(|_| is_in_time()));
}

#[test]
fn a_drop_in_a_step_of_another_runtime_does_not_wait() {
    let other = runtime(1);
    drop_does_not_wait(|_, run| {
        let mut run = Some(run);
        let process = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
            run.take().ok_or("once")?();
            Ok(Step::Done(()))
        });
        other.spawn(process).unwrap();
    });
}

#[test]
fn a_drop_in_a_blocking_closure_does_not_wait() {
    drop_does_not_wait(|runtime, run| {
        let mut run = Some(run);
        let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.blocking(run.take().ok_or("once")?);
            Ok(Step::Done(()))
        });
        output(&runtime.spawn(process).unwrap());
    });
}

#[test]
fn in_a_message_that_nobody_takes() {
    both(|options| {
        let (last, gate) = (Last::new(), Latch::new());
        let inner = last.clone();
        ends(options, &last, |runtime| {
            let hold = gate.clone();
            let process = script(move |events: &mut Events<'_, Runtime>, _: &mut StepOutput| {
                wait(&hold);
                let over = events.any(|event| matches!(event, Event::Cancel(_)));
                Ok(if over { Step::Done(()) } else { Step::Idle })
            });
            let full = runtime.spawn_with(process, SpawnOptions::new().mailbox(1, Overflow::DropOldest)).unwrap();
            let open = opens(&gate);
            Box::new(move || {
                let runtime = inner.0.lock().unwrap().take().unwrap();
                let weaker = runtime.clone();
                // It is in its own runtime's mailbox, and the request to stop comes before it.
                runtime.send(full.address(), weaker).unwrap();
                runtime.cancel(full.pid(), "over").unwrap();
                drop(runtime);
                open();
                join(&full);
            })
        });
    });
}
