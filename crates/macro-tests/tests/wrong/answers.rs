//! Methods whose answers contradict each other.

use procession::prelude::*;

struct Shop;

#[actor]
impl Shop {
    fn buy(&mut self, receipt: Reply<u32>) -> u32 {
        drop(receipt);
        5
    }

    fn sell(&mut self, first: Reply<u32>, second: Reply<u32>) {
        drop((first, second));
    }

    #[fails]
    fn open(&mut self) -> u32 {
        5
    }

    #[fails]
    fn close(&mut self) {}
}

fn main() {}
