//! The kind that a durable process has after a step that upgrades it.

use super::coding::Format;

/// The kind that a process has after its step.
pub(super) struct NextKind {
    pub(super) name: &'static str,
    pub(super) version: u32,
    pub(super) format: Format,
    pub(super) state: Vec<u8>,
}
