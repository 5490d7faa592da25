//! Runs that real workers could not have had. The monitor finds each.

use std::time::Duration;

use procession::Pid;
use procession::observe::DeadLetterReason;

use crate::acts::StepNumber;
use crate::monitor::{Note, Part, Taken, Yields, check};

fn pid(number: u32) -> Pid {
    format!("<1.{number}.1>").parse().unwrap()
}

fn begins(of: u32, at: u64) -> Note {
    Note::Step { of: pid(of), at: Duration::from_secs(at), waited: false }
}

fn stepped(of: u32, step: u64, change: impl FnOnce(&mut Yields)) -> Note {
    let mut yields = Yields::new(StepNumber(step), Duration::ZERO);
    change(&mut yields);
    Note::Stepped(pid(of), Box::new(yields))
}

fn dead(number: u64) -> Note {
    Note::Dead { number, reason: DeadLetterReason::Ended }
}

fn takes(of: u32, from: u32, number: u64) -> Note {
    Note::Took(pid(of), Taken::Letter { from: Some(pid(from)), number })
}

/// Process 1 sends these letters to process 2.
fn sends(numbers: &[u64]) -> Vec<Note> {
    let sent = numbers.iter().map(|number| (pid(2), *number)).collect();
    vec![begins(1, 0), stepped(1, 1, |yields| yields.sent = sent)]
}

fn is_found(notes: impl IntoIterator<Item = Note>, what: &str) {
    let notes: Vec<Note> = notes.into_iter().collect();
    let found = check(&notes, false).expect_err(what);
    assert!(found.contains(what), "{found}");
}

#[test]
fn a_run_of_real_workers_passes() {
    let ends = [
        Note::Waiting(2),
        begins(2, 0),
        takes(2, 1, 7),
        takes(2, 1, 8),
        Note::Took(pid(2), Taken::End { of: pid(1) }),
        stepped(2, 2, |yields| yields.timers.push((1, Duration::from_secs(3)))),
        Note::Waiting(0),
        begins(2, 3),
        Note::Took(pid(2), Taken::Answer { tag: 1, fired: true }),
        stepped(2, 3, |_| ()),
        Note::Carried(StepNumber(3)),
        Note::Ended(pid(2)),
    ];
    assert_eq!(check(&[sends(&[7, 8]), ends.into()].concat(), false), Ok(()));
}

#[test]
fn two_steps_at_once_are_found() {
    is_found([begins(1, 0), begins(1, 0)], "is stepped inside of a step");
    is_found([begins(1, 0), begins(2, 0)], "is stepped inside of a step");
    is_found([Note::Ended(pid(1)), begins(1, 0)], "is stepped after its end");
}

#[test]
fn a_step_after_a_termination_is_found() {
    let terminated = |was_alive, has_lived| Note::Terminated { of: pid(1), was_alive, has_lived };
    is_found([terminated(true, true), begins(1, 0)], "is stepped after it was terminated");
    is_found([terminated(false, true)], "has lived");
}

#[test]
fn a_step_for_nothing_is_found() {
    let rests = |step| stepped(1, step, |yields| (yields.takes_all, yields.rests) = (true, true));
    is_found([begins(1, 0), rests(1), begins(1, 0), rests(2)], "is stepped for nothing");
}

#[test]
fn letters_out_of_order_are_found() {
    let takes = [begins(2, 0), takes(2, 1, 8), takes(2, 1, 7)];
    is_found([sends(&[7, 8]), takes.into()].concat(), "takes letter 7");
}

#[test]
fn letters_that_come_twice_or_from_nowhere_are_found() {
    is_found([sends(&[7]), vec![begins(2, 0), takes(2, 1, 7), takes(2, 1, 7)]].concat(), "was Taken before");
    is_found([sends(&[7]), vec![begins(2, 0), takes(2, 3, 7)]].concat(), "which no step has sent");
    is_found([sends(&[7]), vec![dead(7), dead(7)]].concat(), "was Dead before");
    is_found([begins(2, 0), takes(2, 1, 7)], "which no step has sent");
}

#[test]
fn lost_letters_are_found() {
    is_found([sends(&[7]), vec![Note::Waiting(0)]].concat(), "neither taken nor dead");
    let fails = [begins(2, 0), takes(2, 1, 7), Note::Failed(pid(2)), Note::Waiting(0)];
    is_found([sends(&[7]), fails.into()].concat(), "0 of 1 letters");
}

#[test]
fn effects_of_a_failed_step_are_found() {
    let is_broken = [sends(&[7]), vec![Note::Failed(pid(1))]].concat();
    is_found([is_broken.clone(), vec![begins(2, 0), takes(2, 1, 7)]].concat(), "which no step has sent");
    is_found([is_broken, vec![Note::Carried(StepNumber(1))]].concat(), "has not succeeded");
    is_found([begins(2, 0), stepped(2, 2, |_| ()), Note::DeadInStep(pid(2)), Note::Waiting(0)], "1 of 0 letters");
}

#[test]
fn an_end_before_a_letter_is_found() {
    let end = Note::Took(pid(2), Taken::End { of: pid(1) });
    is_found([sends(&[7]), vec![begins(2, 0), end]].concat(), "before letter Some(7)");
}

