//! Calls that block, made by a step.

use std::time::Duration;

use procession::observe::{Observer, ProcessIdentity};
use procession::pool::{JobError, JobHandle, Pacer, PauseError, Pool, PoolError, QueuePolicy, RunError};
use procession::shutdown::NotReadyError;
use procession::spawn::Overflow;
use procession::sync::Latch;
use procession::task::{TaskScheduler, TaskSet};
use procession::tasklet::{Directive, Interruption, Loop, TaskletContext, ready};
use procession::{
    CancelToken, CommandError, EntryArgs, Event, Events, Exit, Handle, InitResult, Process, Rejected, Reply, SendError,
    ShutdownError, ShutdownNode, SpawnOptions, Step, StepOutput, StepResult, WaitError,
};

use crate::helpers::*;
use crate::wait::Mutex;

/// The errors of all that a step does, each with what it has called.
type Errors = Vec<(&'static str, String)>;

/// Has a step of a runtime with one worker do this, and returns what it returns.
fn in_a_step<T: Send + Sync + 'static>(mut act: impl FnMut() -> T + Send + 'static) -> std::sync::Arc<T> {
    let runtime = runtime(1);
    let caller = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(act())));
    join(&runtime.spawn(caller).unwrap()).into_result().unwrap()
}

#[test]
fn a_step_that_waits_for_a_process_is_refused() {
    let runtime = runtime(1);
    let other = runtime.spawn(sink::<u32>()).unwrap();
    let (inner, waits) = (runtime.clone(), other.clone());
    let caller = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        let watch = inner.watch(waits.pid());
        let waits_for =
            [waits.join().err(), waits.join_timeout(LIMIT).err(), watch.wait().err(), watch.wait_timeout(LIMIT).err()];
        // A limit of zero does not block.
        let looks = [waits.join_timeout(Duration::ZERO).err(), watch.wait_timeout(Duration::ZERO).err()];
        Ok(Step::Done((waits_for, looks, inner.shutdown(LIMIT).err())))
    });
    let (waits_for, looks, shutdown) = join(&runtime.spawn(caller).unwrap()).into_result().map(|all| *all).unwrap();
    assert_eq!(waits_for, [Some(WaitError::InsideStep); 4]);
    assert_eq!(looks, [Some(WaitError::TimedOut); 2]);
    assert_eq!(shutdown, Some(ShutdownError::InsideStep));
    assert!(!other.is_finished(), "it was not shut down");
    // A step of another runtime blocks its worker as well.
    let (inner, waits) = (runtime.clone(), other.clone());
    let errors = in_a_step(move || (waits.join().err(), inner.shutdown(LIMIT).err()));
    assert_eq!(*errors, (Some(WaitError::InsideStep), Some(ShutdownError::InsideStep)));
}

#[test]
fn asking_or_waiting_for_room_inside_a_step_is_refused() {
    let runtime = runtime(1);
    let (_keeps, blocker) = hold_up(&runtime);
    let full = runtime.spawn_with(sink::<u32>(), SpawnOptions::new().mailbox(1, Overflow::Refuse)).unwrap();
    runtime.send(full.address(), 0).unwrap();
    let asked = runtime.spawn(sink::<Reply<u32>>()).unwrap();
    let inner = runtime.clone();
    let errors = in_a_step(move || {
        let ask = inner.ask(asked.address(), |reply| reply, LIMIT).wait().unwrap_err();
        let room = inner.send_timeout(full.address(), 1, LIMIT).wait().unwrap_err();
        let now = inner.send_timeout(full.address(), 2, Duration::ZERO).wait().unwrap_err();
        (matches!(ask, CommandError::InsideStep), room.into_parts(), now.into_parts())
    });
    let (ask, room, now) = &*errors;
    assert!(*ask && matches!(room, (1, SendError::InsideStep { .. })) && matches!(now, (2, SendError::Full { .. })));
    blocker.release();
}

