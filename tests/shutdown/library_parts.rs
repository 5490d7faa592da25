//! The library's own parts together: a runtime, tasks, a loop and a pool, and services of the program's around them.

use std::time::Duration;

use procession::pool::Pool;
use procession::shutdown::Phase;
use procession::sync::Latch;
use procession::task::TaskScheduler;
use procession::tasklet::{Directive, Loop, TaskletContext, ready};
use procession::{CancelToken, Event, Events, Process, Reply, Runtime, ShutdownNode, Step, StepOutput, StepResult};

use crate::script::Log;
use crate::support::{LIMIT, ZERO};
use crate::wait::{until, wait};

/// Answers questions until it is told to stop.
struct Clerk(Log<&'static str>);

impl Process for Clerk {
    type Message = Reply<&'static str>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Self::Message>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(reply) => out.reply(reply, "at your service"),
                Event::Cancel(_) => {
                    self.0.push("process");
                    return Ok(Step::Done(()));
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// All parts of a program, in the library's order: the server, the processes, the work that stands on the pool, the
/// pool.
struct Program {
    log: Log<&'static str>,
    runtime: Runtime,
    tasks: TaskScheduler,
    pool: Pool,
    all: ShutdownNode,
    home: std::thread::JoinHandle<()>,
}

/// Starts it; with a job of the pool that ends when it is let go.
fn program(go: Latch<()>) -> Program {
    let log = Log::new();
    let runtime = Runtime::builder().workers(1).shutdown_limit(LIMIT).start().unwrap();
    let clerk = runtime.spawn(Clerk(log.clone())).unwrap();
    let says = log.clone();
    // A thread that had nothing to do for a while would leave in the midst of it.
    let pool =
        Pool::builder().max(8).idle_period(None).on_end(move || says.push("thread of the pool")).build().unwrap();

    // Work that has not begun is never called when it is stopped.
    let (task_begins, tasklet_begins) = (Latch::new(), Latch::new());
    let (task_begun, tasklet_begun) = (task_begins.clone(), tasklet_begins.clone());
    let tasks = TaskScheduler::on(&pool);
    let (says, works) = (log.clone(), pool.clone());
    let _unwanted = tasks
        .submit(move |cancel: &CancelToken| {
            let _ = task_begins.set(());
            cancel.wait();
            works.run(|| ()).map_err(|error| error.to_string())?;
            says.push("task or tasklet");
            Ok::<_, String>(())
        })
        .unwrap();

    let (told, says, works, stands) = (Latch::new(), log.clone(), pool.clone(), pool.clone());
    let tell = told.clone();
    let tasklet = ready::from_fns(
        |(): &mut (), _: &mut TaskletContext<'_, ()>| Directive::Pool,
        move |cx: &mut TaskletContext<'_, ()>| {
            let token = cx.cancelled();
            let _ = tasklet_begins.set(());
            wait(token);
            works.run(|| ()).unwrap();
            says.push("task or tasklet");
            Directive::Done
        },
    );
    let home = std::thread::spawn(move || {
        let mut home = Loop::on((), &stands);
        home.schedule(tasklet, Directive::Home).unwrap();
        assert!(tell.set(home.shutdown_node()).is_ok());
        home.run().unwrap();
    });
    let home_state = wait(&told);
    wait(&task_begun);
    wait(&tasklet_begun);

    let (says, asks, submits, runs) = (log.clone(), runtime.clone(), tasks.clone(), pool.clone());
    let server = ShutdownNode::thread("server", move |job| {
        wait(job.end());
        // All that it uses is there still.
        let answer = asks.ask(clerk.address(), |reply| reply, Duration::from_secs(60)).wait()?;
        assert_eq!(answer, "at your service");
        assert_eq!(wait(submits.submit(|_| Ok::<_, String>(7))?).into_result()?, 7);
        runs.execute(move || wait(&go))?;
        says.push("server");
        Ok(())
    })
    .unwrap();

    let processes = runtime.shutdown_node().depends_on([server]);
    let on_the_pool = ShutdownNode::merge([tasks.shutdown_node(), home_state]).depends_on([processes]);
    let all = pool.shutdown_node().depends_on([on_the_pool]);
    Program { log, runtime, tasks, pool, all, home }
}

const ORDER: [&str; 4] = ["server", "process", "task or tasklet", "task or tasklet"];

#[test]
fn a_server_a_runtime_pool_users_and_the_pool_end_in_order() {
    let go = Latch::new();
    let program = program(go.clone());
    go.set(()).unwrap();
    program.all.shutdown_timeout(LIMIT).unwrap();
    wait(program.home).unwrap();
    assert!(program.all.err().is_none(), "{:?}", program.all.err());
    let log = program.log.to_vec();
    let (jobs, threads) = log.split_at(4);
    assert_eq!(jobs, ORDER);
    assert!(!threads.is_empty() && threads.iter().all(|what| *what == "thread of the pool"), "{log:?}");
    assert!(program.runtime.shutdown(Duration::ZERO).unwrap().is_clean());
    assert!(program.tasks.is_stopped() && program.pool.stats().workers == 0);
}

#[test]
fn a_shutdown_that_freezes_in_the_last_part_names_that_alone() {
    let go = Latch::new();
    let program = program(go.clone());
    let all = program.all.clone().annotate("program");
    all.request_shutdown();
    wait(program.home).unwrap();
    // A node that is closed has not yet told those above it. The thread that closes the last one below the pool tells
    // the pool.
    let is_told = || all.report().find("pool").is_some_and(|pool| pool.phase == Phase::Told);
    until("the pool is told", || is_told() && program.pool.stats().running <= 1);
    let error = all.shutdown_timeout(ZERO).unwrap_err();
    assert_eq!(error.to_string(), "program: pool: timeout expired (jobs: 1 running, 0 waiting)");
    assert_eq!(program.log.to_vec()[..4], ORDER);
    go.set(()).unwrap();
    all.shutdown_timeout(LIMIT).unwrap();
}

#[test]
fn parts_that_were_ended_by_their_own_methods_hold_nobody_up() {
    let go = Latch::new();
    let program = program(go.clone());
    go.set(()).unwrap();
    program.tasks.stop_and_join(Duration::MAX).unwrap();
    program.runtime.shutdown(Duration::from_secs(60)).unwrap();
    let [runtime, tasks] = [program.runtime.shutdown_node(), program.tasks.shutdown_node()];
    assert!(runtime.is_closed() && tasks.is_closed() && !program.all.is_closed());
    // The server finds its runtime ended, and fails; all the same everything ends.
    program.all.shutdown_timeout(LIMIT).unwrap();
    wait(program.home).unwrap();
    assert_eq!(program.all.err().unwrap().names().collect::<Vec<_>>(), ["server"]);
    assert!(program.pool.shutdown_node().is_closed());
}
