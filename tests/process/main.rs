//! The process runtime against its contract, through the public interface. The modules follow the sections of
//! `docs/guarantees/process-runtime.md`.

// Everything here is for this program alone; `pub` says what the modules share.
#![allow(unreachable_pub)]

#[path = "../common/wait.rs"]
mod wait;
mod helpers;
mod puppet;
#[path = "../common/seeded.rs"]
mod seeded;

mod a_declining;
mod a_driving;
mod a_process;
mod a_process_ends;
mod a_selecting;
mod a_yields;
mod b_router;
mod c_ask;
mod c_bounded;
mod c_bounded_steps;
mod c_commands;
mod c_cycles;
mod c_cycles_random;
mod c_messages;
mod c_questions;
mod c_waiting;
mod d_fairness;
mod d_scheduling;
mod d_searching;
mod shutdown_order;
mod e_ending;
mod last_handle;
mod shutdown;
mod f_inside;
mod g_bad_input;
mod hostile_code;
mod h_races;
mod shutdown_hostile;
