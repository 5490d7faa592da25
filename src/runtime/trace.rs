//! Traces of single processes.

use std::time::Duration;

use super::access::WeakAccess;
use super::system::Runtime;
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::process_trace::TraceSink;
use crate::process::{NoSuchProcessError, ProcessEvent, Target};

impl Runtime {
    /// Traces one process: notes its events for `limit`, which is at most a minute. At most 1,000 events are noted in a
    /// second, and at most 1,000 wait to be taken. The others are counted.
    ///
    /// Other processes pay nothing for it. The trace begins between two steps of the process, so a process that is in a
    /// step is traced from its next one on. Without a step, nothing is noted. If its state machine is replaced, the
    /// trace goes on. A process has one trace at a time: another one ends the first.
    ///
    /// While a process is traced, the watchdog does not see the event at which its step is stuck. The trace of a
    /// durable process ends when the process leaves memory.
    ///
    /// # Errors
    /// There is no process at the target, or it is not in the memory of this runtime.
    ///
    /// ```
    /// use procession::prelude::*;
    /// use std::time::Duration;
    ///
    /// # struct Counter;
    /// # impl Process for Counter {
    /// #     type Message = u64;
    /// #     type Output = ();
    /// #     fn step(&mut self, events: &mut Events<u64>, _: &mut StepOutput) -> StepResult<()> {
    /// #         events.for_each(drop);
    /// #         Ok(Step::Idle)
    /// #     }
    /// # }
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let counter = runtime.spawn(Counter)?;
    /// let trace = runtime.trace(&counter, Duration::from_secs(10))?;
    /// runtime.wait_idle_timeout(Duration::from_secs(60))?;
    /// runtime.send(&counter, 5)?;
    /// runtime.wait_idle_timeout(Duration::from_secs(60))?;
    /// let events = trace.take();
    /// assert_eq!((events[0].what, &events[0].text[..]), ("message", "u64 from outside"));
    /// assert_eq!((events[1].what, &events[1].text[..]), ("step", "took 1 message, and rests"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trace(&self, target: impl Target, limit: Duration) -> Result<ProcessTrace, NoSuchProcessError> {
        let access = &self.owner.access;
        let road = &access.core.road;
        let pid = access.core.resolve(&target)?;
        let local = road.in_memory(pid).ok_or(NoSuchProcessError::Pid(pid))?;
        let sink = Arc::new(TraceSink::new(road.clock.clone(), limit));
        if !road.trace(local, sink.clone()) {
            return Err(NoSuchProcessError::Pid(pid));
        }
        Ok(ProcessTrace { sink, local, access: WeakAccess::of(access) })
    }
}

/// The trace of a process, made with [`Runtime::trace`]. If it is dropped, the trace is over.
#[must_use = "dropping it ends the trace"]
pub struct ProcessTrace {
    sink: Arc<TraceSink>,
    local: Pid,
    access: WeakAccess,
}

impl ProcessTrace {
    /// Takes the events that were noted since the last call, in their order.
    pub fn take(&self) -> Vec<ProcessEvent> {
        self.sink.take()
    }

    /// Whether no event follows: the time is over, the process has ended or has left memory, or another trace has
    /// begun. Events may still wait to be taken.
    pub fn is_over(&self) -> bool {
        self.sink.is_over()
    }

    /// The number of events that were left out.
    pub fn left_out(&self) -> u64 {
        self.sink.left_out()
    }
}

/// The owner of the body makes the process as it was.
impl Drop for ProcessTrace {
    fn drop(&mut self) {
        self.sink.end();
        if let Ok(access) = self.access.get() {
            access.core.road.untrace(self.local);
        }
    }
}

impl std::fmt::Debug for ProcessTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sink.fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::outcome::Exit;
    use crate::process::{Events, Process, Step, StepOutput, StepResult};
    use crate::wait::{until, wait};

    /// Is done with its first message.
    struct Worker;

    impl Process for Worker {
        type Message = ();
        type Output = ();

        fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            Ok(if events.next().is_some() { Step::Done(()) } else { Step::Idle })
        }
    }

    fn traced(runtime: &Runtime, worker: Pid) -> ProcessTrace {
        let trace = runtime.trace(worker, Duration::from_secs(60)).unwrap();
        until("the trace has begun", || runtime.is_idle());
        trace
    }

    #[test]
    fn a_process_that_ends_while_it_is_traced_leaves_nothing_of_the_trace() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let worker = runtime.spawn(Worker).unwrap();
        let trace = traced(&runtime, worker.pid());
        assert!(Arc::strong_count(&trace.sink) > 1);
        runtime.send(worker.address(), ()).unwrap();
        assert!(matches!(wait(&worker), Exit::Done(_)));
        assert!(trace.is_over());
        assert_eq!(trace.take().last().map(|event| event.what), Some("ended"));
        // The worker keeps the memory of the body for the next process.
        assert_eq!(Arc::strong_count(&trace.sink), 1);
    }

    #[test]
    fn descriptions_and_traces_leave_no_memory_in_the_body() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let worker = runtime.spawn(Worker).unwrap();
        let has_rare = || {
            until("it rests", || runtime.is_idle());
            let road = &runtime.core().road;
            let body = road.table.cell(worker.pid()).and_then(|cell| cell.take_resting()).unwrap();
            let has_rare = body.head.rare.is_some();
            road.inject(body);
            until("it rests", || runtime.is_idle());
            has_rare
        };
        assert!(!has_rare());
        runtime.describe(worker.pid(), Duration::from_secs(60)).wait().unwrap();
        assert!(!has_rare(), "it was described");
        let trace = traced(&runtime, worker.pid());
        assert!(has_rare(), "it is traced");
        drop(trace);
        assert!(!has_rare(), "its trace is over");
    }
}
