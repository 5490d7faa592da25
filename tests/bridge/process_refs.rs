//! Statement 18: references to processes, and handles of a runtime that do not keep it alive.

use std::collections::HashSet;
use std::time::Duration;

use procession::names::{AddressError, NameError, NoSuchProcessError};
use procession::observe::ProcessState;
use procession::spawn::Overflow;
use procession::{
    CommandError, Event, Events, Handle, Process, ProcessRef, Reason, Reply, Runtime, SendError, SpawnError,
    SpawnOptions, Step, StepOutput,
};

use crate::helpers::*;

enum Bank {
    Deposit(u64),
    Read(Reply<u64>),
}

fn bank() -> impl Process<Message = Bank, Output = u64> {
    let mut total = 0;
    script(move |events: &mut Events<'_, Bank>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(Bank::Deposit(n)) => total += n,
                Event::Message(Bank::Read(reply)) => out.reply(reply, total),
                Event::Cancel(_) => return Ok(Step::Done(total)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

fn start() -> (Runtime, Handle<impl Process<Message = Bank, Output = u64>>) {
    let runtime = runtime(1);
    let bank = runtime.spawn_with(bank(), SpawnOptions::new().name("bank").mailbox(8, Overflow::Refuse)).unwrap();
    (runtime, bank)
}

fn is_for_everywhere<T: Clone + Send + Sync + 'static>(_: &T) {}

/// Every call, on a reference in another thread.
#[test]
fn a_reference_has_every_call_that_takes_a_target() {
    let by_handle: fn(&Runtime, ProcessRef<Bank>) -> ProcessRef<Bank> = |_, reference| reference;
    let by_name: fn(&Runtime, ProcessRef<Bank>) -> ProcessRef<Bank> = |runtime, _| runtime.process_ref("bank");
    let by_address: fn(&Runtime, ProcessRef<Bank>) -> ProcessRef<Bank> =
        |runtime, reference| runtime.process_ref(reference.pid().unwrap().typed());
    let by_reference: fn(&Runtime, ProcessRef<Bank>) -> ProcessRef<Bank> =
        |runtime, reference| runtime.process_ref(&reference);
    for make in [by_handle, by_name, by_address, by_reference] {
        let (runtime, bank) = start();
        let reference = make(&runtime, bank.process_ref());
        is_for_everywhere(&reference);
        let pid = bank.pid();
        let thread = std::thread::spawn(move || {
            reference.send(Bank::Deposit(1)).unwrap();
            reference.send_timeout(Bank::Deposit(2), LIMIT).wait().unwrap();
            block_on(reference.clone().send_timeout(Bank::Deposit(3), LIMIT)).unwrap();
            assert_eq!(reference.ask(Bank::Read, LIMIT).wait().unwrap(), 6);
            assert_eq!(block_on(reference.ask(Bank::Read, LIMIT)).unwrap(), 6);
            assert_eq!(reference.pid().unwrap(), pid);
            assert!(reference.is_alive());
            reference.register("vault").unwrap();
            assert_eq!(reference.register(""), Err(NameError::Empty));
            reference.join_group("banks").unwrap();
            assert!(reference.leave_group("banks") && !reference.leave_group("banks"));
            let info = reference.info().unwrap();
            assert_eq!((info.pid, info.names.len()), (pid, 2));
            assert_ne!(reference.state(), Some(ProcessState::Complete));
            let watch = reference.watch();
            assert!(reference.cancel_timeout("soon", LIMIT).unwrap());
            assert!(wait(watch).exit.is_done());
            drop(reference.cancel("again"));
            drop(reference.terminate());
            assert!(!reference.is_alive());
        });
        wait(thread).unwrap();
        assert_eq!(*output(&bank), 6);
    }
}

#[test]
fn a_handle_sends_and_asks() {
    let (_runtime, bank) = start();
    bank.send(Bank::Deposit(4)).unwrap();
    bank.send_timeout(Bank::Deposit(5), LIMIT).wait().unwrap();
    assert_eq!(bank.ask(Bank::Read, LIMIT).wait().unwrap(), 9);
    assert_eq!(block_on(bank.clone().ask(Bank::Read, LIMIT)).unwrap(), 9);
}

/// A reference is a target, also in a step.
#[test]
fn a_reference_is_a_target() {
    let (runtime, bank) = start();
    let reference = bank.process_ref();
    runtime.send(&reference, Bank::Deposit(1)).unwrap();
    let (to, mut tag) = (reference.clone(), None);
    let asker = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events {
            if let (Event::Completed(done), Some(tag)) = (event, tag) {
                return Ok(Step::Done(done.take(tag).unwrap().unwrap()));
            }
        }
        out.send(&to, Bank::Deposit(2));
        tag = Some(out.ask(&to, Bank::Read, LIMIT));
        Ok(Step::Wait)
    });
    assert_eq!(*output(&runtime.spawn(asker).unwrap()), 3);
    assert!(runtime.cancel(&reference, "over").unwrap());
    assert_eq!(*output(&bank), 3);
}

/// A name is looked up with each call.
#[test]
fn a_reference_by_name_follows_the_name() {
    let (runtime, first) = start();
    let by_name: ProcessRef<Bank> = runtime.process_ref("bank");
    let by_pid = first.process_ref();
    by_name.send(Bank::Deposit(1)).unwrap();
    assert_eq!(by_name.ask(Bank::Read, LIMIT).wait().unwrap(), 1);
    assert!(by_name.cancel("over").unwrap());
    assert_eq!(*output(&first), 1);
    let refused = by_name.send(Bank::Deposit(2)).unwrap_err();
    assert_eq!(refused.reason(), &SendError::NoSuchProcess(NoSuchProcessError::Name("bank".into())));
    assert_eq!(by_name.pid(), Err(NoSuchProcessError::Name("bank".into())));
    let second = runtime.spawn_with(bank(), SpawnOptions::new().name("bank")).unwrap();
    by_name.send(Bank::Deposit(3)).unwrap();
    assert_eq!(second.ask(Bank::Read, LIMIT).wait().unwrap(), 3);
    assert_eq!((by_name.pid(), by_pid.pid()), (Ok(second.pid()), Ok(first.pid())));
    assert!(by_pid.send(Bank::Deposit(4)).is_err());
}

/// All calls of a reference, when its runtime has ended.
#[track_caller]
fn assert_ended(reference: &ProcessRef<Bank>) {
    const ENDED: NoSuchProcessError = NoSuchProcessError::RuntimeEnded;
    let is_back = |refused: procession::Rejected<Bank, SendError>| {
        assert_eq!(refused.reason(), &SendError::NoSuchProcess(ENDED));
        assert!(matches!(refused.into_inner(), Bank::Deposit(1)));
    };
    is_back(reference.send(Bank::Deposit(1)).unwrap_err());
    is_back(reference.send_timeout(Bank::Deposit(1), Duration::MAX).wait().unwrap_err());
    is_back(block_on(reference.send_timeout(Bank::Deposit(1), Duration::MAX)).unwrap_err());
    let question = |_: Reply<u64>| -> Bank { panic!("nobody is asked") };
    let asked = [reference.ask(question, Duration::MAX).wait(), block_on(reference.ask(question, Duration::MAX))];
    for answer in asked {
        assert!(matches!(answer, Err(CommandError::NoSuchProcess(ENDED))), "{answer:?}");
    }
    assert_eq!(reference.cancel("over"), Err(ENDED));
    assert_eq!(reference.cancel_timeout("over", LIMIT), Err(ENDED));
    assert_eq!(reference.terminate(), Err(ENDED));
    assert_eq!(reference.pid(), Err(ENDED));
    assert_eq!(reference.register("name"), Err(NameError::NoSuchProcess(ENDED)));
    assert_eq!(reference.join_group("group"), Err(NameError::NoSuchProcess(ENDED)));
    assert!(!reference.is_alive() && !reference.leave_group("group"));
    assert!(reference.info().is_none() && reference.state().is_none());
    let down = reference.watch().wait_timeout(Duration::ZERO).unwrap();
    assert!(matches!(down.exit, procession::Exit::Terminated(Reason::NoSuchProcess)), "{down:?}");
}

#[test]
fn a_reference_keeps_no_runtime_alive() {
    for is_dropped in [true, false] {
        let (runtime, bank) = start();
        let references = [bank.process_ref(), runtime.process_ref("bank")];
        let weak = runtime.downgrade();
        let mut runtime = Some(runtime);
        if is_dropped {
            // The last handle: the processes are terminated.
            runtime = None;
            assert!(weak.upgrade().is_none());
        } else {
            assert!(runtime.as_ref().unwrap().shutdown(LIMIT).unwrap().is_clean());
        }
        wait(&bank);
        references.iter().for_each(assert_ended);
        assert!(bank.send(Bank::Deposit(1)).is_err());
        assert!(bank.ask(Bank::Read, LIMIT).wait().is_err());
        drop(runtime);
    }
}

#[test]
fn a_weak_handle_gives_a_handle_while_there_is_one() {
    let (runtime, bank) = start();
    let weak = runtime.downgrade();
    is_for_everywhere(&weak);
    let again = weak.upgrade().unwrap();
    drop(runtime);
    again.send(&bank, Bank::Deposit(1)).unwrap();
    let third = weak.clone().upgrade().unwrap();
    drop(again);
    assert!(weak.upgrade().is_some());
    let spawned = weak.spawn(sink::<u8>()).unwrap();
    third.send(String::from("bank"), Bank::Deposit(1)).unwrap();
    drop(third);
    assert!(weak.upgrade().is_none());
    // The runtime has ended, and with it the processes.
    wait(&bank);
    wait(&spawned);
    assert!(matches!(weak.spawn(sink::<u8>()).unwrap_err().reason(), SpawnError::ShuttingDown));
}

#[test]
fn a_name_has_a_typed_address() {
    let (runtime, bank) = start();
    let address = runtime.address::<Bank>("bank").unwrap();
    assert_eq!(address, bank.address());
    assert_eq!(runtime.address(bank.pid()), Ok(address));
    runtime.send(address, Bank::Deposit(1)).unwrap();
    assert_eq!(runtime.ask(address, Bank::Read, LIMIT).wait().unwrap(), 1);
    let wrong = runtime.address::<String>("bank").unwrap_err();
    let bank_type = std::any::type_name::<Bank>();
    let wanted = std::any::type_name::<String>();
    assert_eq!(wrong, AddressError::WrongType { pid: bank.pid(), takes: bank_type, wanted });
    let none = runtime.address::<Bank>("nobody").unwrap_err();
    assert_eq!(none, AddressError::NoSuchProcess(NoSuchProcessError::Name("nobody".into())));
    // Also while it runs, and with a process that never had an inbox.
    let (holder, blocker) = hold_up(&runtime);
    assert!(runtime.address::<()>(&holder).is_ok() && runtime.address::<u8>(&holder).is_err());
    blocker.release();
    output(&holder);
    assert!(matches!(runtime.address::<()>(&holder), Err(AddressError::NoSuchProcess(_))));
    let all = HashSet::from([wrong.to_string(), none.to_string()]);
    assert!(all.iter().all(|text| text.contains("takes messages of type") || text.contains("no process has the name")));
    assert!(runtime.cancel(&bank, "over").unwrap());
    assert_eq!(*output(&bank), 1);
}

#[test]
fn the_node_of_a_process_that_had_ended_is_closed_without_an_error() {
    let (runtime, bank) = start();
    let reference = bank.process_ref();
    runtime.terminate(&bank).unwrap();
    join(&bank);
    let node = reference.shutdown_node();
    assert!(node.is_closed() && node.err().is_none(), "{:?}", node.err());
}
