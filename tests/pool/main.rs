//! The worker pool against its contract, through the public interface. The modules follow the sections of
//! `docs/guarantees/worker-pool.md`.

// Everything here is for this program alone; `pub` says what the modules share.
#![allow(unreachable_pub)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/seeded.rs"]
mod seeded;
mod helpers;

mod a_making;
mod b_submitting;
mod c_run;
mod d_batches;
mod e_workers;
mod f_pausing;
mod g_stopping;
mod h_counts;
mod i_pacer;
mod j_dangers;
mod k_bounds;
mod k_handles;
mod k_more;
mod l_state;
mod laws;
