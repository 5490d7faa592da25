//! The process runtime against its contract, through the public interface. The modules follow the sections of
//! `docs/guarantees/process-runtime.md`.

// Everything here is for this program alone; `pub` says what the modules share.
#![allow(unreachable_pub)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/waker.rs"]
mod waker;
#[path = "../common/blocker.rs"]
mod blocker;
#[path = "../common/panics.rs"]
mod panics;
#[path = "../common/script.rs"]
mod script;
mod helpers;
mod puppet;
#[path = "../common/seeded.rs"]
mod seeded;

mod declining;
mod driving;
mod lifecycle;
mod other_nodes;
mod own_process;
mod parent_end;
mod run;
mod process_ends;
mod selecting;
mod selecting_random;
mod start;
mod step_events;
mod yields;
mod sending;
mod ask;
mod bounded_mailbox;
mod bounded_mailbox_steps;
mod commands;
mod ask_cycles;
mod ask_cycles_random;
mod messages;
mod questions;
mod waiting;
mod fairness;
mod scheduling;
mod searching;
mod shutdown_order;
mod ending;
mod last_handle;
mod shutdown;
mod inspecting;
mod bad_input;
mod hostile_code;
mod races;
mod shutdown_hostile;
