//! User values that a supervisor or an actor stores.
//!
//! Their destructors run in its steps. A destructor that panics must not end the process.

use std::any::{Any, type_name};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A value whose destructor may panic. The panic is caught.
pub(crate) struct Contained<T>(Option<T>);

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Contained<T> {
        Contained(Some(value))
    }

    pub(super) fn get(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => unreachable!("it is taken out by value only"),
        }
    }

    pub(crate) fn into_inner(mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T> fmt::Debug for Contained<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(type_name::<T>())
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
            forget(payload);
        }
    }
}

/// Drops the payload of a panic. If the payload's destructor panics, too, the new payload is leaked.
fn forget(payload: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(next);
    }
}

/// Writes to the log. User code may run here and panic: a subscriber of the log, or the `Display` of an error.
pub(super) fn tell_log(tell: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(tell)) {
        forget(payload);
    }
}

/// Runs user code that makes a child. A panic in it is returned as its text.
pub(super) fn made<R>(make: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(make)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| String::from(*text));
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        forget(payload);
        text.unwrap_or_else(|| String::from("a panic whose payload is not text"))
    })
}
