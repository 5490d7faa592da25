//! Processes as nodes of a tree.

use procession::shutdown::Phase;
use procession::sync::Latch;
use procession::{Event, Events, Process, Reason, Runtime, ShutdownNode, SpawnOptions, Step, StepOutput, StepResult};

use crate::support::{LIMIT, ZERO, job, told};
use crate::wait::wait;

/// Ends when it is given its result. Keeps the reason of the request to stop.
struct Worker {
    asked: Latch<Reason>,
}

impl Process for Worker {
    type Message = Result<(), &'static str>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Self::Message>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Cancel(request) => _ = self.asked.set(request.reason.clone()),
                Event::Message(result) => return Ok(result.map(Step::Done)?),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

fn runtime() -> Runtime {
    Runtime::builder().workers(1).shutdown_limit(LIMIT).start().unwrap()
}

fn worker() -> (Worker, Latch<Reason>) {
    let asked = Latch::new();
    (Worker { asked: asked.clone() }, asked)
}

#[test]
fn a_process_is_asked_in_its_turn_and_closes_its_node_at_its_end() {
    for by_reference in [false, true] {
        let runtime = runtime();
        let (worker, asked) = worker();
        let process = runtime.spawn(worker).unwrap();
        let node = if by_reference { process.process_ref().shutdown_node() } else { process.shutdown_node() };
        let ((reader, reader_guard), (store, store_guard)) = (job(), job());
        let all = store.depends_on([node.clone().depends_on([reader])]);
        all.request_shutdown();
        assert!(!asked.is_set() && told([&reader_guard, &store_guard]) == [true, false]);
        reader_guard.done();
        assert_eq!(wait(&asked), Reason::Shutdown);
        assert!(!node.is_closed() && told([&store_guard]) == [false], "it has not ended");
        process.send(Ok(())).unwrap();
        wait(store_guard.end());
        assert!(node.is_closed() && !runtime.is_alive(process.pid()) && node.err().is_none());
        assert!(by_reference || process.is_finished(), "a handle's exit is there first");
        store_guard.done();
        all.shutdown_timeout(LIMIT).unwrap();
    }
}

#[test]
fn a_process_that_fails_is_the_error_of_its_node() {
    let runtime = runtime();
    let process = runtime.spawn(worker().0).unwrap();
    let nodes = [process.shutdown_node(), process.process_ref().shutdown_node()];
    assert!(nodes.iter().all(|node| !node.is_closed()));
    process.send(Err("the disk is gone")).unwrap();
    for node in nodes {
        node.wait_closed_timeout(LIMIT).unwrap();
        assert_eq!(node.err().unwrap().to_string(), format!("{}: the disk is gone", process.pid()));
    }
    let process = runtime.spawn(worker().0).unwrap();
    let node = process.shutdown_node();
    runtime.terminate(&process).unwrap();
    node.wait_closed_timeout(LIMIT).unwrap();
    assert!(node.err().unwrap().to_string().ends_with("it was terminated (terminated)"), "{:?}", node.err());
}

#[test]
fn the_node_of_a_process_that_is_gone_is_closed() {
    let runtime = runtime();
    let process = runtime.spawn(worker().0).unwrap();
    let (reference, early) = (process.process_ref(), process.shutdown_node());
    process.send(Ok(())).unwrap();
    wait(&process);
    let is_closed = |node: ShutdownNode| {
        node.wait_closed_timeout(LIMIT).unwrap();
        node.err().is_none()
    };
    assert!(is_closed(early) && is_closed(process.shutdown_node()) && is_closed(reference.shutdown_node()));
    runtime.shutdown(LIMIT).unwrap();
    assert!(process.shutdown_node().report().count(Phase::Done) == 1);
    assert!(reference.shutdown_node().report().count(Phase::Done) == 1);
}

#[test]
fn a_node_keeps_no_runtime_and_ends_with_it() {
    let runtime = runtime();
    let process = runtime.spawn(worker().0).unwrap();
    let nodes = [process.shutdown_node(), process.process_ref().shutdown_node()];
    drop(runtime.shutdown(ZERO));
    drop(runtime);
    nodes.into_iter().for_each(|node| node.wait_closed_timeout(LIMIT).unwrap());
}

#[test]
fn a_tree_that_hangs_in_a_process_names_it() {
    let runtime = runtime();
    let (worker, asked) = worker();
    let process = runtime.spawn_with(worker, SpawnOptions::new().name("clerk")).unwrap();
    let node = process.shutdown_node();
    let error = node.shutdown_timeout(ZERO).unwrap_err().to_string();
    let named = format!("{}", process.pid());
    assert!(error.starts_with("clerk: ") && error.contains(&named) && error.contains("Worker"), "{error}");
    wait(&asked);
    process.send(Ok(())).unwrap();
    node.shutdown_timeout(LIMIT).unwrap();
}
