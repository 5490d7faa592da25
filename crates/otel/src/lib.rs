//! Traces along the messages of `procession`'s processes, with OpenTelemetry.
//!
//! Give an [`OtelPropagator`] to `RuntimeBuilder::propagate`. A message that is sent while a span is current is then
//! stepped within the same trace. So are the answers to the commands that the step yields.
//!
//! ```
//! use procession::Runtime;
//! use procession_otel::OtelPropagator;
//!
//! // With a tracer of the global provider, which the program installs.
//! let runtime = Runtime::builder().workers(1).propagate(OtelPropagator::default()).start()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod propagator;
mod traceparent;

pub use propagator::OtelPropagator;

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
