//! The state that a client has between its requests.

use serde_json::{Value, json};

use super::socket::{Stream, write};
use crate::clock::{Clock, Deadline};
use crate::runtime::ProcessTrace;

/// A client, and the trace that it has begun.
pub(super) struct Session<'a> {
    pub(super) client: &'a Stream,
    /// The number of the client.
    pub(super) number: u64,
    pub(super) trace: Option<Running>,
}

/// A trace whose events go to the client.
pub(super) struct Running {
    id: Option<Value>,
    trace: ProcessTrace,
    /// By the system's clock: the program might not move a manual one.
    until: Deadline,
    events: u64,
}

impl Running {
    pub(super) fn new(trace: ProcessTrace, until: Deadline) -> Running {
        Running { id: None, trace, until, events: 0 }
    }

    fn line(&self, field: &str, value: Value) -> Value {
        let mut line = json!({ field: value });
        if let Some(id) = &self.id {
            line["id"] = id.clone();
        }
        line
    }

    /// Writes the events that have come. Returns whether the client may get more.
    fn send(&mut self, client: &Stream) -> bool {
        self.trace.take().into_iter().all(|event| {
            self.events += 1;
            let event = json!({ "at": event.at.as_secs_f64(), "what": event.what, "text": event.text });
            write(client, &self.line("event", event))
        })
    }

    /// Writes the last events, and that there are no more.
    fn end(mut self, client: &Stream) -> bool {
        let left_out = self.trace.left_out();
        self.send(client) && write(client, &self.line("traced", json!({ "events": self.events, "left_out": left_out })))
    }
}

impl Session<'_> {
    /// Writes the events of the trace that have come. Returns whether the client may get more.
    pub(super) fn pump(&mut self) -> bool {
        let Some(running) = &mut self.trace else { return true };
        // Looked at first: no event follows then.
        let is_over = running.trace.is_over() || running.until.has_passed(&Clock::system());
        running.send(self.client) && (!is_over || self.end_trace())
    }

    /// Ends the trace, if there is one.
    pub(super) fn end_trace(&mut self) -> bool {
        self.trace.take().is_none_or(|running| running.end(self.client))
    }

    /// Answers a request. The events of a trace that it has begun have its id.
    pub(super) fn answer(&mut self, id: Option<Value>, mut answer: Value) -> bool {
        if let Some(running) = self.trace.as_mut().filter(|_| answer.get("trace").is_some()) {
            running.id = id.clone();
        }
        if let Some(id) = id {
            answer["id"] = id;
        }
        write(self.client, &answer)
    }
}
