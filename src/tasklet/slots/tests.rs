//! Tests of the transitions. They read the two tables of the protocol and try each cell.

use crate::clock::Clock;
use crate::outcome::Reason;
use crate::primitives::Arc;
use crate::tasklet::directive::{Directive, ScheduleError, TaskletId};
use crate::tasklet::report::PanicPolicy;
use crate::tasklet::slots::{Presence, Slots, Wake};
use crate::tasklet::table::KEPT;

type Small = Slots<&'static str>;

fn slots() -> Small {
    Slots::new(7, PanicPolicy::Finish, Clock::system())
}

/// The rows of the table with this first column heading. Cells are without their quotes.
fn table(head: &str) -> Vec<Vec<String>> {
    let text = include_str!("../slots.rs");
    let lines = text.lines().skip_while(|line| !line.starts_with(&format!("//! | {head} |")));
    lines
        .take_while(|line| line.starts_with("//! |"))
        .filter(|line| !line.contains("---"))
        .map(|line| {
            let cells = line.trim_start_matches("//! |").trim_end_matches('|').split('|');
            cells.map(|cell| cell.replace('`', "").trim().to_string()).collect()
        })
        .collect()
}

fn directive(word: &str) -> Directive {
    match word.split(',').next().unwrap_or_default() {
        "Home" => Directive::Home,
        "Pool" => Directive::Pool,
        "Wait" => Directive::Wait,
        "Done" => Directive::Done,
        other => panic!("{other} is no directive"),
    }
}

fn attend(slots: &mut Small, word: &str) {
    slots.enter(if word.ends_with("no thread inside") { Presence::Away } else { Presence::Inside });
}

fn place_of(slots: &mut Small, id: TaskletId) -> &'static str {
    let Some(slot) = slots.table.find(id) else { return "over" };
    match (slot.directive, slot.body.is_some()) {
        (Directive::Home, true) => "ready",
        (Directive::Pool, true) if slot.is_held => "held",
        (Directive::Pool, true) => "handed",
        (Directive::Wait, true) => "waiting",
        (Directive::Done, _) => "over",
        (_, false) => "in a step",
    }
}

/// A tasklet at rest in this place.
fn at_rest(slots: &mut Small, place: &str) -> TaskletId {
    slots.enter(Presence::Inside);
    let first = if place == "ready" { Directive::Home } else { Directive::Wait };
    let (id, effects) = slots.insert(("a".into(), None), "body", first).ok().unwrap();
    assert!(!effects.are_some());
    match place {
        "handed" => assert!(slots.redirect(id, Directive::Pool).unwrap().unwrap().start.is_some()),
        "held" => {
            slots.enter(Presence::Away);
            // The directive is only possible for a waiting tasklet. A queued one is refused.
            let _ = slots.redirect(id, Directive::Pool);
        }
        _ => {}
    }
    assert_eq!(place_of(slots, id), place);
    id
}

#[test]
fn the_table_of_tasklets_at_rest_is_what_the_code_does() {
    let table = table("at rest");
    assert_eq!((table.len(), table[0].len()), (5, 7));
    for row in &table[1..] {
        for (word, expected) in table[0].iter().zip(row).skip(1) {
            let mut slots = slots();
            let id = at_rest(&mut slots, &row[0]);
            attend(&mut slots, word);
            let what = format!("{} given {word}", row[0]);
            let outcome = if word == "cancelled" {
                Ok(slots.cancel(id, Reason::Cancelled))
            } else {
                slots.redirect(id, directive(word))
            };
            match outcome {
                Err(ScheduleError::NotRunning) => {
                    assert_eq!(expected, "refused", "{what}");
                    assert_eq!(place_of(&mut slots, id), row[0], "{what}");
                }
                Err(other) => panic!("{what}: {other}"),
                Ok(effects) => {
                    assert_eq!(place_of(&mut slots, id), expected, "{what}");
                    let effects = effects.unwrap();
                    assert_eq!(effects.over.is_some(), expected == "over", "{what}");
                    assert_eq!(effects.start.is_some(), expected == "handed" && row[0] != "handed", "{what}");
                }
            }
        }
    }
}

