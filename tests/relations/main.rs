//! Relations between processes against their contract, through the public interface. `docs/guarantees/relations.md`
//! says which test shows which statement.

// Everything here is for this program alone; `pub` says what the modules share.
#![allow(unreachable_pub)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/blocker.rs"]
mod blocker;
#[path = "../common/panics.rs"]
mod panics;
#[path = "../common/script.rs"]
mod script;
#[allow(dead_code)]
#[path = "../process/helpers.rs"]
mod helpers;
mod support;

mod broadcast;
mod crossing_requests;
mod down_event_order;
mod groups;
mod link_graphs;
mod links;
mod monitors;
mod names;
mod names_in_a_step;
mod one_event_a_step;
mod in_place_with;
mod panicking_factories;
mod recovery;
mod recovery_events;
mod recovery_untaken_events;
mod restart_delays;
mod restart_in_place;
mod router;
mod spare_workers;
mod supervisor_at_shutdown;
mod supervisor_stop;
mod supervisor_trees;
mod supervisors;
mod watchdog;
mod watchdog_user_code;
