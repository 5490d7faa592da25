//! Tests of the part of links to ordinary processes that is in memory.

use super::*;
use crate::outcome::{Exit, Reason};

fn pid(slot: u32) -> Pid {
    Pid::new(1, slot, 1).unwrap()
}

fn exit(slot: u32, reason: Reason) -> ExitSignal {
    ExitSignal { pid: pid(slot), exit: Exit::Terminated(reason) }
}

#[test]
fn links_that_others_change_take_no_room_in_a_residence() {
    let mut links = OutsideLinks::default();
    for begins in [true, false] {
        links.changed(LinkChange { other: pid(1), begins, by_me: false });
    }
    assert!(links.is_changed && links.is_empty());
}

#[test]
fn the_first_exit_counts_until_it_is_taken() {
    let (mut links, never) = (OutsideLinks::default(), |_: (Life, Position)| false);
    assert!(links.ended(exit(1, Reason::Shutdown), LinkedBy::OTHER).is_none());
    assert!(links.ended(exit(1, Reason::NoSuchProcess), LinkedBy::ME).is_some());
    let told = |links: &OutsideLinks| links.view(never).exits.iter().map(|(exit, _)| exit.exit.to_string()).collect();
    let first: Vec<String> = told(&links);
    assert_eq!(first, ["terminated (shutdown)"]);
    let (lost, record) = ((Life::FIRST, Position(7)), (Life::FIRST, Position(8)));
    assert!(links.take(&[pid(1)], lost, never));
    assert!(!links.take(&[pid(1)], record, never), "it was taken before");
    assert!(links.is_settled() && links.view(never).exits.is_empty());
    // The first record is lost, and the second one has taken it again.
    assert!(links.take(&[pid(1)], record, |of| of == lost));
    assert!(!links.give_back(lost));
    assert!(links.ended(exit(1, Reason::NoSuchProcess), LinkedBy::ME).is_some(), "the old one is not needed");
    let new: Vec<String> = told(&links);
    assert_eq!(new, ["terminated (no such process)"]);
    assert!(links.forget(record).is_empty());
}

#[test]
fn an_exit_waits_until_the_changes_of_steps_are_performed() {
    let (mut links, never) = (OutsideLinks::default(), |_: (Life, Position)| false);
    links.hold(pid(1), Some(3));
    links.hold(pid(1), None);
    assert!(links.ended(exit(1, Reason::Shutdown), LinkedBy::OTHER).is_none());
    links.changed(LinkChange { other: pid(1), begins: true, by_me: true });
    assert!(links.view(never).exits.is_empty() && links.view(never).held == [pid(1)]);
    links.changed(LinkChange { other: pid(1), begins: false, by_me: true });
    assert!(links.view(never).exits.is_empty() && links.view(never).held.is_empty(), "the link was removed");
    assert_eq!(links.take_needless().len(), 1);
    assert!(links.is_empty());
}
