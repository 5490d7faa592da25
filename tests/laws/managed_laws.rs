//! The laws of programs of requests to a supervisor: about answers, delays, restarts, timers, and lists of children.

use std::collections::BTreeSet;
use std::time::Duration;

use procession::supervisor::{
    AutoShutdown, Backoff, ChildError, ChildInfo, ChildState, Restart, SpecError, Strategy as Siblings,
};
use procession::{CommandError, Pid};

use crate::managed::{Answer, Lived, Program, Records, Recovers, Request, SECOND, SOON, Spec, UNLIMITED, id, is_valid};

/// Whether each child starts for the first time. Otherwise the supervisor ends, and its other children may take long.
pub fn all_start(program: &Program) -> bool {
    program.children.iter().all(|child| child.lives.first().is_none_or(|life| life.starts))
}

/// Whether the supervisor treats each child alone, and ends only when it is asked to.
pub fn is_steady(program: &Program) -> bool {
    let is_unlimited = program.most == UNLIMITED;
    program.auto == AutoShutdown::Never && program.strategy == Siblings::OneForOne && is_unlimited && all_start(program)
}

/// Whether each restart follows from a life, and nothing but restarts can end the supervisor.
pub fn is_counted(program: &Program) -> bool {
    is_steady(&Program { most: UNLIMITED, ..program.clone() }) && program.requests.is_empty()
}

/// The most restarts within a window. They are counted some time after the end of a life: `late` says that a window may
/// be longer for that reason, and otherwise it is shorter.
pub fn most_in_window(program: &Program, records: &Records, late: bool) -> usize {
    let mut moments = Vec::new();
    for child in &program.children {
        let is_restarted = |one: &Lived| match child.restart {
            _ if child.recovers != Recovers::Not && one.has_failed && one.has_started => true,
            Restart::Permanent => true,
            Restart::Transient => one.has_failed,
            Restart::Temporary => false,
        };
        moments.extend(records.of(child.id).iter().filter(|one| is_restarted(one)).filter_map(|one| one.ended));
    }
    let window = program.window as u32 * SECOND;
    let window = if late { window + SOON } else { window.saturating_sub(SOON) };
    let within = |last: &Duration| moments.iter().filter(|one| *one <= last && *last - **one < window).count();
    moments.iter().map(within).max().unwrap_or(0)
}

/// Each timer is that of a life, a delay, a time to stop, or a request.
pub fn check_timers(program: &Program, list: &[ChildInfo], records: &Records, timers: usize) -> Result<(), String> {
    let timers_of = |info: &ChildInfo| match info.state {
        ChildState::Delayed | ChildState::ToStop => 1,
        // Its time to stop, the limit of the request, and the time that it takes, beside the end of its life.
        ChildState::Stopping => 3,
        _ => 0,
    };
    let living = records.lived.lock().unwrap().iter().filter(|one| one.ended.is_none()).count();
    let open = program.requests.len() - records.answers.lock().unwrap().len();
    let needed = list.iter().map(timers_of).sum::<usize>() + living + open;
    if timers <= needed { Ok(()) } else { Err(format!("supervisors: {timers} timers are left, of {needed}: {list:?}")) }
}

/// A child that was added and did not start is forgotten. Others are not, whatever becomes of their restart.
pub fn check_refused(program: &Program, list: &[ChildInfo], records: &Records) -> Result<(), String> {
    let answers = records.answers.lock().unwrap();
    for (number, answer) in answers.iter() {
        let (child, is_added) = match &program.requests[*number].1 {
            Request::Add(spec) => (spec.id, true),
            Request::Restart(child) => (*child, false),
            _ => continue,
        };
        let is_known = program.children.iter().any(|one| one.id == child);
        let is_alone = requests_about(program, child).count() == 1 && is_added != is_known;
        let has_not_started = matches!(answer, Answer::Refused(ChildError::Ended(_)));
        let is_listed = list.iter().any(|info| *info.id == *id(child));
        if is_alone && has_not_started && is_listed == is_added {
            return Err(format!("supervisors: {child} has not started, and is listed: {is_listed}"));
        }
    }
    Ok(())
}

