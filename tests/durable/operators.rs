//! The operator of a random program, who repairs citizens, and the checks of the ties and the orders.

use std::collections::{BTreeMap, BTreeSet};

use procession::command::CommandKey;
use procession::durable::{Listed, Query, Request, ShownDead, Store, StoreError, Which, WhyDead};
use procession::{Address, Pid, Runtime};

use crate::neighbours::{NAMES, Seen, decides, name_of};
use crate::script::draw;
use crate::town::{HERMIT, Note, Pay, Report, outside, wrong};

/// The orders of the operator that are known to be on disk, and those that may be.
#[derive(Default)]
pub(crate) struct Orders {
    /// Messages that were skipped: the receiver, and the number.
    skipped: BTreeSet<(Pid, u64)>,
    /// Skipped messages that may have been sent again.
    resent: BTreeSet<(Pid, u64)>,
    /// The citizens with a new state, and its mark.
    replaced: BTreeSet<(u32, u64)>,
    /// How often each citizen was asked to stop: acknowledged, and in all.
    cancels: BTreeMap<u32, (u32, u32)>,
    /// Payments whose answer was acknowledged.
    answered: BTreeSet<CommandKey>,
    /// The places behind which the program was killed.
    killed: BTreeSet<u64>,
    /// Whether it is known that the hermit has ended.
    pub(crate) hermit_has_ended: bool,
}

fn orders<R>(call: impl FnOnce(&mut Orders) -> R) -> R {
    outside(|outside| call(&mut outside.orders))
}

/// Whether the program is to be killed after orders that were just acknowledged. Some programs are killed once at each
/// place.
pub(crate) fn is_killed_behind(program: u64, place: u64) -> bool {
    draw(program, place, 13, 2) == 0 && orders(|orders| orders.killed.insert(place))
}

/// Answers the payments that wait for an answer. Returns whether one of the answers is on disk.
pub(crate) fn answer_later(store: &Store) -> bool {
    let before = orders(|orders| orders.answered.len());
    let waiting: Vec<_> = outside(|outside| outside.later.iter().copied().collect());
    for (key, order) in waiting {
        let is_by_operator = order % 2 == 0;
        // It may be answered already, and its process may have ended.
        let is_answered = if is_by_operator {
            let answer = Request::Answer { key: key.to_string(), json: order.to_string(), is_error: false };
            store.operate(&answer).is_ok()
        } else {
            let receipt = store.answer::<Pay>(key, Ok(order));
            receipt.is_ok_and(|receipt| receipt.wait(crate::worlds::LIMIT).is_ok())
        };
        if is_answered && !orders(|orders| orders.answered.insert(key)) {
            wrong(format!("payment {order} is answered twice"));
        }
    }
    orders(|orders| orders.answered.len()) > before
}

/// One round of all that an operator does. An order that fails is given again in a later round.
pub(crate) fn give_orders(store: &Store, (program, round): (u64, u64), citizens: &[Address<Note>]) {
    resend(store);
    let parked = store.list(&Query::all().parked()).unwrap_or_default();
    for listed in &parked {
        let Some(number) = listed.id.as_ref().and_then(|id| id.parse::<u32>().ok()) else { continue };
        match draw(program, u64::from(number) << 8 | round, 10, if round < 3 { 4 } else { 1 }) {
            0 => drop(store.retry(listed.pid)),
            1 => skip(store, listed.pid),
            2 => replace(store, listed, (number, round)),
            _ => {}
        }
    }
    if round % 2 == 1 {
        resend(store);
    }
    let number = draw(program, round, 11, citizens.len() as u64) as u32;
    let process = citizens[number as usize].pid().to_string();
    let count = |acknowledged: u32, all: u32| {
        orders(|orders| {
            let count = orders.cancels.entry(number).or_default();
            *count = (count.0 + acknowledged, count.1 + all);
        });
    };
    count(0, 1);
    if store.operate(&Request::Cancel(Which::One(process))).is_ok() {
        count(1, 0);
    }
}