#[test]
fn the_table_of_steps_that_return_is_what_the_code_does() {
    let table = table("the step returns");
    assert_eq!((table.len(), table[0].len()), (6, 6));
    for row in &table[1..] {
        for (noted, expected) in table[0].iter().zip(row).skip(1) {
            let mut slots = slots();
            let id = at_rest(&mut slots, "ready");
            let begun = slots.begin_home().unwrap();
            match noted.as_str() {
                "nothing noted" => {}
                "resumed Home" | "resumed Done" => {
                    let ticket = slots.suspend(id);
                    let with = directive(noted.trim_start_matches("resumed "));
                    assert!(!slots.resume(ticket, with, false).are_some());
                }
                "all resumptions dropped" => {
                    let ticket = slots.suspend(id);
                    assert!(!slots.release(ticket).are_some());
                }
                "cancelled" => assert!(slots.cancel(id, Reason::Cancelled).is_some()),
                other => panic!("{other} is not tried"),
            }
            attend(&mut slots, &row[0]);
            let effects = slots.settle(id, begun.body, Ok(directive(&row[0])));
            assert_eq!(place_of(&mut slots, id), expected, "returned {} with {noted}", row[0]);
            assert_eq!(effects.over.is_some(), expected == "over");
        }
    }
}

#[test]
fn ready_tasklets_keep_their_order_when_some_leave() {
    let mut slots = slots();
    slots.enter(Presence::Inside);
    let ids: Vec<_> =
        (0..5).map(|_| slots.insert(("a".into(), None), "body", Directive::Home).ok().unwrap().0).collect();
    for gone in [0, 2, 4] {
        assert!(slots.cancel(ids[gone], Reason::Cancelled).unwrap().over.is_some());
    }
    let again = slots.insert(("a".into(), None), "body", Directive::Home).ok().unwrap().0;
    let order: Vec<_> = std::iter::from_fn(|| slots.begin_home().map(|begun| begun.id)).collect();
    assert_eq!(order, [ids[1], ids[3], again]);
}

#[test]
fn an_id_never_means_another_tasklet_in_the_same_slot_or_loop() {
    let (mut one, mut two) = (slots(), Slots::new(8, PanicPolicy::Finish, Clock::system()));
    let first = at_rest(&mut one, "waiting");
    let other = at_rest(&mut two, "waiting");
    assert_eq!((first.slot, first.number), (other.slot, other.number));
    assert!(two.cancel(first, Reason::Cancelled).is_none(), "it is of another loop");
    assert!(one.cancel(first, Reason::Cancelled).is_some());
    let _ = one.retire(first);
    let second = at_rest(&mut one, "waiting");
    assert_eq!(first.slot, second.slot);
    assert!(one.cancel(first, Reason::Cancelled).is_none(), "it is over");
    assert_eq!(place_of(&mut one, second), "waiting");
}

#[test]
fn a_tasklet_that_has_ended_cannot_be_cancelled() {
    let mut slots = slots();
    let cancelled = at_rest(&mut slots, "waiting");
    assert!(slots.cancel(cancelled, Reason::Cancelled).is_some());
    assert!(slots.cancel(cancelled, Reason::Cancelled).is_none(), "its body is being dropped");
    let finished = at_rest(&mut slots, "ready");
    let begun = slots.begin_home().unwrap();
    assert!(slots.settle(finished, begun.body, Ok(Directive::Done)).over.is_some());
    assert!(slots.cancel(finished, Reason::Cancelled).is_none(), "its body is being dropped");
    let _ = slots.retire(finished);
    assert!(slots.cancel(finished, Reason::Cancelled).is_none());
    assert_eq!(slots.report.cancelled, 1);
}

