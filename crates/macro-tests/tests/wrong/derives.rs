//! Messages that cannot be cloned.

use procession::prelude::*;

struct Shop;

#[actor(derive(Debug, Clone))]
impl Shop {
    fn open(&mut self) {}

    fn price(&self) -> u32 {
        5
    }
}

fn main() {}
