//! Expected panics, kept off the screen, and a value that panics.

// No suite uses all of it.
#![allow(dead_code)]

use std::panic::PanicHookInfo;
use std::sync::Once;

/// A panic whose message begins with this text is expected, on whatever thread.
pub(crate) const ON_PURPOSE: &str = "on purpose";

/// Prints no more panics of the threads of the library, and none that are on purpose. Panics of tests are printed.
pub(crate) fn quiet_panics() {
    silence(|panic| is_on_purpose(message(panic)) || is_on_a_thread_of_the_library());
}

/// Prints no more panics that are on purpose. The assertions of steps and jobs are printed if they fail.
pub(crate) fn quiet_panics_on_purpose() {
    silence(|panic| is_on_purpose(message(panic)));
}

/// The first call in a program decides.
// A function of its own type has no memory in the hook. The thread sanitizer does not see the lock of the hook, and
// would take a pointer in there for a data race.
fn silence(is_expected: impl Fn(&PanicHookInfo<'_>) -> bool + Send + Sync + 'static) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !is_expected(panic) {
                loud(panic);
            }
        }));
    });
}

/// An error whose destructor panics.
#[derive(Debug)]
pub(crate) struct Bomb;

impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

fn message<'a>(panic: &'a PanicHookInfo<'_>) -> &'a str {
    panic.payload_as_str().unwrap_or_default()
}

/// Whether a panic with this message is expected. The report of a failed test may quote an expected panic.
pub(crate) fn is_on_purpose(message: &str) -> bool {
    message.starts_with(ON_PURPOSE)
}

fn is_on_a_thread_of_the_library() -> bool {
    let thread = std::thread::current();
    thread.name().is_some_and(|name| ["procession", "pool"].iter().any(|of| name.starts_with(of)))
}
