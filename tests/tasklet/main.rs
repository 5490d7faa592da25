//! What tasklets guarantee, statement by statement, in the sections of `docs/guarantees/tasklets.md`.

#![allow(unreachable_pub, dead_code)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/seeded.rs"]
mod seeded;
mod helpers;

mod a_directives;
mod b_home;
mod c_pool;
mod d_waiting;
mod e_ends;
mod f_loop;
mod g_current;
mod h_input;
mod i_beyond;
mod i_handles;
mod j_state;
mod model;