#[test]
fn an_end_before_an_answer_is_found() {
    let asks = stepped(2, 1, |yields| (yields.asks, yields.sent) = (vec![(4, 9)], vec![(pid(1), 9)]));
    let answers = stepped(1, 2, |yields| yields.replies.push((pid(2), 9)));
    let end = Note::Took(pid(2), Taken::End { of: pid(1) });
    is_found(
        [begins(2, 0), asks, begins(1, 0), takes(1, 2, 9), answers, begins(2, 0), end],
        "before its answer to Some(9)",
    );
}

#[test]
fn a_letter_in_a_step_after_wait_is_found() {
    let waited = Note::Step { of: pid(2), at: Duration::from_secs(1), waited: true };
    is_found([sends(&[7]), vec![waited, takes(2, 1, 7)]].concat(), "takes letter 7 in a step after `Wait`");
}

#[test]
fn an_answer_to_a_state_machine_that_failed_is_not_waited_for() {
    let asks = stepped(2, 1, |yields| (yields.asks, yields.sent) = (vec![(4, 9)], vec![(pid(1), 9)]));
    let answers = stepped(1, 2, |yields| yields.replies.push((pid(2), 9)));
    let end = Note::Took(pid(2), Taken::End { of: pid(1) });
    let before = vec![begins(2, 0), asks, begins(1, 0), takes(1, 2, 9), answers];
    let fails = vec![begins(2, 0), Note::Failed(pid(2)), begins(2, 0), end];
    assert_eq!(check(&[before, fails].concat(), false), Ok(()));
}

#[test]
fn a_signal_after_a_letter_is_found() {
    for of in [None, Some(pid(3))] {
        let control = Note::Took(pid(2), Taken::Control { of });
        is_found([sends(&[7]), vec![begins(2, 0), takes(2, 1, 7), control]].concat(), "takes a signal about");
    }
}

#[test]
fn a_part_that_goes_before_its_process_is_closed_is_found() {
    let gone = |part| Note::Gone(pid(1), part);
    is_found([gone(Part::Future)], "was not closed");
    is_found([gone(Part::State)], "was not closed");
    let close = [gone(Part::Closed), gone(Part::Command), gone(Part::Future)];
    is_found(close, "before its futures");
    is_found([gone(Part::Closed), gone(Part::State), begins(1, 0), gone(Part::State)], "was not closed");
    let ends = stepped(1, 1, |yields| (yields.sent, yields.closes) = (vec![(pid(2), 7)], true));
    is_found([begins(1, 0), ends, begins(2, 0), takes(2, 1, 7)], "before <1.1.1> is closed");
}

#[test]
fn an_answer_before_an_earlier_letter_is_found() {
    let commands = stepped(2, 2, |yields| yields.at_once.push(4));
    let answer = Note::Took(pid(2), Taken::Answer { tag: 4, fired: false });
    let begin = [sends(&[7]), vec![Note::Waiting(1), begins(2, 0), commands, Note::Waiting(1)]].concat();
    is_found([begin.clone(), vec![begins(2, 0), answer]].concat(), "before a letter that came earlier");
    let later = vec![begins(1, 0), stepped(1, 3, |yields| yields.sent.push((pid(2), 8))), Note::Waiting(2)];
    let takes = vec![begins(2, 0), takes(2, 1, 7), takes(2, 1, 8)];
    is_found([begin, later, takes].concat(), "takes letter 8 before the answer");
}

#[test]
fn an_early_timer_is_found() {
    let sets = stepped(1, 1, |yields| yields.timers.push((1, Duration::from_secs(3))));
    let fires = Note::Took(pid(1), Taken::Answer { tag: 1, fired: true });
    is_found([begins(1, 0), sets, begins(1, 2), fires], "fires early");
}

#[test]
fn an_answer_before_an_earlier_answer_is_found() {
    let commands = stepped(2, 1, |yields| yields.at_once = vec![4, 5]);
    let answer = Note::Took(pid(2), Taken::Answer { tag: 5, fired: false });
    is_found([begins(2, 0), commands, begins(2, 0), answer], "takes the answer to 5 before");
}

#[test]
fn a_letter_that_finds_no_room_although_there_is_room_is_found() {
    let full = Note::Dead { number: 8, reason: DeadLetterReason::Full };
    let bound = |limit| vec![Note::Bound(pid(2), limit)];
    assert_eq!(check(&[bound(1), sends(&[7, 8]), vec![full.clone()]].concat(), false), Ok(()));
    is_found([bound(2), sends(&[7, 8]), vec![full]].concat(), "only 1 of 2 wait");
    is_found([bound(1), sends(&[7, 8, 9]), vec![Note::Waiting(3)]].concat(), "has room for less");
}

#[test]
fn a_letter_that_waits_for_room_is_in_no_mailbox() {
    let sends = stepped(1, 1, |yields| (yields.sent, yields.rooms) = (vec![(pid(2), 7)], vec![(3, 7)]));
    let begin = vec![begins(1, 0), sends, Note::Waiting(0)];
    assert_eq!(check(&begin, false), Ok(()));
    let answer = vec![begins(1, 0), Note::Took(pid(1), Taken::Answer { tag: 3, fired: false }), Note::Waiting(0)];
    is_found([begin, answer].concat(), "neither taken nor dead");
}