#[test]
fn the_hook_is_called_once_until_somebody_has_come() {
    let mut slots = slots();
    slots.set_hook(Some(Arc::new(|| {})));
    let schedule = |slots: &mut Small| {
        let (_, effects) = slots.insert(("a".into(), None), "body", Directive::Home).ok().unwrap();
        matches!(effects.wake, Some(Wake::Hook(_)))
    };
    assert!(schedule(&mut slots));
    assert!(!schedule(&mut slots), "it has been told already");
    slots.enter(Presence::Inside);
    assert!(!schedule(&mut slots), "somebody is there");
    assert!(matches!(slots.leave(true), Some(Wake::Hook(_))), "and leaves with work undone");
    slots.enter(Presence::Inside);
    while let Some(begun) = slots.begin_home() {
        let _ = slots.settle(begun.id, begun.body, Ok(Directive::Wait));
    }
    assert!(slots.leave(true).is_none());
    assert!(schedule(&mut slots));
}

#[test]
fn the_home_thread_is_woken_once_for_work_and_for_the_end() {
    let mut slots = slots();
    let id = at_rest(&mut slots, "waiting");
    slots.home = Presence::Asleep;
    let effects = slots.redirect(id, Directive::Home).unwrap().unwrap();
    assert!(matches!(effects.wake, Some(Wake::Home)));
    let (_, effects) = slots.insert(("b".into(), None), "body", Directive::Done).ok().unwrap();
    assert!(effects.wake.is_none(), "it is awake");
    assert!(slots.retire(effects.over.unwrap().id).1.is_none());
    slots.home = Presence::Asleep;
    assert!(slots.cancel(id, Reason::Cancelled).unwrap().wake.is_none(), "the destructor comes first");
    assert!(matches!(slots.retire(id).1, Some(Wake::Home)));
}

#[test]
fn the_table_does_not_keep_the_room_of_a_crowd() {
    let mut slots = slots();
    slots.enter(Presence::Inside);
    let ids: Vec<_> =
        (0..10 * KEPT).map(|_| slots.insert(("a".into(), None), "body", Directive::Wait).ok().unwrap().0).collect();
    for id in ids {
        assert!(slots.cancel(id, Reason::Cancelled).is_some());
        let _ = slots.retire(id);
    }
    assert!(slots.table.capacity() <= KEPT);
    let again = at_rest(&mut slots, "ready");
    assert_eq!(slots.begin_home().unwrap().id, again);
}

#[test]
fn a_new_suspension_is_not_ended_by_what_resumed_an_older_one() {
    let mut slots = slots();
    let id = at_rest(&mut slots, "ready");
    let begun = slots.begin_home().unwrap();
    let ticket = slots.suspend(id);
    assert!(!slots.resume(ticket, Directive::Home, false).are_some());
    let _ = slots.settle(id, begun.body, Ok(Directive::Home));
    let begun = slots.begin_home().unwrap();
    let newer = slots.suspend(id);
    let _ = slots.settle(id, begun.body, Ok(Directive::Wait));
    assert_eq!(place_of(&mut slots, id), "waiting");
    let _ = slots.resume(ticket, Directive::Home, false);
    assert_eq!(place_of(&mut slots, id), "waiting", "the older one has been used");
    let _ = slots.resume(newer, Directive::Home, false);
    assert_eq!(place_of(&mut slots, id), "ready");
}

#[test]
fn a_resumption_in_the_same_step_is_not_taken_for_old() {
    let mut slots = slots();
    let id = at_rest(&mut slots, "ready");
    let begun = slots.begin_home().unwrap();
    assert!(!slots.redirect(id, Directive::Home).unwrap().unwrap().are_some());
    let _waits_for = slots.suspend(id);
    let _ = slots.settle(id, begun.body, Ok(Directive::Wait));
    assert_eq!(place_of(&mut slots, id), "ready");
}

