//! Relations between processes against their contract, through the public interface. The modules follow the sections of
//! `docs/guarantees/relations.md`.

// Everything here is for this program alone; `pub` says what the modules share.
#![allow(unreachable_pub)]

#[path = "../common/wait.rs"]
mod wait;
#[allow(dead_code)]
#[path = "../process/helpers.rs"]
mod helpers;
mod node;

mod a_monitors;
mod a_one_event;
mod a_order;
mod b_links;
mod b_storms;
mod c_groups;
mod c_names;
mod c_names_in_a_step;
mod d_containing;
mod d_crossing;
mod d_delays;
mod d_in_place;
mod d_last_words;
mod d_recovered;
mod d_recovery;
mod d_stopping;
mod d_supervisors;
mod d_trees;
mod d_untaken;
mod e_spares;
mod e_watchdog;
mod frail;
mod stuck;
mod worker;
