//! A process from a closure, and a list that several threads write.

use std::marker::PhantomData;
use std::sync::Arc;

use procession::{Events, Process, StepOutput, StepResult};

use crate::wait::Mutex;

/// A process whose step is a closure.
pub(crate) struct Script<M, O, F> {
    step: F,
    types: PhantomData<fn(M) -> O>,
}

pub(crate) fn script<M, O, F>(step: F) -> Script<M, O, F>
where
    F: FnMut(&mut Events<'_, M>, &mut StepOutput) -> StepResult<O> + Send + 'static,
    M: Send + 'static,
    O: Send + Sync + 'static,
{
    Script { step, types: PhantomData }
}

impl<M, O, F> Process for Script<M, O, F>
where
    F: FnMut(&mut Events<'_, M>, &mut StepOutput) -> StepResult<O> + Send + 'static,
    M: Send + 'static,
    O: Send + Sync + 'static,
{
    type Message = M;
    type Output = O;

    fn step(&mut self, events: &mut Events<'_, M>, out: &mut StepOutput) -> StepResult<O> {
        (self.step)(events, out)
    }
}

/// A list that several threads write. Clones are the same list.
pub(crate) struct SharedList<T>(Arc<Mutex<Vec<T>>>);

impl<T> SharedList<T> {
    pub(crate) fn new() -> SharedList<T> {
        SharedList(Arc::new(Mutex::new(Vec::new())))
    }

    pub(crate) fn push(&self, entry: T) {
        self.0.lock().unwrap().push(entry);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// All entries so far. The list is empty then.
    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl<T> Clone for SharedList<T> {
    fn clone(&self) -> SharedList<T> {
        SharedList(self.0.clone())
    }
}
