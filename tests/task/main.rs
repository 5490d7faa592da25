//! Tasks against their contract, through the public interface. The modules follow the sections of
//! `docs/guarantees/tasks.md`.

// Everything here is for this program alone; `pub` says what the modules share. Not all that is shared is used here.
#![allow(unreachable_pub, dead_code)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../process/helpers.rs"]
mod helpers;

#[path = "../common/seeded.rs"]
mod seeded;
mod tools;

mod a_submitting;
mod b_status;
mod c_cancelling;
mod d_timeouts;
mod e_stopping;
mod f_records;
mod g_scenarios;
mod h_beyond;
mod h_later;
mod i_hostile;
mod j_state;
mod random;
