//! Places where the attribute does not belong.

use procession::prelude::*;

#[actor]
struct Shop;

struct Bank;

#[actor]
impl Clone for Bank {
    fn clone(&self) -> Bank {
        Bank
    }
}

#[actor]
impl (u32, u32) {}

#[actor(step = 5)]
impl Bank {}

struct Borrower<'a>(&'a str);

#[actor]
impl<'a> Borrower<'a> {}

fn main() {}