/// A child that was there from the beginning is unknown only after a request to delete it, or if it is temporary.
pub fn check_known(program: &Program, records: &Records) -> Result<(), String> {
    let answers = records.answers.lock().unwrap();
    let unknown =
        answers.iter().filter(|(_, answer)| matches!(answer, Answer::Refused(ChildError::NoSuchChild { .. })));
    for (number, _) in unknown {
        let (Request::Stop(of) | Request::Restart(of) | Request::Delete(of)) = &program.requests[*number].1 else {
            continue;
        };
        let is_deleted = requests_about(program, *of).any(|(_, (_, request))| matches!(request, Request::Delete(_)));
        let is_known = |one: &&Spec| one.id == *of && one.restart != Restart::Temporary;
        if !is_deleted && program.children.iter().any(|one| is_known(&one)) {
            return Err(format!("supervisors: {:?} finds no child", program.requests[*number].1));
        }
    }
    Ok(())
}

/// Without delays, each request is answered when the children that are to stop have stopped.
pub fn check_unanswered(program: &Program, records: &Records) -> Result<(), String> {
    let answers = records.answers.lock().unwrap();
    for (number, (at, request)) in program.requests.iter().enumerate() {
        let is_due = at + 4 * (program.requests.len() as u64 + 1) <= program.ends_at;
        if program.backoff.is_none() && is_due && !answers.iter().any(|(of, _)| *of == number) {
            return Err(format!("supervisors: {request:?} is not answered"));
        }
    }
    Ok(())
}

/// Whether significant children have ended by themselves, so that the supervisor has to end.
pub fn is_to_end(program: &Program, records: &Records) -> bool {
    let has_ended = |child: &Spec| {
        // The other children have some seconds to stop.
        let is_long_ago = |ended: Duration| records.now() > ended + 4 * SECOND;
        let last = records.of(child.id).pop().filter(|last| last.ended.is_some_and(is_long_ago));
        last.is_some_and(|last| child.restart == Restart::Temporary || !last.has_failed)
    };
    let mut significant = program.children.iter().filter(|child| child.is_significant).peekable();
    match program.auto {
        // Siblings that are stopped have not ended by themselves.
        _ if program.strategy != Siblings::OneForOne || program.most != UNLIMITED => false,
        AutoShutdown::AnySignificant => significant.any(has_ended),
        AutoShutdown::AllSignificant => significant.peek().is_some() && significant.all(has_ended),
        _ => false,
    }
}

/// The requests that name this child, or add it.
fn requests_about(program: &Program, child: usize) -> impl Iterator<Item = (usize, &(u64, Request))> {
    program.requests.iter().enumerate().filter(move |(_, (_, request))| match request {
        Request::Add(spec) => spec.id == child,
        Request::Stop(of) | Request::Restart(of) | Request::Delete(of) => *of == child,
        Request::List => false,
    })
}

/// A list has each child once, and no more than the limit allows. Only a child with a process has a PID.
pub fn check_list(program: &Program, list: &[ChildInfo]) -> Result<(), String> {
    let ids: BTreeSet<&str> = list.iter().map(|info| &*info.id).collect();
    if ids.len() != list.len() || program.limit.is_some_and(|limit| list.len() > limit) {
        return Err(format!("supervisors: the list is {list:?}"));
    }
    let has_in_place = program.children.iter().any(|child| child.is_in_place)
        || program.requests.iter().any(|(_, one)| matches!(one, Request::Add(spec) if spec.is_in_place));
    let is_right = |info: &ChildInfo| match info.state {
        ChildState::Up | ChildState::Starting | ChildState::ToStop | ChildState::Stopping => info.pid.is_some(),
        ChildState::Delayed => program.backoff.is_some() && (info.pid.is_none() || has_in_place),
        _ => info.pid.is_none(),
    };
    match list.iter().find(|info| !is_right(info)) {
        Some(info) => Err(format!("supervisors: {info:?} is listed")),
        None => Ok(()),
    }
}

/// A child that no request is about has been restarted as often as it has begun again. While it waits for its delay,
/// it has been restarted once more.
pub fn check_restarts(program: &Program, list: &[ChildInfo], records: &Records) -> Result<(), String> {
    for child in program.children.iter().filter(|child| requests_about(program, child.id).next().is_none()) {
        let began = records.of(child.id);
        let info = list.iter().find(|info| *info.id == *id(child.id));
        let what = || format!("supervisors: {child:?} has begun {} times, and is {info:?}", began.len());
        let Some(info) = info else {
            // Only a temporary child is deleted.
            if child.restart == Restart::Temporary { continue } else { return Err(what()) }
        };
        let again = began.len() as u64 - u64::from(!began.is_empty());
        let waits = u64::from(info.state == ChildState::Delayed);
        let lives = began.last().and_then(|last| last.pid.filter(|_| last.ended.is_none()));
        let is_up = info.state == ChildState::Up;
        if info.restarts != again + waits || is_up != lives.is_some() || is_up && info.pid != lives {
            return Err(what());
        }
    }
    Ok(())
}