/// A pool without room: the job that its worker is in blocks, and another job waits.
fn full_pool() -> (Pool, Blocker, JobHandle<()>, JobHandle<u32>) {
    let pool = Pool::builder().max(1).queue(QueuePolicy::Block(1)).build().unwrap();
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let held = pool.spawn(move || blocked.wait()).unwrap();
    blocker.wait_begun();
    let waiting = pool.spawn(|| 5).unwrap();
    (pool, blocker, held, waiting)
}

#[test]
fn a_step_that_waits_for_a_pool_is_refused() {
    let (pool, blocker, held, waiting) = full_pool();
    let inner = pool.clone();
    let mut held = Some((held, waiting));
    let (errors, waiting) = std::sync::Arc::into_inner(in_a_step(move || {
        let mut errors = Errors::new();
        let (held, waiting) = held.take().unwrap();
        let mut note = |call, error: Option<String>| errors.push((call, error.unwrap_or_default()));
        let refused = |refused: Rejected<_, PoolError>| matches!(refused.reason(), PoolError::InsideStep);
        note("wait", held.wait_finished().err().map(|error| error.to_string()));
        let waiting = waiting.wait_timeout(LIMIT).unwrap_err();
        note("wait_timeout", Some(waiting.reason().to_string()));
        let run = match inner.run(|| 1) {
            Err(RunError::Refused(refused)) => matches!(refused.reason(), PoolError::InsideStep),
            _ => false,
        };
        let run_all = inner.run_all([|| 1, || 2]);
        let runs = run_all.iter().all(
            |run| matches!(run, Err(RunError::Refused(refused)) if matches!(refused.reason(), PoolError::InsideStep)),
        );
        assert!(run && runs && run_all.len() == 2);
        // There is no room, and it would have to wait for some.
        assert!(inner.execute(|| ()).is_err_and(|error| matches!(error.reason(), PoolError::InsideStep)));
        assert!(inner.spawn(|| ()).is_err_and(refused));
        assert!(matches!(inner.execute_timeout(|| (), Duration::ZERO).unwrap_err().reason(), PoolError::Full));
        assert_eq!(inner.pause().err(), Some(PauseError::InsideStep));
        assert_eq!(inner.pause_timeout(LIMIT).err(), Some(PauseError::InsideStep));
        assert_eq!(inner.pause_until(&CancelToken::new()).err(), Some(PauseError::InsideStep));
        let pause = inner.begin_pause().unwrap();
        assert_eq!(pause.wait(), Err(PauseError::InsideStep));
        drop(pause);
        note("wait_idle", inner.wait_idle().err().map(|error| error.to_string()));
        note("pacer", Pacer::new(Duration::ZERO).wait(&CancelToken::new()).err().map(|error| error.to_string()));
        note("drain", inner.drain().err().map(|error| error.why.to_string()));
        note("stop", inner.stop_timeout(LIMIT).err().map(|error| error.why.to_string()));
        assert!(matches!(held.wait(), Err(JobError::InsideStep)));
        (errors, waiting.into_inner())
    }))
    .unwrap();
    assert_eq!(
        errors.iter().map(|(call, _)| *call).collect::<Vec<_>>(),
        ["wait", "wait_timeout", "wait_idle", "pacer", "drain", "stop"]
    );
    assert!(errors.iter().all(|(_, error)| error.starts_with("a step cannot wait")), "{errors:?}");
    // It did what it does without waiting: the pool was stopped, and the job that waited was given up.
    assert!(matches!(wait(waiting), Err(JobError::Abandoned)));
    blocker.release();
    pool.stop_timeout(LIMIT).unwrap();
}

