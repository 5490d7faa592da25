//! The lines of a client.

use std::io::{self, Read as _};
use std::time::Duration;

use super::socket::Stream;
use crate::clock::Clock;

/// The most bytes of a line.
pub(super) const LONGEST: usize = 64 << 10;

/// Why there is no next line.
#[derive(Debug)]
pub(super) enum NoLine {
    /// The client has ended its side, or the connection has failed.
    Gone,
    TooLong,
    /// The limit was over.
    Late,
}

/// Takes lines from a stream.
pub(super) struct Lines<'a> {
    stream: &'a Stream,
    /// The bytes that have come and were not taken.
    buffer: Vec<u8>,
    /// How much of it has no line feed.
    looked_at: usize,
}

impl Lines<'_> {
    pub(super) fn of(stream: &Stream) -> Lines<'_> {
        Lines { stream, buffer: Vec::new(), looked_at: 0 }
    }

    /// The next line, without its end. A limit is for the whole line.
    pub(super) fn next(&mut self, limit: Option<Duration>) -> Result<Vec<u8>, NoLine> {
        let clock = Clock::system();
        let began = clock.now();
        loop {
            if let Some(end) = self.buffer[self.looked_at..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.looked_at + end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                self.looked_at = 0;
                line.pop();
                return if line.len() > LONGEST { Err(NoLine::TooLong) } else { Ok(line) };
            }
            self.looked_at = self.buffer.len();
            if self.looked_at > LONGEST {
                return Err(NoLine::TooLong);
            }
            let left = limit.map(|limit| limit.saturating_sub(clock.now() - began));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(NoLine::Late);
            }
            let mut part = [0; 4_096];
            let read = self.stream.set_read_timeout(left).and_then(|()| (&mut { self.stream }).read(&mut part));
            match read {
                Ok(0) => return Err(NoLine::Gone),
                Ok(count) => self.buffer.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The loop sees whether the limit is over.
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(_) => return Err(NoLine::Gone),
            }
        }
    }
}
