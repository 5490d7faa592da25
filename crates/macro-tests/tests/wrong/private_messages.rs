//! A public actor whose messages are private.

use procession::prelude::*;

pub struct Shop;

#[actor]
impl Shop {
    fn buy(&mut self) {}
}

fn main() {}
