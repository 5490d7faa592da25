//! Functions without `self`, and one that takes the actor away.

use procession::prelude::*;

struct Shop;

#[actor]
impl Shop {
    fn new() -> Shop {
        Shop
    }

    fn open(hours: u32) {
        let _ = hours;
    }

    fn close(self) {}
}

fn main() {}
