//! Bad input: each an error that names what was given and what is allowed, with what was refused handed back.

use procession::command::{Command, Responder};
use procession::config::RuntimeBuilder;
use procession::names::NoSuchProcessError;
use procession::pool::Pool;
use procession::spawn::Overflow;
use procession::{Pid, Runtime, SendError, SpawnError, SpawnOptions};

use crate::helpers::*;

fn refused(builder: RuntimeBuilder) -> String {
    builder.start().map(drop).unwrap_err().to_string()
}

#[test]
fn options_out_of_range_are_refused_with_value_and_range() {
    assert_eq!(refused(builder().workers(0)), "`workers` is 0; allowed is 1 to 1024");
    assert_eq!(refused(builder().workers(1_025)), "`workers` is 1025; allowed is 1 to 1024");
    assert_eq!(refused(builder().step_events(0)), "`step_events` is 0; allowed is 1 to 1048576");
    assert_eq!(refused(builder().max_processes(0)), "`max_processes` is 0; allowed is 1 to 67108864");
    let too_many = refused(builder().max_processes(67_108_865));
    assert_eq!(too_many, "`max_processes` is 67108865; allowed is 1 to 67108864");
    assert_eq!(refused(builder().blocking_threads(0)), "`blocking_threads` is 0; allowed is 1 to 65536");
    assert_eq!(refused(builder().node(16_384)), "`node` is 16384; allowed is 0 to 16383");
    assert_eq!(Pool::builder().max(0).build().unwrap_err().to_string(), "a pool needs at least one thread: `max` is 0");
}

#[test]
fn two_handlers_for_one_command_are_refused_with_its_name() {
    struct Twice;
    impl Command for Twice {
        type Output = ();
    }
    let handler = |_: Twice, done: Responder<()>| {
        done.ok(());
        Ok(())
    };
    let error = refused(builder().handler(handler).handler(handler));
    assert!(error.starts_with("two handlers were registered") && error.contains("Twice"), "{error}");
}

#[test]
fn a_pid_text_that_does_not_parse_is_an_error_with_the_text_and_the_form() {
    let error = "<1.2>".parse::<Pid>().unwrap_err().to_string();
    assert!(error.contains("\"<1.2>\"") && error.contains("<node.slot.generation>"), "{error}");
}

#[test]
fn spawn_options_out_of_range_are_refused_and_the_process_comes_back() {
    let runtime = runtime(1);
    let zero = runtime.spawn_with(sink::<u32>(), SpawnOptions::new().mailbox(0, Overflow::Refuse)).unwrap_err();
    assert!(matches!(zero.reason(), SpawnError::ZeroMailbox));
    assert_eq!(zero.to_string(), "the mailbox's limit is 0; at least one message must find room");
    runtime.spawn(zero.into_inner()).unwrap();
    let empty = runtime.spawn_with(sink::<u32>(), SpawnOptions::new().name("")).unwrap_err();
    assert_eq!(empty.to_string(), "a name may not be empty");
    let parents = [SpawnOptions::new().link(), SpawnOptions::new().monitor(), SpawnOptions::new().report_started()];
    for options in parents {
        let refused = runtime.spawn_with(sink::<u32>(), options).unwrap_err();
        assert!(matches!(refused.reason(), SpawnError::OutsideStep), "{refused}");
    }
}

#[test]
fn a_name_is_refused_with_its_holder_until_the_holder_ends() {
    let runtime = runtime(1);
    let named = || SpawnOptions::new().name("clerk");
    let first = runtime.spawn_with(sink::<u32>(), named()).unwrap();
    assert_eq!(runtime.whereis("clerk"), Some(first.pid()));
    let taken = runtime.spawn_with(sink::<u32>(), named()).unwrap_err();
    assert_eq!(taken.to_string(), format!("the name \"clerk\" is taken by {}", first.pid()));
    runtime.terminate(first.pid()).unwrap();
    join(&first);
    assert_eq!(runtime.whereis("clerk"), None);
    let second = runtime.spawn_with(taken.into_inner(), named()).unwrap();
    assert_eq!(runtime.whereis("clerk"), Some(second.pid()));
}

#[test]
fn a_child_with_a_taken_name_has_that_as_its_exit() {
    use procession::{Events, Step, StepOutput};
    let watcher = Watcher::new();
    let runtime = builder().workers(1).observer(watcher.clone()).start().unwrap();
    let holder = runtime.spawn_with(sink::<u32>(), SpawnOptions::new().name("clerk")).unwrap();
    let parent = script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        assert!(out.spawn_with(sink::<u32>(), SpawnOptions::new().name("")).is_err());
        Ok(Step::Done(out.spawn_with(sink::<u32>(), SpawnOptions::new().name("clerk"))?.pid()))
    });
    let child = *output(&runtime.spawn(parent).unwrap());
    until("the child has ended", || watcher.exits.len() == 2);
    let exit = format!("failed: the name \"clerk\" is taken by {}", holder.pid());
    assert!(watcher.exits.take().contains(&(child, exit)));
    assert_eq!(runtime.whereis("clerk"), Some(holder.pid()));
}

#[test]
fn after_a_shutdown_every_call_is_answered_and_refusals_hand_back() {
    let runtime = runtime(1);
    let process = runtime.spawn(sink::<String>()).unwrap();
    runtime.shutdown(LIMIT).unwrap();
    let refused = runtime.send(process.address(), String::from("late")).unwrap_err();
    assert_eq!(refused.reason(), &SendError::NoSuchProcess(NoSuchProcessError::Pid(process.pid())));
    assert_eq!(refused.into_inner(), "late");
    assert!(runtime.send_timeout(process.address(), String::new(), LIMIT).wait().is_err());
    assert!(matches!(runtime.spawn(sink::<u32>()).unwrap_err().reason(), SpawnError::ShuttingDown));
    assert_eq!(runtime.cancel(process.pid(), "late"), Ok(false));
    assert_eq!(runtime.terminate(process.pid()), Ok(false));
    assert!(runtime.ask(process.address(), |reply: procession::Reply<()>| format!("{reply:?}"), LIMIT).wait().is_err());
    assert!(runtime.processes().is_empty());
    assert_eq!(runtime.stats().processes, 0);
    assert!(format!("{runtime:?}").contains("Runtime"));
    drop(Runtime::builder());
}
