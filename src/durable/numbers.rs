//! The numbers of processes and of messages. They are reserved on disk, many at a time.

/// A PID has a generation, which is not zero.
const GENERATION: u64 = (1 << 24) - 1;
/// How many numbers one record reserves.
const RESERVED: u64 = 1 << 20;

/// The numbers of processes and of messages. No number is given twice, in any run.
#[derive(Debug)]
pub(super) struct Numbers {
    next: u64,
    /// The first number that is not reserved.
    end: u64,
}

impl Numbers {
    pub(super) fn from(first: u64) -> Numbers {
        let first = first.max(1);
        Numbers { next: first, end: first }
    }

    /// This number, or the next one, which a process or a message can have: a PID has a generation, which is not zero.
    #[cfg(feature = "sqlite")]
    pub(super) fn usable(number: u64) -> u64 {
        number + u64::from(number & GENERATION == 0)
    }

    /// A number that no process and no message has had. `reserve` is given the new end of the reservation, and
    /// stores it before any record with such a number.
    pub(super) fn draw<E>(&mut self, reserve: impl Fn(u64) -> Result<(), E>) -> Result<u64, E> {
        loop {
            if self.next >= self.end {
                let end = self.next + RESERVED;
                reserve(end)?;
                self.end = end;
            }
            let number = self.next;
            self.next += 1;
            if number & GENERATION != 0 {
                return Ok(number);
            }
        }
    }

    /// The reservation may be lost. The next number is above all that may have been given.
    pub(super) fn renew(&mut self) {
        self.next = self.end;
    }
}
