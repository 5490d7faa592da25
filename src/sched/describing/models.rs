//! Models of the races between a question for a description, the turns of the process, and its end.

use super::{hand, may_have_visits};
use crate::pid::Pid;
use crate::primitives::{Arc, thread};
use crate::sched::body::{Ready, Verdict};
use crate::sched::cell::Cell;
use crate::sched::handed::Handed;
use crate::sched::models::{in_hand, settle};
use crate::sched::polling::polls_are_due;

/// A question for a process.
type Asked = Arc<Handed<u32>>;

/// An asker hands the question 7 to the process. It returns what `hand` does.
fn asker(cell: &Arc<Cell>) -> (Asked, thread::JoinHandle<(Option<Ready>, Vec<u32>)>) {
    let questions = Asked::default();
    let (cell, asked) = (cell.clone(), questions.clone());
    (questions, loom::thread::spawn(move || hand(&asked, &cell, Pid::FIRST, 7, (|_| false, |_| true))))
}

/// Ends the process, and takes its questions, if it may have any.
fn end_asked(cell: &Cell, body: Ready, questions: &Asked) -> Vec<u32> {
    let marks = cell.vacate().marks;
    if may_have_visits(marks, &body) { questions.take(Pid::FIRST) } else { Vec::new() }
}

/// A question is handed to a process that ends. Fails if the asker does not look once more, or looks before it asks for
/// the poll, or if the end looks before the cell is vacant, or does not look at the request in the cell.
#[test]
fn a_question_is_taken_though_the_process_ends() {
    loom::model(|| {
        let (cell, body) = in_hand();
        let (questions, asker) = asker(&cell);
        let told = end_asked(&cell, body, &questions);
        let (woken, refused) = asker.join().unwrap();
        assert!(woken.is_none());
        assert_eq!([told, refused].concat(), [7]);
    });
}

/// A question is handed to a process whose step ends. It has a turn that begins with polls, or ends before it. Fails if
/// the end does not look at the mark of the body.
#[test]
fn a_question_is_taken_in_a_turn_or_at_the_end() {
    for ends_first in [false, true] {
        loom::model(move || {
            let (cell, body) = in_hand();
            let (questions, asker) = asker(&cell);
            let mut told = Vec::new();
            let mut goes_on = |body: Ready| {
                if !ends_first && polls_are_due(&cell, &body) {
                    told.extend(questions.take(Pid::FIRST));
                }
                // It may be asked to poll again, so this looks once more.
                told.extend(end_asked(&cell, body, &questions));
            };
            settle(&cell, body, Verdict::Idle).into_iter().for_each(&mut goes_on);
            let (woken, refused) = asker.join().unwrap();
            woken.into_iter().for_each(goes_on);
            assert_eq!([told, refused].concat(), [7]);
        });
    }
}
