//! Questions that a test asks, and passes to a driven process.

use std::fmt;
use std::marker::PhantomData;

use super::engine::TestEngine;
use crate::clock::ManualClock;
use crate::latch::Latch;
use crate::primitives::Arc;
use crate::process::{Ask, CommandError, Pid, Reply};

/// Makes a question to put into a message, and the handle that receives its answer.
///
/// ```
/// let (reply, asked) = procession::testing::question::<u64>();
/// reply.send(7);
/// assert_eq!(asked.answer().unwrap().unwrap(), 7);
/// ```
pub fn question<T: Send + 'static>() -> (Reply<T>, Asked<T>) {
    let engine = TestEngine::new(&ManualClock::new(), Pid::FIRST, 1);
    let decided = Latch::new();
    let ask = Arc::new(Ask::from_outside::<T>(Arc::new(engine), decided.clone(), Pid::FIRST));
    (Reply::new(ask.clone()), Asked { ask, decided, takes: PhantomData })
}

/// The handle that receives the answer to a [`question`].
pub struct Asked<T> {
    ask: Arc<Ask>,
    decided: Latch<Result<(), CommandError>>,
    takes: PhantomData<fn() -> T>,
}

impl<T: Send + 'static> Asked<T> {
    /// Takes the answer, if there is one: the value, or [`CommandError::Dropped`]. Each answer is returned once.
    pub fn answer(&self) -> Option<Result<T, CommandError>> {
        self.decided.take().map(|decided| self.ask.answered(decided))
    }
}

impl<T> fmt::Debug for Asked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("answered", &self.decided.is_set()).finish()
    }
}
