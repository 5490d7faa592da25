//! Expected panics, kept off the screen.

use std::sync::Once;

/// A panic with this text in its message is expected, on whatever thread.
pub(crate) const ON_PURPOSE: &str = "on purpose";

/// Prints no more panics of the threads of the library, and none that are on purpose. Panics of tests are printed.
pub(crate) fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            let is_ours =
                thread.name().is_some_and(|name| ["procession", "pool"].iter().any(|of| name.starts_with(of)));
            if !is_ours && !panic.payload_as_str().unwrap_or_default().contains(ON_PURPOSE) {
                loud(panic);
            }
        }));
    });
}
