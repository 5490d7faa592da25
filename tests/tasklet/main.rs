//! The guarantees of tasklets, statement by statement. The statements are in `docs/guarantees/tasklets.md`.

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

mod directives;
mod home_steps;
mod pool_steps;
mod waiting;
mod ends;
mod running;
mod current_loop;
mod input;
mod cancelling_and_closing;
mod handles;
mod shutdown_tree;
mod model;