/// Each request has one answer, which fits to what has happened.
pub fn check_answers(program: &Program, records: &Records) -> Result<(), String> {
    let answers = records.answers.lock().unwrap();
    let is_of = |pid: &Pid, child| records.of(child).iter().any(|one| one.pid == Some(*pid) && one.has_started);
    let place = |number| answers.iter().position(|(of, _)| *of == number);
    for (number, (at, request)) in program.requests.iter().enumerate() {
        let count = answers.iter().filter(|(of, _)| *of == number).count();
        let Some((_, answer)) = place(number).map(|place| &answers[place]).filter(|_| count == 1) else {
            return Err(format!("supervisors: {request:?} was answered {count} times"));
        };
        let is_right = match (request, answer) {
            (Request::Add(spec), Answer::Started(pid)) => is_valid(spec, program.auto) && is_of(pid, spec.id),
            (Request::Restart(child), Answer::Started(pid)) => is_of(pid, *child),
            // The supervisor has ended before or meanwhile.
            (_, Answer::NotAnswered(error)) => matches!(error, CommandError::Ended(_) | CommandError::NoSuchProcess(_)),
            (Request::Add(spec), Answer::Refused(ChildError::Spec(SpecError::TwoWithOneId { .. }))) => {
                is_valid(spec, program.auto)
                    && (program.children.iter().any(|child| child.id == spec.id)
                        || requests_about(program, spec.id).any(|(other, _)| other != number))
            }
            (Request::Add(spec), Answer::Refused(ChildError::Spec(_))) => !is_valid(spec, program.auto),
            (Request::Add(_), Answer::Refused(ChildError::Limit { limit })) => program.limit == Some(*limit),
            _ => true,
        };
        if !is_right {
            return Err(format!("supervisors: {request:?} was answered {answer:?}"));
        }
        // A stop and a later restart of the same child are answered in this order. A supervisor that is ending refuses
        // a restart at once, and so does one that is to delete the child.
        let Request::Stop(child) = request else { continue };
        let later = requests_about(program, *child).filter(|(_, (after, _))| after > at && *after < program.ends_at);
        for (other, (_, request)) in later.filter(|_| is_steady(program)) {
            let answered = place(other).map(|place| &answers[place].1);
            let is_refused =
                matches!(answered, Some(Answer::Refused(ChildError::Stopped | ChildError::NoSuchChild { .. })));
            if matches!(request, Request::Restart(_)) && place(other) < place(number) && !is_refused {
                return Err(format!("supervisors: {request:?} was answered before the stop {number}: {answers:?}"));
            }
        }
    }
    Ok(())
}

/// A child that no request is about is started again after its delay.
pub fn check_delays(program: &Program, records: &Records) -> Result<(), String> {
    if program.strategy != Siblings::OneForOne {
        return Ok(());
    }
    for child in program.children.iter().filter(|child| requests_about(program, child.id).next().is_none()) {
        let mut failures = 0;
        for pair in records.of(child.id).windows(2) {
            let Some(ended) = pair[0].ended else { return Err(format!("supervisors: two of one child: {pair:?}")) };
            let (up, delay) = (ended - pair[0].began, pair[1].began.saturating_sub(ended));
            let (shortest, longest) = match program.backoff {
                None => (Duration::ZERO, Duration::ZERO),
                Some(_) if child.recovers != Recovers::Not => (Duration::ZERO, Duration::MAX - SOON),
                Some((first, cap, jitter)) => {
                    let cap = cap as u32 * SECOND;
                    let backoff = Backoff::exponential(first as u32 * SECOND, cap);
                    // At this moment, either may be.
                    let is_unclear = pair[0].has_started && up.abs_diff(cap) < SOON;
                    if is_unclear {
                        break;
                    }
                    failures = if pair[0].has_started && up > cap { 1 } else { failures + 1 };
                    let longest = backoff.delay(failures);
                    (longest.mul_f64(1.0 - jitter as f64 / 10.0), longest)
                }
            };
            if delay + SOON < shortest || delay > longest + SOON {
                return Err(format!("supervisors: after {failures} failures {delay:?}, of {longest:?}: {pair:?}"));
            }
            if pair[0].has_failed && child.recovers != Recovers::Not {
                continue;
            }
            if child.restart == Restart::Temporary || child.restart == Restart::Transient && !pair[0].has_failed {
                return Err(format!("supervisors: {child:?} was restarted"));
            }
        }
    }
    Ok(())
}