#[test]
fn a_step_that_waits_for_tasks_is_refused() {
    let tasks = TaskScheduler::new();
    let inner = tasks.clone();
    let mut set = Some(TaskSet::new());
    let task = in_a_step(move || {
        let task = inner.submit(|cancel: &CancelToken| Ok::<_, String>(cancel.wait())).unwrap();
        let task = task.wait().unwrap_err();
        assert_eq!(*task.reason(), WaitError::InsideStep);
        let task = task.into_inner().wait_timeout(LIMIT).unwrap_err();
        assert_eq!(*task.reason(), WaitError::InsideStep);
        let task = task.into_inner().wait_timeout(Duration::ZERO).unwrap_err();
        assert_eq!(*task.reason(), WaitError::TimedOut);
        let mut set = set.take().unwrap();
        set.push(task.into_inner());
        assert!(matches!(set.wait_next(), Err(WaitError::InsideStep)));
        assert!(matches!(set.wait_next_timeout(LIMIT), Err(WaitError::InsideStep)));
        assert!(matches!(set.wait_next_timeout(Duration::ZERO), Err(WaitError::TimedOut)));
        let left = inner.stop_and_join(LIMIT).err();
        Mutex::new(Some((set, left)))
    });
    let (mut set, left) = task.lock().unwrap().take().unwrap();
    // The closure may have returned before the step has looked.
    assert!(left.is_none_or(|left| left.why == WaitError::InsideStep));
    assert!(set.wait_next_timeout(LIMIT).unwrap().is_some());
    tasks.stop_and_join(LIMIT).unwrap();
}

#[test]
fn a_step_that_waits_for_a_tasklet_or_a_loop_is_refused() {
    let mut home = Loop::new(());
    let handle = home.handle();
    in_a_step(move || {
        let tasklet = handle.schedule(ready::wait(), Directive::Wait).unwrap();
        assert_eq!(tasklet.wait().err(), Some(WaitError::InsideStep));
        assert_eq!(tasklet.wait_timeout(LIMIT).err(), Some(WaitError::InsideStep));
        assert_eq!(tasklet.wait_timeout(Duration::ZERO).err(), Some(WaitError::TimedOut));
        let promises = |_: procession::tasklet::Promise<u32>| ready::wait();
        let answer = handle.schedule_with(promises, Directive::Wait).unwrap().wait().err().unwrap();
        assert_eq!(*answer.reason(), WaitError::InsideStep);
        let answer = answer.into_inner().wait_timeout(LIMIT).err().unwrap();
        assert_eq!(*answer.reason(), WaitError::InsideStep);
        // A loop that runs in a step would sleep there.
        let mut own = Loop::new(());
        let waits = own.handle().schedule(ready::wait(), Directive::Wait).unwrap();
        for interrupted in [own.run().unwrap_err(), own.run_for(LIMIT).unwrap_err()] {
            assert_eq!(*interrupted.why(), Interruption::InsideStep);
        }
        assert!(!waits.is_finished());
        // Those that wait end at once, so there is nothing to be waited for.
        own.close(LIMIT).unwrap();
    });
    home.close(LIMIT).unwrap();
}

#[test]
fn a_step_that_waits_for_a_state_is_refused() {
    let (state, tail) = ShutdownNode::job([]);
    let (counted, counter) = ShutdownNode::counted([state.clone()]);
    let kept = counter.add();
    let (unready, ready) = ShutdownNode::readiness([]);
    in_a_step(move || {
        let limit = LIMIT;
        assert_eq!(state.shutdown_timeout(limit).unwrap_err().why(), WaitError::InsideStep);
        assert!(state.shutdown_timeout(limit).unwrap_err().to_string().starts_with("a step cannot wait"));
        assert!(state.is_shutting_down());
        let open = state.shutdown_timeout(Duration::ZERO).unwrap_err();
        assert_eq!((open.why(), open.open().len()), (WaitError::TimedOut, 1));
        assert_eq!(state.wait_closed(), Err(WaitError::InsideStep));
        assert_eq!(counted.wait_timeout(limit), Err(WaitError::InsideStep));
        assert_eq!(counted.wait_timeout(Duration::ZERO), Err(WaitError::TimedOut));
        assert!(matches!(unready.wait_ready_timeout(limit), Err(NotReadyError::InsideStep)));
        assert_eq!(state.failed_timeout(limit).err(), Some(WaitError::InsideStep));
        // A closed state has nothing to wait for.
        assert!(
            ShutdownNode::empty().shutdown_timeout(limit).is_ok()
                && ShutdownNode::empty().wait_closed_timeout(limit).is_ok()
        );
    });
    tail.done();
    drop((kept, ready));
}

