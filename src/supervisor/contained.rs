//! Values of the user's that a supervisor keeps: their destructors run in its steps, and it must not end with one
//! that panics.

use std::any::{Any, type_name};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A value whose destructor may panic, and is not felt.
pub(super) struct Contained<T>(Option<T>);

impl<T> Contained<T> {
    pub(super) fn new(value: T) -> Contained<T> {
        Contained(Some(value))
    }

    pub(super) fn get(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => unreachable!("it is taken out by value only"),
        }
    }

    pub(super) fn into_inner(mut self) -> Option<T> {
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

/// Drops the payload of a panic. If the destructor of that panics, too, the new payload is leaked.
fn forget(payload: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(next);
    }
}

/// Tells the log. A subscriber of it is code of the user's, and so is the text of an error.
pub(super) fn tell_log(tell: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(tell)) {
        forget(payload);
    }
}

/// Runs code of the user's that makes a child. A panic in it comes back as its text.
pub(super) fn made<R>(make: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(make)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| String::from(*text));
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        forget(payload);
        text.unwrap_or_else(|| String::from("a panic whose payload is not text"))
    })
}
