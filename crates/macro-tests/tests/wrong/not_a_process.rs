//! An actor that is no process by itself, and a call through an address.

use procession::prelude::*;

struct Shop;

#[actor]
impl Shop {
    fn buy(&mut self) {}
}

fn is_process<P: Process>(_: &P) {}

fn main() {
    is_process(&Shop);
    let shop: Address<ShopMessage> = "<0.1.1>".parse::<Pid>().unwrap().typed();
    shop.buy();
}