/// The dead letters of a process. `None` if the disk does not let it.
fn dead(store: &Store, pid: Pid) -> Option<Vec<ShownDead>> {
    let letters = store.dead_letters(None, 10_000).ok()?;
    Some(letters.into_iter().filter(|dead| dead.to == pid).collect())
}

fn skip(store: &Store, pid: Pid) {
    let Some(before) = dead(store, pid) else { return };
    let is_skipped = store.skip(pid).is_ok();
    let Some(after) = dead(store, pid) else { return };
    let is_new = |dead: &&ShownDead| !before.iter().any(|other| other.number == dead.number);
    let new: Vec<_> = after.iter().filter(is_new).collect();
    if is_skipped && !(new.len() == 1 && new[0].why == WhyDead::Skipped) {
        wrong(format!("a skipped message of {pid} is {new:?}"));
    }
    orders(|orders| orders.skipped.extend(new.iter().map(|dead| (pid, dead.number))));
}

/// Sends the skipped messages again.
fn resend(store: &Store) {
    // A program that is killed behind the commit of a skip has told nobody.
    let letters = store.dead_letters(None, 10_000).unwrap_or_default();
    let skipped = letters.iter().filter(|letter| letter.why == WhyDead::Skipped);
    orders(|orders| {
        let of_killed = skipped.map(|letter| (letter.to, letter.number)).filter(|key| !orders.resent.contains(key));
        orders.skipped.extend(of_killed.collect::<Vec<_>>());
    });
    let (skipped, resent) = orders(|orders| (orders.skipped.clone(), orders.resent.clone()));
    for (pid, number) in skipped {
        let find = || Some(dead(store, pid)?.into_iter().find(|dead| dead.number == number));
        match find() {
            Some(Some(letter)) => {
                orders(|orders| orders.resent.insert((pid, number)));
                if store.resend(&letter).is_ok() {
                    orders(|orders| orders.skipped.remove(&(pid, number)));
                    if let Some(Some(letter)) = find() {
                        wrong(format!("a dead letter of {pid} was sent again, and is there: {letter:?}"));
                    }
                }
            }
            Some(None) if !resent.contains(&(pid, number)) => {
                wrong(format!("the skipped message {number} of {pid} is no dead letter any more"));
            }
            Some(None) => _ = orders(|orders| orders.skipped.remove(&(pid, number))),
            None => {}
        }
    }
}

/// Takes the failing deed out of a plan. A state with replies cannot be shown, because it is not JSON.
fn replace(store: &Store, listed: &Listed, (number, mark): (u32, u64)) {
    let Ok(mut state) = store.show(listed.pid).map(|shown| shown.state) else { return };
    if !state.is_object() {
        return drop(store.retry(listed.pid));
    }
    let at = state["done"].as_u64().unwrap_or_default() as usize;
    state["plan"][at] = "Nothing".into();
    if let Some(marks) = state["replaced"].as_array_mut() {
        marks.push(mark.into());
    }
    match store.replace(listed.pid, &state.to_string()) {
        Ok(()) => _ = orders(|orders| orders.replaced.insert((number, mark))),
        Err(StoreError::NotRepaired(procession::durable::NotRepaired::State(why))) => {
            wrong(format!("the state {state} is refused: {why}"));
        }
        Err(_) => {}
    }
}

/// Ends the hermit. Returns whether that is on disk.
pub(crate) fn end_hermit(store: &Store, hermit: Pid) -> Result<(), StoreError> {
    if !orders(|orders| orders.hermit_has_ended) {
        let ended = store.terminate(hermit);
        if !matches!(ended, Err(StoreError::NotRepaired(procession::durable::NotRepaired::NoSuchProcess))) {
            ended?;
        }
        orders(|orders| orders.hermit_has_ended = true);
    }
    Ok(())
}

