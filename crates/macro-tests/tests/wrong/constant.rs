//! Items that are no methods.

use procession::prelude::*;

struct Shop;

#[actor]
impl Shop {
    const HOURS: u32 = 8;

    const fn hours(&self) -> u32 {
        8
    }

    unsafe fn break_in(&mut self) {}
}

fn main() {}
