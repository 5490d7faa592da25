//! The rows of messages.

use super::*;

fn mail_with(questions: Vec<QuestionKey>, trace: Option<&str>) -> StoredMail {
    let (kinds, message) = (vec!["clerk".into()], vec![1, 2, 3]);
    let trace = trace.map(|trace| trace.as_bytes().to_vec());
    StoredMail { from: Some((0, 7)), kinds, format: Format::Json, message, questions, trace }
}

fn body_of(stored: &StoredMail) -> Vec<u8> {
    match mail(1, 2, stored).unwrap() {
        Change::Entry { row: Some(row), .. } => row.body,
        other => panic!("{other:?} is no row of a message"),
    }
}

const KEY: QuestionKey = QuestionKey { number: 3, asker: 4, tag: 5 };

#[test]
fn a_row_has_its_questions_and_its_trace_only_if_there_are_any() {
    let plain = postcard::to_stdvec(&mail_with(vec![], None)).unwrap();
    assert_eq!(body_of(&mail_with(vec![], None)), plain, "as it always was");
    let asked = [&*plain, &*postcard::to_stdvec(&vec![KEY]).unwrap()].concat();
    assert_eq!(body_of(&mail_with(vec![KEY], None)), asked, "as it always was");
    for questions in [vec![], vec![KEY]] {
        for trace in [None, Some("00-1-2-01")] {
            let stored = mail_with(questions.clone(), trace);
            let read = read_mail(&body_of(&stored)).unwrap();
            assert_eq!((read.from, &*read.message), (Some((0, 7)), &[1, 2, 3][..]));
            assert_eq!((read.questions, read.trace), (questions.clone(), stored.trace));
        }
    }
}

#[test]
fn a_header_that_the_program_does_not_know_is_passed_over() {
    let header = |sort: u8, value: &[u8]| postcard::to_stdvec(&(sort, value)).unwrap();
    for questions in [vec![], vec![KEY]] {
        let body = body_of(&mail_with(questions.clone(), Some("a trace")));
        let trace = header(1, b"a trace");
        let front = body.strip_suffix(&*trace).unwrap();
        for headers in [[&*header(2, b""), &*trace, &*header(3, &[1; 300])], [&*trace, &*header(200, &[0]), &[]]] {
            let read = read_mail(&[&[front][..], &headers[..]].concat().concat()).unwrap();
            assert_eq!((read.questions, read.trace.as_deref()), (questions.clone(), Some(&b"a trace"[..])));
        }
        // A header that is cut off is none.
        let read = read_mail(&[front, &[1, 9, 1]].concat()).unwrap();
        assert_eq!((read.questions, read.trace), (questions.clone(), None));
    }
}

/// An older program decodes the message, and then the questions. It does not look at the bytes behind them.
#[test]
fn an_older_program_reads_a_row_with_a_trace() {
    for questions in [vec![], vec![KEY]] {
        let body = body_of(&mail_with(questions.clone(), Some("a trace")));
        let (read, rest) = postcard::take_from_bytes::<StoredMail>(&body).unwrap();
        assert_eq!(read.message, [1, 2, 3]);
        assert_eq!(postcard::from_bytes::<Vec<QuestionKey>>(rest).unwrap(), questions);
    }
}
