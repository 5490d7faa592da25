//! A tree of supervised processes that recovers from failures. It is printed before, during and after.
//!
//! Try it: `cargo run --example supervised`
//!
//! One director supervises two departments. In *production*, each worker depends on the others: when one fails, all
//! are restarted. In *sales*, each worker is independent, and one is restarted in place. The director restarts a
//! department that has failed too often.
//!
//! With `--console` it goes on until Ctrl-C, and a worker fails every 20 seconds. Look at it with `procession-console`:
//!
//!     cargo run --features console --example supervised -- --console
//!
//! `--console N` starts so many idle workers beside the tree.

use std::process::ExitCode;
use std::time::Duration;

use procession::supervisor::{Backoff, ChildSpec, Strategy, Supervisor, SupervisorMessage, Tree};
use procession::{
    Address, BoxError, Event, Events, Handle, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Works until a message makes it fail.
struct Worker;

struct GoWrong;

impl Process for Worker {
    type Message = GoWrong;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, GoWrong>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(GoWrong) => return Err("something has gone wrong".into()),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

fn worker(name: &'static str) -> ChildSpec {
    ChildSpec::new(name, || Worker).options(move || SpawnOptions::new().name(name))
}

fn department(strategy: Strategy, children: Vec<ChildSpec>) -> Supervisor {
    let builder = Supervisor::builder().strategy(strategy).intensity(2, Duration::from_secs(60));
    let built = children.into_iter().fold(builder, |builder, child| builder.child(child)).build();
    built.unwrap_or_else(|error| panic!("the specification of a department is wrong: {error}"))
}

fn director() -> Result<Supervisor, BoxError> {
    let production = || department(Strategy::OneForAll, vec![worker("press"), worker("lathe"), worker("paint")]);
    let in_place = || ChildSpec::in_place("phone", || Worker).options(|| SpawnOptions::new().name("phone"));
    let sales = move || department(Strategy::OneForOne, vec![worker("desk"), in_place()]);
    Ok(Supervisor::builder()
        .backoff(Backoff::exponential(Duration::from_millis(50), Duration::from_secs(1)))
        .child(ChildSpec::supervisor("production", production))
        .child(ChildSpec::supervisor("sales", sales))
        .build()?)
}

/// Waits until all processes run, and returns the tree.
fn healed(runtime: &Runtime, top: Address<SupervisorMessage>) -> Result<Tree, BoxError> {
    loop {
        // A delay before a restart does not count, so the tree may not be up yet.
        runtime.wait_idle()?;
        let tree = Tree::of(runtime, top, LIMIT)?;
        if tree.is_up() {
            return Ok(tree);
        }
    }
}

fn run(runtime: &Runtime, say: impl Fn(&str, &Tree)) -> Result<Handle<Supervisor>, BoxError> {
    let director = runtime.spawn(director()?)?;
    let top = director.address();
    runtime.ask(top, SupervisorMessage::started, LIMIT).wait()?;
    say("before", &healed(runtime, top)?);

    runtime.send("lathe", GoWrong)?;
    say("the lathe has failed: all of production is started again", &healed(runtime, top)?);

    runtime.send("phone", GoWrong)?;
    say("the phone has failed: it is restarted under its PID", &healed(runtime, top)?);

    // At the third failure, production has failed too often. The director pauses before it restarts the department.
    for _ in 0..2 {
        runtime.send("paint", GoWrong)?;
        runtime.wait_idle()?;
    }
    say("production has failed too often", &Tree::of(runtime, top, LIMIT)?);
    say("after", &healed(runtime, top)?);

    runtime.cancel(director.pid(), "closing time")?;
    director.join()?.into_result()?;
    runtime.shutdown(LIMIT)?;
    Ok(director)
}

/// Goes on until Ctrl-C, and serves a console.
#[cfg(feature = "console")]
fn run_with_console(idle: u32) -> Result<(), BoxError> {
    let metrics = procession::observe::MetricsOptions::new();
    let runtime = Runtime::builder().metrics(metrics).start()?;
    let console = procession::console::Console::named("supervised").actions(true).serve(&runtime)?;
    println!("look at it with `procession-console supervised`, and end it with Ctrl-C ({})", console.place());
    runtime.spawn(director()?)?;
    for _ in 0..idle {
        runtime.spawn(Worker)?;
    }
    let all = runtime.shutdown_node();
    let on_signal = all.clone();
    ctrlc::set_handler(move || on_signal.request_shutdown())?;
    for worker in ["lathe", "phone", "desk"].iter().cycle() {
        if all.wait_closed_timeout(Duration::from_secs(20)).is_ok() {
            break;
        }
        // If it is not there at this moment, it fails next time.
        _ = runtime.send(*worker, GoWrong);
    }
    Ok(())
}

#[cfg(not(feature = "console"))]
fn run_with_console(_: u32) -> Result<(), BoxError> {
    Err("a console needs the feature: cargo run --features console --example supervised -- --console".into())
}

fn run_once() -> Result<(), BoxError> {
    run(&Runtime::start()?, |what, tree| println!("{what}\n{tree}")).map(drop)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ran = match arguments.iter().map(|one| &**one).collect::<Vec<_>>()[..] {
        [] => run_once(),
        ["--console"] => run_with_console(0),
        ["--console", idle] => idle.parse().map_err(BoxError::from).and_then(run_with_console),
        _ => Err("it takes `--console`, perhaps with a number of idle workers, or nothing".into()),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("supervised: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procession::simulation::Simulation;
    use std::sync::Mutex;

    #[test]
    fn the_tree_heals() {
        heals(&Runtime::start().unwrap());
    }

    #[test]
    fn the_tree_heals_in_every_order() {
        Simulation::new(|world| {
            heals(&world.start(Runtime::builder())?);
            Ok(())
        })
        .seeds(0..10)
        .check();
    }

    fn heals(runtime: &Runtime) {
        let seen = Mutex::new(Vec::new());
        run(runtime, |what, tree| seen.lock().unwrap().push((what.to_owned(), tree.clone()))).unwrap();
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen.len(), 5);
        let pids = |place: usize, branch: usize| -> Vec<_> {
            let tree: &Tree = &seen[place].1;
            tree.children[branch].1.iter().flat_map(|tree| &tree.children).map(|(info, _)| info.pid).collect()
        };
        assert!(pids(0, 0).iter().zip(pids(1, 0)).all(|(before, after)| *before != after), "all of production");
        assert_eq!(pids(0, 1), pids(2, 1), "the phone has its PID");
        let (last, tree) = seen.last().unwrap();
        assert_eq!((&**last, tree.is_up(), tree.children[0].0.restarts), ("after", true, 1));
    }
}
