//! A generic method, and one with bounds.

use procession::prelude::*;

struct Shop<T>(T);

#[actor]
impl<T: Send + 'static> Shop<T> {
    fn show<W: Send>(&mut self, what: W) {
        let _ = what;
    }

    fn first(&mut self)
    where
        T: Clone,
    {
    }
}

fn main() {}
