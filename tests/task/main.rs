//! Tasks against their contract, through the public interface. The statements are in
//! `docs/guarantees/tasks.md`.

// Everything here is for this program alone; `pub` says what the modules share. Not all that is shared is used here.
#![allow(unreachable_pub, dead_code)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/waker.rs"]
mod waker;
#[path = "../common/blocker.rs"]
mod blocker;
#[path = "../common/panics.rs"]
mod panics;
#[path = "../common/seeded.rs"]
mod seeded;
mod support;

mod submitting;
mod status;
mod cancelling;
mod timeouts;
mod stopping;
mod records;
mod waiting;
mod delays_and_repetition;
mod hostile_user_code;
mod shutdown_tree;
mod random;
