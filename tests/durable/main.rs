//! Durable processes: the journal, `docs/guarantees/durable.md`.

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/blocker.rs"]
mod blocker;
#[path = "../common/traces.rs"]
mod traces;
mod script;
mod places;
mod ahead;
mod passed_over;
mod broadcasts;
mod monitors;
mod names;
mod family;
mod children;
mod outstanding;
mod payer;
mod parked;
mod commands;
mod answers;
mod limits;
mod knots;
mod links;
mod full_mailboxes;
mod promises;
mod changed_code;
mod replies;
mod clerk;
mod questions;
mod live_questions;
mod question_replies;
mod question_worlds;
mod retention;
mod rewinds;
mod rewind_worlds;
mod requests;
mod conformance;
mod crashes;
mod disk_full;
mod damage;
mod edges;
mod ends;
mod gate;
mod key_worlds;
mod keys;
mod guest;
mod sleeping;
mod tracing;
mod traced_mail;
mod traced_commands;
mod traced_questions;
mod many_lives;
mod memory_faults;
mod observed;
mod operating;
mod skipped;
mod outside_links;
mod outside_changes;
#[cfg(feature = "cluster")]
mod other_nodes;
mod orders;
mod moments;
mod races;
mod mends;
mod reports;
mod store_calls;
mod table_errors;
mod step_requests;
mod steps;
mod subscriptions;
mod draws;
mod neighbours;
mod operators;
mod town;
mod upgrades;
mod worker;
mod worlds;
#[cfg(feature = "sqlite")]
mod sqlite_files;
#[cfg(feature = "sqlite")]
mod backups;
#[cfg(feature = "sqlite")]
mod formats;
#[cfg(all(feature = "sqlite", unix))]
mod torture;
#[cfg(all(feature = "sqlite", unix))]
mod killed;
#[cfg(all(feature = "sqlite", unix))]
mod ledgers;
#[cfg(all(feature = "sqlite", unix))]
mod failpoints;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod failing_calls;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod failing_stores;
