//! A process from a closure, and a list that several threads write.

// No suite uses all of it.
#![allow(dead_code)]

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
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Log<T> {
    pub(crate) fn new() -> Log<T> {
        Log(Arc::new(Mutex::new(Vec::new())))
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

impl<T: Clone> Log<T> {
    /// All entries so far. They stay in the list.
    pub(crate) fn to_vec(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

impl<T> Default for Log<T> {
    fn default() -> Log<T> {
        Log::new()
    }
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Log<T> {
        Log(self.0.clone())
    }
}
