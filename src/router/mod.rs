//! Routers: processes that spread messages over supervised children.
//!
//! A [`Router`] takes the messages of its children, and passes each one on to one child: by a key, or in turn. Use it
//! if one process is too slow for a stream of messages, but messages that belong together must stay in order.
//!
//! ```
//! use procession::router::Router;
//! use procession::{Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
//! use std::collections::HashMap;
//! use std::time::Duration;
//!
//! /// The accounts of some of the customers.
//! #[derive(Default)]
//! struct Accounts { totals: HashMap<u64, i64> }
//!
//! enum AccountMessage {
//!     Add { customer: u64, amount: i64 },
//!     Read { customer: u64, reply: Reply<i64> },
//! }
//!
//! impl AccountMessage {
//!     fn customer(&self) -> u64 {
//!         match self {
//!             AccountMessage::Add { customer, .. } | AccountMessage::Read { customer, .. } => *customer,
//!         }
//!     }
//! }
//!
//! impl Process for Accounts {
//!     type Message = AccountMessage;
//!     type Output = ();
//!
//!     fn step(&mut self, events: &mut Events<AccountMessage>, out: &mut StepOutput) -> StepResult<()> {
//!         for event in events {
//!             match event {
//!                 Event::Message(AccountMessage::Add { customer, amount }) => {
//!                     *self.totals.entry(customer).or_default() += amount;
//!                 }
//!                 Event::Message(AccountMessage::Read { customer, reply }) => {
//!                     out.reply(reply, self.totals.get(&customer).copied().unwrap_or_default());
//!                 }
//!                 Event::Cancel(_) => return Ok(Step::Done(())),
//!                 _ => {}
//!             }
//!         }
//!         Ok(Step::Idle)
//!     }
//! }
//!
//! let runtime = Runtime::builder().workers(2).start()?;
//! let router = runtime.spawn(Router::by_key(4, AccountMessage::customer, |_| Accounts::default()))?;
//! for amount in [5, 20] {
//!     router.send(AccountMessage::Add { customer: 7, amount })?;
//! }
//! // The child that has customer 7 replies.
//! let read = |reply| AccountMessage::Read { customer: 7, reply };
//! assert_eq!(runtime.ask(&router, read, Duration::from_secs(10)).wait()?, 25);
//!
//! // The children end before their router.
//! runtime.cancel(&router, "closing time")?;
//! assert!(router.join()?.is_done());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod process;
pub(crate) mod rendezvous;

pub use self::process::Router;