/// The place of each call, and the call's error.
type Told = Log<(&'static str, Option<WaitError>)>;

/// Waits for another process wherever it can.
struct Waits(Handle<Sink>, Told);

impl Waits {
    fn waits(&self, place: &'static str) {
        self.1.push((place, self.0.join().err()));
    }
}

impl Process for Waits {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        self.waits("init");
        Ok(())
    }

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Done(()))
    }

    fn close(&mut self) {
        self.waits("close");
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.waits("drop");
    }
}

struct WaitsInHook(Latch<Handle<Sink>>, Told);

impl Observer for WaitsInHook {
    fn exited(&self, _: &ProcessIdentity, _: &Exit) {
        if let Some(other) = self.0.get() {
            self.1.push(("hook", other.join().err()));
        }
    }
}

/// Does nothing until it is asked to stop.
struct Sink;

impl Process for Sink {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let over = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if over { Step::Done(()) } else { Step::Idle })
    }
}

#[test]
fn other_code_on_a_worker_is_refused_as_well() {
    let (other, told) = (Latch::new(), Told::new());
    let runtime = builder().workers(1).observer(WaitsInHook(other.clone(), told.clone())).start().unwrap();
    let waits_for = runtime.spawn(Sink).unwrap();
    assert!(other.set(waits_for.clone()).is_ok());
    // Spawned by another process, so that its `init` runs on the worker.
    let mut child = Some(Waits(waits_for, told.clone()));
    let parent = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        if let Some(child) = child.take() {
            out.spawn(child)?;
        }
        Ok::<Step<()>, procession::BoxError>(Step::Idle)
    });
    runtime.spawn(parent).unwrap();
    until("the child has ended", || told.len() == 4);
    let mut told = told.take();
    told.sort_by_key(|(place, _)| *place);
    let refused = Some(WaitError::InsideStep);
    assert_eq!(told, [("close", refused), ("drop", refused), ("hook", refused), ("init", refused)]);
}

/// A step cannot wait for room in the queue of a pool.
#[test]
fn a_tasklet_that_a_step_resumes_goes_beyond_the_bound_of_the_pool() {
    let (pool, blocker, held, waiting) = full_pool();
    let mut home = Loop::on((), &pool);
    let (resumes, resume) = std::sync::mpsc::channel();
    let suspends = ready::from_fns(
        move |(): &mut (), cx: &mut TaskletContext<'_, ()>| {
            resumes.send(cx.suspend()).unwrap();
            Directive::Wait
        },
        |_: &mut TaskletContext<'_, ()>| Directive::Done,
    );
    home.schedule(suspends, Directive::Home).unwrap();
    // The home thread is in its loop when the step resumes: else the tasklet would be held until it comes.
    let step = std::thread::spawn(move || {
        let mut resume = Some(wait(&resume).unwrap());
        in_a_step(move || resume.take().unwrap().resume(Directive::Pool));
        blocker.release();
    });
    let report = home.run().unwrap();
    assert!(report.is_clean() && report.finished == 1, "{report:?}");
    wait(step).unwrap();
    wait(held).unwrap();
    wait(waiting).unwrap();
}

#[test]
fn blocking_work_of_a_process_may_wait() {
    let runtime = runtime(1);
    let other = runtime.spawn(sink::<u32>()).unwrap();
    let inner = runtime.clone();
    let mut tag = None;
    let caller = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events {
            if let (Event::Completed(done), Some(tag)) = (event, tag) {
                return Ok(Step::Done(done.take(tag).unwrap().unwrap()));
            }
        }
        let (inner, other) = (inner.clone(), other.clone());
        tag = Some(out.blocking(move || {
            inner.cancel(other.pid(), "enough").unwrap();
            other.join_timeout(LIMIT).is_ok_and(|exit| exit.is_done())
        }));
        Ok(Step::Wait)
    });
    assert!(*output(&runtime.spawn(caller).unwrap()));
}
