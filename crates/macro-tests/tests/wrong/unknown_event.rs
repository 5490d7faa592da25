//! Events that do not exist, or are handled twice.

use procession::prelude::*;

struct Shop;

#[actor]
impl Shop {
    #[on(begin)]
    fn begin(&mut self) {}

    #[on]
    fn nothing(&mut self) {}

    #[on(stop)]
    fn stop(&mut self) {}

    #[on(stop)]
    fn stop_again(&mut self) {}

    #[on(start)]
    fn start(&mut self, why: u32) {
        let _ = why;
    }

    #[on(down)]
    fn down(&mut self) -> u32 {
        5
    }
}

fn main() {}