#[test]
fn a_panic_that_stops_the_loop_wakes_a_home_thread_that_sleeps() {
    for (policy, stops) in [(PanicPolicy::Stop, true), (PanicPolicy::Finish, false)] {
        let mut slots = Slots::new(7, policy, Clock::system());
        let _holds = at_rest(&mut slots, "waiting");
        let id = at_rest(&mut slots, "handed");
        let begun = slots.begin_elsewhere(id).unwrap();
        slots.home = Presence::Asleep;
        let panic = crate::outcome::contain(|| std::panic::resume_unwind(Box::new("on purpose")))
            .map(|never: ()| never)
            .unwrap_err();
        let effects = slots.panicked(id, begun.body, panic, false);
        assert_eq!(matches!(effects.wake, Some(Wake::Home)), stops);
        assert_eq!(slots.stopped.take().map(|panic| panic.id), stops.then_some(id));
        assert!(effects.over.is_some() && effects.panicked.is_some());
    }
}

#[test]
fn a_resumption_of_a_wait_that_is_over_ends_no_later_one() {
    let mut slots = slots();
    let id = at_rest(&mut slots, "ready");
    let begun = slots.begin_home().unwrap();
    // The requested event is there at once. The wait has a limit all the same.
    let at_once = slots.suspend(id);
    let _ = slots.resume(at_once, Directive::Home, false);
    let limit = slots.suspend(id);
    let _ = slots.settle(id, begun.body, Ok(Directive::Wait));
    let begun = slots.begin_home().unwrap();
    let newer = slots.suspend(id);
    let _ = slots.settle(id, begun.body, Ok(Directive::Wait));
    let _ = slots.resume(limit, Directive::Home, false);
    assert_eq!(place_of(&mut slots, id), "waiting", "the limit was that of another wait");
    assert!(slots.release(newer).over.is_some(), "and nobody else can wake it");
}

#[test]
fn an_old_suspension_is_no_part_of_one_made_after_its_resumption() {
    let mut slots = slots();
    let id = at_rest(&mut slots, "ready");
    let begun = slots.begin_home().unwrap();
    let at_once = slots.suspend(id);
    let _ = slots.resume(at_once, Directive::Home, false);
    let limit = slots.suspend(id);
    let _ = slots.settle(id, begun.body, Ok(Directive::Home));
    let begun = slots.begin_home().unwrap();
    let _newer = slots.suspend(id);
    let _ = slots.resume(limit, Directive::Home, false);
    let _ = slots.settle(id, begun.body, Ok(Directive::Wait));
    assert_eq!(place_of(&mut slots, id), "waiting");
}

#[test]
fn a_resumption_of_a_redirected_wait_ends_no_later_wait() {
    for redirected_in_its_step in [false, true] {
        let mut slots = slots();
        let id = at_rest(&mut slots, "ready");
        let begun = slots.begin_home().unwrap();
        let (older, dropped) = (slots.suspend(id), slots.suspend(id));
        let redirect = |slots: &mut Small| drop(slots.redirect(id, Directive::Home).unwrap().unwrap());
        if redirected_in_its_step {
            redirect(&mut slots);
        }
        let _ = slots.settle(id, begun.body, Ok(Directive::Wait));
        if !redirected_in_its_step {
            redirect(&mut slots);
        }
        let begun = slots.begin_home().unwrap();
        let newer = slots.suspend(id);
        let _ = slots.settle(id, begun.body, Ok(Directive::Wait));
        assert!(!slots.resume(older, Directive::Home, false).are_some());
        assert!(!slots.release(dropped).are_some());
        assert_eq!(place_of(&mut slots, id), "waiting", "redirected in its step: {redirected_in_its_step}");
        let _ = slots.resume(newer, Directive::Home, false);
        assert_eq!(place_of(&mut slots, id), "ready");
    }
}

#[test]
fn a_held_tasklet_is_not_taken_for_a_handed_one() {
    for (place, is_held) in [("held", true), ("handed", false)] {
        let mut slots = slots();
        let id = at_rest(&mut slots, place);
        assert!(slots.take_back(id, !is_held).is_none());
        assert_eq!(slots.begin_elsewhere(id).is_none(), is_held, "only a handed one is stepped");
    }
}
