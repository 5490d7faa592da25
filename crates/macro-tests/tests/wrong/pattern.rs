//! Parameters that are patterns.

use procession::prelude::*;

struct Shop;

#[actor]
impl Shop {
    fn move_to(&mut self, (x, y): (u32, u32)) {
        let _ = (x, y);
    }

    fn ignore(&mut self, _: u32) {}
}

fn main() {}