/// Checks what the citizens report of each other, when they have nothing more to do.
pub(crate) fn check_ties(
    runtime: &Runtime,
    reports: &[Report],
    (citizens, hermit): (&[Address<Note>], Pid),
) -> Result<(), String> {
    let seen: Vec<&Seen> = reports.iter().map(|report| &report.seen).collect();
    for (number, report) in (0u32..).zip(reports) {
        let Seen { heard, exits, ended, requests, stopped, follows, .. } = &report.seen;
        for (from, question, _) in heard {
            if !seen[*from as usize].questions.contains(question) {
                return Err(format!("a lost step of {from} has asked the question {question}"));
            }
        }
        let mut told: BTreeMap<String, u32> = ended.iter().map(|pid| (pid.clone(), 1)).collect();
        told.extend(follows.then(|| (hermit.to_string(), 1)));
        if *exits != told {
            return Err(format!("{number} was told of the ends {exits:?} and not {told:?}"));
        }
        let downs = report.downs.get(&HERMIT).copied().unwrap_or_default();
        if downs != u32::from(*follows) {
            return Err(format!("{number} has {downs} downs of the hermit"));
        }
        for (to, reason) in stopped {
            if seen[*to as usize].requests.get(reason) != Some(&1) {
                return Err(format!("the request {reason:?} to {to} is lost: {:?}", seen[*to as usize].requests));
            }
        }
        let operators = requests.get("cancelled").copied().unwrap_or_default();
        let (least, most) = orders(|orders| orders.cancels.get(&number).copied().unwrap_or_default());
        if !(least..=most).contains(&operators) {
            return Err(format!("{number} was asked to stop {operators} times, and not {least} to {most}"));
        }
        for (reason, times) in requests.iter().filter(|(reason, _)| *reason != "cancelled") {
            let is_known = seen.iter().any(|seen| seen.stopped.contains(&(number, reason.clone())));
            if *times != 1 || !is_known {
                return Err(format!("{number} has the request {reason:?} {times} times, known: {is_known}"));
            }
        }
        let marks = orders(|orders| orders.replaced.clone());
        if marks.iter().any(|(of, mark)| *of == number && !report.replaced.contains(mark)) {
            return Err(format!("{number} has lost a state of {marks:?}: {:?}", report.replaced));
        }
        for (key, order) in
            outside(|outside| outside.payments.iter().map(|(of, (key, _))| (*key, *of)).collect::<Vec<_>>())
        {
            let is_answered = orders(|orders| orders.answered.contains(&key));
            if is_answered && order.0 == number && !report.answered.contains_key(&format!("payment {}", order.1)) {
                return Err(format!("the answer to payment {order:?} is lost"));
            }
        }
    }
    for name in 0..NAMES {
        let holders: Vec<_> = (0..).zip(&seen).filter(|(_, seen)| seen.names.contains(&name)).collect();
        let holder = holders.first().map(|(number, _)| citizens[*number].pid());
        let found = runtime.whereis(&name_of(name));
        if holders.len() > 1 || found != holder {
            return Err(format!("{} has {found:?}, and not {holders:?}", name_of(name)));
        }
    }
    Ok(())
}

/// Checks what is left of the ties to a citizen that has ended.
pub(crate) fn check_end(
    (runtime, ended): (&Runtime, (u32, Pid)),
    (watcher, report): (u32, &Report),
) -> Result<(), String> {
    let (number, pid) = ended;
    let seen = outside(|outside| outside.seen.clone());
    let (one, other) = if decides(number, watcher) { (number, watcher) } else { (watcher, number) };
    let linked = u32::from(seen[one as usize].links.contains(&other));
    let exits = report.seen.exits.get(&pid.to_string()).copied().unwrap_or_default();
    if exits != linked {
        return Err(format!("{watcher} has {exits} exits of {number} for {linked} links"));
    }
    for name in &seen[number as usize].names {
        if runtime.whereis(&name_of(*name)) == Some(pid) {
            return Err(format!("{number} has ended, and has the name {name}"));
        }
    }
    Ok(())
}
