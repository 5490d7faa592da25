//! An `async fn`.

use procession::prelude::*;

struct Shop;

#[actor]
impl Shop {
    async fn buy(&mut self, price: u64) {
        let _ = price;
    }
}

fn main() {}
